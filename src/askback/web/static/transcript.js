// A run's events as a conversation. Every event is processed once, in order, and adds at most one element.

import { PROTOCOL, STRUCTURED } from "./background.js";
import { make } from "./elements.js";
import { formAnswers, formQuestions } from "./form_answers.js";
import { markdown } from "./markdown.js";
import { menu, textDialog } from "./menu.js";
import { closedBy, inWords } from "./outcomes.js";
import { questionText } from "./question_text.js";
import { dayOf, duration, exactly, momentText, untilTime } from "./time.js";
import { tree } from "./tree.js";
import { known, meaning, t } from "./translations.js";

const LONG_LINE = 140;

export class Transcript {
  /** @param {{onFork: (interactionId: string) => void}} actions */
  constructor({ onFork }) {
    this.onFork = onFork;
    this.forkable = new Set();
    this.seq = 0;
    this.tools = new Map();
    this.questions = new Map();
    this.last = null;
    this.day = dayOf(new Date());
  }

  /** @returns {HTMLElement | null} the new last element, if the event adds one */
  take(event) {
    if (event.seq <= this.seq) return null;
    this.seq = event.seq;
    const element = this.made(event);
    if (element === null) return null;
    element.dataset.seq = String(event.seq);
    element.title ||= exactly(new Date(event.at));
    return element;
  }

  /** The text of the engine that contains a question; null if there is none. */
  original(interactionId) {
    return this.questions.get(interactionId)?.original ?? null;
  }

  made({ type, data, at }) {
    switch (type) {
      case "assistant.message":
        this.last = message(data.text);
        return this.last;
      case "tool.started":
        return this.toolStarted(data, at);
      case "tool.ended":
        return this.toolEnded(data, at);
      case "interaction.asked":
        return this.asked(data, at);
      case "run.parked":
        return note(t("run.parked.note", { time: untilTime(new Date(data.not_before)) }));
      case "interaction.expiring":
        return note(t("run.expiring", { time: untilTime(new Date(data.deadline_at)) }));
      case "interaction.closed":
        return this.closed(data, at);
      case "turn.started":
        return this.turn(data, at);
      case "turn.ended":
        return data.outcome === "interrupted" ? note(t("run.interrupted")) : null;
      case "run.warning":
        return warning(data);
      case "run.state":
        return this.ended(data);
      default:
        return null;
    }
  }

  /** The one time of a turn, with the date if the day is another than before. */
  turn({ kind, attempt_number: number, take_ups: takeUps }, at) {
    const moment = new Date(at);
    const isNew = dayOf(moment) !== this.day;
    this.day = dayOf(moment);
    const again = takeUps > 0 ? ` · ${t("run.said.again")}` : "";
    const time = make("time", { class: "item-time", datetime: at, title: exactly(moment) }, momentText(moment, isNew));
    return make("div", { class: "item divider" }, make("h3", {}, t(`run.said.${kind}`, { n: number }) + again), time);
  }

  toolStarted(data, at) {
    const tool = new Tool(data, at);
    this.tools.set(data.call_id, tool);
    return tool.element;
  }

  toolEnded(data, at) {
    const known = this.tools.get(data.call_id);
    const tool = known ?? new Tool(data, null);
    this.tools.delete(data.call_id);
    tool.end(data, at);
    return known === undefined ? tool.element : null;
  }

  asked(data, at) {
    const question = new Question(data, at, this.takeBlocks(), () => this.onFork(data.interaction_id));
    this.questions.set(data.interaction_id, question);
    return question.element;
  }

  closed(data, at) {
    const question = this.questions.get(data.interaction_id);
    question?.close(data, at);
    question?.offerFork(this.forkable.has(data.interaction_id));
    return null;
  }

  /** These answered questions can be answered differently, in another run. */
  offerForks(interactionIds) {
    this.forkable = new Set(interactionIds);
    for (const [id, question] of this.questions) question.offerFork(this.forkable.has(id));
  }

  ended({ to }) {
    if (!["succeeded", "failed", "canceled"].includes(to)) return null;
    const link = make("a", { href: "#outcome" }, t("run.ended.see"));
    return note(t(`run.ended.${to}`), " ", link, originalMenu(to === "succeeded" ? this.takeBlocks() : null));
  }

  /** What the last message says to the program, instead of a separate row. A message with nothing else disappears. */
  takeBlocks() {
    const body = this.last?.querySelector(".message-text");
    const blocks = [...(body?.querySelectorAll(":scope > .structured") ?? [])];
    const text = blocks.map((block) => block.querySelector("pre").textContent).join("\n\n");
    for (const block of blocks) block.remove();
    if (blocks.length > 0 && body.childElementCount === 0) this.last.remove();
    this.last = null;
    return blocks.length > 0 ? text : null;
  }
}

function originalMenu(text) {
  if (text === null) return null;
  return menu(t("run.asked.menu"), [{ text: t("run.structured"), act: () => textDialog({ title: t("run.structured"), text }) }]);
}

function message(text) {
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
  return make("article", { class: "item message" }, body);
}

function appendText(body, text) {
  if (text.trim() !== "") body.append(markdown(text.replace(/^\n+|\s+$/g, "")));
}

/** A block for the program that belongs to no question can be read, but is collapsed. */
function structured(text) {
  return make(
    "details",
    { class: "structured" },
    make("summary", {}, t("run.structured")),
    make("pre", { tabindex: "0" }, text),
  );
}

class Tool {
  /** `at` is null if the engine reported only the end. */
  constructor({ name, detail = "" }, at) {
    this.detail = detail;
    this.output = null;
    this.start = at;
    this.state = make("span", { class: "tool-state" }, t("run.tool.running"));
    const short = detail.split("\n", 1)[0].slice(0, LONG_LINE);
    const summary = make(
      "summary",
      {},
      make("span", { class: "tool-name" }, name),
      make("span", { class: "tool-detail mono" }, short),
      this.state,
    );
    this.element = make("details", { class: "item tool", "data-state": "running" }, summary);
    this.element.addEventListener("toggle", () => this.fill());
  }

  end({ ok, output = "", detail }, at) {
    this.detail = this.detail || (detail ?? "");
    this.output = output;
    this.element.dataset.state = ok === false ? "failed" : "ok";
    const took = this.start === null ? null : shortly((new Date(at) - new Date(this.start)) / 1000);
    const words = ok === false ? t("run.tool.failed") : took === null ? t("run.tool.ok") : null;
    this.state.textContent = [words, took].filter((each) => each !== null).join(" · ");
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

/** `2.1 s`: of a tool, tenths of a second are exact enough. */
function shortly(seconds) {
  if (seconds < 0.1) return t("run.tool.instant");
  return seconds < 1 ? t("frame.duration.s", { n: seconds.toFixed(1) }) : duration(seconds);
}

class Question {
  constructor(data, at, original, onFork) {
    this.original = original;
    this.fork = make("button", { class: "button button-quiet button-small fork", type: "button", hidden: true }, t("run.fork"));
    this.fork.addEventListener("click", onFork);
    this.start = at;
    this.outcome = make("p", { class: "outcome" }, t("run.outcome.pending"));
    const head = make("header", { class: "item-head" }, make("h3", {}, t("run.asked")), originalMenu(original));
    this.options = optionList(data.options) ?? formQuestions(data);
    this.data = data;
    this.element = make(
      "article",
      { class: "item asked", "data-outcome": "pending" },
      head,
      ...questionText(data),
      this.options,
      this.outcome,
    );
  }

  /** Question and answer are one entry. */
  close({ outcome, response, answered_with }, at) {
    const answered = outcome === "answered" || outcome === "auto_decided";
    const took = duration(Math.max(0, (new Date(at) - new Date(this.start)) / 1000));
    this.element.dataset.outcome = outcome;
    const by = closedBy({ answered_with });
    const named = by !== null && known(`run.outcome.${outcome}.by`);
    const key = named ? `run.outcome.${outcome}.by` : `run.outcome.${outcome}`;
    this.outcome.textContent = t("run.outcome.after", { outcome: t(key, { who: by }), time: took });
    this.outcome.title = exactly(new Date(at));
    if (!answered) return;
    this.options?.remove();
    const shown = response === null ? make("em", {}, t("run.secret")) : (formAnswers(this.data, response) ?? tree(inWords(response, this.data) ?? response));
    this.outcome.before(make("div", { class: "reply" }, shown));
    this.outcome.after(this.fork);
  }

  offerFork(possible) {
    this.fork.hidden = !possible;
  }
}

function optionList(options) {
  if (!Array.isArray(options) || options.length === 0) return null;
  const labels = options.map((option) =>
    typeof option === "object" && option !== null ? (option.label ?? option.value) : option,
  );
  const items = labels.map((label) =>
    make("li", { class: "tag" }, typeof label === "string" ? label : JSON.stringify(label)),
  );
  return make("ul", { class: "asked-options", "aria-label": t("run.options") }, ...items);
}

function note(text, ...more) {
  return make("div", { class: "item divider" }, make("p", {}, text, ...more.filter((each) => each !== null)));
}

function warning({ code, message: text }) {
  return make(
    "article",
    { class: "item alert alert-warn" },
    make("h3", {}, t("run.warning")),
    make("p", {}, meaning(code, text)),
    make("p", { class: "muted small plain" }, `${code}: ${text}`),
  );
}
