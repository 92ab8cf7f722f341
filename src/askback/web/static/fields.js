// One field for one JSON Schema: its label, its value as JSON, and its problems.
//
// A field is {element, value(), problems(), unread(), show(message), at(parts), focus()}. `problems` returns
// [{field, message}]; `unread` only those of entries that have no value at all, such as half a date.
// A spot describes the place of a field: {title, required, given, root, depth, t, upload}. With `asks`, yes and no are
// both to be chosen: a checkbox would answer no for a user who has overlooked it.

import { choicesOf, problemOf, rangeOf, typeOf } from "./checks.js";
import { checkControl, choiceControl, jsonControl, numberControl, textControl, ticksControl } from "./controls.js";
import { make, newId } from "./elements.js";
import { fileControl } from "./file_field.js";
import { afterPress } from "./presses.js";

const DEEPEST = 6;

/** The field for a schema; if none supports it, a text area for JSON. */
export function fieldFor(given, spot) {
  const schema = plain(given, spot.root);
  const here = { ...spot, given: spot.given ?? schema.default, title: schema.title ?? spot.title };
  if (schema["x-input-source"] === "file") return leaf(schema, here, fileControl(here));
  if (spot.depth > DEEPEST) return leaf(schema, here, jsonControl(schema, here));
  if (choicesOf(schema)) return leaf(schema, here, choiceControl(choicesOf(schema), here));
  switch (typeOf(schema)) {
    case "string":
      return leaf(schema, here, textControl(schema, here));
    case "number":
    case "integer":
      return leaf(schema, here, numberControl(schema, here));
    case "boolean":
      return leaf(schema, here, spot.asks ? choiceControl(flags(here), here) : checkControl(here));
    case "array":
      return arrayField(schema, here);
    case "object":
      return schema.properties ? objectField(schema, here) : leaf(schema, here, jsonControl(schema, here));
    default:
      return leaf(schema, here, jsonControl(schema, here));
  }
}

function flags({ t }) {
  return [
    { value: true, label: t("form.yes") },
    { value: false, label: t("form.no") },
  ];
}

/** Resolves references within the document, and treats `X or null` as X: a field can be left empty anyway. */
function plain(given, root) {
  let schema = typeof given === "object" && given !== null ? given : {};
  for (let step = 0; step < 20; step += 1) {
    const { $ref: reference, ...beside } = schema;
    const forms = (schema.anyOf ?? schema.oneOf ?? []).filter((form) => form?.type !== "null");
    if (typeof reference === "string") schema = { ...lookUp(reference, root), ...beside };
    else if (forms.length === 1 && !("const" in forms[0])) schema = { ...without(schema), ...forms[0] };
    else return schema;
  }
  return {};
}

function without({ anyOf, oneOf, ...rest }) {
  return rest;
}

function lookUp(reference, root) {
  if (!reference.startsWith("#")) return {};
  const parts = decodeURIComponent(reference.slice(1)).split("/").slice(1);
  return parts.reduce((node, part) => node?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], root) ?? {};
}

/** `travel_days`, `travelDays` → `Travel days`. */
export function titleOf(name) {
  const words = name.replaceAll(/[_-]+/g, " ").replaceAll(/([a-z])([A-Z])/g, (_, end, start) => `${end} ${start.toLowerCase()}`);
  return words.charAt(0).toUpperCase() + words.slice(1);
}

// A field with one value.

function leaf(schema, spot, control) {
  const { t } = spot;
  const problem = make("p", { class: "problem", id: newId("problem"), hidden: true });
  const range = spot.bare ? null : rangeOf(schema, t);
  const hints = [schema.description, range && make("span", { class: "hint-range" }, range)].filter(Boolean);
  const help = hints.length > 0 ? make("p", { class: "hint", id: newId("help") }, ...hints) : null;
  const element = framed(spot, control, help, problem);
  const described = [help?.id, problem.id].filter(Boolean).join(" ");
  if (control.role) element.setAttribute("role", control.role);
  const marked = control.marked ?? (control.role ? element : control.group ? null : control.input);
  for (const each of [control.group ? element : null, marked]) each?.setAttribute("aria-describedby", described);
  if (spot.required && (control.role || !control.group)) marked.setAttribute("aria-required", "true");

  const wrong = () => {
    const { value, problem: unread } = control.read();
    if (unread) return unread;
    if (value === undefined) return spot.required ? t(control.missing ?? "form.problem.required") : null;
    return problemOf(schema, value, t);
  };
  const asProblems = (message) => (message ? [{ field, message }] : []);
  const field = {
    element,
    value: () => control.read().value,
    problems: () => asProblems(wrong()),
    unread: () => asProblems(control.read().problem),
    show(message) {
      problem.textContent = message ?? "";
      problem.hidden = !message;
      element.classList.toggle("field-wrong", Boolean(message));
      if (message) marked?.setAttribute("aria-invalid", "true");
      else marked?.removeAttribute("aria-invalid");
    },
    at: () => field,
    focus: () => control.input.focus(),
  };
  // While the user types, a mark disappears when the problem does; new marks wait until the end.
  element.addEventListener("input", () => problem.hidden || field.show(wrong()));
  element.addEventListener("change", () => afterPress(() => (control.read().value === undefined ? null : field.show(wrong()))));
  control.changed?.(() => field.show(control.read().problem ? wrong() : null));
  return field;
}

function framed(spot, control, help, problem) {
  if (control.check) {
    const label = make("label", { class: "check" }, control.input, make("span", {}, spot.title));
    return make("div", { class: "field" }, label, help, problem);
  }
  const name = titled(spot);
  if (control.group) {
    return make("fieldset", { class: "field" }, make("legend", {}, ...name), help, control.element, problem);
  }
  const label = make("label", { for: control.input.id }, ...name);
  return make("div", { class: spot.bare ? "field field-bare" : "field" }, label, help, control.element, problem);
}

/** The title, and whether the field is required. An item of a list has neither. */
function titled({ title, required, bare, t }) {
  const name = make("span", {}, title);
  if (bare) return [name];
  if (required) return [name, " ", make("span", { class: "field-mark", title: t("form.required"), "aria-hidden": "true" }, "*")];
  return [name, " ", make("span", { class: "field-optional" }, t("form.optional"))];
}

// Fields that contain fields.

function arrayField(schema, spot) {
  const items = plain(schema.items, spot.root);
  const choices = choicesOf(items);
  if (choices) return leaf(schema, spot, ticksControl(choices, spot));
  const known = schema.items && !schema.prefixItems && (typeOf(items) || items["x-input-source"]);
  return known ? listField(schema, items, spot) : leaf(schema, spot, jsonControl({ ...schema, type: "array" }, spot));
}

function listField(schema, items, spot) {
  const { t } = spot;
  const rows = [];
  const lines = make("div", { class: "lines" });
  const add = make("button", { type: "button", class: "button button-small" }, t("form.add"));
  const values = () => rows.map((row) => row.field.value()).filter((value) => value !== undefined);
  const control = {
    element: make("div", {}, lines, add),
    input: add,
    group: true,
    read: () => ({ value: values().length > 0 ? values() : undefined }),
  };
  const field = leaf(schema, spot, control);
  const own = field.problems;

  const insert = (given) => {
    const row = { field: fieldFor(items, { ...spot, given, required: false, bare: true, depth: spot.depth + 1 }) };
    const remove = make("button", { type: "button", class: "button button-quiet" }, "×");
    remove.addEventListener("click", () => {
      rows.splice(rows.indexOf(row), 1);
      row.element.remove();
      rename();
      (rows.at(-1)?.field ?? { focus: () => add.focus() }).focus();
    });
    Object.assign(row, { remove, element: make("div", { class: "line" }, row.field.element, remove) });
    rows.push(row);
    lines.append(row.element);
    rename();
    return row;
  };
  const rename = () =>
    rows.forEach((row, place) => {
      const label = row.field.element.querySelector("label > span, legend > span");
      if (label) label.textContent = t("form.line", { title: spot.title, number: place + 1 });
      row.remove.setAttribute("aria-label", t("form.remove_line", { number: place + 1 }));
    });
  add.addEventListener("click", () => insert().field.focus());
  lines.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    insert().field.focus();
  });
  (Array.isArray(spot.given) ? spot.given : []).forEach(insert);
  if (rows.length === 0 && typeOf(items) === "string") insert();

  return Object.assign(field, {
    // An empty item is not an error.
    problems: () => [...own(), ...rows.flatMap(({ field: line }) => (line.value() === undefined ? line.unread() : line.problems()))],
    unread: () => rows.flatMap((row) => row.field.unread()),
    at: (parts) => (typeof parts[0] === "number" && rows[parts[0]] ? rows[parts[0]].field.at(parts.slice(1)) : field),
    focus: () => (rows[0]?.field ?? { focus: () => add.focus() }).focus(),
  });
}

export function objectField(schema, spot) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const known = spot.given && typeof spot.given === "object" ? spot.given : {};
  const entries = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const given = Object.hasOwn(known, name) ? known[name] : undefined;
    const under = { title: titleOf(name), required: required.has(name), given, bare: false };
    return [name, fieldFor(property, { ...spot, ...under, depth: spot.depth + 1 })];
  });
  const fields = new Map(entries);
  const value = () => {
    const found = entries.map(([name, field]) => [name, field.value()]).filter(([, each]) => each !== undefined);
    return found.length > 0 || spot.required ? Object.fromEntries(found) : undefined;
  };
  const body = entries.map(([, field]) => field.element);
  const element = spot.depth === 0 ? make("div", { class: "fields" }, ...body) : nested(schema, spot, body);
  const general = make("p", { class: "problem", hidden: true });
  element.append(general);
  const field = {
    element,
    value,
    // An optional object that is empty has no missing fields.
    problems: () => entries.flatMap(([, each]) => (value() === undefined ? each.unread() : each.problems())),
    unread: () => entries.flatMap(([, each]) => each.unread()),
    show(message) {
      general.textContent = message ?? "";
      general.hidden = !message;
    },
    at: (parts) => fields.get(parts[0])?.at(parts.slice(1)) ?? field,
    focus: () => entries[0]?.[1].focus(),
  };
  return field;
}

function nested(schema, spot, body) {
  const help = schema.description ? make("p", { class: "hint" }, schema.description) : null;
  return make("fieldset", { class: "field field-nested" }, make("legend", {}, ...titled(spot)), help, ...body);
}
