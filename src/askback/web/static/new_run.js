// The form of a new run: built from the skill's schemas, validated here, sent once.

import { post } from "./api.js";
import { entriesForm } from "./entries.js";
import { make } from "./elements.js";
import { schemaForm } from "./form.js";
import { suggestModels } from "./models.js";
import { same } from "./checks.js";
import { t } from "./translations.js";

const given = JSON.parse(document.getElementById("given").textContent);
const form = document.getElementById("new-run");
const start = document.getElementById("start");
const status = document.getElementById("status");
const trouble = document.getElementById("trouble");

const parts = { input: partFor("input"), parameter: partFor("parameter"), options: optionsPart() };

/** The fields of the schema; without a schema, any named texts and files. */
function partFor(name) {
  const schema = given[name];
  const none = schema === null || Object.keys(schema.properties ?? {}).length === 0;
  if (name === "parameter") {
    if (none) return null;
    document.getElementById("parameter-part").hidden = false;
  }
  const how = { root: name, given: given.again?.[name] };
  const made = none ? entriesForm({ t, ...how }) : schemaForm(schema, { t, ...how });
  document.getElementById(name).append(made.element);
  return made;
}

function optionsPart() {
  const made = schemaForm(given.options, { t, root: "options", given: given.again?.options });
  document.getElementById("options").append(made.element);
  made.element.closest("details").open = Object.keys(differing(made)).length > 0;
  return made;
}

/** The engine of the run: the chosen one, or the one that it gets by itself. */
function engine() {
  return new FormData(form).get("engine") || given.engine;
}

const more = parts.options.element.closest("details");
const suggest = suggestModels({ model: parts.options.input("model"), effort: parts.options.input("effort"), engine });
const suggestIfShown = () => more.open && suggest();
more.addEventListener("toggle", suggestIfShown);
form.addEventListener("change", (event) => event.target.name === "engine" && suggestIfShown());
suggestIfShown();

/** Only the options that differ from their defaults. */
function differing(options) {
  const properties = given.options.properties;
  return Object.fromEntries(
    Object.entries(options.value()).filter(([name, value]) => !same(properties[name].default, value)),
  );
}

/** One label in each line: `name=value`, or `name: value`. No name contains either sign. */
function labels() {
  const lines = document.getElementById("labels").value.split("\n").map((line) => line.trim());
  const pairs = lines.filter((line) => line !== "").map((line) => [line.split(/[=:]/, 1)[0], line.replace(/^[^=:]*[=:]?/, "")]);
  return Object.fromEntries(pairs.map(([name, value]) => [name.trim(), value.trim()]));
}

function body() {
  const chosen = new FormData(form);
  const made = { skill: given.skill, mode: chosen.get("mode"), input: parts.input.value() };
  if (chosen.get("engine")) made.engine = chosen.get("engine");
  if (chosen.get("workdir")) made.workdir = chosen.get("workdir");
  Object.assign(made, given.follow_up);
  const chosenLabels = labels();
  // A run that continues another one would have its labels.
  if (given.follow_up || Object.keys(chosenLabels).length > 0) made.labels = chosenLabels;
  if (parts.parameter !== null) made.parameter = parts.parameter.value();
  const options = differing(parts.options);
  if (Object.keys(options).length > 0) made.options = options;
  return made;
}

function say(title, lines = []) {
  const list = lines.length > 0 ? make("ul", {}, ...lines.map((line) => make("li", {}, line))) : "";
  trouble.replaceChildren(make("strong", {}, title), list);
  trouble.hidden = title === "";
}

function all() {
  return [parts.input, parts.parameter, parts.options].filter((part) => part !== null);
}

/** Every part shows its problems; the first one with a problem gets the focus. */
function check() {
  const wrong = all().filter((part) => part.problems().length > 0);
  if (wrong.includes(parts.options)) parts.options.element.closest("details").open = true;
  for (const part of all().reverse()) part.check();
  return wrong.length === 0;
}

/** A repeated request has the same key, so that one click creates one run, even over a bad connection. */
let last = { text: "", key: "" };
let tried = false;
function keyFor(text) {
  if (text !== last.text) {
    const random = crypto.getRandomValues(new Uint8Array(16));
    last = { text, key: `page-${Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("")}` };
  }
  return last.key;
}

/** How many fields still have a problem, after the first try. The line is always there, so that nothing moves. */
function count() {
  const n = all().reduce((sum, part) => sum + part.problems().length, 0);
  status.textContent = n === 0 ? "" : n === 1 ? t("new.fix.one") : t("new.fix.many", { n });
}

function busy(yes) {
  start.disabled = yes;
  status.textContent = yes ? t("new.starting") : "";
}

function refused(error) {
  let left = error.problems ?? [];
  if (left.some(({ path }) => ["options", "labels"].includes(path[0]))) parts.options.element.closest("details").open = true;
  for (const part of [parts.options, parts.parameter, parts.input]) left = part === null ? left : part.place(left);
  const placed = left.length < (error.problems ?? []).length;
  say(placed ? t("new.fix") : error.message, left.map(({ line }) => line));
  if (!placed) trouble.scrollIntoView({ block: "nearest" });
}

for (const kind of ["input", "change"]) form.addEventListener(kind, () => tried && count());
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (start.disabled) return;
  say("");
  if (!check()) {
    tried = true;
    count();
    return;
  }
  tried = false;
  const made = body();
  busy(true);
  try {
    const run = await post("/v1/runs", made, { "Idempotency-Key": keyFor(JSON.stringify(made)) });
    location.assign(`/runs/${encodeURIComponent(run.id)}`);
  } catch (error) {
    busy(false);
    refused(error);
  }
});

// The Back button may show the page as it was left.
addEventListener("pageshow", (event) => event.persisted && busy(false));
