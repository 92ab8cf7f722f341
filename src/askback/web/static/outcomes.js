// How a question ended, in words.

import { choicesOf, same } from "./checks.js";
import { known, t } from "./translations.js";

const MOST_CHARACTERS = 80;

/** A simple answer in words, as its button showed it; null for a form and for a secret, which the server does not send. */
export function inWords(response, asked = {}) {
  const label = labelOf(response, asked);
  if (label !== undefined) return label;
  if (typeof response === "boolean") return t(response ? "form.yes" : "form.no");
  return ["string", "number"].includes(typeof response) ? String(response) : null;
}

/** The label of the chosen option; undefined if the answer is none of the options. */
function labelOf(response, { options, kind, response_schema: schema }) {
  const offered = (options ?? []).filter((each) => typeof each === "object" && each !== null);
  const chosen = offered.find((each) => same(each.value ?? each.label, response));
  if (chosen !== undefined) return String(chosen.label ?? chosen.value);
  if (kind === "confirm" && !options?.length && ["yes", "no"].includes(response)) return t(`form.${response}`);
  return typeof response === "object" ? undefined : choicesOf(schema ?? {})?.find((each) => same(each.value, response))?.label;
}

/** In one line. */
export function shortened(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > MOST_CHARACTERS ? `${line.slice(0, MOST_CHARACTERS)}…` : line;
}

/** `Sent: blue`; without the answer if that is secret or a form. */
export function sentText(label) {
  return label === null ? t("inbox.row.sent") : t("inbox.row.sent.text", { text: shortened(label) });
}

/** `Time ran out; “eu-north” was chosen.` */
export function outcomeText(closed) {
  const { outcome, response, answered_with: by } = closed;
  const words = inWords(response, closed);
  const named = outcome === "answered" && by;
  const key = named ? "inbox.row.answered.by" : `inbox.row.${outcome}`;
  const who = named ? { who: whoText(by) } : {};
  return words === null ? t(key, who) : t(`${key}.text`, { ...who, text: shortened(words) });
}

/** `anna, by link`. A newer server may have other channels. */
export function whoText({ name, via }) {
  const key = `frame.via.${via}`;
  return t("frame.who", { who: shortened(name), way: known(key) ? t(key) : via });
}

/**
 * Somebody else was faster; by name, if a person was. Or the question was closed without an answer.
 * @param {?object} closed null if it is not known which question the answer was for
 */
export function takenText(closed) {
  if (closed === null) return t("inbox.taken");
  if (closed.outcome !== "answered") return t("form.gone");
  const by = closedBy(closed);
  return by === null ? t("inbox.taken") : t("inbox.taken.by", { who: by });
}

/** Who closed a question; null if nobody did, or if it is not known. */
export function closedBy({ answered_with: by }) {
  return by && by.via !== "askback" ? whoText(by) : null;
}
