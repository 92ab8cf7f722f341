// A question as text, and the pane that shows it with its answer: the text scrolls, the answer stays in view.

import { make, newId } from "./elements.js";
import { markdown } from "./markdown.js";
import { tree } from "./tree.js";
import { t } from "./translations.js";

const LONG_CHARACTERS = 300;
const SHORT_TEXT = 0.4;
const MOST_OF_ROOM = 0.5;
const LONG_ANSWER = 0.5;

/**
 * @param {{heading?: boolean}} how `heading`: the prompt is the heading of its part of the page.
 * @returns {HTMLElement[]}
 */
export function questionText({ prompt, context }, { heading = false } = {}) {
  const look = prompt.length > LONG_CHARACTERS ? "prompt prompt-long plain" : "prompt plain";
  const parts = [make(heading ? "h2" : "div", { class: look, id: newId("prompt"), tabindex: heading ? "-1" : null }, prompt)];
  if (context !== null && context !== undefined) {
    const body = make("div", { class: "context-body" }, tree(context, 0, markdown));
    parts.push(make("div", { class: "context" }, make("p", { class: "context-title" }, t("inbox.context")), body));
  }
  return parts;
}

/**
 * The text above the answer. Where the pane has a limited height, the text scrolls, and both parts share the room:
 * a short text leaves it to the answer. Where the page scrolls, a short answer stays at the bottom of the window.
 * @param {HTMLElement[]} text
 * @param {HTMLElement[]} answer
 */
export function questionPane(text, answer) {
  const above = make("div", { class: "question-text", "data-scrolls": true }, ...text);
  const bar = make("div", { class: "question-bar" }, ...answer);
  const pane = make("div", { class: "question-pane" }, above, bar);
  const fit = () => {
    const place = pane.closest("[data-room]");
    const most = place === null ? NaN : parseFloat(getComputedStyle(place).maxHeight);
    const room = most || place?.clientHeight || window.innerHeight;
    bar.style.setProperty("--most", `${MOST_OF_ROOM * room}px`);
    pane.classList.toggle("question-short", above.scrollHeight < SHORT_TEXT * room);
    pane.classList.toggle("answer-long", bar.scrollHeight > LONG_ANSWER * window.innerHeight);
  };
  const watch = new ResizeObserver(fit);
  for (const each of [pane, ...text]) watch.observe(each);
  return pane;
}
