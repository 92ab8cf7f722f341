// The signed-in browsers, and signing them out.

import { get, remove } from "./api.js";
import { make } from "./elements.js";
import { confirmDialog } from "./frame.js";
import { turnOff } from "./push.js";
import { timeElement } from "./time.js";
import { t } from "./translations.js";

const list = document.getElementById("sessions");
const trouble = document.getElementById("trouble");
const signOut = document.getElementById("sign-out");
let current = null;

function fact(name, value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value));
}

function row(session) {
  const name = session.browser || t("sessions.unknown");
  const stays = session.invited ? make("span", { class: "tag" }, t("sessions.invited")) : null;
  const mark = session.current ? make("span", { class: "tag tag-strong" }, t("sessions.current")) : null;
  const end = make("button", { class: "button button-small", type: "button", "aria-label": t("sessions.end.of", { name }) }, t("sessions.sign_out"));
  end.addEventListener("click", () => leave(`/v1/sessions/${encodeURIComponent(session.id)}`, session.current));
  return make(
    "li",
    { class: "card engine" },
    make("div", { class: "engine-head" }, make("h2", {}, name, " ", make("code", { class: "muted" }, session.id)), mark, stays, end),
    make(
      "dl",
      { class: "facts-row" },
      fact(t("sessions.token"), session.token),
      fact(t("sessions.created"), timeElement(session.created_at)),
      fact(t("sessions.seen"), timeElement(session.last_seen_at)),
      fact(t("sessions.expires"), timeElement(session.expires_at)),
    ),
  );
}

async function attempt(work) {
  trouble.hidden = true;
  try {
    await work();
  } catch (error) {
    trouble.textContent = error.message;
    trouble.hidden = false;
  }
}

async function show() {
  const { items } = await get("/v1/sessions");
  current = items.find((each) => each.current) ?? null;
  signOut.hidden = current === null;
  list.replaceChildren(...items.map(row));
  list.removeAttribute("aria-busy");
  document.getElementById("none").hidden = items.length > 0;
}

function leave(path, ends) {
  return attempt(async () => {
    // Nothing more is shown on a device whose user has signed out.
    if (ends) await turnOff().catch(() => {});
    await remove(path);
    if (ends) location.assign("/");
    else await show();
  });
}

signOut.addEventListener("click", () => leave(`/v1/sessions/${encodeURIComponent(current.id)}`, true));
document.getElementById("sign-out-everywhere").addEventListener("click", async () => {
  const question = { title: t("sessions.everywhere"), text: t("sessions.everywhere.text"), action: t("sessions.everywhere"), danger: true };
  if (await confirmDialog(question)) await leave("/v1/sessions", current !== null);
});
attempt(show);
