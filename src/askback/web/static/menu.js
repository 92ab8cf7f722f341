// A menu behind one button, and a dialog that shows a text.

import { make } from "./elements.js";
import { copyText } from "./frame.js";
import { t } from "./translations.js";

/**
 * @param {string} label what the menu belongs to
 * @param {{text: string, act: () => void}[]} actions
 * @returns {HTMLElement}
 */
export function menu(label, actions) {
  const summary = make("summary", { class: "menu-button", "aria-label": label, title: label }, "⋯");
  const list = make("div", { class: "menu-list" });
  const element = make("details", { class: "menu" }, summary, list);
  for (const { text, act } of actions) {
    const button = make("button", { type: "button", class: "menu-item" }, text);
    button.addEventListener("click", () => {
      element.open = false;
      summary.focus();
      act();
    });
    list.append(button);
  }
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !element.open) return;
    element.open = false;
    summary.focus();
  });
  element.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget !== null && !element.contains(relatedTarget)) element.open = false;
  });
  return element;
}

// A click elsewhere closes a menu.
document.addEventListener("click", ({ target }) => {
  for (const each of document.querySelectorAll("details.menu[open]")) if (!each.contains(target)) each.open = false;
});

/** Show a text that can be copied. */
export function textDialog({ title, text, hint = null }) {
  const copy = make("button", { class: "button", type: "button" }, t("run.copy"));
  const close = make("button", { class: "button button-primary", type: "button" }, t("run.close"));
  const dialog = make(
    "dialog",
    { class: "dialog text-dialog", "aria-labelledby": "text-dialog-title" },
    make("h2", { id: "text-dialog-title" }, title),
    hint === null ? null : make("p", { class: "muted small" }, hint),
    make("pre", { tabindex: "0", "aria-label": title }, text),
    make("div", { class: "row" }, copy, close),
  );
  // The dialog is above everything else on the page, so it says itself that the text was copied.
  copy.addEventListener("click", async () => {
    await copyText(text);
    copy.textContent = t("frame.copied");
  });
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}
