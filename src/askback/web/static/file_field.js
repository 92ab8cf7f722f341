// A file field: the file is chosen or dropped, uploaded at once, and then referred to by its upload id.

import { upload as uploadFile } from "./api.js";
import { make, newId } from "./elements.js";

/** `1536` → `1.5 kB`, as the server writes sizes. */
export function sizeText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let amount = bytes;
  while (amount >= 1000 && units.length > 1) {
    amount /= 1000;
    units.shift();
  }
  return `${amount.toFixed(amount >= 100 || units[0] === "B" ? 0 : 1)} ${units[0]}`;
}

/**
 * A drop zone with a button; calls `take` with each file.
 * @param {{title: string, hint: string, button: string, accept?: string, take: (file: File) => void}} what
 */
export function dropZone({ title, hint, button, accept, take }) {
  const input = make("input", { id: newId("file"), type: "file", class: "drop-input", accept, "aria-label": title });
  const face = make("span", { class: "button button-small", "aria-hidden": "true" }, button);
  const status = make("span", { class: "drop-status", role: "status" });
  const zone = make("label", { class: "drop" }, input, face, make("span", { class: "drop-hint" }, hint), status);
  input.addEventListener("change", () => {
    if (input.files[0]) take(input.files[0]);
    input.value = "";
  });
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.add("drop-over");
    });
  }
  zone.addEventListener("dragleave", () => zone.classList.remove("drop-over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("drop-over");
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  return { element: zone, input, status };
}

/** The control of a file field; its value is {upload_id}. */
export function fileControl({ title, t, upload = uploadFile }) {
  let kept = null;
  let state = "none";
  let notify = () => {};
  const remove = make("button", { type: "button", class: "button button-quiet", hidden: true }, t("form.file_remove"));
  const zone = dropZone({ title, hint: t("form.file_drop"), button: t("form.file_choose"), take: (file) => send(file) });
  const element = make("div", { class: "file" }, zone.element, remove);

  const become = (next, text) => {
    state = next;
    zone.status.textContent = text;
    zone.element.classList.toggle("drop-kept", next === "kept");
    remove.hidden = next === "none";
    notify();
  };
  // If two files are chosen in a row, the later one counts.
  let current = 0;
  const send = async (file) => {
    current += 1;
    const mine = current;
    kept = null;
    become("sending", t("form.file_sending", { name: file.name }));
    try {
      const found = await upload(file);
      if (mine !== current) return;
      kept = { upload_id: found.upload_id };
      become("kept", t("form.file_kept", { name: file.name, size: sizeText(file.size) }));
    } catch (error) {
      if (mine === current) become("failed", t("form.file_failed", { name: file.name, detail: error.message }));
    }
  };
  remove.addEventListener("click", () => {
    current += 1;
    kept = null;
    become("none", "");
    zone.input.focus();
  });
  const read = () => {
    if (state === "sending") return { problem: t("form.problem.file_sending") };
    if (state === "failed") return { problem: t("form.problem.file_failed") };
    return { value: kept ?? undefined };
  };
  return {
    element,
    input: zone.input,
    read,
    group: true,
    marked: zone.input,
    missing: "form.problem.file",
    changed: (listener) => (notify = listener),
  };
}
