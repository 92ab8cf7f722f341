// An answer that was not used: it stays readable, and can be copied.

import { make } from "./elements.js";
import { t } from "./translations.js";

/** @returns {HTMLElement} */
export function unsent(title, text) {
  const shown = make("pre", { class: "plain" }, text);
  const button = make("button", { class: "button button-small", type: "button" }, t("inbox.unsent.copy"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = t("frame.copied");
    } catch {
      // Without a secure connection there is no clipboard. The user copies what is selected.
      getSelection().selectAllChildren(shown);
    }
  });
  return make("div", { class: "unsent closed" }, make("p", { class: "muted small" }, title), shown, button);
}
