// People, their tokens, and invitations for their devices.

import { get, post, remove } from "./api.js";
import { make, newId } from "./elements.js";
import { confirmDialog, copyText } from "./frame.js";
import { timeElement } from "./time.js";
import { t } from "./translations.js";

const DAY_SEC = 86_400;
const INVALID = 422;
const NAME = /^(?!askback$)[a-z0-9][a-z0-9._-]{0,99}$/i;
const LOOPBACK = /^(localhost|127\.|\[::1\]|0\.0\.0\.0)|\.localhost$/;
const SCOPES = ["answer", "approve", "read", "submit", "admin"];
const form = document.getElementById("add");
const handed = document.getElementById("handed");
const trouble = document.getElementById("trouble");
let names = new Set();

function fact(name, ...value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, ...value));
}

/** What the holder may do, in words. */
function rights({ scopes }) {
  if (scopes.includes("admin")) return t("people.may.admin");
  return SCOPES.filter((each) => scopes.includes(each)).map((each) => t(`people.may.${each}`)).join(" · ");
}

/** The labels to which the token is restricted; null if it is not. */
function onlyLabels(labels) {
  const given = Object.entries(labels);
  if (given.length === 0) return null;
  const shown = given.map(([name, value]) => make("span", { class: "tag" }, `${name}: ${value}`));
  return make("p", { class: "person-labels small" }, make("span", { class: "muted" }, t("people.only")), ...shown);
}

function lastUse({ last_used_at: at, last_used_via: via }) {
  return at === null ? [t("people.never_used")] : [timeElement(at), " · ", t(`people.via.${via}`)];
}

function button(text, label, act, look = "") {
  const made = make("button", { class: `button button-small ${look}`, type: "button", "aria-label": label }, text);
  made.addEventListener("click", () => attempt(act));
  return made;
}

function row(token) {
  const { name } = token;
  const marks = [];
  if (token.main) marks.push(make("span", { class: "tag tag-strong" }, t("people.main")));
  if (token.expired) marks.push(make("span", { class: "tag" }, t("people.expired")));
  const actions = [];
  if (!token.main && !token.expired) actions.push(button(t("people.device"), t("people.device.of", { name }), () => invite(name)));
  if (!token.main) actions.push(button(t("people.revoke"), t("people.revoke.of", { name }), () => revoke(token), "button-danger"));
  const facts = [
    token.created_at ? fact(t("people.created"), timeElement(token.created_at)) : null,
    fact(t("people.expires"), token.expires_at ? timeElement(token.expires_at) : t("people.expires.never")),
    fact(t("people.used"), ...lastUse(token)),
    fact(t("people.devices"), String(token.sessions)),
  ];
  return make(
    "li",
    { class: `card person${token.expired ? " person-expired" : ""}`, "data-name": name },
    make("div", { class: "person-head" }, make("h2", {}, name), ...marks, ...actions),
    make("p", { class: "muted" }, token.main ? t("people.main.text") : rights(token)),
    onlyLabels(token.labels),
    make("dl", { class: "facts-row" }, ...facts.filter(Boolean)),
  );
}

function waitingRow({ id, token, expires_at: at }) {
  const end = button(t("people.withdraw"), t("people.withdraw.of", { name: token }), async () => {
    await remove(`/v1/invitations/${encodeURIComponent(id)}`);
    await show();
  });
  const until = make("span", { class: "muted small" }, t("people.expires"), " ", timeElement(at));
  return make("li", {}, make("strong", {}, token), until, end);
}

async function show() {
  const [tokens, invitations] = await Promise.all([get("/v1/tokens"), get("/v1/invitations")]);
  names = new Set(tokens.items.map(({ name }) => name));
  const list = document.getElementById("people");
  list.replaceChildren(...tokens.items.map(row));
  list.removeAttribute("aria-busy");
  document.getElementById("invitations").replaceChildren(...invitations.items.map(waitingRow));
  document.getElementById("waiting").hidden = invitations.items.length === 0;
}

async function attempt(work) {
  trouble.hidden = true;
  try {
    await work();
  } catch (error) {
    trouble.textContent = error.message;
    trouble.hidden = false;
    trouble.scrollIntoView({ block: "nearest" });
  }
}

/** A text to hand over, with a button that copies it. */
function handedPart(title, text, help) {
  const id = newId("handed");
  const field = make("input", { class: "input", id, readonly: true, value: text });
  field.addEventListener("focus", () => field.select());
  const copy = make("button", { class: "button", type: "button", "aria-label": `${t("frame.copy")}: ${title}` }, t("frame.copy"));
  copy.addEventListener("click", () => copyText(text));
  const row = make("div", { class: "handed-row" }, field, copy);
  return make("div", { class: "handed-part" }, make("label", { for: id }, title), row, make("p", { class: "hint" }, help));
}

/** Nothing that was handed over stays on the page. */
function putAway() {
  handed.hidden = true;
  handed.removeAttribute("aria-labelledby");
  handed.replaceChildren();
}

function hand(name, invitation, token = null) {
  const done = make("button", { class: "button button-small", type: "button" }, t("people.handed.done"));
  done.addEventListener("click", putAway);
  const parts = [make("h2", { id: "handed-title" }, t("people.handed", { name })), make("p", { class: "muted" }, t("people.handed.text"))];
  parts.push(handedPart(t("people.link"), invitation.url, t("people.link.help", form.dataset)));
  if (LOOPBACK.test(new URL(invitation.url).hostname)) parts.push(make("p", { class: "alert alert-warn small" }, t("people.link.local")));
  if (token !== null) parts.push(handedPart(t("people.token"), token, t("people.token.help")));
  handed.replaceChildren(...parts, make("div", { class: "row" }, done));
  handed.setAttribute("aria-labelledby", "handed-title");
  handed.hidden = false;
  handed.focus();
  handed.scrollIntoView({ block: "nearest" });
}

async function invite(name, token = null) {
  hand(name, await post("/v1/invitations", { token: name }), token);
  await show();
}

async function revoke({ name, sessions }) {
  const text = [t("people.revoke.text", { name }), sessions > 0 ? t("people.revoke.devices", { n: sessions }) : null].filter(Boolean).join(" ");
  if (!(await confirmDialog({ title: t("people.revoke.of", { name }), text, action: t("people.revoke"), danger: true }))) return;
  await remove(`/v1/tokens/${encodeURIComponent(name)}`);
  putAway();
  await show();
}

function mark(id, message) {
  const problem = document.getElementById(`${id}-problem`);
  problem.textContent = message ?? "";
  problem.hidden = !message;
  return !message;
}

/** `customer=4711, plan=trial` → {customer: "4711", plan: "trial"}; null if it cannot be read. */
function labelsIn(text) {
  const pairs = text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => /^([^=]+)=(.+)$/.exec(each));
  return pairs.includes(null) ? null : Object.fromEntries(pairs.map(([, name, value]) => [name.trim(), value.trim()]));
}

/** @returns {Promise<?object>} the token; null if the name is taken, which is said at its field */
async function create(wanted) {
  try {
    return await post("/v1/tokens", wanted);
  } catch (problem) {
    if (problem.status === INVALID) await show();
    if (problem.status !== INVALID || !names.has(wanted.name)) throw problem;
    markName(t("people.name.taken"));
    form.elements.name.focus();
    return null;
  }
}

function markName(message) {
  form.elements.name.setAttribute("aria-invalid", String(message !== null));
  return mark("name", message);
}

/** Whether the form can be sent; says what is missing. */
function check(name, scopes, labels) {
  const named = markName(NAME.test(name) ? null : t("people.name.wrong"));
  const chosen = mark("scope", scopes.length > 0 ? null : t("people.may.none"));
  const read = mark("labels", labels !== null ? null : t("people.labels.wrong"));
  if (!named) form.elements.name.focus();
  else if (!chosen) form.querySelector("[name=scope]").focus();
  else if (!read) form.elements.labels.focus();
  return named && chosen && read;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = form.elements.name.value.trim();
  const scopes = [...form.querySelectorAll("[name=scope]:checked")].map((each) => each.value);
  const labels = labelsIn(form.elements.labels.value);
  if (!check(name, scopes, labels)) return;
  attempt(async () => {
    const days = Number(form.elements.expiry.value);
    const made = await create({ name, scopes, labels, ...(days > 0 ? { expires_in_sec: days * DAY_SEC } : {}) });
    if (made === null) return;
    form.reset();
    await invite(name, made.token);
  });
});
attempt(show);
