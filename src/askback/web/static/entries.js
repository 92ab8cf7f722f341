// The input of a skill without an input schema: named texts and named files.

import { shown } from "./checks.js";
import { make, newId } from "./elements.js";
import { fieldFor } from "./fields.js";

const FIRST_NAME = "request";
const TEXT = { type: "string", maxLength: 1_000_000 };
const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/;

/** Like `schemaForm`, for an object with any names. */
export function entriesForm({ t, root, given = {} }) {
  const entries = [];
  const list = make("div", { class: "entries" });
  const addText = make("button", { type: "button", class: "button button-small" }, t("new.entry.text"));
  const addFile = make("button", { type: "button", class: "button button-small" }, t("new.entry.file"));
  const element = make("div", {}, make("p", { class: "hint" }, t("new.entry.hint")), list, make("div", { class: "row" }, addText, addFile));

  function insert(schema, name = "", value = undefined) {
    const spot = { title: t("new.entry.value"), required: false, root: schema, depth: 1, bare: true, given: value, t };
    const field = fieldFor(schema, spot);
    const label = t("new.entry.name");
    const input = make("input", { class: "input", id: newId("name"), value: name, placeholder: label, "aria-label": label });
    const drop = make("button", { type: "button", class: "button button-quiet", "aria-label": t("new.entry.remove") }, "×");
    const entry = { field, input, element: make("div", { class: "entry" }, input, field.element, drop) };
    drop.addEventListener("click", () => {
      entries.splice(entries.indexOf(entry), 1);
      entry.element.remove();
      addText.focus();
    });
    entries.push(entry);
    list.append(entry.element);
    return entry;
  }

  const filled = () => entries.filter((entry) => entry.field.value() !== undefined);
  const problemOf = ({ input, field }) => {
    const [unread] = field.unread();
    if (unread) return unread.message;
    const name = input.value.trim();
    if (field.value() === undefined) return null;
    if (!NAME.test(name)) return t("new.entry.bad_name");
    return filled().some((other) => other.input !== input && other.input.value.trim() === name) ? t("new.entry.twice") : null;
  };
  const mark = (found) => {
    entries.forEach((entry) => entry.field.show(found.find(([wrong]) => wrong === entry)?.[1] ?? null));
    found[0]?.[0].input.focus();
  };
  const wrong = () => entries.map((entry) => [entry, problemOf(entry)]).filter(([, message]) => message !== null);

  addText.addEventListener("click", () => insert(TEXT).input.focus());
  addFile.addEventListener("click", () => insert({ "x-input-source": "file" }).input.focus());
  for (const [name, value] of Object.entries(given)) insert(TEXT, name, shown(value));
  if (entries.length === 0) insert(TEXT, FIRST_NAME);

  return {
    element,
    value: () => Object.fromEntries(filled().map(({ input, field }) => [input.value.trim(), field.value()])),
    problems: () => wrong().map(([, message]) => message),
    check() {
      mark(wrong());
      return wrong().length === 0;
    },
    place(problems) {
      const entryOf = ({ path }) => entries.find(({ input }) => input.value.trim() === path[1]);
      const ours = problems.filter((each) => each.path[0] === root && entryOf(each));
      mark(ours.map((each) => [entryOf(each), each.message]));
      return problems.filter((each) => !ours.includes(each));
    },
    focus: () => entries[0]?.field.focus(),
  };
}
