// Streams that survive a lost connection. One tab follows the inbox for all tabs of a browser: a browser opens only six
// connections to a server, and a stream in each tab would use them up.

const TRIES_BEFORE_DOUBT = 2;
const RETRY_MS = [300, 700, 1500, 3000];

/** A browser does not report why a stream was refused. If the user is signed out, show how to sign in. */
async function leaveIfSignedOut() {
  const answer = await fetch("/v1/inbox?limit=1", { cache: "no-store" }).catch(() => null);
  if (answer?.status === 401) location.reload();
}

/**
 * Follow a stream of server-sent events until `stop()`.
 * `address()` is called for every connection, so that it can contain the position to resume from.
 * @param {{address: () => string, types: string[], onEvent: (data: any) => void, onState?: (live: boolean) => void}} wanted
 */
export function follow({ address, types, onEvent, onState = () => {} }) {
  let source = null;
  let timer = null;
  let tries = 0;
  let stopped = false;

  function open() {
    timer = null;
    source = new EventSource(address());
    source.onopen = () => {
      tries = 0;
      onState(true);
    };
    source.onerror = () => {
      if (stopped) return;
      source.close();
      onState(false);
      if (tries === TRIES_BEFORE_DOUBT) leaveIfSignedOut();
      timer = setTimeout(open, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]);
      tries += 1;
    };
    for (const type of types) source.addEventListener(type, (event) => onEvent(JSON.parse(event.data)));
  }

  open();
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
      source.close();
    },
  };
}

/** A unique key of a question. */
export function keyOf(asked) {
  return `${asked.run_id} ${asked.interaction_id}`;
}

/**
 * Calls back with the pending questions, now and after every change, whichever tab follows them.
 * @param {(page: {items: any[], next_cursor: string | null, total: number}) => void} onPage
 * @param {(live: boolean) => void} onState
 * @param {(asked: any) => void} onNew called in one tab only
 */
export function followInbox(onPage, onState, onNew) {
  const channel = new BroadcastChannel("askback-inbox");
  let last = null;
  let leads = false;

  function take(page, live) {
    if (page !== null) {
      last = page;
      onPage(page);
    }
    onState(live);
  }

  channel.onmessage = ({ data }) => {
    if (data.kind === "page" && !leads) take(data.page, data.live);
    if (data.kind === "hello" && leads) channel.postMessage({ kind: "page", page: last, live: true });
  };

  function lead() {
    leads = true;
    const tell = (page, live) => {
      if (page !== null && last !== null) newOnes(last, page).forEach(onNew);
      take(page, live);
      channel.postMessage({ kind: "page", page, live });
    };
    follow({
      address: () => "/v1/inbox",
      types: ["inbox"],
      onEvent: (page) => tell(page, true),
      onState: (live) => tell(null, live),
    });
  }

  /** A question that moves into a full page is not new. */
  function newOnes(before, now) {
    if (before.next_cursor !== null) return [];
    const known = new Set(before.items.map(keyOf));
    return now.items.filter((asked) => !known.has(keyOf(asked)));
  }

  if (navigator.locks === undefined) {
    lead();
    return;
  }
  channel.postMessage({ kind: "hello" });
  // Held until this tab is closed; then the next tab leads.
  navigator.locks.request("askback-inbox", () => {
    lead();
    return new Promise(() => {});
  });
}
