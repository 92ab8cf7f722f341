// The question that a notification has led to: `/?run=…&question=…`, and `choose=N` for one of its options.

import { get } from "./api.js";
import { make } from "./elements.js";
import { sayOutcome } from "./inbox_rows.js";
import { keyOf } from "./live.js";
import { t } from "./translations.js";

/** @returns {?{run_id: string, interaction_id: string, key: string, choose: ?number}} */
export function targetOf(address) {
  const given = new URLSearchParams(address.search);
  const [run_id, interaction_id] = [given.get("run"), given.get("question")];
  if (run_id === null || interaction_id === null) return null;
  const place = given.get("choose");
  return { run_id, interaction_id, key: keyOf({ run_id, interaction_id }), choose: /^\d+$/.test(place ?? "") ? Number(place) : null };
}

/** The address without the question, so that a reload does not open it again. */
export function addressWithout(address) {
  const given = new URLSearchParams(address.search);
  for (const name of ["run", "question", "choose"]) given.delete(name);
  return given.size === 0 ? address.pathname : `${address.pathname}?${given}`;
}

/** Mark the option that was chosen in the notification. One tap on it sends it. */
export function choose(card, place) {
  const option = card.options()[place];
  if (option === undefined) return;
  option.classList.add("option-chosen");
  option.append(make("span", { class: "option-mark" }, t("push.confirm")));
  option.focus();
  option.scrollIntoView({ block: "center" });
}

/** It is not among the questions of this page: it is closed, or there are too many. */
export async function explain(target, note) {
  const asked = await get(`/v1/runs/${encodeURIComponent(target.run_id)}/interaction`).catch(() => null);
  if (asked?.interaction_id === target.interaction_id) {
    location.replace(`/runs/${encodeURIComponent(target.run_id)}`);
    return;
  }
  note.textContent = t("inbox.row.closed");
  note.hidden = false;
  await sayOutcome(target, note);
}
