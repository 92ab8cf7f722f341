// One open question of the inbox: what it is about, its text, its deadline and its form; then how it ended.

import { post } from "./api.js";
import { background } from "./background.js";
import { deadline } from "./deadline.js";
import { draftOf } from "./drafts.js";
import { make } from "./elements.js";
import { questionForm } from "./form.js";
import { questionPane, questionText } from "./question_text.js";
import { timeElement } from "./time.js";
import { countText, t } from "./translations.js";
import { unsent } from "./unsent.js";

const GONE = 409;

/** Send the answer to one question. */
export function reply({ run_id: run, interaction_id }, response) {
  return post(`/v1/runs/${encodeURIComponent(run)}/interaction/reply`, { interaction_id, response });
}

function mayRead() {
  return document.getElementById("inbox").dataset.mayRead === "yes";
}

/** Null if the user may not read runs. */
export function runLink({ run_id: run }) {
  if (!mayRead()) return null;
  return make("a", { class: "question-link", href: `/runs/${encodeURIComponent(run)}` }, t("inbox.run"));
}

/** Skill, summary, engine and age in one muted line. */
function aboutLine(asked) {
  const parts = [make("span", {}, asked.skill)];
  if (asked.summary) parts.push(make("span", { class: "run-summary" }, asked.summary));
  parts.push(make("span", {}, asked.engine), timeElement(asked.asked_at));
  if (asked.questions?.length) parts.push(make("span", {}, countText("inbox.row.questions", asked.questions.length)));
  if (asked.attempt_number > 1) parts.push(make("span", {}, t("inbox.turn", { n: asked.attempt_number })));
  return make("p", { class: "about-line muted small" }, ...parts);
}

/** The labels of the run, as pairs of name and value, without those that only programs use. */
export function labelsForPeople({ labels }) {
  const internal = document.getElementById("inbox").dataset.internalLabels.split(" ");
  return Object.entries(labels ?? {}).filter(([name]) => !internal.includes(name));
}

/** The labels of the run, each with a link to the questions that have it; null if there are none. */
function labelLine(asked) {
  const shown = labelsForPeople(asked);
  if (shown.length === 0) return null;
  const links = shown.map(([name, value]) => {
    const href = `/?${new URLSearchParams({ label: `${name}:${value}` })}`;
    return make("a", { class: "tag label", href }, `${name}=${value}`);
  });
  return make("p", { class: "labels small" }, ...links);
}

export class QuestionCard {
  /**
   * @param {{mayAnswer: boolean, onSent: (label: ?string) => void, onTaken: () => void, onNext: () => void}} how
   *   `onTaken`: somebody else was faster. `onNext`: the user has read how the question ended.
   */
  constructor(asked, { mayAnswer, onSent, onTaken, onNext }) {
    this.asked = asked;
    this.sending = false;
    this.onSent = onSent;
    this.onTaken = onTaken;
    this.onNext = onNext;
    this.draft = draftOf(asked.run_id, asked);
    const text = questionText(asked, { heading: true });
    this.title = text[0];
    this.answer = make("div", { class: "question-answer" });
    if (mayAnswer) this.answer.append(questionForm(asked, { t, draft: this.draft, onSend: (...what) => this.send(...what) }));
    else this.answer.append(make("p", { class: "muted small" }, t("inbox.readonly")));
    this.deadline = deadline(asked, asked);
    const head = make("header", { class: "question-head" }, make("div", {}, aboutLine(asked), labelLine(asked)), runLink(asked));
    text.push(background(asked, { mayRead: mayRead() }));
    const pane = questionPane(text, [this.deadline, this.answer].filter(Boolean));
    this.element = make("article", { class: "question", "aria-labelledby": this.title.id }, head, pane);
  }

  async send(response, label) {
    this.sending = true;
    try {
      await reply(this.asked, response);
    } catch (problem) {
      if (problem.status !== GONE) throw problem;
      this.onTaken();
      return;
    } finally {
      this.sending = false;
    }
    this.onSent(label);
  }

  /** Whether the user has started an answer. */
  get inUse() {
    return this.answer.contains(document.activeElement) || this.written !== "";
  }

  /** The answer in the user's own words that was not sent. */
  get written() {
    const fields = [...this.answer.querySelectorAll("textarea, input[type=text]")];
    return fields.filter((each) => each.value !== each.defaultValue).map((each) => each.value).join("\n");
  }

  options() {
    return [...this.answer.querySelectorAll(".option:enabled")];
  }

  /** Show how the question ended in place of its form. What the user has written stays readable. */
  close(text, { next = true, alert = false } = {}) {
    const hadFocus = this.answer.contains(document.activeElement) || document.activeElement === document.body;
    const written = alert ? this.written : "";
    this.draft?.drop();
    this.deadline?.remove();
    const said = make("p", {}, text);
    const look = alert ? "alert-warn" : next ? "" : "alert-ok";
    const note = make("div", { class: `closed alert ${look}`, role: alert ? "alert" : "status", tabindex: "-1" }, said);
    const button = make("button", { class: "button button-small", type: "button" }, t(alert ? "inbox.taken.close" : "inbox.next"));
    button.addEventListener("click", () => this.onNext());
    if (next) note.append(button);
    this.answer.replaceChildren(note);
    if (written !== "") this.answer.append(unsent(t("inbox.unsent"), written));
    // Not its button: a user who continues to type would press it.
    if (hadFocus && alert) note.focus({ preventScroll: true });
    return said;
  }

  /** While other questions are selected, this one cannot be answered by mistake. */
  hold(on) {
    this.answer.inert = on;
    this.held ??= make("p", { class: "alert alert-warn small" }, t("batch.held"));
    if (on) this.answer.before(this.held);
    else this.held.remove();
  }
}
