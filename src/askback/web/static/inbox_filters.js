// The filters of the inbox: skill, engine, labels and words. They are in the URL, so that reloading and going back keep them.

import { make } from "./elements.js";
import { t } from "./translations.js";

const TYPING_MS = 250;
const NAMES = ["skill", "engine", "q"];

export class Filters {
  /** @param {() => void} onChange called after the user or the browser's history has changed a filter */
  constructor(onChange) {
    this.onChange = onChange;
    this.search = document.getElementById("inbox-search");
    this.engine = document.getElementById("inbox-engine");
    this.chips = document.getElementById("inbox-skills");
    this.labelChips = document.getElementById("inbox-labels");
    this.timer = null;
    this.read();
    this.search.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.change({ q: this.search.value.trim() }, "replaceState"), TYPING_MS);
    });
    this.search.form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(this.timer);
      this.change({ q: this.search.value.trim() }, "replaceState");
    });
    this.engine.addEventListener("change", () => this.change({ engine: this.engine.value }));
    this.chips.addEventListener("click", (event) => {
      const chip = event.target.closest("button");
      if (chip !== null) this.change({ skill: chip.dataset.skill });
    });
    this.labelChips.addEventListener("click", (event) => {
      const chip = event.target.closest("button");
      if (chip !== null) this.change({ labels: this.wanted.labels.filter((each) => each !== chip.dataset.label) });
    });
    window.addEventListener("popstate", () => {
      this.read();
      this.onChange();
    });
  }

  read() {
    const given = new URLSearchParams(location.search);
    this.wanted = Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""]));
    this.wanted.labels = given.getAll("label").filter((each) => each !== "");
    if (this.search.value.trim() !== this.wanted.q) this.search.value = this.wanted.q;
  }

  get any() {
    return NAMES.some((name) => this.wanted[name] !== "") || this.wanted.labels.length > 0;
  }

  /** As the query of a URL. */
  get query() {
    const texts = NAMES.filter((name) => this.wanted[name] !== "").map((name) => [name, this.wanted[name]]);
    return new URLSearchParams([...texts, ...this.wanted.labels.map((each) => ["label", each])]);
  }

  clear() {
    this.search.value = "";
    this.change({ skill: "", engine: "", q: "", labels: [] });
  }

  change(changes, how = "pushState") {
    const before = String(this.query);
    this.wanted = { ...this.wanted, ...changes };
    const after = String(this.query);
    if (after === before) return;
    history[how](null, "", after === "" ? location.pathname : `?${after}`);
    this.onChange();
  }

  /** Chips with counts for the skills, and a list of the engines if there are several. */
  show({ skills, engines }) {
    const { skill, engine } = this.wanted;
    const counts = new Map(Object.entries(skills));
    if (skill !== "" && !counts.has(skill)) counts.set(skill, 0);
    const all = [...counts.values()].reduce((sum, each) => sum + each, 0);
    const chips = [chip("", t("inbox.filter.all"), all, skill), ...[...counts].map(([name, n]) => chip(name, name, n, skill))];
    const focused = document.activeElement?.closest?.("#inbox-skills button")?.dataset.skill;
    this.chips.replaceChildren(...chips);
    chips.find((each) => each.dataset.skill === focused)?.focus();
    this.chips.hidden = counts.size < 2 && skill === "";
    const names = [...new Set([...Object.keys(engines), ...(engine === "" ? [] : [engine])])];
    const options = names.map((name) => make("option", { value: name }, `${name} (${engines[name] ?? 0})`));
    this.engine.replaceChildren(make("option", { value: "" }, t("inbox.filter.engine.all")), ...options);
    this.engine.value = engine;
    this.engine.hidden = names.length < 2 && engine === "";
    this.labelChips.replaceChildren(...this.wanted.labels.map(labelChip));
    this.labelChips.hidden = this.wanted.labels.length === 0;
  }
}

/** A label that is asked for; a click removes it. */
function labelChip(label) {
  const cross = make("span", { class: "chip-count", "aria-hidden": "true" }, "×");
  const said = make("span", { class: "visually-hidden" }, t("frame.labels.remove"));
  const shown = { class: "chip label", type: "button", "data-label": label, "aria-pressed": "true", title: t("frame.labels.remove") };
  return make("button", shown, label, " ", cross, said);
}

function chip(skill, label, count, chosen) {
  const number = make("span", { class: "chip-count" }, String(count));
  return make("button", { class: "chip", type: "button", "data-skill": skill, "aria-pressed": String(skill === chosen) }, label, " ", number);
}
