// Markdown as elements. Texts become text nodes and nothing is parsed as HTML, so the text of an engine cannot add markup.

import { make } from "./elements.js";

const MAX_CHARACTERS = 100_000;
const MAX_DEPTH = 6;
const REACH = 2000;
const FIRST_HEADING = 3;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
// One class only after the lookahead: two in a row take quadratic time on a long line that does not match.
const DIVIDER = /^(?=[^-]*-) {0,3}\|?[ :|-]*$/;
const LINK = /\[([^[\]\n]{1,500})\]\(<?([^\s<>()]{1,2000})>?(?: +"[^"\n]{0,300}")?\)/y;
const ADDRESS = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
// Without the punctuation of the sentence around it, which may be Chinese.
const BARE = /https?:\/\/[^\s<>"'`\u3000-\u303f\uff00-\uffef]{0,2000}[^\s<>"'`.,;:!?)\]}\u3000-\u303f\uff00-\uffef]/g;
const SPECIAL = /[\\`[<*_~]/g;
const MARKS = { "**": "strong", __: "strong", "~~": "s", "*": "em", _: "em" };

/** @returns {HTMLElement} */
export function markdown(text) {
  if (text.length > MAX_CHARACTERS) return make("div", { class: "plain" }, text);
  return make("div", { class: "prose" }, ...blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0));
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const read = blockAt(lines, at, depth);
    made.push(read.element);
    at = read.end;
  }
  return made;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  if (heading) {
    const level = Math.min(FIRST_HEADING + heading[1].length, 6);
    return { element: make(`h${level}`, {}, ...inline(heading[2].trim())), end: at + 1 };
  }
  if (RULE.test(line)) return { element: make("hr"), end: at + 1 };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at, fence) {
  const isEnd = (line) => line.trim().startsWith(fence) && line.trim().replaceAll(fence[0], "") === "";
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  const element = make("pre", { tabindex: "0" }, make("code", {}, lines.slice(at + 1, end).join("\n")));
  return { element, end: end + 1 };
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => QUOTE.exec(line)[1]);
  return { element: make("blockquote", {}, ...blocks(inside, depth + 1)), end };
}

function list(lines, at, depth) {
  const isOrdered = (mark) => mark.length > 1;
  const first = ITEM.exec(lines[at]);
  const items = [];
  let end = at;
  for (;;) {
    const found = end < lines.length ? ITEM.exec(lines[end]) : null;
    if (found === null || isOrdered(found[2]) !== isOrdered(first[2]) || RULE.test(lines[end])) break;
    const indent = found[1].length + found[2].length + 1;
    const inside = [found[4]];
    end += 1;
    while (end < lines.length && belongs(lines, end, indent)) {
      inside.push(lines[end].slice(Math.min(indent, lines[end].search(/\S|$/))));
      end += 1;
    }
    items.push(make("li", {}, ...tight(blocks(inside, depth + 1))));
  }
  const start = isOrdered(first[2]) ? Number.parseInt(first[2], 10) : null;
  return { element: make(start === null ? "ul" : "ol", { start: start === 1 ? null : start }, ...items), end };
}

/** Whether a line continues an item: it is indented, or blank before such a line, or the rest of its paragraph. */
function belongs(lines, at, indent) {
  const line = lines[at];
  const isIndented = (each) => each !== undefined && each.trim() !== "" && each.search(/\S/) >= Math.min(indent, 2);
  if (line.trim() === "") return isIndented(lines[at + 1]);
  return isIndented(line) || (lines[at - 1].trim() !== "" && !startsBlock(line));
}

/** An item of one paragraph is shown without the space around a paragraph. */
function tight(elements) {
  return elements.flatMap((each, at) => (at === 0 && each.tagName === "P" ? [...each.childNodes] : [each]));
}

function isTable(lines, at) {
  const next = lines[at + 1] ?? "";
  return lines[at].includes("|") && next.includes("|") && DIVIDER.test(next);
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const row = (line, name) => make("tr", {}, ...cells(line).map((cell) => make(name, {}, ...inline(cell))));
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  const element = make("table", {}, make("thead", {}, row(lines[at], "th")), make("tbody", {}, ...body));
  return { element, end };
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && (depth >= MAX_DEPTH || !startsBlock(lines[end]))) end += 1;
  const parts = lines.slice(at, end).flatMap((line, place) => [...(place === 0 ? [] : [make("br")]), ...inline(line.trim())]);
  return { element: make("p", {}, ...parts), end };
}

function startsBlock(line) {
  return [FENCE, HEADING, RULE, QUOTE, ITEM].some((form) => form.test(line));
}

/** @returns {(string | HTMLElement)[]} */
function inline(text, depth = 0) {
  const made = [];
  let plain = "";
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    if (next === text.length) break;
    const read = special(text, next, depth);
    if (typeof read.value === "string") plain += read.value;
    else {
      made.push(...withLinks(plain, depth), read.value);
      plain = "";
    }
    at = read.end;
  }
  made.push(...withLinks(plain, depth));
  return made.filter((each) => each !== "");
}

/** The words of a link contain no further link. */
function withLinks(text, depth) {
  if (depth >= MAX_DEPTH || !text.includes("://")) return [text];
  const made = [];
  let end = 0;
  for (const { 0: href, index } of text.matchAll(BARE)) {
    made.push(text.slice(end, index), linkTo(href, href));
    end = index + href.length;
  }
  return [...made, text.slice(end)];
}

function linkTo(href, ...words) {
  return make("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...words);
}

function special(text, at, depth) {
  const sign = text[at];
  const asText = { value: sign, end: at + 1 };
  if (sign === "\\") return /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "") ? { value: text[at + 1], end: at + 2 } : asText;
  if (sign === "`") return inlineCode(text, at);
  if (sign === "[" || sign === "<") return link(text, at, depth) ?? asText;
  const mark = MARKS[text.slice(at, at + 2)] ? text.slice(at, at + 2) : sign;
  return (depth < MAX_DEPTH && marked(text, at, mark, depth)) || { value: mark, end: at + mark.length };
}

function inlineCode(text, at) {
  let ticks = 1;
  while (text[at + ticks] === "`") ticks += 1;
  const start = at + ticks;
  const end = text.slice(start, start + REACH).indexOf("`".repeat(ticks)) + start;
  if (end < start) return { value: "`".repeat(ticks), end: start };
  return { value: make("code", {}, text.slice(start, end).trim()), end: end + ticks };
}

function link(text, at, depth) {
  const form = text[at] === "[" ? LINK : ADDRESS;
  form.lastIndex = at;
  const found = form.exec(text);
  const href = found && (form === LINK ? found[2] : found[1]);
  if (found === null || !/^(https?:\/\/|mailto:)/i.test(href)) return null;
  const words = form === LINK && depth < MAX_DEPTH ? inline(found[1], MAX_DEPTH) : [found[1]];
  return { value: linkTo(href, ...words), end: at + found[0].length };
}

/** `**strong**`, `_em_`, `~~s~~`: no space inside the marks, and an underscore within a word is not a mark. */
function marked(text, at, mark, depth) {
  const name = MARKS[mark];
  const start = at + mark.length;
  const isWord = (sign) => /[\p{L}\p{N}_]/u.test(sign ?? " ");
  if (name === undefined || /\s/.test(text[start] ?? " ") || (mark[0] === "_" && isWord(text[at - 1]))) return null;
  for (let end = text.indexOf(mark, start + 1); end !== -1 && end - start < REACH; end = text.indexOf(mark, end + 1)) {
    if (/\s/.test(text[end - 1]) || (mark[0] === "_" && isWord(text[end + mark.length]))) continue;
    if (mark.length === 1 && text[end + 1] === mark) {
      end += 1;
      continue;
    }
    return { value: make(name, {}, ...inline(text.slice(start, end), depth + 1)), end: end + mark.length };
  }
  return null;
}
