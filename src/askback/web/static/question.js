// The form that answers one question: its options as buttons, its schema as fields, free text if it has no schema.
//
// The caller shows the prompt and the context.

import { upload } from "./api.js";
import { make, newId } from "./elements.js";
import { fieldFor } from "./fields.js";
import { schemaForm } from "./form.js";

const GONE = 409;
const RECONNECTED = "askback-reconnected";
const SHORT_LABEL = 28;
const TOUCH = window.matchMedia("(pointer: coarse)");

/**
 * @param {{interaction_id: string, kind: string, prompt: string, options: unknown[], default: unknown, response_schema: ?object}} interaction
 * @param {{t: Function, onSend: (response: unknown, label: ?string) => Promise<void>, files?: Function, chosen?: ?number, draft?: ?{read(): unknown, keep(value: unknown): void, drop(): void}}} how
 *   `chosen` is the place of an option that only has to be confirmed. `label` is the answer in words, or null if it is secret or a form. `onSend` throws an Error with a `message` for the user, and optionally a `status` and `problems`; one that is `withdrawn` is not shown.
 * @returns {HTMLElement}
 */
export function questionForm(interaction, { t, onSend, files = upload, draft = null, chosen = null }) {
  const inside = make("fieldset", { class: "answer-parts" });
  const status = make("p", { class: "answer-status", role: "status" });
  const trouble = make("p", { class: "answer-trouble", role: "alert", hidden: true });
  const form = make("form", { class: "answer", "aria-label": interaction.prompt, novalidate: true }, inside, status, trouble);
  form.addEventListener("submit", (event) => event.preventDefault());

  let sending = false;
  let unreached = false;
  const say = (message) => {
    trouble.textContent = message;
    trouble.hidden = !message;
  };
  // A message is over when its cause is: the user changes the answer, or the server is back.
  form.addEventListener("input", () => inside.disabled || say(""));
  form.addEventListener(RECONNECTED, () => {
    if (unreached) say("");
    unreached = false;
  });
  /** Send once; after an error it can be sent again. */
  const send = async (response, { part = null, label = null } = {}) => {
    if (sending) return;
    sending = true;
    const focused = document.activeElement;
    inside.disabled = true;
    form.setAttribute("aria-busy", "true");
    say("");
    status.textContent = t("form.sending");
    try {
      await onSend(response, label);
      draft?.drop();
      status.textContent = t("form.sent");
    } catch (error) {
      status.textContent = "";
      unreached = error.code === "OFFLINE";
      const gone = error.status === GONE || error.code === "INTERACTION_NOT_PENDING";
      sending = gone;
      inside.disabled = gone;
      const left = part?.place?.(error.problems ?? []) ?? error.problems ?? [];
      const placed = (error.problems ?? []).length > left.length;
      if (!error.withdrawn) say(gone ? t("form.gone") : [placed ? t("form.fix") : error.message || t("form.failed"), ...left.map(({ line }) => line)].join(" "));
      if (!placed) focused?.focus?.();
    } finally {
      form.removeAttribute("aria-busy");
    }
  };
  const parts = [optionButtons, fieldsPart, filePart].map((make) => make(interaction, { t, send, files, draft }));
  inside.append(...parts.filter(Boolean));
  if (!interaction.response_schema) inside.append(ownWords(interaction, { t, send, draft, aside: parts.some(Boolean) }));
  const wanted = chosen === null ? undefined : optionsOf(interaction, t)[chosen];
  if (wanted !== undefined) confirmFirst(inside, wanted, { t, send });
  return form;
}

function optionButtons(interaction, { t, send }) {
  const offered = optionsOf(interaction, t);
  if (offered.length === 0) return null;
  const buttons = offered.map(({ label, value, help }) => {
    const suggested = interaction.default !== null && JSON.stringify(interaction.default) === JSON.stringify(value);
    const mark = suggested ? make("span", { class: "option-mark" }, t("form.suggested")) : null;
    const note = help ? make("small", {}, help) : null;
    const button = make("button", { type: "button", class: "option" }, make("span", {}, label, note), mark);
    button.addEventListener("click", () => send(value, { label }));
    return button;
  });
  const short = offered.length > 1 && offered.every(({ label, help }) => label.length <= SHORT_LABEL && !help);
  const shape = short ? "options options-short" : "options";
  return make("div", { class: shape, role: "group", "aria-label": t("form.options") }, ...buttons);
}

/** Show the chosen option with a button that sends it; everything else on request. */
function confirmFirst(inside, { label, value, help }, { t, send }) {
  const rest = make("div", { class: "answer-parts", hidden: true }, ...inside.children);
  const yes = make("button", { type: "button", class: "button button-primary chosen-send" }, t("form.chosen.send"));
  const other = make("button", { type: "button", class: "button button-quiet" }, t("form.chosen.other"));
  const note = help ? make("small", { class: "muted" }, help) : null;
  const title = make("p", { class: "muted small" }, t("form.chosen"));
  const block = make("div", { class: "chosen" }, title, make("p", { class: "chosen-label" }, label), note, yes, other);
  yes.addEventListener("click", () => send(value, { label }));
  other.addEventListener("click", () => {
    block.remove();
    rest.hidden = false;
    rest.querySelector("button, input, textarea, select")?.focus();
  });
  inside.append(block, rest);
}

/** What can be answered by one click; nothing where a form has to be filled in. */
function optionsOf({ options, kind, response_schema: schema }, t) {
  if (schema?.type === "object") return [];
  const given = (options ?? []).map((option) => {
    if (typeof option !== "object" || option === null) return { label: String(option), value: option };
    return { label: String(option.label ?? option.value), value: option.value ?? option.label, help: option.description };
  });
  const flag = schema?.type === "boolean";
  if (given.length > 0 || !(flag || (kind === "confirm" && !schema))) return given;
  return [
    { label: t("form.yes"), value: flag ? true : "yes" },
    { label: t("form.no"), value: flag ? false : "no" },
  ];
}

function fieldsPart(interaction, { t, send, files, draft }) {
  const { response_schema: schema, default: given, kind } = interaction;
  if (!schema || optionsOf(interaction, t).length > 0) return null;
  const shown = kind === "secret" && schema.type === "string" ? { format: "password", ...schema } : schema;
  const start = draft?.read() ?? given ?? undefined;
  const fields = schemaForm(shown, { t, files, root: "response", given: start, title: t("form.answer"), asks: kind === "form" });
  for (const type of ["input", "change", "click"]) fields.element.addEventListener(type, () => draft?.keep(fields.value()));
  const submit = () => fields.check() && send(fields.value(), { part: fields });
  const button = sendButton(t, submit);
  fields.element.addEventListener("keydown", (event) => {
    if (sends(event) && event.target.matches("input:not([type=file]), textarea")) {
      event.preventDefault();
      submit();
    }
  });
  return make("div", { class: "answer-fields" }, fields.element, make("div", { class: "answer-end" }, button));
}

function filePart({ kind }, { t, send, files }) {
  if (kind !== "file") return null;
  const schema = { "x-input-source": "file" };
  const field = fieldFor(schema, { title: t("form.file"), required: true, root: schema, depth: 1, t, upload: files });
  const button = sendButton(t, () => {
    const [wrong] = field.problems();
    field.show(wrong?.message ?? null);
    if (wrong) field.focus();
    else send(field.value());
  });
  return make("div", { class: "answer-fields" }, field.element, make("div", { class: "answer-end" }, button));
}

/** Free text: the whole form if there is nothing else, otherwise collapsed below it. */
function ownWords({ kind, default: given, prompt }, { t, send, draft, aside }) {
  const secret = kind === "secret";
  const id = newId("answer");
  const input = secret
    ? make("input", { id, class: "input", type: "password", autocomplete: "off" })
    : make("textarea", { id, class: "input answer-text", rows: 1, placeholder: t("form.answer_placeholder") });
  if (!aside && typeof given === "string") input.value = given;
  const kept = draft?.read();
  if (typeof kept === "string") input.value = kept;
  const problem = make("p", { class: "problem", id: newId("problem"), hidden: true });
  input.setAttribute("aria-describedby", problem.id);
  input.setAttribute("aria-label", aside ? t("form.own_words") : prompt);
  const submit = () => {
    const empty = (secret ? input.value : input.value.trim()) === "";
    problem.textContent = empty ? t("form.problem.answer") : "";
    problem.hidden = !empty;
    if (empty) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    if (empty) input.focus();
    else send(input.value, { label: secret ? null : input.value });
  };
  input.addEventListener("input", () => {
    draft?.keep(input.value);
    problem.hidden = true;
    input.removeAttribute("aria-invalid");
  });
  input.addEventListener("keydown", (event) => {
    if (!sends(event)) return;
    event.preventDefault();
    submit();
  });
  const row = make("div", { class: "answer-row" }, input, sendButton(t, submit));
  const hint = make("p", { class: "answer-hint" }, t(secret ? "form.secret_hint" : TOUCH.matches ? "form.touch_hint" : "form.enter_hint"));
  if (!aside) return make("div", { class: "answer-own" }, row, problem, hint);
  return make("details", { class: "answer-own", open: kept !== undefined }, make("summary", {}, t("form.own_words")), row, problem, hint);
}

function sendButton(t, act) {
  const button = make("button", { type: "button", class: "button button-primary" }, t("form.send"));
  button.addEventListener("click", act);
  return button;
}

/** Enter sends, Shift+Enter starts a new line; on a touch keyboard, Enter starts a new line too. An Enter that confirms input-method text does neither. */
function sends(event) {
  if (TOUCH.matches && event.target.matches("textarea")) return false;
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && !event.defaultPrevented;
}

window.addEventListener(RECONNECTED, () => {
  for (const form of document.querySelectorAll("form.answer")) form.dispatchEvent(new Event(RECONNECTED));
});
window.addEventListener("online", () => window.dispatchEvent(new Event(RECONNECTED)));
