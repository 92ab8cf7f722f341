// Buttons that have just appeared or moved do nothing, so that a second click cannot hit what slid under the pointer.

export const SETTLE_MS = 600;
const TOLERANCE_PX = 1;
const CONTROLS = ".answer button, .answer input, .answer textarea, .sent-row a, .empty a";
const CLICKED = "button, a";
const TYPED = "input, textarea";
const PINNED = ".pinned";
const PINNED_CONTROLS = ".pinned .answer :is(button, input, textarea)";

/**
 * Watch the answer forms in an element. An ignored click or key calls `onIgnored`.
 * A form whose buttons have just moved is `aria-disabled` until they have settled.
 */
export function ignoreMoving(container, onIgnored) {
  const known = new WeakMap();
  const unsettled = new Set();
  let scrolled = window.scrollY;
  let height = 0;
  let timer = null;

  /** Compare every control with its last position in the page. Scrolling by the user is not a movement. */
  function look() {
    const now = performance.now();
    const tall = document.documentElement.scrollHeight;
    // The browser scrolls to keep the view in place when the page grows, and because the page became shorter.
    const by = tall === height ? 0 : window.scrollY - scrolled;
    scrolled = window.scrollY;
    height = tall;
    for (const control of container.querySelectorAll(CONTROLS)) {
      const [left, top, shift] = placeOf(control, by);
      const before = known.get(control);
      const moved =
        before === undefined ||
        Math.abs(left - before.left) > TOLERANCE_PX ||
        Math.abs(top - before.top - shift) > TOLERANCE_PX;
      known.set(control, { left, top, at: moved ? now : before.at });
      if (moved) unsettled.add(control);
    }
    for (const control of unsettled) ownerOf(control).setAttribute("aria-disabled", "true");
    if (unsettled.size > 0) timer ??= setTimeout(settle, SETTLE_MS);
  }

  /** The place in the page, or in the window for a control that is pinned there, and how far the browser scrolled it. */
  function placeOf(control, by) {
    const { left, top } = control.getBoundingClientRect();
    return control.closest(PINNED) === null ? [left, top + scrolled, by] : [left, top, 0];
  }

  /** At the end of the page, what is pinned scrolls with it. */
  function followPinned() {
    for (const control of container.querySelectorAll(PINNED_CONTROLS)) {
      const [left, top] = placeOf(control, 0);
      if (known.has(control)) known.set(control, { ...known.get(control), left, top });
    }
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
    onIgnored();
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
    if (known.has(target)) known.set(target, { ...known.get(target), at: -Infinity });
  });
  const scroll = () => {
    if (document.documentElement.scrollHeight !== height) return look();
    scrolled = window.scrollY;
    followPinned();
  };
  window.addEventListener("scroll", scroll, { passive: true });
  // A countdown changes texts only.
  const isElement = (node) => node.nodeType === Node.ELEMENT_NODE;
  new MutationObserver((changes) => {
    if (changes.some(({ addedNodes, removedNodes }) => [...addedNodes, ...removedNodes].some(isElement))) look();
  }).observe(container, { childList: true, subtree: true });
  new ResizeObserver(look).observe(container);
  look();
}

function ownerOf(control) {
  return control.closest("fieldset.answer-parts") ?? control;
}
