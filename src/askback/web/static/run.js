// The run's page: past events in batches, then the stream; with the facts, the files, the question and the result.

import { get, post, remove } from "./api.js";
import { make } from "./elements.js";
import { elementOf, openSole, renewFiles, unfoldFiles } from "./files.js";
import { confirmDialog, copyText, toast } from "./frame.js";
import { follow } from "./live.js";
import { PinnedQuestion } from "./pinned.js";
import { showChanges, showFacts, showOutcome } from "./run_parts.js";
import { ignoreMoving } from "./settling.js";
import { Timeline } from "./timeline.js";
import { Transcript } from "./transcript.js";
import { t } from "./translations.js";
import { tree } from "./tree.js";

const TYPES = [
  "run.created",
  "run.state",
  "run.warning",
  "turn.started",
  "turn.ended",
  "assistant.message",
  "tool.started",
  "tool.ended",
  "interaction.asked",
  "permission.decided",
  "interaction.expiring",
  "interaction.closed",
  "run.parked",
  "run.resumed",
  "usage",
];
const TELLING = new Set([
  "run.state",
  "turn.started",
  "turn.ended",
  "usage",
  "interaction.asked",
  "interaction.closed",
  "run.warning",
  "run.parked",
  "run.resumed",
]);
const FINAL = new Set(["succeeded", "failed", "canceled"]);
const NEAR_END_PX = 120;
const CHUNK = 100;
const SETTLING_MS = 600;
const STRIP_MS = 1000;
const FILES_MS = 2000;

const at = (id) => document.getElementById(id);
const conversation = at("conversation");
const mayAnswer = conversation.dataset.mayAnswer === "yes";
const transcript = new Transcript({ onFork: fork });
const timeline = new Timeline();
const waiting = [];
let run = JSON.parse(at("first").textContent);
let stream = null;
let drawing = false;
let refreshing = false;
let stale = false;
let outcomeShown = false;
let settlingUntil = 0;
let renewal = null;
let loading = Promise.resolve();
let actionsShown = run.state;

const address = `/v1/runs/${encodeURIComponent(run.id)}`;
const pinned = new PinnedQuestion(at("pending"), at("notices"), {
  address,
  original: (id) => transcript.original(id),
  onAnswered: refresh,
});

// Events.

/** Fetch the missing events. Concurrent calls run one after the other. */
function load() {
  loading = loading.catch(() => {}).then(loadRest);
  return loading;
}

async function loadRest() {
  let more = String(transcript.seq);
  while (more !== null) {
    const page = await get(`${address}/events?after=${more}&limit=1000`);
    append(page.items, { following: false });
    more = page.next_cursor;
    at("progress").textContent = t(more === null ? "run.events" : "run.loading", { n: transcript.seq });
    if (more !== null) await new Promise(requestAnimationFrame);
  }
  drawStrip();
}

function append(events, { following }) {
  const atEnd = following && isAtEnd();
  let telling = false;
  for (const event of events) {
    if (event.seq <= transcript.seq) continue;
    const element = transcript.take(event);
    if (element !== null) openChunk().append(element);
    timeline.take(event);
    telling ||= TELLING.has(event.type);
  }
  at("progress").textContent = t("run.events", { n: transcript.seq });
  if (atEnd) scrollToEnd();
  if (telling && following) refresh();
  // A tool may have written a file.
  else if (following && events.some(({ type }) => type === "tool.ended")) renewSoon();
}

/** Elements are grouped in chunks: the browser does not render a chunk that is out of view. */
function openChunk() {
  const last = conversation.lastElementChild;
  if (last !== null && last.childElementCount < CHUNK) return last;
  return conversation.appendChild(make("div", { class: "chunk" }));
}

/** Events that arrive together are drawn together, once per frame. */
function received(event) {
  waiting.push(event);
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    append(waiting.splice(0), { following: true });
  });
}

function start() {
  if (stream !== null || isOver() || document.hidden) return;
  stream = follow({
    address: () => `${address}/events?after=${transcript.seq}`,
    types: TYPES,
    onEvent: received,
    onState: showConnection,
  });
}

function stop() {
  stream?.stop();
  stream = null;
}

// The run itself.

async function refresh() {
  stale = true;
  if (refreshing) return;
  refreshing = true;
  while (stale) {
    stale = false;
    try {
      run = await get(address);
      showRun();
    } catch {
      // The stream reports the lost connection, and triggers a new attempt when it is back.
    }
  }
  refreshing = false;
}

function showRun() {
  const badge = at("state").firstElementChild;
  badge.className = `badge badge-${run.state}`;
  if (badge.textContent !== t(`state.${run.state}`)) badge.textContent = t(`state.${run.state}`);
  showFacts(at("facts"), at("more-facts"), run);
  if (mayAnswer) pinned.show(run);
  if (at("cancel")) at("cancel").hidden = isOver();
  if (at("resume")) at("resume").hidden = !run.not_before;
  showDoing();
  drawStrip();
  showArtifacts();
  showActions();
  if (isOver()) finish();
}

/** What can be done with the run depends on its state. */
async function showActions() {
  if (actionsShown !== run.state) {
    const shown = run.state;
    try {
      at("actions").replaceWith(await elementOf(`/runs/${encodeURIComponent(run.id)}/actions`, "actions"));
      actionsShown = shown;
    } catch {
      // The next change fetches them again.
    }
  }
  transcript.offerForks(forking().questions);
}

function forking() {
  const { fork: given } = at("actions").dataset;
  const still = isOver() || run.state === "waiting_user";
  return given !== undefined && still ? JSON.parse(given) : { questions: [], body: null };
}

/** Shows that the run is queued or working while there is nothing else to see. */
function showDoing() {
  const doing = at("doing");
  doing.hidden = !["queued", "running"].includes(run.state);
  const state = run.not_before ? "parked" : run.state;
  if (doing.hidden || doing.dataset.state === state) return;
  doing.dataset.state = state;
  doing.textContent = t(`run.doing.${state}`);
}

function isOver() {
  return FINAL.has(run.state);
}

async function finish() {
  if (outcomeShown) return;
  outcomeShown = true;
  try {
    const result = await get(`${address}/result`);
    at("outcome").hidden = false;
    showOutcome(at("result"), at("result-tools"), result);
    if (result.changes) showChanges(at("changes"), run, result);
  } catch (problem) {
    outcomeShown = false;
    toast(problem.message);
  }
  await showArtifacts();
  openSole(at("files"));
  endStream();
}

/** The server closes the stream of a finished run after the last event. The state says that it is over. */
async function endStream() {
  stop();
  await load().catch(() => {});
  at("connection").hidden = true;
  at("connection").dataset.state = "over";
}

function renewSoon() {
  renewal ??= setTimeout(() => {
    renewal = null;
    showArtifacts();
  }, FILES_MS);
}

async function showArtifacts() {
  try {
    await renewFiles(at("files"), `/runs/${encodeURIComponent(run.id)}/files`);
    at("files-part").hidden = at("files").childElementCount === 0;
  } catch {
    // The next change fetches them again.
  }
}

async function cancel() {
  const sure = await confirmDialog({
    title: t("run.cancel.title"),
    text: t("run.cancel.text"),
    action: t("run.cancel.yes"),
    danger: true,
  });
  if (!sure) return;
  try {
    await post(`${address}/cancel`);
    toast(t("run.canceling"));
    await refresh();
  } catch (problem) {
    toast(problem.message);
  }
}

async function resume() {
  try {
    await post(`${address}/resume`);
    await refresh();
  } catch (problem) {
    toast(problem.message);
  }
}

async function deleteRun() {
  const sure = await confirmDialog({
    title: t("run.delete.title"),
    text: t("run.delete.text"),
    action: t("run.delete.yes"),
    danger: true,
  });
  if (!sure) return;
  try {
    await remove(address);
    location.assign("/runs");
  } catch (problem) {
    toast(problem.message);
  }
}

/** A new run waits with the same question; this one stays as it is. */
async function fork(interactionId) {
  const { body } = forking();
  const sure = await confirmDialog({ title: t("run.fork.title"), text: t("run.fork.text"), action: t("run.fork.yes") });
  if (!sure || body === null) return;
  try {
    const made = await post("/v1/runs", { ...body, from_run: { ...body.from_run, at: interactionId } });
    location.assign(`/runs/${encodeURIComponent(made.id)}`);
  } catch (problem) {
    toast(problem.message);
  }
}

// The page.

function showConnection(live) {
  if (isOver()) return;
  const shown = at("connection");
  shown.hidden = false;
  shown.dataset.state = live ? "live" : "lost";
  shown.textContent = t(live ? "frame.live" : "frame.reconnecting");
  if (live) refresh();
}

function drawStrip() {
  timeline.show(at("timeline-picture"), at("timeline-legend"));
}

function isAtEnd() {
  return at("end").getBoundingClientRect().bottom <= window.innerHeight + NEAR_END_PX;
}

function scrollToEnd() {
  settlingUntil = performance.now() + SETTLING_MS;
  window.scrollBy(0, at("end").getBoundingClientRect().bottom - window.innerHeight);
}

/** Chunks are laid out when they come into view, which can move the end: scroll again. */
function keepToEnd() {
  if (performance.now() < settlingUntil) scrollToEnd();
}

/** Shown while the reader is far from the end. */
function showToEnd([entry]) {
  at("to-end").hidden = entry.isIntersecting || entry.boundingClientRect.top < 0;
}

/** What gets the focus is not behind the pinned question, and a side that is taller than the window can be scrolled. */
function measure() {
  at("main").style.setProperty("--foot-height", `${at("foot").offsetHeight}px`);
  at("side").style.setProperty("--side-height", `${at("side").offsetHeight}px`);
}

ignoreMoving(at("main"), () => toast(t("inbox.moved")));
unfoldFiles(at("files"));
at("copy-id").addEventListener("click", () => copyText(run.id));
at("cancel")?.addEventListener("click", cancel);
at("resume")?.addEventListener("click", resume);
document.addEventListener("click", ({ target }) => target.closest("#delete") && deleteRun());
at("to-end").addEventListener("click", scrollToEnd);
new ResizeObserver(keepToEnd).observe(conversation);
new IntersectionObserver(showToEnd, { rootMargin: "0px 0px 100% 0px" }).observe(at("end"));
const measured = new ResizeObserver(measure);
for (const part of [at("foot"), at("side")]) measured.observe(part);
// A hidden tab has no connection: a browser opens only six to one server.
document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
setInterval(() => {
  if (!isOver() && !document.hidden) drawStrip();
}, STRIP_MS);

if (run.input && at("input")) at("input").append(tree(run.input));
showRun();
load().then(start, (problem) => {
  toast(problem.message);
  start();
});
