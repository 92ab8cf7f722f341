// A question as text: its prompt, collapsed if long, and its context.

import { make, newId } from "./elements.js";
import { tree } from "./tree.js";
import { t } from "./translations.js";

const LONG_CHARACTERS = 900;
const LONG_LINES = 14;

/** @returns {HTMLElement[]} */
export function questionText({ prompt, context }) {
  const shown = make("div", { class: "prompt plain", id: newId("prompt") }, prompt);
  const parts = [shown];
  if (prompt.length > LONG_CHARACTERS || prompt.split("\n").length > LONG_LINES) parts.push(foldButton(shown));
  if (context !== null && context !== undefined) {
    const summary = make("summary", {}, t("inbox.context"));
    parts.push(make("details", { class: "context" }, summary, make("div", { class: "context-body" }, tree(context))));
  }
  return parts;
}

function foldButton(shown) {
  const button = make(
    "button",
    {
      class: "button button-quiet button-small fold",
      type: "button",
      "aria-expanded": "false",
      "aria-controls": shown.id,
    },
    t("inbox.unfold"),
  );
  shown.classList.add("folded");
  button.addEventListener("click", () => {
    const folded = shown.classList.toggle("folded");
    button.setAttribute("aria-expanded", String(!folded));
    button.textContent = t(folded ? "inbox.unfold" : "inbox.fold");
  });
  return button;
}
