// How a question ended, in words.

import { t } from "./translations.js";

const MOST_CHARACTERS = 80;

/** A simple answer in words; null for a form and for a secret, which the server does not send. */
export function inWords(response) {
  if (typeof response === "boolean") return t(response ? "form.yes" : "form.no");
  return ["string", "number"].includes(typeof response) ? String(response) : null;
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
export function outcomeText({ outcome, response }) {
  const words = inWords(response);
  const key = `inbox.row.${outcome}`;
  return words === null ? t(key) : t(`${key}.text`, { text: shortened(words) });
}
