// A question as text: its prompt and its context, both folded if long.

import { make, newId } from "./elements.js";
import { markdown } from "./markdown.js";
import { tree } from "./tree.js";
import { t } from "./translations.js";

const LONG_CHARACTERS = 900;
const LONG_LINES = 14;

/**
 * @param {{heading?: boolean}} how `heading`: the prompt is the heading of its part of the page.
 * @returns {HTMLElement[]}
 */
export function questionText({ prompt, context }, { heading = false } = {}) {
  const shown = make(heading ? "h2" : "div", { class: "prompt plain", id: newId("prompt"), tabindex: heading ? "-1" : null }, prompt);
  const parts = [shown];
  if (prompt.length > LONG_CHARACTERS || prompt.split("\n").length > LONG_LINES) parts.push(foldButton(shown));
  if (context !== null && context !== undefined) {
    const body = make("div", { class: "context-body", id: newId("context") }, tree(context, 0, markdown));
    const button = foldButton(body);
    new ResizeObserver(() => showIfCut(body, button)).observe(body);
    parts.push(make("div", { class: "context" }, make("p", { class: "context-title" }, t("inbox.context")), body, button));
  }
  return parts;
}

/** A context that fits into its six lines has no button. */
function showIfCut(body, button) {
  if (!body.classList.contains("folded")) return;
  const fits = body.scrollHeight <= body.clientHeight + 2;
  body.classList.toggle("fits", fits);
  button.hidden = fits;
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
