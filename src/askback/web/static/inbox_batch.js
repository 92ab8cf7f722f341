// The same answer to several like questions: chosen by checkboxes, answered in a dialog, and confirmed by name.

import { make } from "./elements.js";
import { questionForm } from "./form.js";
import { shortened } from "./outcomes.js";
import { reply } from "./question_card.js";
import { questionText } from "./question_text.js";
import { t } from "./translations.js";

const GONE = 409;

/** Equal for questions that one answer fits; null for a question that must be answered alone. */
export function likeness({ skill, prompt, kind, options, response_schema: schema, secret_fields: secrets }) {
  if (!secrets || secrets.length > 0 || kind === "file" || JSON.stringify(schema ?? null).includes("x-input-source")) return null;
  return JSON.stringify([skill, prompt, kind, options, schema]);
}

export class Batch {
  /** @param {{rows: () => Row[], onSent: (row: Row, label: ?string) => void, onTaken: (row: Row) => void, onChosen: (rows: Row[]) => void}} how */
  constructor(place, how) {
    this.how = how;
    this.count = make("span", { role: "status" });
    this.all = button("button-small", "", () => this.checkAll());
    const answer = button("button-small button-primary", t("batch.answer"), () => this.open());
    const clear = button("button-small button-quiet", t("batch.clear"), () => this.clear());
    this.bar = make("div", { class: "batch batch-bar", hidden: true }, this.count, this.all, answer, clear);
    this.place = place;
    place.append(this.bar);
  }

  get chosen() {
    return this.how.rows().filter((row) => row.check.checked);
  }

  get like() {
    const kind = likeness(this.chosen[0].asked);
    return this.how.rows().filter((row) => likeness(row.asked) === kind);
  }

  /** Only questions like the chosen ones can be chosen as well. */
  show() {
    const chosen = this.chosen;
    const kind = chosen.length > 0 ? likeness(chosen[0].asked) : null;
    for (const row of this.how.rows()) {
      const own = likeness(row.asked);
      row.check.disabled = own === null || (kind !== null && own !== kind);
    }
    this.how.onChosen(chosen);
    this.bar.hidden = chosen.length === 0;
    if (this.bar.hidden) return;
    const like = this.like.length;
    this.count.textContent = t("batch.count", { n: chosen.length });
    this.all.hidden = like === chosen.length;
    this.all.textContent = t("batch.all", { n: like });
  }

  checkAll() {
    for (const row of this.like) row.check.checked = true;
    this.show();
  }

  clear() {
    for (const row of this.how.rows()) row.check.checked = false;
    this.show();
  }

  open() {
    const rows = this.chosen;
    const title = make("h2", { id: "batch-title" }, t("batch.title", { n: rows.length }));
    this.body = make("div", { class: "batch-body" });
    const close = button("", t("frame.cancel"), () => this.dialog.close());
    this.end = make("div", { class: "row" }, close);
    this.dialog = make("dialog", { class: "dialog batch batch-dialog", "aria-labelledby": title.id }, title, this.body, this.end);
    const form = questionForm(rows[0].asked, { t, onSend: (...answer) => this.confirmed(rows, ...answer) });
    this.form = [...questionText(rows[0].asked).slice(0, 1), names(rows), form];
    this.body.append(...this.form);
    // Inside the part that is guarded against clicks on what has just moved.
    document.getElementById("main").append(this.dialog);
    this.dialog.addEventListener("close", () => this.dialog.remove());
    this.dialog.showModal();
  }

  /** Ask once, with the names of all questions; then send. Rejects if the user goes back. */
  confirmed(rows, response, label) {
    return new Promise((resolve, reject) => {
      const answer = label === null ? t("batch.confirm.form", { n: rows.length }) : t("batch.confirm", { n: rows.length, text: shortened(label) });
      const [back, send] = [button("", t("frame.cancel"), null), button("button-primary", t("batch.send", { n: rows.length }), null)];
      const before = [...this.end.childNodes];
      const restore = () => {
        this.body.replaceChildren(...this.form);
        this.end.replaceChildren(...before);
        reject(Object.assign(new Error(), { withdrawn: true }));
      };
      back.addEventListener("click", restore);
      send.addEventListener("click", async () => {
        send.disabled = back.disabled = true;
        this.showResults(await this.sendAll(rows, response, label));
        resolve();
      });
      this.body.replaceChildren(make("p", {}, make("strong", {}, answer)), names(rows));
      this.end.replaceChildren(back, send);
      back.focus();
    });
  }

  /** Every answer is an ordinary reply. One that fails does not stop the others. */
  async sendAll(rows, response, label) {
    const results = [];
    let sent = 0;
    for (const row of rows) {
      try {
        await reply(row.asked, response);
        results.push([row, t("batch.result.sent")]);
        sent += 1;
        this.how.onSent(row, label);
      } catch (problem) {
        results.push([row, problem.status === GONE ? t("batch.result.late") : problem.message]);
        if (problem.status === GONE) this.how.onTaken(row);
      }
    }
    return { results, sent };
  }

  showResults({ results, sent }) {
    const items = results.map(([row, text]) => make("li", {}, make("span", {}, nameOf(row)), make("strong", {}, text)));
    this.body.replaceChildren(
      make("p", { role: "status" }, t("batch.result", { n: sent, total: results.length })),
      make("ul", { class: "batch-names" }, ...items),
    );
    const done = button("button-primary", t("batch.done"), () => this.dialog.close());
    this.end.replaceChildren(done);
    done.focus();
    this.clear();
  }
}

function button(look, label, act) {
  const made = make("button", { class: `button ${look}`, type: "button" }, label);
  if (act !== null) made.addEventListener("click", act);
  return made;
}

function nameOf({ asked }) {
  return [asked.skill, asked.summary ?? asked.run_id].join(" · ");
}

function names(rows) {
  return make("ul", { class: "batch-names" }, ...rows.map((row) => make("li", {}, nameOf(row))));
}
