// The facts of a run, and how it ended.

import { make } from "./elements.js";
import { copyText } from "./frame.js";
import { duration, exactly, timeElement, untilTime } from "./time.js";
import { tree } from "./tree.js";
import { known, language, meaning, t } from "./translations.js";

const number = new Intl.NumberFormat(language);

/** @param {HTMLElement} place a `<dl>`; `more` another one, for what only few readers need */
export function showFacts(place, more, run) {
  fill(place, [
    ["run.engine", run.engine],
    ["run.workdir", run.workdir && make("code", {}, run.workdir)],
    ["run.turn", String(run.attempt_number)],
    ["run.queue", run.queue_reason && t(`run.queue.${run.queue_reason}`)],
    ["run.parked", run.not_before && parkedFact(run)],
    ["run.usage", run.usage ? usageText(run.usage) : null],
    ["run.created", timeElement(run.created_at)],
    ["run.took", run.finished_at && duration((new Date(run.finished_at) - new Date(run.created_at)) / 1000)],
  ]);
  fill(more, [
    ["run.id", make("code", {}, run.id)],
    ["run.version", run.skill_version],
    ["run.mode", t(`run.mode.${run.mode}`)],
    ["run.profile", run.mode === "interactive" ? profileFact(run.interactive_profile) : null],
    ["run.started", run.started_at && exactly(new Date(run.started_at))],
    ["run.finished", run.finished_at && exactly(new Date(run.finished_at))],
  ]);
}

function fill(place, facts) {
  const rows = facts.filter(([, value]) => value !== null && value !== undefined);
  place.replaceChildren(...rows.map(([key, value]) => make("div", {}, make("dt", {}, t(key)), make("dd", {}, value))));
}

function profileFact({ kind, reason }) {
  return make("span", {}, t(`run.profile.${kind}`), make("small", { class: "muted" }, reason));
}

function parkedFact({ parked_for, not_before }) {
  return limitText({ kind: parked_for.kind, resets_at: not_before });
}

function usageText(usage) {
  const [input, cached, output] = [usage.input_tokens, usage.cached_tokens, usage.output_tokens].map((each) =>
    each === null ? "–" : number.format(each),
  );
  const cost = usage.cost_usd === null ? "" : ` · $${usage.cost_usd.toFixed(4)}`;
  return t("run.usage.text", { input, cached, output }) + cost;
}

/** How the run ended: its output, or the reason why there is none. */
export function showOutcome(place, tools, result) {
  tools.replaceChildren();
  if (result.status === "failed") place.replaceChildren(failure(result.error));
  else if (result.status === "canceled")
    place.replaceChildren(make("p", { class: "muted" }, `${t("run.canceled")}. ${t("run.canceled.text")}`));
  else showData(place, tools, result.data);
}

function failure({ code, message, cause, detail, limit }) {
  const parts = [
    make("h3", {}, t("run.error")),
    make("p", {}, meaning(code, message)),
    make("p", { class: "plain small" }, `${code}: ${message}`),
  ];
  if (cause !== undefined) parts.push(make("p", { class: "small" }, `${cause}: ${meaning(cause, "–")}`));
  if (limit !== undefined) parts.push(make("p", {}, limitText(limit)));
  if (detail !== undefined)
    parts.push(
      make(
        "details",
        { open: true },
        make("summary", { class: "small" }, t("run.error.engine")),
        make("pre", { class: "error-detail", tabindex: "0" }, detail),
      ),
    );
  return make("div", { class: "alert alert-danger stack-small", role: "alert" }, ...parts);
}

function limitText({ kind, resets_at }) {
  const name = known(`run.limit.${kind}`) ? t(`run.limit.${kind}`) : kind;
  return resets_at === null
    ? t("run.limit.unknown", { name })
    : t("run.limit.until", { name, time: untilTime(new Date(resets_at)) });
}

/** What the run has changed in the user's folder. */
export function showChanges(place, run, { changes }) {
  const parts = [make("h3", {}, t("run.workdir.changes", { folder: run.workdir }))];
  if (changes.unavailable !== null) parts.push(note(`run.workdir.${changes.unavailable}`));
  else if (changes.total === 0) parts.push(note("run.workdir.none"));
  else parts.push(...changedFiles(changes));
  place.replaceChildren(...parts);
}

function note(key) {
  return make("p", { class: "muted" }, t(key));
}

function changedFiles({ files, total, insertions, deletions }) {
  const count = { n: number.format(total), added: number.format(insertions), removed: number.format(deletions) };
  const items = files.map((file) => make("li", {}, make("code", {}, file.path), " ", counts(file)));
  if (total > files.length) items.push(make("li", {}, t("run.workdir.rest", { n: number.format(total - files.length) })));
  return [
    make("ul", { class: "changed-files small" }, ...items),
    make("p", { class: "small" }, t(total === 1 ? "run.workdir.total.one" : "run.workdir.total", count)),
  ];
}

function counts({ status, insertions, deletions }) {
  const lines = insertions === null ? t("run.workdir.binary") : `+${insertions} −${deletions}`;
  return make("span", { class: "muted" }, `${lines} · ${t(`run.workdir.${status}`)}`);
}

function showData(place, tools, data) {
  if (data === null || data === undefined) {
    place.replaceChildren(make("p", { class: "muted" }, t("run.result.none")));
    return;
  }
  const text = JSON.stringify(data, null, 2);
  const copy = make("button", { class: "button button-quiet button-small", type: "button" }, t("run.result.copy"));
  const raw = make(
    "button",
    { class: "button button-quiet button-small", type: "button", "aria-pressed": "false" },
    t("run.result.raw"),
  );
  let isRaw = false;
  const draw = () => place.replaceChildren(isRaw ? make("pre", { class: "raw", tabindex: "0" }, text) : tree(data));
  copy.addEventListener("click", () => copyText(text));
  raw.addEventListener("click", () => {
    isRaw = !isRaw;
    raw.setAttribute("aria-pressed", String(isRaw));
    raw.textContent = t(isRaw ? "run.result.tree" : "run.result.raw");
    draw();
  });
  tools.replaceChildren(raw, copy);
  draw();
}
