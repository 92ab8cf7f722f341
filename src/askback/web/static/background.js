// What led to a question: the engine's last messages, the files that its turn changed, and the earlier answers.

import { get } from "./api.js";
import { make } from "./elements.js";
import { formAnswers } from "./form_answers.js";
import { markdown } from "./markdown.js";
import { closedBy, inWords, outcomeText } from "./outcomes.js";
import { timeElement } from "./time.js";
import { t } from "./translations.js";
import { tree } from "./tree.js";

// A fence ends at a line with nothing else: the text of a question may contain fences, escaped or indented.
export const STRUCTURED = /^( *)(```+)[^\n`]*\n[\s\S]*?^\1\2[ \t]*$|<ASK_USER_YAML>[\s\S]*?<\/ASK_USER_YAML>/gm;
export const PROTOCOL = /"ask_user"|__SKILL_DONE__|<ASK_USER_YAML>/;

/** The message without what it says to the program. */
function prose(text) {
  if (text.trim().startsWith("{") && PROTOCOL.test(text)) return "";
  return text.replace(STRUCTURED, (block) => (PROTOCOL.test(block) ? "" : block)).trim();
}

/** An empty element, which is filled once the server has sent it. `mayRead`: the user may open the files. */
export function background({ run_id: run }, { mayRead }) {
  const place = make("div", { class: "background" });
  const address = `/v1/runs/${encodeURIComponent(run)}/interaction/background`;
  // Without it the question can be answered as well.
  const fill = ({ messages, interactions, files }) =>
    place.append(...[said(messages), changed(run, files, mayRead), earlier(interactions)].filter(Boolean));
  get(address).then(fill, () => place.remove());
  return place;
}

function part(title, ...content) {
  return make("section", { class: "background-part" }, make("h3", { class: "context-title" }, title), ...content);
}

function said(messages) {
  const texts = messages.map(prose).filter((text) => text !== "");
  return texts.length === 0 ? null : part(t("inbox.background.said"), ...texts.map((text) => markdown(text)));
}

function changed(run, files, mayRead) {
  if (files.length === 0) return null;
  const items = files.map(({ path, turn }) => {
    const query = new URLSearchParams(turn > 1 ? { path, from: turn - 1, to: turn } : { path });
    const href = `/runs/${encodeURIComponent(run)}/${turn > 1 ? "changes" : "preview"}?${query}`;
    return make("li", {}, mayRead ? make("a", { href, target: "_blank" }, path) : path);
  });
  return part(t("inbox.background.files"), make("ul", { class: "background-files small" }, ...items));
}

function earlier(interactions) {
  if (interactions.length === 0) return null;
  const items = interactions.map((closed) => {
    const { outcome, response } = closed;
    const given = outcome === "answered" || outcome === "auto_decided";
    const answer = response === null ? t("answer.secret") : (formAnswers(closed, response) ?? tree(inWords(response, closed) ?? response));
    const by = closedBy(closed);
    const about = make("small", { class: "muted" }, ...(by === null ? [] : [by, " · "]), timeElement(closed.answered_at));
    const shown = given ? make("div", { class: "reply" }, answer) : make("p", { class: "muted" }, outcomeText(closed));
    return make("li", {}, make("p", { class: "plain" }, closed.prompt), shown, about);
  });
  return part(t("inbox.background.earlier"), make("ol", { class: "background-earlier" }, ...items));
}
