// Unsent answers. This tab keeps them until they are sent or dropped, also when the page is loaded again. Secrets and
// files are not kept.

const PREFIX = "askback-draft ";
const MOST_CHARACTERS = 200_000;
const CONTROLS = "textarea, select, input:not([type=password], [type=file])";
const TYPED = "textarea, input:not([type=checkbox], [type=radio])";

/**
 * Restore the draft of this key, then keep what is entered in the form. Call it before the form is shown.
 * `text()` is what was entered in words, or null if nothing was. `drop()` ends it.
 * @param {string} key
 * @param {HTMLElement} form
 * @returns {{text: () => string | null, drop: () => void}}
 */
export function keepDraft(key, form) {
  const untouched = JSON.stringify(stateOf(form));
  const kept = read(PREFIX + key);
  if (kept !== null) restore(form, kept);
  const text = () => wordsOf(form, JSON.parse(untouched));
  const keep = () => {
    const state = stateOf(form);
    if (JSON.stringify(state) === untouched) write(PREFIX + key, null);
    else write(PREFIX + key, { ...state, text: text() });
  };
  for (const type of ["input", "change", "click"]) form.addEventListener(type, keep);
  const drop = () => {
    for (const type of ["input", "change", "click"]) form.removeEventListener(type, keep);
    write(PREFIX + key, null);
  };
  return { text, drop };
}

/** Take the drafts whose keys start so, except one: `[{key, text}]`. Nothing can restore them any more. */
export function takeDrafts(start, except = null) {
  const found = [];
  for (const name of names()) {
    const key = name.slice(PREFIX.length);
    if (!key.startsWith(start) || key === except) continue;
    const text = read(name)?.text;
    if (typeof text === "string") found.push({ key, text });
    write(name, null);
  }
  return found;
}

function stateOf(form) {
  const controls = [...form.querySelectorAll(CONTROLS)];
  return {
    rows: [...form.querySelectorAll(".lines")].map((list) => list.childElementCount),
    values: controls.map((each) => (["checkbox", "radio"].includes(each.type) ? each.checked : each.value)),
  };
}

function restore(form, { rows, values }) {
  // A list has as many rows as its button has added. An outer list comes before the lists in its rows.
  for (const [place, count] of (rows ?? []).entries()) {
    const list = form.querySelectorAll(".lines")[place];
    for (let more = count - (list?.childElementCount ?? count); more > 0; more -= 1) list.nextElementSibling?.click();
  }
  const controls = [...form.querySelectorAll(CONTROLS)];
  if (controls.length !== values?.length) return;
  for (const [place, each] of controls.entries()) {
    const isTick = typeof values[place] === "boolean";
    if (values[place] === (isTick ? each.checked : each.value)) continue;
    if (isTick) each.checked = values[place];
    else each.value = values[place];
    each.closest("details")?.setAttribute("open", "");
    for (const type of ["input", "change"]) each.dispatchEvent(new Event(type, { bubbles: true }));
  }
}

/** The typed texts that differ from the form's first state. */
function wordsOf(form, { values }) {
  const words = [...form.querySelectorAll(CONTROLS)]
    .map((each, place) => (each.matches(TYPED) && each.value !== values[place] ? each.value.trim() : ""))
    .filter((each) => each !== "");
  return words.length > 0 ? words.join("\n") : null;
}

function names() {
  try {
    return Object.keys(sessionStorage).filter((each) => each.startsWith(PREFIX));
  } catch {
    return [];
  }
}

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Without storage, or without room in it, a draft lasts as long as the page. */
function write(name, state) {
  const text = JSON.stringify(state);
  try {
    if (state === null || text.length > MOST_CHARACTERS) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, text);
  } catch {
    // The form still has it.
  }
}
