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
export function questionText({ kind, prompt, context, input }, { heading = false } = {}) {
  if (kind === "approval") return [approvalText(prompt, input, heading)];
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
  const bar = make("div", { class: "question-bar", "data-scrolls": true }, ...answer);
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

/** The fence of the code in the text of an approval: Askback writes it, and the code cannot end it. */
const CODE = /^(`{3,})\n([^]*)\n\1$/m;
/** Characters without a visible shape, except those that lay out a text. */
const INVISIBLE = /(?![\n\t ])[\p{C}\p{Z}\p{M}\u115f\u1160\u2800\u3164\uffa0]/gu;
const SHOWN_CHARACTERS = 6000;

/** A call of a tool: its command or its change of a file as code. Nothing in it is rendered. */
function approvalText(prompt, input, heading) {
  const found = CODE.exec(prompt);
  const before = found === null ? prompt : prompt.slice(0, found.index).trim();
  const title = make(heading ? "h2" : "div", { class: "prompt plain", id: newId("prompt"), tabindex: heading ? "-1" : null }, before);
  const parts = [title];
  if (found !== null) {
    parts.push(make("pre", { class: "call", tabindex: "0" }, found[2]));
    parts.push(make("p", { class: "plain small" }, prompt.slice(found.index + found[0].length).trim()));
  }
  const whole = JSON.stringify(input ?? null, null, 1);
  if (whole.length > SHOWN_CHARACTERS) {
    const shown = whole.replace(INVISIBLE, (each) => `<U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
    parts.push(make("details", {}, make("summary", {}, t("inbox.whole_call")), make("pre", { class: "call" }, shown)));
  }
  return make("div", { class: "approval" }, ...parts);
}
