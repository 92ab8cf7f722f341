// Pushes to this device: whether they are possible, and turning them on and off.

import { get, post, remove } from "./api.js";

const WORKER = "/service-worker.js";
const KEPT = "askback-push";
const ID_CHARACTERS = 16;

/**
 * `on` and `off`, or why neither is possible: `insecure`, `home_screen` (iOS), `unsupported`, `blocked`.
 * @returns {Promise<{kind: string, id?: string}>}
 */
export async function state() {
  if (!window.isSecureContext) return { kind: "insecure" };
  if (!("serviceWorker" in navigator && "PushManager" in window && "Notification" in window)) {
    return { kind: isApple() && !isInstalled() ? "home_screen" : "unsupported" };
  }
  if (Notification.permission === "denied") return { kind: "blocked" };
  const subscription = await current();
  if (subscription === null) return { kind: "off" };
  const id = await idOf(subscription);
  const { items } = await get("/v1/push");
  return items.some((each) => each.id === id) ? { kind: "on", id } : { kind: "off" };
}

/** Ask the user, then the browser's push service, then the server. */
export async function turnOn() {
  if ((await Notification.requestPermission()) !== "granted") return;
  const { public_key: key, token } = await get("/v1/push");
  await navigator.serviceWorker.register(WORKER, { scope: "/" });
  const { pushManager } = await navigator.serviceWorker.ready;
  // One that was made for another server, or by another user of this browser.
  await (await pushManager.getSubscription())?.unsubscribe();
  const made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  await send(made);
  keep(token);
}

/** Also when the user signs out: nothing of this user may be shown afterwards. */
export async function turnOff() {
  keep(null);
  const subscription = await current();
  if (subscription === null) return;
  const id = await idOf(subscription);
  await subscription.unsubscribe();
  const registration = await navigator.serviceWorker.getRegistration("/");
  for (const each of (await registration?.getNotifications?.()) ?? []) each.close();
  await remove(`/v1/push/subscriptions/${id}`).catch(() => {});
}

/** @returns {Promise<{delivered: boolean, error: ?string}>} */
export function sendTest(id) {
  return post(`/v1/push/subscriptions/${id}/test`);
}

/** Whether the user has turned pushes on in this browser. */
export function isKept() {
  return kept() !== null;
}

/** After a new sign-in with the same token, this device belongs to the new session. With another token, it is turned off. */
export async function renew() {
  const [subscription, { items, token }] = await Promise.all([current(), get("/v1/push")]);
  if (subscription === null || token !== kept()) return turnOff();
  const id = await idOf(subscription);
  const known = items.find((each) => each.id === id);
  return known?.current ? undefined : send(subscription);
}

async function current() {
  const registration = await navigator.serviceWorker?.getRegistration("/");
  return (await registration?.pushManager?.getSubscription()) ?? null;
}

function send(subscription) {
  const { endpoint, keys } = subscription.toJSON();
  return post("/v1/push/subscriptions", { endpoint, keys });
}

/** The id that the server gives to a subscription. */
async function idOf({ endpoint }) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(endpoint)));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("").slice(0, ID_CHARACTERS);
}

function isApple() {
  return /iP(hone|ad|od)/.test(navigator.userAgent) || (navigator.platform === "MacIntel" && navigator.maxTouchPoints > 1);
}

function isInstalled() {
  return navigator.standalone === true || window.matchMedia("(display-mode: standalone)").matches;
}

function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

function keep(token) {
  try {
    if (token === null) localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, token);
  } catch {
    // Without storage, the device is not renewed after the next sign-in.
  }
}
