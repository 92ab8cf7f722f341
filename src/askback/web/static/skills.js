// Installing a skill from a zip file, and removing one.

import { remove, upload } from "./api.js";
import { make } from "./elements.js";
import { dropZone } from "./file_field.js";
import { confirmDialog, toast } from "./frame.js";
import { t } from "./translations.js";

const place = document.getElementById("install");
if (place !== null) {
  const trouble = document.getElementById("install-trouble");
  let busy = false;
  const zone = dropZone({
    title: t("skills.install"),
    hint: t("skills.install.drop"),
    button: t("skills.install.choose"),
    accept: ".zip,application/zip",
    async take(file) {
      if (busy) return;
      busy = true;
      trouble.hidden = true;
      zone.status.textContent = t("skills.install.sending", { name: file.name });
      try {
        const skill = await upload(file, "/v1/skills");
        location.assign(`/skills/${encodeURIComponent(skill.id)}`);
      } catch (error) {
        const lines = error.problems.map((line) => make("li", {}, line));
        trouble.replaceChildren(make("strong", {}, error.message), lines.length > 0 ? make("ul", {}, ...lines) : "");
        trouble.hidden = false;
        zone.status.textContent = "";
      } finally {
        busy = false;
      }
    },
  });
  place.append(zone.element);
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
