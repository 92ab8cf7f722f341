// The texts that the server put on this page, in its language.

const texts = JSON.parse(document.getElementById("texts").textContent);

export const language = document.documentElement.lang;

/** The text by its key, with `{name}` filled in. */
export function t(key, values = {}) {
  const text = texts[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
