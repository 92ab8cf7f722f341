// The inbox: one card for each pending question, synchronized with the stream. The stream has the oldest questions.
// Further pages come from the list, and are fetched again whenever the stream reports a change.

import { get, post } from "./api.js";
import { deadline } from "./deadline.js";
import { make, newId } from "./elements.js";
import { questionForm } from "./form.js";
import { onInbox, toast } from "./frame.js";
import { keyOf } from "./live.js";
import { questionText } from "./question_text.js";
import { ignoreMoving, SETTLE_MS } from "./settling.js";
import { timeElement } from "./time.js";
import { t } from "./translations.js";

const place = document.getElementById("inbox");
const mayAnswer = place.dataset.mayAnswer === "yes";
const more = document.getElementById("inbox-more");
const PAGE = 200;
const ROW_MS = 8000;
const LABEL_CHARACTERS = 80;
const MOST_LOOKS = 10;
const cards = new Map();
const settled = new Set();
let told = JSON.parse(document.getElementById("first").textContent);
let shown = null;
let further = 0;
let renewal = null;
let stale = false;
let looking = 0;

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
    if (this.asked.summary) about.prepend(make("span", { class: "run-summary" }, this.asked.summary));
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
      ? questionForm(this.asked, { t, onSend: (response, label) => this.send(response, label) })
      : make("p", { class: "muted small" }, t("inbox.readonly"));
    return [...questionText(this.asked), deadline(this.asked, this.asked.default), form].filter(Boolean);
  }

  async send(response, label) {
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
    this.leave(label === null ? t("inbox.row.sent") : t("inbox.row.sent.text", { text: shortened(label) }));
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
    else this.leave(t("inbox.row.closed"), { outcome: true });
  }

  sayTaken() {
    const close = make("button", { class: "button button-small", type: "button" }, t("inbox.taken.close"));
    close.addEventListener("click", () => this.leave(null));
    const note = make("div", { class: "alert alert-ok taken", role: "alert" }, make("p", {}, t("inbox.taken")), close);
    const hadFocus = this.body.contains(document.activeElement);
    this.body.replaceChildren(note);
    if (hadFocus) close.focus();
  }

  /** Leave a row with this text. Move the focus to the next question, so that keyboard users keep their place. */
  leave(text, { outcome = false } = {}) {
    // A form that is being sent is disabled and loses the focus.
    const hadFocus =
      this.element.contains(document.activeElement) || (this.mine && document.activeElement === document.body);
    const all = [...place.querySelectorAll("article")];
    const at = all.indexOf(this.element);
    const next = all[at + 1] ?? all[at - 1];
    if (text === null) this.element.remove();
    else {
      const said = leaveRow(this, text);
      if (outcome) sayOutcome(this.asked, said);
    }
    cards.delete(keyOf(this.asked));
    showCount();
    if (hadFocus) (next?.querySelector("h2") ?? document.getElementById("main")).focus({ preventScroll: this.mine });
  }
}

/** Say how the question was closed. Without permission to read runs, the row says only that it is. */
async function sayOutcome({ run_id: run, interaction_id }, said) {
  if (looking >= MOST_LOOKS) return;
  looking += 1;
  try {
    const { items } = await get(`/v1/runs/${encodeURIComponent(run)}/interactions`);
    const closed = items.find((each) => each.interaction_id === interaction_id);
    if (closed === undefined || closed.outcome === "pending") return;
    const words = inWords(closed.response);
    const key = `inbox.row.${closed.outcome}`;
    said.textContent = words === null ? t(key) : t(`${key}.text`, { text: shortened(words) });
  } catch {
    // The row stays as it is.
  } finally {
    looking -= 1;
  }
}

/** A simple answer; null for a form and for a secret, which the server does not send. */
function inWords(response) {
  if (typeof response === "boolean") return t(response ? "form.yes" : "form.no");
  return ["string", "number"].includes(typeof response) ? String(response) : null;
}

/** The row is as tall as the card until a double click is over. Then it folds, and leaves after some seconds. */
function leaveRow({ element, asked }, text) {
  const link = make("a", { href: `/runs/${encodeURIComponent(asked.run_id)}` }, t("inbox.run"));
  const about = [asked.skill, asked.summary].filter(Boolean).join(" · ");
  const said = make("span", {}, text);
  const row = make("div", { class: "card sent-row small" }, make("strong", {}, about), said, link);
  row.style.minHeight = `${element.offsetHeight}px`;
  element.replaceWith(row);
  setTimeout(() => {
    row.style.minHeight = "";
    showCount();
  }, SETTLE_MS);
  const go = () => {
    if (row.matches(":hover, :has(:focus-visible)")) setTimeout(go, SETTLE_MS);
    else row.remove();
  };
  setTimeout(go, ROW_MS);
  return said;
}

function shortened(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > LABEL_CHARACTERS ? `${line.slice(0, LABEL_CHARACTERS)}…` : line;
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
  const wanted = new Set(page.items.map(keyOf));
  for (const [key, card] of cards) if (!wanted.has(key)) card.settledElsewhere();
  let next = null;
  for (const asked of [...page.items].sort(byUrgency).reverse()) {
    const key = keyOf(asked);
    // A page that was already requested may still contain the question just answered.
    if (settled.has(key)) continue;
    if (!cards.has(key)) {
      cards.set(key, new Card(asked));
      place.insertBefore(cards.get(key).element, next);
    }
    next = cards.get(key).element;
  }
  announce(page);
  shown = page;
  showCount();
}

/** The nearest deadline first. Questions without one keep their order, the oldest first. */
function byUrgency(one, other) {
  const deadlineOf = (asked) => (asked.wait_deadline_at ? Date.parse(asked.wait_deadline_at) : Infinity);
  const [first, second] = [deadlineOf(one), deadlineOf(other)];
  return first === second ? 0 : first - second;
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
  // Its link must not appear under a pointer that has just clicked.
  const held = [...place.children].some((each) => each.style.minHeight !== "");
  document.getElementById("inbox-empty").hidden = count > 0 || cards.size > 0 || held;
  document.getElementById("inbox-summary").textContent = t(
    count === 0 ? "inbox.none" : count === 1 ? "inbox.one" : "inbox.many",
    { n: count },
  );
  more.hidden = shown.next_cursor === null;
  document.getElementById("inbox-shown").textContent = t("inbox.shown", { n: cards.size, total: count });
}

/** Move the focus to the first question that was added. */
async function showMore() {
  const last = [...place.querySelectorAll("article")].at(-1);
  const before = shown;
  further += 1;
  await renew();
  if (shown === before) {
    further -= 1;
    toast(t("frame.offline"));
    return;
  }
  const all = [...place.querySelectorAll("article")];
  (all[all.indexOf(last) + 1] ?? all.at(-1))?.querySelector("h2").focus();
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
ignoreMoving(document.getElementById("main"), () => toast(t("inbox.moved")));
offerNotifications();
more.querySelector("button").addEventListener("click", showMore);
onInbox((page, live) => {
  if (page !== null) {
    told = page;
    renew();
  }
  showConnection(live);
});
