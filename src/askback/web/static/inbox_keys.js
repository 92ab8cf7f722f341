// Single keys of the inbox, and the dialog that lists them and switches them off.

import { make } from "./elements.js";
import { t } from "./translations.js";

const STORED = "askback-keys";
const LISTED = [
  ["j", "keys.next"],
  ["k", "keys.previous"],
  ["Enter", "keys.open"],
  ["1 – 9", "keys.choose"],
  ["x", "keys.select"],
  ["/", "keys.search"],
  ["?", "keys.help"],
];
const TYPING = "textarea, select, input:not([type=checkbox], [type=radio], [type=button]), [contenteditable]";

const PAUSE_MS = 1000;

let on = true;
let typedAt = -Infinity;
try {
  on = localStorage.getItem(STORED) !== "off";
} catch {
  // Without storage, the choice lasts for this page.
}

function switchKeys(wanted) {
  on = wanted;
  document.body.dataset.keys = on ? "on" : "off";
  try {
    if (on) localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, "off");
  } catch {
    // As above.
  }
}

/** Whether the key continues a text whose field has gone away: keys do nothing until there was a pause. */
function continuesText(event) {
  const now = performance.now();
  const continues = event.target.closest?.(TYPING) || now - typedAt < PAUSE_MS;
  if (continues && event.key.length === 1) typedAt = now;
  return continues;
}

/** @param {Record<string, (event: KeyboardEvent) => void>} actions by key */
export function listenToKeys(actions) {
  switchKeys(on);
  const all = { ...actions, "?": showKeys };
  document.addEventListener("keydown", (event) => {
    if (continuesText(event) || !on) return;
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || event.repeat) return;
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const act = all[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act(event);
  });
}

export function showKeys() {
  const title = make("h2", { id: "keys-title" }, t("keys.title"));
  const list = make("dl", { class: "keys" });
  for (const [key, text] of LISTED) list.append(make("div", {}, make("dt", {}, make("kbd", {}, key)), make("dd", {}, t(text))));
  const toggle = make("input", { type: "checkbox" });
  toggle.checked = on;
  toggle.addEventListener("change", () => switchKeys(toggle.checked));
  const label = make("label", { class: "check" }, toggle, make("span", {}, t("keys.on"), make("small", {}, t("keys.on.hint"))));
  const close = make("button", { class: "button button-primary", type: "button" }, t("keys.close"));
  const dialog = make("dialog", { class: "dialog", "aria-labelledby": title.id }, title, list, label, make("div", { class: "row" }, close));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}
