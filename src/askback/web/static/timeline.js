// The timeline of a run: when it was queued, running and waiting, turn by turn. Work is drawn to scale. A wait that is
// longer than all the work is a gap of fixed width with its length, so that the work stays readable.

import { make } from "./elements.js";
import { dayOf, duration, momentText } from "./time.js";
import { t } from "./translations.js";

const MOST_PARTS = 120;
const MOST_LABELS = 4;
const LASTING = ["queued", "running", "waiting_user"];

/** Collects states and turns from the events. */
export class Timeline {
  constructor() {
    this.parts = [];
    this.turn = 1;
    this.drawn = null;
  }

  take({ type, data, at }) {
    if (type === "turn.started") this.turn = data.attempt_number;
    if (type === "turn.started" && this.parts.length > 0) this.parts.at(-1).turn = data.attempt_number;
    if (type !== "run.state") return false;
    const moment = new Date(at).getTime();
    if (this.parts.length > 0) this.parts.at(-1).end ??= moment;
    if (LASTING.includes(data.to)) this.parts.push({ state: data.to, turn: this.turn, start: moment, end: null });
    return true;
  }

  show(picture, legend) {
    const now = Date.now();
    const parts = this.parts
      .slice(-MOST_PARTS)
      .map((part) => ({ ...part, sec: Math.max(0, ((part.end ?? now) - part.start) / 1000) }));
    // A finished run is drawn once.
    const key = JSON.stringify(parts);
    if (key === this.drawn) return;
    this.drawn = key;
    const none = () => [make("p", { class: "muted small" }, t("run.timeline.none"))];
    picture.replaceChildren(...(parts.length > 0 ? [bar(parts), ends(parts)] : none()));
    legend.replaceChildren(...totals(parts));
  }
}

function bar(parts) {
  const work = sum(parts.filter(({ state }) => state === "running"));
  const isGap = ({ state, sec }) => state !== "running" && work > 0 && sec > work;
  const gaps = parts.filter(isGap).length;
  const scale = sum(parts.filter((part) => !isGap(part))) || 1;
  const drawn = parts.map((part) => {
    const gap = isGap(part);
    const label = gap && gaps <= MOST_LABELS ? duration(part.sec) : null;
    const kind = `timeline-part timeline-${part.state}${gap ? " timeline-gap" : ""}`;
    const element = make("span", { class: kind, title: described(part) }, label);
    if (!gap) element.style.flexGrow = String(Math.max(0.01, part.sec / scale));
    return element;
  });
  return make("div", { class: "timeline-bar", role: "img", "aria-label": parts.map(described).join("; ") }, ...drawn);
}

/** When it began, and when it ended. */
function ends(parts) {
  const first = new Date(parts[0].start);
  const last = parts.at(-1).end === null ? null : new Date(parts.at(-1).end);
  const isToday = dayOf(first) === dayOf(new Date());
  const texts = [momentText(first, !isToday)];
  texts.push(last === null ? t("run.timeline.now") : momentText(last, dayOf(last) !== dayOf(first)));
  return make("p", { class: "timeline-ends" }, ...texts.map((text) => make("span", {}, text)));
}

function sum(parts) {
  return parts.reduce((total, part) => total + part.sec, 0);
}

function described({ state, turn, sec }) {
  return t("run.timeline.part", { state: t(`run.timeline.${state}`), n: turn, time: duration(sec) });
}

function totals(parts) {
  const there = LASTING.filter((state) => parts.some((part) => part.state === state));
  return there.map((state) => {
    const sec = sum(parts.filter((part) => part.state === state));
    return make("li", { class: `timeline-key timeline-key-${state}` }, `${t(`run.timeline.${state}`)} ${duration(sec)}`);
  });
}
