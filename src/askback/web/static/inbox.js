// The inbox: one card for each pending question, synchronized with the stream. The stream has the oldest questions.
// Further pages come from the list, and are fetched again whenever the stream reports a change.

import { get, post } from "./api.js";
import { deadline } from "./deadline.js";
import { make, newId } from "./elements.js";
import { questionForm } from "./form.js";
import { onInbox, toast } from "./frame.js";
import { keyOf } from "./live.js";
import { questionText } from "./question_text.js";
import { timeElement } from "./time.js";
import { t } from "./translations.js";

const place = document.getElementById("inbox");
const mayAnswer = place.dataset.mayAnswer === "yes";
const more = document.getElementById("inbox-more");
const PAGE = 200;
const cards = new Map();
const settled = new Set();
let told = JSON.parse(document.getElementById("first").textContent);
let shown = null;
let further = 0;
let renewal = null;
let stale = false;

/** One question on the page. `mine` is true as soon as its answer is sent from here. */
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
      ? questionForm(this.asked, { t, onSend: (response) => this.send(response) })
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
      settled.add(keyOf(this.asked));
      this.sayTaken();
      showCount();
      return;
    }
    settled.add(keyOf(this.asked));
    toast(t("inbox.sent", { skill: this.asked.skill }));
    this.leave();
  }

  /** Whether the user has started an answer. */
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

  /** Move the focus to the next question, so that keyboard users keep their place. */
  leave() {
    // A form that is being sent is disabled and loses the focus.
    const hadFocus =
      this.element.contains(document.activeElement) || (this.mine && document.activeElement === document.body);
    const next = this.element.nextElementSibling ?? this.element.previousElementSibling;
    this.element.remove();
    cards.delete(keyOf(this.asked));
    showCount();
    if (hadFocus) (next?.querySelector("h2") ?? document.getElementById("main")).focus();
  }
}

/** Show the stream's last page and as many further pages as are open. What arrives meanwhile is shown next. */
function renew() {
  stale = true;
  renewal ??= renewAll().finally(() => (renewal = null));
  return renewal;
}

async function renewAll() {
  while (stale) {
    stale = false;
    try {
      show(await whole(told));
    } catch {
      // The stream reports the lost connection, and triggers a new attempt when it is back.
    }
  }
}

async function whole(first) {
  let { items, next_cursor: cursor, total } = first;
  for (let pages = 0; pages < further && cursor !== null; pages += 1) {
    const page = await get(`/v1/inbox?limit=${PAGE}&cursor=${encodeURIComponent(cursor)}`);
    [items, cursor, total] = [[...items, ...page.items], page.next_cursor, page.total];
  }
  return { items, next_cursor: cursor, total };
}

function show(page) {
  const wanted = new Map(page.items.map((asked) => [keyOf(asked), asked]));
  for (const [key, card] of cards) if (!wanted.has(key)) card.settledElsewhere();
  for (const [key, asked] of wanted) {
    // A page that was already requested may still contain the question just answered.
    if (cards.has(key) || settled.has(key)) continue;
    const card = new Card(asked);
    cards.set(key, card);
    place.append(card.element);
  }
  announce(page);
  shown = page;
  showCount();
}

/** A question is new only if all questions were shown before and it was not among them. */
function announce(page) {
  if (shown === null || shown.next_cursor !== null) return;
  const seen = new Set(shown.items.map(keyOf));
  for (const asked of page.items.filter((each) => !seen.has(keyOf(each)))) {
    toast(t("inbox.new", { skill: asked.skill }));
  }
}

/** The number of pending questions, without those known to be settled here. */
function showCount() {
  const count = shown.total - shown.items.filter((asked) => settled.has(keyOf(asked))).length;
  document.getElementById("inbox-empty").hidden = count > 0 || cards.size > 0;
  document.getElementById("inbox-summary").textContent = t(
    count === 0 ? "inbox.none" : count === 1 ? "inbox.one" : "inbox.many",
    { n: count },
  );
  more.hidden = shown.next_cursor === null;
  document.getElementById("inbox-shown").textContent = t("inbox.shown", { n: cards.size, total: count });
}

/** Move the focus to the first question that was added. */
async function showMore() {
  const last = place.lastElementChild;
  const before = shown;
  further += 1;
  await renew();
  if (shown === before) {
    further -= 1;
    toast(t("frame.offline"));
    return;
  }
  (last?.nextElementSibling ?? place.lastElementChild)?.querySelector("h2").focus();
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

show(told);
offerNotifications();
more.querySelector("button").addEventListener("click", showMore);
onInbox((page, live) => {
  if (page !== null) {
    told = page;
    renew();
  }
  showConnection(live);
});
