// The page's texts in its language, as the server embedded them.

const texts = JSON.parse(document.getElementById("texts").textContent);

export const language = document.documentElement.lang;

/** The text of a key, with `{name}` replaced. */
export function t(key, values = {}) {
  const text = texts[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** The text for a number: that of `KEY.one` if it is one. */
export function countText(key, n) {
  return t(n === 1 ? `${key}.one` : key, { n });
}

/** What a code of the server means; `otherwise` if it is one of a newer server. */
export function meaning(code, otherwise) {
  const key = `meaning.${code}`;
  return known(key) ? t(key) : otherwise;
}

/** Whether there is a text for the key. */
export function known(key) {
  return key in texts;
}
