// A form for a JSON Schema, and its value as JSON.

import { upload } from "./api.js";
import { fieldFor, objectField } from "./fields.js";

export { questionForm } from "./question.js";

/**
 * The fields for an object schema, or the one field for a scalar, which `title` names. `root` starts the paths of the server's problems, such as `input`.
 * @param {object} schema
 * @param {{t: Function, files?: (file: File) => Promise<{upload_id: string}>, root?: string, given?: unknown, title?: string, asks?: boolean}} how
 * @returns {{element: HTMLElement, value(): unknown, problems(): string[], check(): boolean, place(problems: object[]): object[], focus(): void, input(name: string): HTMLInputElement}}
 */
export function schemaForm(schema, { t, files = upload, root = "input", given, title = "", asks = false } = {}) {
  const spot = { title, required: true, given: given ?? schema.default, root: schema, depth: 0, t, upload: files, asks };
  const scalar = ["string", "number", "integer", "boolean"].includes(schema.type);
  const top = scalar ? fieldFor(schema, spot) : objectField(schema, spot);
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
    /** Show each field's problem and focus the first. Returns whether the form is valid. */
    check() {
      const found = top.problems();
      mark(found);
      return found.length === 0;
    },
    /** Show the server's problems at the fields that they name. Returns those that name no field. */
    place(problems) {
      const isOurs = ({ path }) => path[0] === root;
      mark(problems.filter(isOurs).map(({ path, message }) => ({ field: top.at(path.slice(1)), message })));
      return problems.filter((each) => !isOurs(each));
    },
    focus: () => top.focus(),
    /** The text field of a property. */
    input: (name) => top.at([name]).element.querySelector("input"),
  };
}
