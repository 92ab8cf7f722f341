// A JSON value as readable text: objects and arrays are collapsible.

import { make } from "./elements.js";
import { t } from "./translations.js";

const OPEN_DEPTH = 2;
const MOST_PARTS = 200;

const plain = (text) => make("span", { class: "tree-text plain" }, text);

/** @returns {HTMLElement} with texts as `words` makes them */
export function tree(value, depth = 0, words = plain) {
  if (Array.isArray(value)) return list(value, depth, words);
  if (typeof value === "object" && value !== null) return fields(value, depth, words);
  return typeof value === "string" ? words(value) : leaf(value);
}

function leaf(value) {
  return make("code", { class: "tree-plain" }, JSON.stringify(value));
}

function fields(value, depth, words) {
  const entries = Object.entries(value);
  if (entries.length === 0) return make("code", { class: "tree-plain" }, "{}");
  const rows = entries.slice(0, MOST_PARTS).map(([name, part]) => row(make("dt", {}, name), part, depth, words));
  return make("dl", { class: "tree" }, ...rows, rest(entries.length));
}

function row(name, part, depth, words) {
  return make(
    "div",
    { class: isFlat(part) ? "tree-row" : "tree-row tree-deep" },
    name,
    make("dd", {}, folded(part, depth, words)),
  );
}

function list(value, depth, words) {
  if (value.length === 0) return make("code", { class: "tree-plain" }, "[]");
  const items = value.slice(0, MOST_PARTS).map((part) => make("li", {}, folded(part, depth, words)));
  return make("ol", { class: "tree-list" }, ...items, rest(value.length));
}

function rest(count) {
  return count > MOST_PARTS ? make("p", { class: "muted small" }, t("run.tree.rest", { n: count - MOST_PARTS })) : null;
}

/** Nested values are built when they are opened. */
function folded(part, depth, words) {
  if (isFlat(part) || depth < OPEN_DEPTH) return tree(part, depth + 1, words);
  const size = Array.isArray(part) ? part.length : Object.keys(part).length;
  const details = make("details", {}, make("summary", { class: "muted" }, t(size === 1 ? "run.tree.part" : "run.tree.parts", { n: size })));
  details.addEventListener("toggle", () => details.append(tree(part, depth + 1, words)), { once: true });
  return details;
}

function isFlat(value) {
  return typeof value !== "object" || value === null || Object.keys(value).length === 0;
}
