// Creating elements. Texts are inserted as text, never as HTML.

let made = 0;

/** An id that is unique on the page. */
export function newId(stem) {
  made += 1;
  return `${stem}-${made}`;
}

/**
 * `make("p", {class: "hint", hidden: true}, "text", child)`; a null or false attribute is left out.
 * @returns {HTMLElement}
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
