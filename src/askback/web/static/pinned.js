// The question that a run waits for, with its form: one card, pinned to the bottom of the window until it is answered.

import { get, post } from "./api.js";
import { deadline } from "./deadline.js";
import { draftOf, draftText, takeDrafts } from "./drafts.js";
import { make, newId } from "./elements.js";
import { questionForm } from "./form.js";
import { copyText, toast } from "./frame.js";
import { menu, textDialog } from "./menu.js";
import { takenText } from "./outcomes.js";
import { questionPane, questionText } from "./question_text.js";
import { exactly, timeElement } from "./time.js";
import { t } from "./translations.js";

const LINE_CHARACTERS = 120;

export class PinnedQuestion {
  /**
   * @param {HTMLElement} place
   * @param {HTMLElement} notices where a draft is kept that came too late
   * @param {{address: string, original: (id: string) => ?string, onAnswered: () => Promise<void>}} how
   *   `original` is the text of the engine that contains the question.
   */
  constructor(place, notices, { address, original, onAnswered }) {
    Object.assign(this, { place, notices, address, original, onAnswered });
    this.id = null;
    this.draft = null;
    this.sent = false;
    this.refused = false;
  }

  /** Show the question of the run, or nothing. */
  show(run) {
    const asked = run.pending_interaction ?? null;
    const id = asked?.interaction_id ?? null;
    if (id !== null && id === this.id) return;
    const isFirst = this.id === null;
    this.leave(run.closed_interaction ?? null);
    this.id = id;
    // Another tab may have answered while this page was closed.
    if (isFirst) for (const text of takeDrafts(run.id, id)) this.sayTaken(text);
    if (asked === null) this.place.replaceChildren();
    else this.place.replaceChildren(this.card(run, asked));
  }

  /** @param {?object} closed how the question was closed */
  leave(closed = null) {
    const text = this.sent ? null : draftText(this.draft?.read());
    this.draft?.drop();
    if (text !== null || this.refused) this.sayTaken(text, closed);
    Object.assign(this, { id: null, draft: null, sent: false, refused: false });
  }

  card(run, asked) {
    this.draft = draftOf(run.id, asked);
    const form = questionForm(asked, { t, draft: this.draft, onSend: (response) => this.send(run, asked, response) });
    const body = make("div", { class: "pinned-body", id: newId("pinned") }, questionPane(questionText(asked), [form]));
    return make(
      "section",
      { class: "card pinned", "aria-label": t("run.asked"), "data-room": true },
      this.head(run, asked, body),
      body,
    );
  }

  head(run, asked, body) {
    const line = make("span", { class: "pinned-line", hidden: true }, asked.prompt.slice(0, LINE_CHARACTERS));
    const about = make("p", { class: "pinned-about" }, make("strong", {}, t("run.asked")), line);
    if (asked.asked_at) about.append(timeElement(asked.asked_at));
    const link = make("button", { class: "button button-quiet button-small pinned-link", type: "button" }, t("run.link"));
    link.addEventListener("click", () => this.showLink());
    const fold = make(
      "button",
      { class: "button button-quiet button-small", type: "button", "aria-expanded": "true", "aria-controls": body.id },
      t("run.pinned.fold"),
    );
    fold.addEventListener("click", () => {
      body.hidden = !body.hidden;
      line.hidden = !body.hidden;
      fold.setAttribute("aria-expanded", String(!body.hidden));
      fold.textContent = t(body.hidden ? "run.pinned.unfold" : "run.pinned.fold");
    });
    const more = menu(t("run.asked.menu"), [
      { text: t("run.link"), act: () => this.showLink() },
      { text: t("run.structured"), act: () => this.showOriginal() },
      { text: t("run.asked.copy"), act: () => copyText(asked.prompt) },
    ]);
    const tools = make("div", { class: "pinned-tools" }, link, more, fold);
    return make("header", { class: "pinned-head" }, about, tools, deadline(run, asked));
  }

  showOriginal() {
    const text = this.original(this.id);
    if (text === null) toast(t("run.structured.none"));
    else textDialog({ title: t("run.structured"), text });
  }

  async showLink() {
    try {
      const { url, expires_at: end } = await post(`${this.address}/interaction/link`, {});
      textDialog({ title: t("run.link"), text: url, hint: t("run.link.hint", { time: exactly(new Date(end)) }) });
    } catch (problem) {
      toast(problem.message);
    }
  }

  async send(run, asked, response) {
    this.sent = true;
    try {
      await post(`${this.address}/interaction/reply`, { interaction_id: asked.interaction_id, response });
    } catch (problem) {
      this.sent = false;
      if (problem.status !== 409) throw problem;
      this.refused = true;
      const now = await get(`/v1/runs/${encodeURIComponent(run.id)}`).catch(() => run);
      this.show({ ...now, pending_interaction: null });
      await this.onAnswered();
      return;
    }
    toast(t("inbox.sent", { skill: run.skill }));
    this.place.focus({ preventScroll: true });
    await this.onAnswered();
  }

  /** The draft of somebody who was too late is not lost. */
  sayTaken(text, closed = null) {
    const close = make("button", { class: "button button-small", type: "button" }, t("inbox.taken.close"));
    const tools = make("div", { class: "row" }, close);
    const parts = [make("p", {}, takenText(closed))];
    if (text !== null) {
      const copy = make("button", { class: "button button-small", type: "button" }, t("run.taken.copy"));
      copy.addEventListener("click", () => copyText(text));
      tools.prepend(copy);
      parts.push(make("p", { class: "small muted" }, t("run.taken.draft")), make("p", { class: "plain taken-draft" }, text));
    }
    const notice = make("div", { class: "alert alert-warn stack-small", role: "alert" }, ...parts, tools);
    close.addEventListener("click", () => {
      notice.remove();
      document.getElementById("main").focus({ preventScroll: true });
    });
    this.notices.append(notice);
  }
}
