// The compact rows of the inbox: one line with the question, one muted line about it, and a line when it has ended.

import { get } from "./api.js";
import { make, newId } from "./elements.js";
import { outcomeText, takenText } from "./outcomes.js";
import { labelsForPeople, runLink } from "./question_card.js";
import { SETTLE_MS } from "./settling.js";
import { countdownElement } from "./deadline.js";
import { timeElement } from "./time.js";
import { countText, t } from "./translations.js";

const ROW_MS = 8000;
const MOST_LOOKS = 10;
const PROMPT_CHARACTERS = 240;
let looking = 0;

export class Row {
  /** @param {{onOpen: (row: Row, byKey: boolean) => void, onCheck: () => void, mayAnswer: boolean}} how */
  constructor(asked, { onOpen, onCheck, mayAnswer }) {
    this.asked = asked;
    this.card = null;
    this.openedAt = -Infinity;
    const prompt = make("span", { class: "row-prompt", id: newId("row") }, asked.prompt.slice(0, PROMPT_CHARACTERS));
    const about = make("span", { class: "row-about" }, make("span", {}, asked.skill));
    if (asked.summary) about.append(make("span", { class: "row-summary" }, asked.summary));
    if (asked.questions?.length) about.append(make("span", {}, countText("inbox.row.questions", asked.questions.length)));
    about.append(timeElement(asked.asked_at));
    for (const [name, value] of labelsForPeople(asked)) about.append(make("span", { class: "row-label" }, `${name}=${value}`));
    this.button = make("button", { class: "row-button", type: "button" }, prompt, about);
    this.button.addEventListener("click", (event) => onOpen(this, event.detail === 0));
    this.check = make("input", { class: "row-check", type: "checkbox", "aria-label": t("batch.select", { prompt: prompt.textContent }) });
    this.check.addEventListener("change", onCheck);
    this.check.hidden = !mayAnswer || asked.kind === "secret" || asked.kind === "file";
    const left = asked.wait_deadline_at ? countdownElement(asked.wait_deadline_at) : null;
    this.head = make("div", { class: "row-head" }, make("span", { class: "row-place" }, this.check), this.button, left);
    this.element = make("li", { class: "inbox-row" }, this.head);
  }

  /** Show whether this row is the open one. `wide`: its card is beside the list. */
  mark(open, wide) {
    this.element.classList.toggle("row-open", open);
    if (wide && open) this.button.setAttribute("aria-current", "true");
    else this.button.removeAttribute("aria-current");
    if (wide) this.button.removeAttribute("aria-expanded");
    else this.button.setAttribute("aria-expanded", String(open));
  }

  /** Leave a line with this text. It is as tall as the row was until a double click is over; after some seconds it goes. */
  leave(text, { onFolded, onGone }) {
    const said = make("span", {}, text);
    const about = make("strong", {}, [this.asked.skill, this.asked.summary].filter(Boolean).join(" · "));
    const line = make("li", { class: "sent-row small" }, about, said, runLink(this.asked));
    line.style.minHeight = `${this.element.offsetHeight}px`;
    this.element.replaceWith(line);
    setTimeout(() => {
      line.style.minHeight = "";
      onFolded();
    }, SETTLE_MS);
    const go = () => {
      if (line.matches(":hover, :has(:focus-visible)")) setTimeout(go, SETTLE_MS);
      else {
        line.remove();
        onGone();
      }
    };
    setTimeout(go, ROW_MS);
    return said;
  }
}

/** Say how a question was closed in these elements. Without permission to read runs, they say only that it is. */
export function sayOutcome(asked, ...elements) {
  return sayClosed(asked, elements, outcomeText);
}

/** Say in this element who was faster. */
export function sayTaken(asked, element) {
  return sayClosed(asked, [element], takenText);
}

async function sayClosed({ run_id: run, interaction_id }, elements, textOf) {
  if (looking >= MOST_LOOKS) return;
  looking += 1;
  try {
    const { items } = await get(`/v1/runs/${encodeURIComponent(run)}/interactions`);
    const closed = items.find((each) => each.interaction_id === interaction_id);
    if (closed === undefined || closed.outcome === "pending") return;
    // An element, not a text: a button that it moves is noticed now, and not at the next click on it.
    for (const each of elements) each.replaceChildren(make("span", {}, textOf(closed)));
  } catch {
    // The line stays as it is.
  } finally {
    looking -= 1;
  }
}
