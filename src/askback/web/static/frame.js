// What every page has: theme, language, the count of pending questions, times, short messages and confirmations.

import { make } from "./elements.js";
import { followInbox, keyOf } from "./live.js";
import { isKept, renew } from "./push.js";
import { refreshTimes } from "./time.js";
import { t } from "./translations.js";

const THEMES = ["auto", "light", "dark"];
const TOAST_MS = 4000;
const plainTitle = document.title;
const listeners = [];
let latest = null;

/** Calls back with every page of pending questions, and with the state of the connection. */
export function onInbox(listener) {
  listeners.push(listener);
  if (latest !== null) listener(latest.page, latest.live);
}

/** A short message at the edge of the page. */
export function toast(text) {
  const place = document.getElementById("toasts");
  // The same text again replaces the first one, so that a burst does not fill the window.
  [...place.children].find((each) => each.textContent === text)?.remove();
  const note = make("p", { class: "toast" }, text);
  place.append(note);
  setTimeout(() => note.remove(), TOAST_MS);
}

/** Copy a text and confirm it. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("frame.copied"));
  } catch {
    toast(t("frame.copy_failed"));
  }
}

/** @returns {Promise<boolean>} whether the user confirmed */
export function confirmDialog({ title, text, action, danger = false }) {
  const no = make("button", { class: "button", type: "button" }, t("frame.cancel"));
  const yes = make(
    "button",
    { class: `button ${danger ? "button-danger" : "button-primary"}`, type: "button" },
    action,
  );
  const heading = make("h2", { id: "dialog-title" }, title);
  const dialog = make(
    "dialog",
    { class: "dialog", "aria-labelledby": "dialog-title" },
    heading,
    make("p", { class: "muted" }, text),
    make("div", { class: "row" }, no, yes),
  );
  document.body.append(dialog);
  return new Promise((resolve) => {
    no.addEventListener("click", () => dialog.close("no"));
    yes.addEventListener("click", () => dialog.close("yes"));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    dialog.showModal();
    no.focus();
  });
}

function chosenTheme() {
  try {
    const kept = localStorage.getItem("askback-theme");
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

function showTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme-switch");
  button.setAttribute("aria-label", t(`frame.theme.${theme}`));
  button.title = t(`frame.theme.${theme}`);
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(chosenTheme()) + 1) % THEMES.length];
  try {
    localStorage.setItem("askback-theme", theme);
  } catch {
    // Without storage, the choice lasts for this page.
  }
  showTheme(theme);
}

function chooseLanguage(language) {
  document.cookie = `askback_language=${language}; path=/; max-age=31536000; samesite=strict`;
  location.reload();
}

function showCount(page) {
  const badge = document.getElementById("inbox-count");
  document.title = page.total > 0 ? `(${page.total}) ${plainTitle}` : plainTitle;
  if (badge === null) return;
  badge.hidden = page.total === 0;
  badge.textContent = String(page.total);
  badge.title = t("frame.count", { n: page.total });
  showPlace();
}

/** A desktop notification, if allowed and if this page is not visible. */
function notify(asked) {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  // With pushes, the service worker shows it.
  if (isKept()) return;
  const how = { body: asked.prompt.slice(0, 200), tag: keyOf(asked) };
  let note;
  try {
    note = new Notification(t("frame.asked", { skill: asked.skill }), how);
  } catch {
    // On Android only a service worker can show notifications.
    return;
  }
  note.onclick = () => {
    window.focus();
    if (location.pathname !== "/") location.assign("/");
  };
}

function inboxChanged(page, live) {
  if (page !== null) showCount(page);
  if (live && latest?.live === false) window.dispatchEvent(new Event("askback-reconnected"));
  latest = { page: page ?? latest?.page ?? null, live };
  for (const listener of listeners) listener(page, live);
}

/** If the menu is wider than a small screen, it fades at its end and is scrolled to the current entry. */
function showPlace() {
  const menu = document.querySelector(".site-nav ul");
  const here = menu?.querySelector("[aria-current]");
  menu?.classList.toggle("wider", menu.scrollWidth > menu.clientWidth);
  if (here) menu.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - menu.clientWidth / 2;
}

showPlace();
document.getElementById("theme-switch").addEventListener("click", nextTheme);
document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-copy]");
  if (button !== null) copyText(button.dataset.copy);
});
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => chooseLanguage(button.dataset.language));
}
showTheme(chosenTheme());
refreshTimes();
setInterval(refreshTimes, 20_000);
if (document.body.dataset.followInbox === "yes") {
  if (isKept()) renew().catch(() => {});
  followInbox(
    (page) => inboxChanged(page, true),
    (live) => inboxChanged(null, live),
    notify,
  );
}
