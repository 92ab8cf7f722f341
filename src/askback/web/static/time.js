// Times and durations in the page's language.

import { language, t } from "./translations.js";

const STEPS = [
  ["year", 31536000],
  ["month", 2592000],
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];
// The page has a language; the browser has the regional variant.
const locale = navigator.languages.find((each) => each.toLowerCase().startsWith(language)) ?? language;
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "always", style: "long" });
const exact = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" });
const today = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const anyDay = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const thisYear = new Intl.DateTimeFormat(locale, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** `3 minutes ago`, `in 90 days`. What has just been given 24 hours ends in 24 hours, not in 23. */
export function ago(moment) {
  const seconds = (moment.getTime() - Date.now()) / 1000;
  const whole = seconds > 0 ? Math.round : Math.trunc;
  for (const [unit, length] of STEPS) {
    if (Math.abs(seconds) >= length) return relative.format(whole(seconds / length), unit);
  }
  return t("frame.just_now");
}

export function exactly(moment) {
  return exact.format(moment);
}

/** A future time; without the date if it is today. */
export function untilTime(moment) {
  return (moment.toDateString() === new Date().toDateString() ? today : anyDay).format(moment);
}

/** A day in local time, to compare with another. */
export function dayOf(moment) {
  return moment.toDateString();
}

/** `14:26`, or with its date `Mon, 16 Nov, 14:26`. */
export function momentText(moment, withDate) {
  if (!withDate) return today.format(moment);
  return (moment.getFullYear() === new Date().getFullYear() ? thisYear : anyDay).format(moment);
}

/** `1:05:09`, `4:07`, for a countdown. */
export function countdown(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
  const texts = parts.map((part) => String(part).padStart(2, "0"));
  return parts[0] > 0 ? `${parts[0]}:${texts[1]}:${texts[2]}` : `${parts[1]}:${texts[2]}`;
}

/** `850 ms`, `2.1 s`, `12 s`, `4 min 7 s`, `2 h 5 min`, `3 d` */
export function duration(seconds) {
  const unit = (name, n) => t(`frame.duration.${name}`, { n });
  const joined = (first, second) => [unit(...first), second[1] > 0 ? unit(...second) : null].filter(Boolean).join(" ");
  if (seconds < 1) return unit("ms", Math.round(seconds * 1000));
  if (seconds < 9.95) return unit("s", seconds.toFixed(1));
  const whole = Math.round(seconds);
  if (whole < 60) return unit("s", whole);
  if (whole < 3600) return joined(["min", Math.floor(whole / 60)], ["s", whole % 60]);
  const minutes = Math.round(whole / 60);
  if (minutes < 24 * 60) return joined(["h", Math.floor(minutes / 60)], ["min", minutes % 60]);
  const hours = Math.round(minutes / 60);
  return joined(["d", Math.floor(hours / 24)], ["h", hours % 24]);
}

/** Update all relative times inside the element. */
export function refreshTimes(root = document) {
  for (const element of root.querySelectorAll("time[data-relative]")) {
    const moment = new Date(element.dateTime);
    element.textContent = ago(moment);
    element.title = exactly(moment);
  }
}

/** A `<time>` that is updated while the page is open. */
export function timeElement(text) {
  const element = document.createElement("time");
  element.dateTime = text;
  element.dataset.relative = "";
  const moment = new Date(text);
  element.textContent = ago(moment);
  element.title = exactly(moment);
  return element;
}
