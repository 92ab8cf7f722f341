// The inbox: compact rows of pending questions, one of them open. On a wide screen the open one is beside the list.
//
// The stream has the oldest questions. With filters, or if there are more, the list is fetched from the server whenever
// the stream reports a change.

import { get } from "./api.js";
import { onInbox, toast } from "./frame.js";
import { Batch } from "./inbox_batch.js";
import { Filters } from "./inbox_filters.js";
import { listenToKeys, showKeys } from "./inbox_keys.js";
import { Row, sayOutcome, sayTaken } from "./inbox_rows.js";
import { addressWithout, choose as chooseOption, explain, targetOf } from "./inbox_target.js";
import { keyOf } from "./live.js";
import { sentText } from "./outcomes.js";
import { offerPush } from "./push_dialog.js";
import { QuestionCard } from "./question_card.js";
import { ignoreMoving, SETTLE_MS } from "./settling.js";
import { countText, t } from "./translations.js";

const at = (id) => document.getElementById(id);
const place = at("inbox");
const list = at("inbox-list");
const pane = at("inbox-pane");
const more = at("inbox-more");
const mayAnswer = place.dataset.mayAnswer === "yes";
const wide = window.matchMedia("(min-width: 1100px)");
const PAGE = 200;
const rows = new Map();
const settled = new Set();
let asked = place.dataset.asked === "yes";
let latest = null;
let shown = null;
let current = null;
let further = 0;
let renewal = null;
let stale = false;
let version = 0;
let target = targetOf(location);

const filters = new Filters(() => {
  further = 0;
  version += 1;
  renew();
});
const batch = new Batch(at("inbox-side"), {
  rows: ordered,
  onSent: (row, label) => finished(row, sentText(label)),
  onTaken: (row) => finished(row, t("inbox.row.closed"), { outcome: true }),
  onChosen: (chosen) => current?.card?.hold(chosen.some((row) => row !== current)),
});

/** The rows of pending questions, as they are on the page. */
function ordered() {
  return [...list.children].map((each) => each.row).filter(Boolean);
}

// The open question.

/** @param {{byKey?: boolean, focus?: boolean}} how */
function open(row, { byKey = false, focus = false } = {}) {
  if (current !== null && current !== row) fold(current);
  current = row;
  row.openedAt = performance.now();
  row.card ??= cardOf(row);
  row.card.hold(batch.chosen.some((each) => each !== row));
  placeCard(row);
  if (byKey) guard.trust(row.card.element);
  if (focus) row.card.title.focus({ preventScroll: !byKey });
  remember(row);
}

function cardOf(row) {
  return new QuestionCard(row.asked, {
    mayAnswer,
    onSent: (label) => finished(row, sentText(label), { mine: true }),
    onTaken: () => taken(row),
    onNext: () => {
      if (rows.has(keyOf(row.asked))) finished(row, t("inbox.row.closed"), { outcome: true });
      advance(row, { focus: true });
    },
  });
}

function placeCard(row) {
  row.mark(true, wide.matches);
  if (wide.matches) {
    pane.replaceChildren(row.card.element);
    pane.scrollTop = 0;
  } else {
    pane.replaceChildren();
    row.element.append(row.card.element);
  }
}

function fold(row) {
  row.mark(false, wide.matches);
  row.card?.element.remove();
  // A form that was begun is kept.
  if (!row.card?.written) row.card = null;
  if (current === row) current = null;
}

/** A second click of a double click does not fold what the first has opened. */
function clicked(row, byKey) {
  if (current !== row) open(row, { byKey, focus: byKey && wide.matches });
  else if (wide.matches) row.card.title.focus();
  else if (performance.now() - row.openedAt > SETTLE_MS) fold(row);
}

/** The question that is open after a reload, or when the user comes back from a run. */
function remember(row) {
  history.replaceState({ open: keyOf(row.asked) }, "");
}

/** Open the question that follows one that has ended. */
function advance(row, { focus = false } = {}) {
  if (current !== null && current !== row) return;
  const all = ordered();
  const next = all.find((each) => byUrgency(each.asked, row.asked) >= 0) ?? all.at(-1);
  current = null;
  if (next !== undefined) open(next, { focus });
  else pane.replaceChildren();
  if (next === undefined && focus) at("main").focus();
  showCount();
}

/** The question has ended: its row becomes a line, and after an answer from here the next question opens. */
function finished(row, text, { mine = false, outcome = false } = {}) {
  // A form that is being sent is disabled and loses the focus.
  const focused = document.activeElement;
  const hadFocus = row.element.contains(focused) || row.card?.element.contains(focused) || (mine && focused === document.body);
  settled.add(keyOf(row.asked));
  rows.delete(keyOf(row.asked));
  asked = true;
  row.check.checked = false;
  const inPane = wide.matches && current === row && row.card !== null;
  const onFolded = () => (mine ? advance(row, { focus: hadFocus }) : showCount());
  const said = row.leave(text, { onFolded, onGone: showCount });
  const notes = [said];
  if (inPane && row.card.element.isConnected) notes.push(row.card.close(text, { next: !mine }));
  else if (current === row && !mine) current = null;
  if (outcome) sayOutcome(row.asked, ...notes);
  batch.show();
  showCount();
}

/** Somebody else was faster than the user of this page, who may have begun an answer. */
function taken(row) {
  settled.add(keyOf(row.asked));
  sayTaken(row.asked, row.card.close(t("inbox.taken"), { alert: true }));
  showCount();
}

function settledElsewhere(row) {
  if (row.card?.sending || settled.has(keyOf(row.asked))) return;
  if (row.card?.inUse) taken(row);
  else finished(row, t("inbox.row.closed"), { outcome: true });
}

// The list.

/** Show what the stream and the filters ask for. What changes meanwhile is shown next. */
function renew() {
  stale = true;
  renewal ??= renewAll().finally(() => (renewal = null));
  return renewal;
}

async function renewAll() {
  while (stale) {
    stale = false;
    const wanted = version;
    try {
      const page = await wholePage();
      if (wanted === version) show(page, wanted);
    } catch {
      // The stream reports the lost connection, and triggers a new attempt when it is back.
    }
  }
}

async function wholePage() {
  if (!filters.any && latest?.next_cursor === null) return { ...latest, items: [...latest.items].sort(byUrgency) };
  const query = filters.query;
  query.set("order", "deadline");
  query.set("limit", String(PAGE));
  const page = await get(`/v1/inbox?${query}`);
  for (let pages = 0; pages < further && page.next_cursor !== null; pages += 1) {
    query.set("cursor", page.next_cursor);
    const next = await get(`/v1/inbox?${query}`);
    Object.assign(page, next, { items: [...page.items, ...next.items] });
  }
  return page;
}

let shownVersion = 0;

function show(page, wanted) {
  if (wanted !== shownVersion) startAgain();
  shownVersion = wanted;
  const keys = new Set(page.items.map(keyOf));
  const last = page.items.at(-1);
  for (const [key, row] of [...rows]) {
    if (keys.has(key)) continue;
    if (page.next_cursor !== null && byUrgency(row.asked, last) > 0) drop(row);
    else settledElsewhere(row);
  }
  let next = null;
  for (const each of [...page.items].reverse()) {
    const key = keyOf(each);
    // A page that was already requested may still contain the question just answered.
    if (settled.has(key)) continue;
    if (!rows.has(key)) insert(new Row(each, { onOpen: clicked, onCheck: () => batch.show(), mayAnswer }), next);
    next = rows.get(key).element;
  }
  asked ||= page.total > 0;
  shown = page;
  filters.show(page);
  batch.show();
  showCount();
  openFirst();
}

function insert(row, next) {
  row.element.row = row;
  row.mark(false, wide.matches);
  rows.set(keyOf(row.asked), row);
  list.insertBefore(row.element, next);
}

/** Not on the page any more, but still pending. */
function drop(row) {
  if (current === row) fold(row);
  row.element.remove();
  rows.delete(keyOf(row.asked));
}

function startAgain() {
  for (const row of [...rows.values()]) drop(row);
  list.replaceChildren();
  pane.replaceChildren();
}

function openFirst() {
  if (current !== null || pane.hasChildNodes() || list.querySelector(".sent-row") !== null) return;
  const wanted = target?.key ?? history.state?.open;
  const before = [...rows.values()].find((row) => keyOf(row.asked) === wanted);
  if (target !== null) return openTarget(before);
  const first = before ?? (wide.matches || rows.size === 1 ? ordered()[0] : undefined);
  if (first !== undefined) open(first);
}

/** Open the question that a notification has led to, or say why it is not here. */
function openTarget(row) {
  const { choose: place } = target;
  history.replaceState(history.state, "", addressWithout(location));
  if (row === undefined) {
    explain(target, at("inbox-note"));
    target = null;
    return openFirst();
  }
  target = null;
  open(row, { focus: true });
  if (place !== null) chooseOption(row.card, place);
}

/** The nearest deadline first. Questions without one keep their order, the oldest first. */
function byUrgency(one, other) {
  const due = (each) => (each.wait_deadline_at ? Date.parse(each.wait_deadline_at) : Infinity);
  const [first, second] = [due(one), due(other)];
  if (first !== second) return first - second;
  return one.asked_at < other.asked_at ? -1 : one.asked_at > other.asked_at ? 1 : 0;
}

/** A question is new only if all questions were known before and it was not among them. */
function announce(before, page) {
  if (before === null || before.next_cursor !== null) return;
  const seen = new Set(before.items.map(keyOf));
  const fresh = page.items.filter((item) => !seen.has(keyOf(item)));
  if (fresh.length === 1) toast(t("inbox.new", { skill: fresh[0].skill }));
  else if (fresh.length > 1) toast(t("inbox.new.many", { n: fresh.length }));
}

/** The number of pending questions, without those known to be settled here. */
function showCount() {
  if (shown === null) return;
  const count = shown.total - shown.items.filter((each) => settled.has(keyOf(each))).length;
  // Its link must not appear under a pointer that has just clicked.
  const held = [...list.children].some((each) => each.style.minHeight !== "");
  const empty = count === 0 && rows.size === 0 && !held;
  at("inbox-empty").hidden = !empty || filters.any || !asked;
  at("inbox-fresh").hidden = !empty || filters.any || asked;
  at("inbox-unmatched").hidden = !empty || !filters.any;
  // What was just sent is still said in the list.
  place.classList.toggle("inbox-done", empty);
  place.classList.toggle("inbox-none", empty && !pane.hasChildNodes() && list.children.length === 0);
  at("inbox-tools").hidden = empty && !filters.any;
  const key = count === 0 ? "inbox.none" : count === 1 ? "inbox.one" : "inbox.many";
  at("inbox-summary").textContent = filters.any ? countText("inbox.matching", count) : t(key, { n: count });
  at("tab-count").textContent = String(latest?.total ?? count);
  more.hidden = shown.next_cursor === null;
  at("inbox-shown").textContent = t("inbox.shown", { n: rows.size, total: count });
}

/** Move the focus to the first question that was added. */
async function showMore() {
  const last = ordered().at(-1);
  const before = shown;
  further += 1;
  await renew();
  if (shown === before) {
    further -= 1;
    toast(t("frame.offline"));
    return;
  }
  const all = ordered();
  (all[all.indexOf(last) + 1] ?? all.at(-1))?.button.focus();
}

// Keys.

/** The row with the focus, or the open one. */
function here() {
  return document.activeElement?.closest(".inbox-row")?.row ?? current;
}

function step(by) {
  const all = ordered();
  const from = all.indexOf(here());
  const row = all[Math.min(Math.max(from + by, 0), all.length - 1)];
  if (row === undefined) return;
  row.button.focus();
  if (wide.matches && row !== current) open(row, { byKey: true });
}

/** A digit chooses an option; Enter sends it. */
function choose(place) {
  current?.card?.options()[place]?.focus();
}

function select() {
  const row = here();
  if (row !== null && !row.check.hidden && !row.check.disabled) row.check.click();
}

// The page.

function showConnection(live) {
  const connection = at("connection");
  connection.hidden = false;
  connection.dataset.state = live ? "live" : "lost";
  connection.textContent = t(live ? "frame.live" : "frame.reconnecting");
}

const guard = ignoreMoving(at("main"), () => toast(t("inbox.moved")));
show(JSON.parse(at("first").textContent), 0);
offerPush(at("notify"));
more.querySelector("button").addEventListener("click", showMore);
at("inbox-clear").addEventListener("click", () => filters.clear());
at("show-keys").addEventListener("click", showKeys);
const digits = Object.fromEntries([..."123456789"].map((digit) => [digit, () => choose(Number(digit) - 1)]));
listenToKeys({ ...digits, j: () => step(1), k: () => step(-1), x: select, "/": () => at("inbox-search").focus() });
wide.addEventListener("change", () => {
  for (const row of rows.values()) row.mark(row === current, wide.matches);
  if (current !== null) placeCard(current);
  else pane.replaceChildren();
  openFirst();
});
onInbox((page, live) => {
  if (page !== null) {
    announce(latest, page);
    latest = page;
    renew();
  }
  showConnection(live);
});
