// Suggestions for the model and the effort of a run: what the chosen engine lists. Any other name can still be typed.

import { get } from "./api.js";
import { make, newId } from "./elements.js";

/**
 * Suggest values in the two fields. The engine is asked when its list is needed first, because that can take seconds.
 * @param {{model: HTMLInputElement, effort: HTMLInputElement, engine: () => string | null}} fields
 * @returns {() => Promise<void>} call it when the fields are shown, and when another engine is chosen
 */
export function suggestModels({ model, effort, engine }) {
  const known = new Map();
  const models = listFor(model);
  const efforts = listFor(effort);

  const show = (listed) => {
    models.replaceChildren(...listed.map(({ id, title }) => make("option", { value: id }, title ?? id)));
    const chosen = listed.find(({ id }) => id === model.value) ?? listed.find((each) => each.is_default);
    efforts.replaceChildren(...(chosen?.efforts ?? []).map((value) => make("option", { value })));
  };
  const suggest = async () => {
    const name = engine();
    if (name === null) return show([]);
    if (!known.has(name)) known.set(name, listedBy(name));
    const listed = await known.get(name);
    // Another engine may have been chosen in the meantime.
    if (engine() === name) show(listed);
  };
  model.addEventListener("change", suggest);
  return suggest;
}

function listFor(input) {
  const list = make("datalist", { id: newId("suggestions") });
  input.setAttribute("list", list.id);
  input.after(list);
  return list;
}

/** Without a list there is nothing to suggest; the fields work as before. */
async function listedBy(engine) {
  try {
    return (await get(`/v1/engines/${encodeURIComponent(engine)}/models`)).models ?? [];
  } catch {
    return [];
  }
}
