// Buttons that have just appeared or moved do nothing, so that a second click cannot hit what slid under the pointer.
// Every ignored click or key starts the time again: who clicks again and again answers nothing more.

export const SETTLE_MS = 600;
const TOLERANCE_PX = 1;
const CONTROLS =
  ".answer button, .answer input, .answer textarea, .sent-row a, .empty a, .row-button, .row-check, .batch button, .closed button";
const CLICKED = "button, a, input[type=checkbox]";
const TYPED = "input, textarea";

/**
 * Watch the controls that answer or choose a question in an element. An ignored click or key calls `onIgnored`.
 * A form whose buttons have just moved is `aria-disabled` until they have settled.
 * @returns {{trust(part: Element): void}} `trust` accepts clicks in a part at once: the user has just asked for it by a key.
 */
export function ignoreMoving(container, onIgnored) {
  const known = new WeakMap();
  const unsettled = new Set();
  const views = new Map();
  let timer = null;

  /** Compare every control with its last position in its view. Scrolling by the user is not a movement. */
  function look() {
    const now = performance.now();
    views.clear();
    for (const control of container.querySelectorAll(CONTROLS)) {
      const view = viewOf(control);
      const box = control.getBoundingClientRect();
      const [left, top] = [box.left - view.left, box.top - view.top];
      const before = known.get(control);
      // What sticks to an edge of the window stays where it is while the rest scrolls.
      const stays = before !== undefined && Math.abs(box.left - before.x) + Math.abs(box.top - before.y) <= TOLERANCE_PX;
      const moved =
        before === undefined ||
        view.moved ||
        Math.abs(left - before.left) > TOLERANCE_PX ||
        Math.abs(top - before.top - view.by) > TOLERANCE_PX;
      known.set(control, { left, top, x: box.left, y: box.top, at: moved && !stays ? now : before.at });
      if (moved && !stays) unsettled.add(control);
    }
    for (const control of unsettled) ownerOf(control).setAttribute("aria-disabled", "true");
    if (unsettled.size > 0) timer ??= setTimeout(settle, SETTLE_MS);
  }

  /** The scrolling part around a control, measured once for every look. */
  function viewOf(control) {
    const part = control.closest("dialog, [data-scrolls]");
    const scroller = part !== null && getComputedStyle(part).overflowY !== "visible" ? part : null;
    const root = scroller ?? document.documentElement;
    if (!views.has(root)) views.set(root, measured(root, scroller));
    return views.get(root);
  }

  function settle() {
    timer = null;
    for (const control of unsettled) {
      if (control.isConnected && isMoving(control)) continue;
      unsettled.delete(control);
      ownerOf(control).removeAttribute("aria-disabled");
    }
    for (const control of unsettled) ownerOf(control).setAttribute("aria-disabled", "true");
    if (unsettled.size > 0) timer = setTimeout(settle, SETTLE_MS / 4);
  }

  function isMoving(control) {
    return performance.now() - known.get(control).at < SETTLE_MS;
  }

  function guard(event, control) {
    if (!control?.matches(CONTROLS)) return;
    look();
    if (!isMoving(control)) return;
    event.preventDefault();
    event.stopPropagation();
    startAgain(control);
    onIgnored();
  }

  function startAgain(control) {
    const part = control.closest(".answer, .batch, .closed") ?? control.parentElement;
    for (const each of part.querySelectorAll(CONTROLS)) {
      known.set(each, { ...known.get(each), at: performance.now() });
      unsettled.add(each);
      ownerOf(each).setAttribute("aria-disabled", "true");
    }
    timer ??= setTimeout(settle, SETTLE_MS);
  }

  container.addEventListener("click", (event) => guard(event, event.target.closest(CLICKED)), { capture: true });
  container.addEventListener(
    "keydown",
    (event) => {
      const typed = event.target.matches(TYPED);
      if (event.key === "Enter" || (event.key === " " && !typed)) guard(event, event.target);
    },
    { capture: true },
  );
  // Text that was typed after the movement shows that the field is the intended one.
  container.addEventListener("input", ({ target }) => {
    look();
    if (known.has(target)) known.set(target, { ...known.get(target), at: -Infinity });
  });
  const scroll = ({ target }) => {
    const root = target === document ? document.documentElement : target;
    const last = places.get(root);
    if (last === undefined) return;
    if (last.height !== root.scrollHeight) return look();
    last.scrolled = root.scrollTop;
    follow(target);
  };
  document.addEventListener("scroll", scroll, { passive: true, capture: true });
  // A countdown changes texts only.
  const isElement = (node) => node.nodeType === Node.ELEMENT_NODE;
  new MutationObserver((changes) => {
    const isSeen = ({ type, addedNodes, removedNodes }) =>
      type === "attributes" || [...addedNodes, ...removedNodes].some(isElement);
    if (changes.some(isSeen)) look();
  }).observe(container, { childList: true, subtree: true, attributeFilter: ["hidden", "open"] });
  new ResizeObserver(look).observe(container);
  look();

  return {
    trust(part) {
      look();
      for (const control of part.querySelectorAll(CONTROLS)) known.set(control, { ...known.get(control), at: -Infinity });
      settle();
    },
  };
}

const places = new WeakMap();

/**
 * Where the content of a view starts, how far it was scrolled other than by the user, and whether the view has moved.
 * The browser scrolls to keep the view in place when the page grows, and because the page became shorter.
 */
function measured(root, scroller) {
  const box = scroller?.getBoundingClientRect();
  const [x, y] = [box?.left ?? 0, box?.top ?? 0];
  const [scrolled, height] = [root.scrollTop, root.scrollHeight];
  const page = window.scrollY;
  const last = places.get(root) ?? { x, y, scrolled, height, page };
  const by = height === last.height ? 0 : scrolled - last.scrolled;
  // It is pinned to the window, or scrolls with the page.
  const shift = Math.min(Math.abs(y - last.y), Math.abs(y + page - last.y - last.page));
  const moved = Math.abs(x - last.x) > TOLERANCE_PX || shift > TOLERANCE_PX;
  places.set(root, { x, y, scrolled, height, page });
  return { left: x, top: y - scrolled, by, moved };
}

/** A view that is not pinned to the window, or no longer, moves as the user scrolls the page or the part around it. */
function follow(scrolled) {
  for (const part of scrolled.querySelectorAll("[data-scrolls]")) {
    const { left, top } = part.getBoundingClientRect();
    if (places.has(part)) places.set(part, { ...places.get(part), x: left, y: top, page: window.scrollY });
  }
}

function ownerOf(control) {
  return control.closest("fieldset.answer-parts") ?? control;
}
