// The control inside a field: its inputs, and reading their value.
//
// A control is {element, input, read() → {value?, problem?}}. Optional: `group` for several inputs (with its `role` if
// the group itself can be invalid), `marked` for the input that is marked invalid instead, `missing` for the message
// if nothing was chosen, `check` for a checkbox.

import { same, typeOf } from "./checks.js";
import { make, newId } from "./elements.js";

const MOST_RADIOS = 5;
const LONG_TEXT = 200;
const INPUT_TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local", password: "password" };

export function textControl(schema, spot) {
  const oneLine = schema.format === "one-line";
  const long = !oneLine && ((schema.maxLength ?? 0) > LONG_TEXT || ["textarea", "multiline"].includes(schema.format));
  const id = newId("text");
  const manyLines = long || String(spot.given ?? "").includes("\n");
  const input = manyLines
    ? make("textarea", { id, class: "input", rows: 3 })
    : make("input", { id, class: "input", type: INPUT_TYPES[schema.format] ?? "text", autocomplete: "off" });
  if (schema.format === "date-time") return momentControl(input, spot);
  if (spot.given !== undefined && spot.given !== null) input.value = String(spot.given);
  // A half-typed date has no value, but is not empty either.
  const unread = () => (input.validity?.badInput ? { problem: spot.t("form.problem.date") } : null);
  return { element: input, input, read: () => unread() ?? { value: input.value === "" ? undefined : input.value } };
}

/** Chosen in local time, sent in UTC. */
function momentControl(input, spot) {
  input.step = "1";
  const start = new Date(spot.given ?? Number.NaN);
  if (!Number.isNaN(start.getTime())) {
    input.value = new Date(start.getTime() - start.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  }
  const read = () => {
    if (input.validity.badInput) return { problem: spot.t("form.problem.date-time") };
    return { value: input.value ? new Date(input.value).toISOString().replace(".000Z", "Z") : undefined };
  };
  return { element: input, input, read };
}

export function numberControl(schema, spot) {
  const whole = typeOf(schema) === "integer";
  const input = make("input", {
    id: newId("number"),
    class: "input input-number",
    type: "number",
    inputmode: whole ? "numeric" : "decimal",
    min: schema.minimum,
    max: schema.maximum,
    step: schema.multipleOf ?? (whole ? 1 : "any"),
  });
  if (typeof spot.given === "number") input.value = String(spot.given);
  const read = () => {
    if (input.validity.badInput) return { problem: spot.t("form.problem.number") };
    return { value: input.value === "" ? undefined : Number(input.value) };
  };
  return { element: input, input, read };
}

/** Unchecked is false, but an optional checkbox that was never touched is left out. */
export function checkControl(spot) {
  const input = make("input", { id: newId("check"), type: "checkbox" });
  input.checked = spot.given === true;
  let said = spot.required || typeof spot.given === "boolean";
  input.addEventListener("change", () => (said = true));
  return { element: input, input, check: true, read: () => ({ value: said ? input.checked : undefined }) };
}

export function choiceControl(choices, spot) {
  return choices.length > MOST_RADIOS ? selectControl(choices, spot) : radioControl(choices, spot);
}

function selectControl(choices, spot) {
  const input = make("select", { id: newId("select"), class: "input" });
  input.append(make("option", { value: "" }, spot.t(spot.required ? "form.choose" : "form.none")));
  choices.forEach((choice, place) => input.append(make("option", { value: String(place) }, choice.label)));
  const start = choices.findIndex((choice) => same(choice.value, spot.given));
  input.value = start < 0 ? "" : String(start);
  const read = () => ({ value: input.value === "" ? undefined : choices[Number(input.value)].value });
  return { element: input, input, read, missing: "form.problem.choose" };
}

function radioControl(choices, spot) {
  const name = newId("radio");
  // If there is a default, leaving the value out would mean the default.
  const always = spot.required || spot.given !== undefined;
  const offered = always ? choices : [...choices, { value: undefined, label: spot.t("form.none") }];
  const inputs = offered.map((choice) => {
    const input = make("input", { type: "radio", name });
    input.checked = choice.value === undefined ? spot.given === undefined : same(choice.value, spot.given);
    return input;
  });
  const labels = offered.map((choice, place) => tick(inputs[place], choice));
  const read = () => ({ value: offered[inputs.findIndex((input) => input.checked)]?.value });
  const element = make("div", { class: "choices" }, ...labels);
  return { element, input: inputs[0], group: true, role: "radiogroup", read, missing: "form.problem.choose" };
}

function tick(input, choice) {
  const help = choice.help ? make("small", {}, choice.help) : null;
  return make("label", { class: "check" }, input, make("span", {}, choice.label, help));
}

/** For a schema that no other control supports. */
export function jsonControl(schema, spot) {
  const input = make("textarea", { id: newId("json"), class: "input input-code", rows: 4, spellcheck: "false" });
  if (spot.given !== undefined) input.value = JSON.stringify(spot.given, null, 2);
  input.placeholder = schema.type === "array" ? "[ … ]" : "{ … }";
  const read = () => {
    if (input.value.trim() === "") return {};
    try {
      return typed(JSON.parse(input.value), schema, spot);
    } catch (error) {
      return { problem: spot.t("form.problem.json", { detail: error.message }) };
    }
  };
  return { element: input, input, read };
}

function typed(value, schema, spot) {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (schema.type === "object" && !isObject) return { problem: spot.t("form.problem.json_object") };
  if (schema.type === "array" && !Array.isArray(value)) return { problem: spot.t("form.problem.json_array") };
  return { value };
}

export function ticksControl(choices, spot) {
  const start = Array.isArray(spot.given) ? spot.given : [];
  const inputs = choices.map((choice) => {
    const input = make("input", { type: "checkbox" });
    input.checked = start.some((value) => same(value, choice.value));
    return input;
  });
  const element = make("div", { class: "choices" }, ...choices.map((choice, place) => tick(inputs[place], choice)));
  const read = () => {
    const value = choices.filter((_, place) => inputs[place].checked).map((choice) => choice.value);
    return { value: value.length > 0 ? value : undefined };
  };
  return { element, input: inputs[0], group: true, marked: inputs[0], read, missing: "form.problem.choose_some" };
}
