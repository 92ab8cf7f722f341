// The button and the dialog for notifications on this device.

import { make } from "./elements.js";
import { sendTest, state, turnOff, turnOn } from "./push.js";
import { t } from "./translations.js";

/** Show on the button whether this device is notified; a click opens the dialog. */
export function offerPush(button) {
  const label = async () => {
    const { kind } = await state().catch(() => ({ kind: "off" }));
    button.textContent = t(kind === "on" ? "push.button.on" : "push.button");
    button.hidden = false;
  };
  button.addEventListener("click", () => open(label));
  label();
}

function open(onChange) {
  const text = make("p", { id: "push-text" });
  const said = make("p", { class: "small", role: "status", id: "push-said" });
  const actions = make("div", { class: "row" });
  const heading = make("h2", { id: "push-title" }, t("push.title"));
  const dialog = make("dialog", { class: "dialog push-dialog", "aria-labelledby": "push-title" }, heading, text, said, actions);
  const close = make("button", { class: "button", type: "button" }, t("push.close"));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    onChange();
  });

  const button = (key, act, look = "") => {
    const made = make("button", { class: `button ${look}`, type: "button", "data-push": key }, t(`push.${key}`));
    made.addEventListener("click", () => attempt(act));
    return made;
  };
  const attempt = async (act) => {
    said.textContent = t("push.busy");
    for (const each of actions.children) each.disabled = each !== close;
    try {
      said.textContent = (await act()) ?? "";
    } catch (error) {
      said.textContent = t("push.failed", { reason: error.message });
    }
    await show();
  };
  const test = async (id) => {
    const { delivered, error } = await sendTest(id);
    return delivered ? t("push.tested") : t("push.failed", { reason: error });
  };
  const show = async () => {
    const { kind, id } = await state().catch((error) => ({ kind: "unknown", error }));
    text.textContent = t(`push.state.${kind}`);
    dialog.dataset.state = kind;
    const offered = { on: () => [button("off", turnOff), button("test", () => test(id))], off: () => [button("on", turnOn, "button-primary")] };
    actions.replaceChildren(...(offered[kind]?.() ?? []), close);
  };

  actions.append(close);
  document.body.append(dialog);
  dialog.showModal();
  show();
}
