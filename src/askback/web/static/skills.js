// Installing a skill from a zip file, and removing one.

import { remove, upload } from "./api.js";
import { make } from "./elements.js";
import { dropZone, sizeText } from "./file_field.js";
import { confirmDialog, toast } from "./frame.js";
import { t } from "./translations.js";

const place = document.getElementById("install");
if (place !== null) {
  const trouble = document.getElementById("install-trouble");
  const status = document.getElementById("install-status");
  let busy = false;

  const say = (text) => {
    status.textContent = text;
    status.hidden = text === "";
  };
  const refuse = (title, lines) => {
    const list = lines.length > 0 ? make("ul", {}, ...lines.map((line) => make("li", {}, line))) : "";
    trouble.replaceChildren(make("strong", {}, title), list);
    trouble.hidden = false;
  };
  const take = async (file) => {
    if (busy) return;
    busy = true;
    trouble.hidden = true;
    place.setAttribute("aria-busy", "true");
    say(t("skills.install.sending", { name: file.name, size: sizeText(file.size) }));
    try {
      const skill = await upload(file, "/v1/skills");
      location.assign(`/skills/${encodeURIComponent(skill.id)}`);
    } catch (error) {
      refuse(t("skills.install.failed", { name: file.name }), [error.message, ...error.problems.map(({ line }) => line)]);
      say("");
    } finally {
      busy = false;
      place.removeAttribute("aria-busy");
    }
  };
  const zone = dropZone({
    title: t("skills.install"),
    hint: t("skills.install.drop"),
    button: t("skills.install"),
    accept: ".zip,application/zip",
    take,
  });
  place.append(zone.element);
  place.title = t("skills.install.text");
  // A file that misses the button must not replace the page.
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    if (!place.contains(event.target) && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
}

const demo = document.getElementById("demo-skill");
if (demo !== null) {
  demo.addEventListener("click", async () => {
    demo.disabled = true;
    try {
      const packed = await fetch("/demo-skill.zip", { credentials: "same-origin" });
      const skill = await upload(new File([await packed.blob()], "demo-skill.zip"), "/v1/skills");
      location.assign(`/new?skill=${encodeURIComponent(skill.id)}`);
    } catch (error) {
      demo.disabled = false;
      toast(error.message);
    }
  });
}

for (const button of document.querySelectorAll("[data-remove]")) {
  button.addEventListener("click", async () => {
    const name = button.dataset.remove;
    const question = { title: t("skills.remove.title", { name }), text: t("skills.remove.text"), action: t("skills.remove"), danger: true };
    if (!(await confirmDialog(question))) return;
    try {
      await remove(`/v1/skills/${encodeURIComponent(name)}`);
      location.assign("/skills");
    } catch (error) {
      toast(error.message);
    }
  });
}
