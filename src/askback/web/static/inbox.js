// The inbox: one card for each pending question, kept in step with the stream.

import { post } from "./api.js";
import { deadline } from "./deadline.js";
import { make, newId } from "./elements.js";
import { questionForm } from "./form.js";
import { onInbox, toast } from "./frame.js";
import { keyOf } from "./live.js";
import { questionText } from "./question_text.js";
import { timeElement } from "./time.js";
import { t } from "./words.js";

const place = document.getElementById("inbox");
const mayAnswer = place.dataset.mayAnswer === "yes";
const cards = new Map();
const answeredHere = new Set();
let seen = null;

/** One question on the page. `mine` is true from the moment its answer is on its way from here. */
class Card {
  constructor(asked) {
    this.asked = asked;
    this.mine = false;
    const title = make("h2", { id: newId("card"), tabindex: "-1" }, asked.skill);
    this.title = title;
    this.body = make("div", { class: "question-body" }, ...this.parts());
    this.element = make(
      "article",
      { class: "card question", "aria-labelledby": title.id },
      this.head(title),
      this.body,
    );
  }

  head(title) {
    const about = make(
      "p",
      { class: "question-about muted small" },
      make("span", { class: "tag" }, this.asked.engine),
      timeElement(this.asked.asked_at),
    );
    if (this.asked.attempt_number > 1)
      about.append(make("span", {}, t("inbox.turn", { n: this.asked.attempt_number })));
    const link = make(
      "a",
      { class: "question-link small", href: `/runs/${encodeURIComponent(this.asked.run_id)}` },
      t("inbox.run"),
    );
    return make("header", { class: "question-head" }, make("div", {}, title, about), link);
  }

  parts() {
    const form = mayAnswer
      ? questionForm(this.asked, { words: t, onSend: (response) => this.send(response) })
      : make("p", { class: "muted small" }, t("inbox.readonly"));
    return [...questionText(this.asked), deadline(this.asked), form].filter(Boolean);
  }

  async send(response) {
    const { run_id: run, interaction_id } = this.asked;
    this.mine = true;
    try {
      await post(`/v1/runs/${encodeURIComponent(run)}/interaction/reply`, { interaction_id, response });
    } catch (problem) {
      this.mine = false;
      if (problem.status !== 409) throw problem;
      this.sayTaken();
      return;
    }
    answeredHere.add(keyOf(this.asked));
    toast(t("inbox.sent", { skill: this.asked.skill }));
    this.leave();
  }

  /** Whether somebody is in the middle of answering here. */
  get inUse() {
    if (this.body.contains(document.activeElement)) return true;
    return [...this.body.querySelectorAll("textarea, input[type=text], input[type=password]")].some(
      (each) => each.value !== each.defaultValue,
    );
  }

  settledElsewhere() {
    if (this.mine) return;
    if (this.inUse) this.sayTaken();
    else this.leave();
  }

  sayTaken() {
    const close = make("button", { class: "button button-small", type: "button" }, t("inbox.taken.close"));
    close.addEventListener("click", () => this.leave());
    const note = make("div", { class: "alert alert-ok taken", role: "alert" }, make("p", {}, t("inbox.taken")), close);
    const hadFocus = this.body.contains(document.activeElement);
    this.body.replaceChildren(note);
    if (hadFocus) close.focus();
  }

  /** The focus goes on to the next question, so that the keyboard is never lost. */
  leave() {
    // A form that is being sent is disabled, which takes the focus from it.
    const hadFocus =
      this.element.contains(document.activeElement) || (this.mine && document.activeElement === document.body);
    const next = this.element.nextElementSibling ?? this.element.previousElementSibling;
    this.element.remove();
    cards.delete(keyOf(this.asked));
    showCount();
    if (hadFocus) (next?.querySelector("h2") ?? document.getElementById("main")).focus();
  }
}

function show(page) {
  const wanted = new Map(page.items.map((asked) => [keyOf(asked), asked]));
  for (const [key, card] of cards) if (!wanted.has(key)) card.settledElsewhere();
  for (const [key, asked] of wanted) {
    // A page that was on its way may still have what was just answered.
    if (cards.has(key) || answeredHere.has(key)) continue;
    const card = new Card(asked);
    cards.set(key, card);
    place.append(card.element);
  }
  document.getElementById("inbox-more").hidden = page.next_cursor === null;
  announce(page);
  showCount();
}

function announce(page) {
  if (seen !== null) {
    for (const asked of page.items.filter((each) => !seen.has(keyOf(each)))) {
      toast(t("inbox.new", { skill: asked.skill }));
    }
  }
  seen = new Set(page.items.map(keyOf));
}

function showCount() {
  const count = cards.size;
  document.getElementById("inbox-empty").hidden = count > 0;
  document.getElementById("inbox-summary").textContent = t(
    count === 0 ? "inbox.none" : count === 1 ? "inbox.one" : "inbox.many",
    { n: count },
  );
}

function showConnection(live) {
  const shown = document.getElementById("connection");
  shown.hidden = false;
  shown.dataset.state = live ? "live" : "lost";
  shown.textContent = t(live ? "frame.live" : "frame.reconnecting");
}

function offerNotifications() {
  const button = document.getElementById("notify");
  button.hidden = !("Notification" in window) || Notification.permission !== "default";
  button.addEventListener("click", async () => {
    const answer = await Notification.requestPermission();
    button.hidden = answer !== "default";
    toast(t(answer === "granted" ? "inbox.notify.on" : "inbox.notify.off"));
  });
}

show(JSON.parse(document.getElementById("first").textContent));
offerNotifications();
onInbox((page, live) => {
  if (page !== null) show(page);
  showConnection(live);
});
