// A JSON Schema as a form that people fill in, and what came of it as JSON.

import { upload } from "./api.js";
import { } from "./elements.js";
import { objectField } from "./fields.js";

export { questionForm } from "./question.js";

/**
 * The fields for an object schema. `root` is the word that the server's problems begin with, such as `input`.
 * @param {object} schema
 * @param {{t: Function, files?: (file: File) => Promise<{upload_id: string}>, root?: string, given?: object}} how
 * @returns {{element: HTMLElement, value(): object, problems(): string[], check(): boolean, place(problems: string[]): string[], focus(): void}}
 */
export function schemaForm(schema, { t, files = upload, root = "input", given } = {}) {
  const spot = { title: "", required: true, given: given ?? schema.default, root: schema, depth: 0, t, upload: files };
  const top = objectField(schema, spot);
  let marked = [];
  const mark = (found) => {
    marked.forEach(({ field }) => field.show(null));
    marked = found;
    found.forEach(({ field, message }) => field.show(message));
    found[0]?.field.focus();
  };
  return {
    element: top.element,
    value: () => top.value(),
    problems: () => top.problems().map(({ message }) => message),
    /** Say beside each field what is wrong with it, go to the first; whether all is well. */
    check() {
      const found = top.problems();
      mark(found);
      return found.length === 0;
    },
    /** Put what the server said beside the fields it names; what is about none of them is given back. */
    place(problems) {
      const told = problems.map((line) => ({ line, ...spelled(line) }));
      const ours = told.filter((each) => each.root === root);
      mark(ours.map(({ parts, message }) => ({ field: top.at(parts), message })));
      return told.filter((each) => each.root !== root).map((each) => each.line);
    },
    focus: () => top.focus(),
  };
}

/** `input.stops[2]["a b"]: is empty` → {root: "input", parts: ["stops", 2, "a b"], message: "is empty"}. */
export function spelled(line) {
  const start = /^\w+/.exec(line)?.[0] ?? "";
  const parts = [];
  let rest = line.slice(start.length);
  for (;;) {
    const found = /^(?:\.([^.[:\s]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\])/.exec(rest);
    if (!found) break;
    const [whole, name, place, quoted] = found;
    parts.push(name ?? (place === undefined ? unquoted(quoted) : Number(place)));
    rest = rest.slice(whole.length);
  }
  return { root: start, parts, message: rest.replace(/^:\s*/, "") || line };
}

function unquoted(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
