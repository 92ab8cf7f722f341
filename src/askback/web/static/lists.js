// Lists: filtered while typing, submitted when a filter changes, and updated when a run is created or changes its
// state, or every few seconds.

import { follow } from "./live.js";
import { refreshTimes } from "./time.js";

const WAIT_MS = 300;

const search = document.querySelector("[data-filter]");
search?.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const items = [...document.querySelectorAll("[data-filter-text]")];
  for (const item of items) item.hidden = !words.every((word) => item.dataset.filterText.includes(word));
  document.getElementById("found-none").hidden = items.some((item) => !item.hidden);
});

const filters = document.querySelector("form[data-send-on-change]");
filters?.addEventListener("change", (event) => event.target.tagName === "SELECT" && filters.requestSubmit());
// Empty filters are left out of the URL.
filters?.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

const parts = [...document.querySelectorAll("[data-refresh]")];
const part = document.querySelector("[data-follow]");
let stream = null;
let due = false;
let busy = false;

/** Fetch this page again and replace the parts that change. */
async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const each of parts) renew(each, page.getElementById(each.id));
}

/** The focus stays where it was, and what is unfolded stays unfolded. */
function renew(old, fresh) {
  if (fresh === null) return;
  for (const each of [fresh, old]) refreshTimes(each);
  for (const fold of old.querySelectorAll("details[data-keep][open]")) {
    fresh.querySelector(`[data-keep="${fold.dataset.keep}"]`)?.setAttribute("open", "");
  }
  if (fresh.isEqualNode(old)) return;
  const focused = old.contains(document.activeElement) ? signOf(document.activeElement) : null;
  old.replaceChildren(...document.importNode(fresh, true).childNodes);
  if (focused === null) return;
  const again = [...old.querySelectorAll("a, summary")].find((each) => signOf(each) === focused);
  (again ?? document.getElementById("main")).focus({ preventScroll: true });
}

/** What a link or a fold is recognized by after the update. */
function signOf(element) {
  return element.getAttribute("href") ?? element.closest("[data-keep]")?.dataset.keep ?? null;
}

/** Group changes that arrive together, and run one update at a time. */
async function soon() {
  due = true;
  if (busy) return;
  busy = true;
  while (due) {
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    due = false;
    // If the server does not respond, the list is updated when the stream is back.
    await refresh().catch(() => {});
  }
  busy = false;
}

/** Whether a changed run is in the list, or may belong there now. */
function concerns(run) {
  if (part.dataset.entering === undefined || part.querySelector(`[href="/runs/${run.id}"]`)) return true;
  return ["any", run.state].includes(part.dataset.entering);
}

/** A hidden tab has no connection: a browser opens only six to one server. */
function followRuns() {
  stream?.stop();
  stream = null;
  if (document.hidden) return;
  stream = follow({
    address: () => part.dataset.follow,
    types: ["run"],
    onEvent: (run) => concerns(run) && soon(),
    onState: (live) => live && soon(),
  });
}

// On a phone the chips are wider than the screen: show the current one.
const chip = document.querySelector(".chips [aria-current]");
if (chip) chip.parentElement.scrollLeft = chip.offsetLeft - (chip.parentElement.clientWidth - chip.offsetWidth) / 2;

// What no run tells of is looked at every few seconds.
const polled = document.querySelector("[data-every]");
if (polled !== null) setInterval(() => document.hidden || soon(), polled.dataset.every * 1000);

if (part !== null) {
  followRuns();
  document.addEventListener("visibilitychange", followRuns);
}
