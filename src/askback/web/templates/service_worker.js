// The service worker: shows pushes, opens the question that the user tapped, and says so if the server cannot be reached.
// It stores nothing, so that nothing can be shown after the user has signed out.

const TEXTS = {{ as_script(texts) }};
const ICON = "/static/icon-192.png";
const BADGE = "/static/icon-badge.png";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("push", (event) => event.waitUntil(show(contentOf(event.data))));

function contentOf(data) {
  try {
    return data.json();
  } catch {
    return { kind: "unknown" };
  }
}

/** A browser requires a notification for every push. */
function show(content) {
  const look = { icon: ICON, badge: BADGE, lang: TEXTS.lang };
  if (content.kind !== "question") {
    const how = { ...look, body: TEXTS["test.text"], tag: "askback", data: { url: "/" } };
    return self.registration.showNotification(TEXTS.test, how);
  }
  const query = new URLSearchParams({ run: content.run, question: content.question });
  const title = TEXTS[content.reason] ?? TEXTS.asked;
  return self.registration.showNotification(title.replace("{skill}", content.skill), {
    ...look,
    body: content.text ?? "",
    // As the page names the question: a reminder replaces what is shown already.
    tag: `${content.run} ${content.question}`,
    renotify: content.reason !== undefined,
    actions: (content.options ?? []).map((title, place) => ({ action: String(place), title })),
    data: { url: `/?${query}` },
  });
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { url } = event.notification.data;
  event.waitUntil(open(event.action === "" ? url : `${url}&choose=${event.action}`));
});

/** In the window of the page, if there is one. */
async function open(url) {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const ours = windows.find((each) => !new URL(each.url).pathname.startsWith("/answers/"));
  if (ours === undefined) return self.clients.openWindow(url);
  await ours.focus().catch(() => {});
  return ours.navigate(url).catch(() => self.clients.openWindow(url));
}

/** The push service has replaced the address of this browser. */
self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event)));

async function renew({ oldSubscription, newSubscription }) {
  const made = newSubscription ?? (await self.registration.pushManager.subscribe(oldSubscription.options));
  const { endpoint, keys } = made.toJSON();
  const headers = { "Content-Type": "application/json" };
  await fetch("/v1/push/subscriptions", { method: "POST", headers, body: JSON.stringify({ endpoint, keys }) });
}

self.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  // A sign-in and an answer link depend on which site the user comes from: only the browser itself tells that. Downloads need no help.
  if (method !== "GET" || mode !== "navigate" || /^\/(enter|answers|v1)\b/.test(new URL(url).pathname)) return;
  event.respondWith(fetch(event.request).catch(offline));
});

function offline() {
  const safe = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const style = "body{font:16px/1.5 system-ui,sans-serif;margin:20vh auto;max-width:24rem;padding:0 1.5rem;color-scheme:light dark}a{color:inherit}";
  const text = `<!doctype html><html lang="${TEXTS.lang}"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${safe(TEXTS.offline)}</title><style>${style}</style><h1>${safe(TEXTS.offline)}</h1><p>${safe(TEXTS["offline.text"])}</p><p><a href="">${safe(TEXTS.again)}</a></p></html>`;
  const headers = { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'" };
  return new Response(text, { status: 503, headers });
}
