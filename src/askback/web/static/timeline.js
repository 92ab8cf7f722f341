// The timeline of a run: when it was queued, running and waiting, turn by turn.

import { make } from "./elements.js";
import { duration } from "./time.js";
import { t } from "./translations.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const HEIGHT = 34;
const LEAST = 8;
const GAP = 2;
const MOST_PARTS = 120;
const LASTING = ["queued", "running", "waiting_user"];

/** Collects states and turns from the events. */
export class Timeline {
  constructor() {
    this.parts = [];
    this.turn = 1;
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
    picture.replaceChildren(parts.length > 0 ? drawn(parts) : make("p", { class: "muted small" }, t("run.timeline.none")));
    legend.replaceChildren(...totals(parts));
  }
}

function drawn(parts) {
  const image = element("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "timeline-svg",
    role: "img",
    preserveAspectRatio: "none",
  });
  image.setAttribute("aria-label", parts.map(described).join("; "));
  const widths = shared(parts.map((part) => part.sec));
  let x = 0;
  for (const [place, part] of parts.entries()) {
    const bar = element("rect", {
      x,
      y: 0,
      width: Math.max(1, widths[place] - GAP),
      height: HEIGHT,
      rx: 4,
      class: `timeline-${part.state}`,
    });
    const title = element("title", {});
    title.textContent = described(part);
    bar.append(title);
    image.append(bar);
    x += widths[place];
  }
  return image;
}

/** Proportional widths with a visible minimum. */
function shared(seconds) {
  const total = seconds.reduce((sum, each) => sum + each, 0) || 1;
  const least = Math.min(LEAST, WIDTH / seconds.length);
  const wide = seconds.map((each) => Math.max(least, (WIDTH * each) / total));
  const scale = WIDTH / wide.reduce((sum, each) => sum + each, 0);
  return wide.map((each) => each * scale);
}

function described({ state, turn, sec }) {
  return t("run.timeline.part", { state: t(`run.timeline.${state}`), n: turn, time: duration(sec) });
}

function totals(parts) {
  const there = LASTING.filter((state) => parts.some((part) => part.state === state));
  return there.map((state) => {
    const sec = parts.filter((part) => part.state === state).reduce((sum, part) => sum + part.sec, 0);
    return make("li", { class: `timeline-key timeline-key-${state}` }, `${t(`run.timeline.${state}`)} ${duration(sec)}`);
  });
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}
