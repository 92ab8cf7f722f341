// A press of a mouse button or of a finger. What moves the page waits for its end: the click goes to what was pressed.

let pressed = false;
let waiting = [];

function end() {
  pressed = false;
  const due = waiting;
  waiting = [];
  // The click follows in the same task.
  setTimeout(() => due.forEach((act) => act()));
}

window.addEventListener("mousedown", () => (pressed = true), { capture: true });
for (const type of ["mouseup", "dragend", "blur"]) {
  window.addEventListener(type, (event) => (type !== "blur" || event.target === window) && end(), { capture: true });
}

/** Act at once, or after the press that is under way: leaving a field by a press changes it before the click. */
export function afterPress(act) {
  if (pressed) waiting.push(act);
  else act();
}
