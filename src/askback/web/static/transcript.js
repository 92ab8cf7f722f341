// A run's events as a conversation. Every event is processed once, in order, and adds at most one element.

import { make } from "./elements.js";
import { markdown } from "./markdown.js";
import { questionText } from "./question_text.js";
import { clockTime, exactly } from "./time.js";
import { tree } from "./tree.js";
import { t } from "./translations.js";

// A fence ends at a line with nothing else: the text of a question may contain fences, escaped or indented.
const STRUCTURED = /^( *)(```+)[^\n`]*\n[\s\S]*?^\1\2[ \t]*$|<ASK_USER_YAML>[\s\S]*?<\/ASK_USER_YAML>/gm;
const PROTOCOL = /"ask_user"|__SKILL_DONE__|<ASK_USER_YAML>/;
const LONG_LINE = 140;

export class Transcript {
  constructor() {
    this.seq = 0;
    this.tools = new Map();
    this.questions = new Map();
    this.request = null;
  }

  /** @returns {HTMLElement | null} the new last element, if the event adds one */
  take(event) {
    if (event.seq <= this.seq) return null;
    this.seq = event.seq;
    const element = this.made(event);
    if (element !== null) element.dataset.seq = String(event.seq);
    return element;
  }

  made({ type, data, at }) {
    switch (type) {
      case "assistant.message":
        this.request = message(data.text, at);
        return this.request;
      case "tool.started":
        return this.toolStarted(data, at);
      case "tool.ended":
        return this.toolEnded(data, at);
      case "interaction.asked":
        return this.asked(data, at);
      case "interaction.closed":
        return this.closed(data, at);
      case "turn.started":
        return turn(data, at);
      case "turn.ended":
        return data.outcome === "interrupted" ? note(t("run.interrupted"), at) : null;
      case "run.warning":
        return warning(data, at);
      case "run.state":
        return ended(data, at);
      default:
        return null;
    }
  }

  toolStarted(data, at) {
    const tool = new Tool(data, at);
    this.tools.set(data.call_id, tool);
    return tool.element;
  }

  toolEnded(data, at) {
    const known = this.tools.get(data.call_id);
    const tool = known ?? new Tool(data, at);
    this.tools.delete(data.call_id);
    tool.end(data);
    return known === undefined ? tool.element : null;
  }

  asked(data, at) {
    const question = new Question(data, at);
    this.questions.set(data.interaction_id, question);
    question.takeRequest(this.request);
    this.request = null;
    return question.element;
  }

  closed(data, at) {
    this.questions.get(data.interaction_id)?.close(data, at);
    return null;
  }
}

function timeOf(at) {
  const moment = new Date(at);
  return make("time", { class: "item-time", datetime: at, title: exactly(moment) }, clockTime(moment));
}

function message(text, at) {
  const body = make("div", { class: "message-text" });
  let end = 0;
  const whole = text.trim().startsWith("{") && PROTOCOL.test(text);
  const blocks = whole ? [] : [...text.matchAll(STRUCTURED)].filter(([block]) => PROTOCOL.test(block));
  for (const found of blocks) {
    appendText(body, text.slice(end, found.index));
    body.append(structured(found[0]));
    end = found.index + found[0].length;
  }
  if (whole) body.append(structured(text));
  else appendText(body, text.slice(end));
  return make("article", { class: "item message" }, body, timeOf(at));
}

function appendText(body, text) {
  if (text.trim() !== "") body.append(markdown(text.replace(/^\n+|\s+$/g, "")));
}

/** A block for the program can be read, but is collapsed. */
function structured(text) {
  return make(
    "details",
    { class: "structured" },
    make("summary", {}, t("run.structured")),
    make("pre", { tabindex: "0" }, text),
  );
}

class Tool {
  constructor({ name, detail = "" }, at) {
    this.detail = detail;
    this.output = null;
    this.state = make("span", { class: "tool-state" }, t("run.tool.running"));
    const short = detail.split("\n", 1)[0].slice(0, LONG_LINE);
    const summary = make(
      "summary",
      {},
      make("span", { class: "tool-name" }, name),
      make("span", { class: "tool-detail mono" }, short),
      this.state,
      timeOf(at),
    );
    this.element = make("details", { class: "item tool", "data-state": "running" }, summary);
    this.element.addEventListener("toggle", () => this.fill());
  }

  end({ ok, output = "", detail }) {
    this.detail = this.detail || (detail ?? "");
    this.output = output;
    this.element.dataset.state = ok === false ? "failed" : "ok";
    this.state.textContent = t(ok === false ? "run.tool.failed" : "run.tool.ok");
    if (this.element.open) this.fill();
  }

  /** The body is built when it is opened: a long run uses thousands of tools. */
  fill() {
    this.body?.remove();
    this.body = null;
    if (!this.element.open) return;
    this.body = make("div", { class: "tool-body" });
    if (this.detail !== "")
      this.body.append(make("h3", {}, t("run.tool.detail")), make("pre", { tabindex: "0" }, this.detail));
    if (this.output !== null) {
      const shown =
        this.output === ""
          ? make("p", { class: "muted small" }, t("run.tool.empty"))
          : make("pre", { tabindex: "0" }, this.output);
      this.body.append(make("h3", {}, t("run.tool.output")), shown);
    }
    this.element.append(this.body);
  }
}

class Question {
  constructor(data, at) {
    this.outcome = make(
      "p",
      { class: "outcome" },
      make("span", { class: "badge badge-waiting_user" }, t("run.outcome.pending")),
    );
    const head = make("header", { class: "item-head" }, make("h3", {}, t("run.asked")), timeOf(at));
    this.element = make(
      "article",
      { class: "item asked", "data-outcome": "pending" },
      head,
      ...questionText(data),
      ...optionList(data.options),
      this.outcome,
    );
  }

  /** A message with nothing but the request for this question becomes a part of it. */
  takeRequest(message) {
    const parts = [...(message?.querySelector(".message-text").children ?? [])];
    if (parts.length === 0 || !parts.every((part) => part.matches(".structured"))) return;
    this.element.append(...parts);
    message.remove();
  }

  close({ outcome, response }, at) {
    const answered = outcome === "answered" || outcome === "auto_decided";
    const kind = outcome === "answered" ? "succeeded" : outcome === "auto_decided" ? "queued" : "canceled";
    const badge = make("span", { class: `badge badge-${kind}` }, t(`run.outcome.${outcome}`));
    this.element.dataset.outcome = outcome;
    this.outcome.replaceChildren(badge, timeOf(at));
    if (!answered) return;
    const shown = response === null ? make("em", {}, t("run.secret")) : tree(response);
    this.element.append(make("div", { class: "reply" }, shown));
  }
}

function optionList(options) {
  if (!Array.isArray(options) || options.length === 0) return [];
  const labels = options.map((option) =>
    typeof option === "object" && option !== null ? (option.label ?? option.value) : option,
  );
  const items = labels.map((label) =>
    make("li", { class: "tag" }, typeof label === "string" ? label : JSON.stringify(label)),
  );
  return [make("ul", { class: "asked-options", "aria-label": t("run.options") }, ...items)];
}

function turn(data, at) {
  const again = data.take_ups > 0 ? ` · ${t("run.said.again")}` : "";
  return make(
    "div",
    { class: "item divider" },
    make("h3", {}, t(`run.said.${data.kind}`, { n: data.attempt_number }) + again),
    timeOf(at),
  );
}

function note(text, at, ...more) {
  return make("div", { class: "item divider" }, make("p", {}, text, ...more), timeOf(at));
}

function warning({ code, message: text }, at) {
  const head = make("header", { class: "item-head" }, make("h3", {}, t("run.warning")), timeOf(at));
  return make(
    "article",
    { class: "item alert alert-warn" },
    head,
    make("p", {}, t(`meaning.${code}`)),
    make("p", { class: "muted small plain" }, `${code}: ${text}`),
  );
}

function ended({ to }, at) {
  if (!["succeeded", "failed", "canceled"].includes(to)) return null;
  return note(t(`run.ended.${to}`), at, " ", make("a", { href: "#outcome" }, t("run.ended.see")));
}
