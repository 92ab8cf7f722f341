// A run's files: the list is updated while the run continues, and a file opens in place. The preview is taken from the
// file's own page: text, an image, or nothing.

import { make } from "./elements.js";
import { t } from "./translations.js";

/** @returns {Promise<HTMLElement>} an element of another page of this site; no script of that page is run */
export async function elementOf(address, id) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) throw new Error(t("frame.failed", { status: answer.status }));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return document.importNode(page.getElementById(id), true);
}

/** Add what is new at that address. The rest is not touched, so that it stays open and focused. */
export async function renewFiles(place, address) {
  const fresh = await elementOf(address, place.id);
  const known = new Map([...place.children].map((row) => [row.dataset.path, row]));
  const wanted = [...fresh.children].map((row) => keptOpen(known.get(row.dataset.path), row));
  for (const row of known.values()) if (!wanted.includes(row)) row.remove();
  let at = place.firstElementChild;
  for (const row of wanted) {
    if (row === at) at = at.nextElementSibling;
    else place.insertBefore(row, at);
  }
}

const SHOWN = ["size", "turn", "comparable"];

/** Replace a file that has changed, and keep it open. */
function keptOpen(old, row) {
  if (old && SHOWN.every((name) => old.dataset[name] === row.dataset[name])) return old;
  if (old?.querySelector("details")?.open) row.querySelector("details").open = true;
  return row;
}

/** The preview is fetched each time that the file is opened. */
export function unfoldFiles(place) {
  const changed = ({ target }) => (target.open ? show(target) : target.querySelector(".file-look")?.remove());
  place.addEventListener("toggle", changed, { capture: true });
}

/** Open the only file of a run. */
export function openSole(place) {
  const all = place.querySelectorAll("details");
  if (place.childElementCount === 1 && all.length === 1) all[0].open = true;
}

async function show(details) {
  const body = details.querySelector(".file-body");
  const look = make("div", { class: "file-look", "aria-busy": "true" }, make("p", { class: "muted small" }, t("run.preview.loading")));
  body.prepend(look);
  try {
    look.replaceChildren(...(await elementOf(details.parentElement.querySelector(".file-open").href, "look")).childNodes);
  } catch {
    look.replaceChildren(make("p", { class: "alert alert-warn small", role: "alert" }, t("run.preview.failed")));
  }
  look.removeAttribute("aria-busy");
}
