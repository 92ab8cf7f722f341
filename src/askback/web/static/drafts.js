// Answers that were begun, kept in this tab until they are sent. Secrets and files are never kept.

const PREFIX = "askback-draft ";

/**
 * The draft of one question; null if its answer is secret.
 * @returns {{read(): unknown, keep(value: unknown): void, drop(): void} | null}
 */
export function draftOf(runId, { interaction_id: id, kind, response_schema: schema, secret_fields: secrets }) {
  // The server knows what is secret, also behind references.
  if (!secrets || kind === "file" || isFile(schema)) return null;
  const key = `${PREFIX}${runId} ${id}`;
  return {
    read() {
      try {
        return JSON.parse(sessionStorage.getItem(key)) ?? undefined;
      } catch {
        return undefined;
      }
    },
    keep(value) {
      try {
        if (value === undefined || value === "") sessionStorage.removeItem(key);
        else sessionStorage.setItem(key, JSON.stringify(publicPart(value, secrets, schema)));
      } catch {
        // Without storage, or if it is full, the draft lasts for this page.
      }
    },
    drop() {
      try {
        sessionStorage.removeItem(key);
      } catch {
        // There is nothing to remove.
      }
    },
  };
}

/** Take the texts of the drafts of a run, except the one of its pending question: nobody can send them any more. */
export function takeDrafts(runId, pending) {
  const start = `${PREFIX}${runId} `;
  const found = [];
  try {
    for (const key of Object.keys(sessionStorage)) {
      if (!key.startsWith(start) || key === start + pending) continue;
      found.push(draftText(JSON.parse(sessionStorage.getItem(key))));
      sessionStorage.removeItem(key);
    }
  } catch {
    // Without storage, there are none.
  }
  return found.filter((text) => text !== null);
}

/** What was entered in words; null if nothing was. */
export function draftText(value) {
  const values = typeof value === "object" && value !== null ? Object.values(value).flat() : [value];
  const words = values.filter((each) => typeof each === "string" && each.trim() !== "");
  return words.length > 0 ? words.join("\n") : null;
}

function isFile(schema) {
  return schema?.["x-input-source"] === "file";
}

function publicPart(value, secrets, schema) {
  // A value without names could be one of the secrets.
  if (typeof value !== "object" || value === null || Array.isArray(value)) return secrets.length > 0 ? null : value;
  const kept = ([name]) => !secrets.includes(name) && !isFile(schema?.properties?.[name]);
  return Object.fromEntries(Object.entries(value).filter(kept));
}
