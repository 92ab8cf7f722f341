// Lists: filtered while one types, sent when a choice changes, and renewed when the inbox says that something happened.

import { onInbox } from "./frame.js";
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
// An empty choice need not stand in the address.
filters?.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

/** Fetch this very page and take over the part that changes. The focus stays where it was. */
async function refresh(part) {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById(part.id);
  if (fresh === null || part.contains(document.activeElement)) return;
  refreshTimes(fresh);
  part.replaceChildren(...document.importNode(fresh, true).childNodes);
}

const part = document.querySelector("[data-refresh]");
if (part !== null) {
  let timer = null;
  let seen = null;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => refresh(part).catch(() => {}), WAIT_MS);
  };
  onInbox((page) => {
    if (page === null) return;
    const now = JSON.stringify(page.items.map((item) => [item.run_id, item.interaction_id]));
    if (seen !== null && seen !== now) soon();
    seen = now;
  });
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && soon());
}
