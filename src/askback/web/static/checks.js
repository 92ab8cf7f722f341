// Validates one value before it is sent. The server validates it again.

const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/;
const HUGE = 1_000_000;
const LONG = 1000;
const DATE = /^\d{4}-\d\d-\d\d$/;

/** The type that a field is built for; `null` next to it only means that the value is optional. */
export function typeOf(schema) {
  const types = Array.isArray(schema.type) ? schema.type.filter((type) => type !== "null") : [schema.type];
  if (types.length > 1) return null;
  if (types[0] !== undefined) return types[0];
  if (schema.properties) return "object";
  return schema.items ? "array" : null;
}

/** The options of a schema as `[{value, label}]`, or null if it has none. */
export function choicesOf(schema) {
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled) && titled.length > 0 && titled.every((each) => each && "const" in each)) {
    return titled.map((each) => ({ value: each.const, label: each.title ?? shown(each.const), help: each.description }));
  }
  if (Array.isArray(schema.enum) && schema.enum.length > 0) {
    const names = schema.enumNames ?? [];
    return schema.enum.map((value, place) => ({ value, label: names[place] ?? shown(value) }));
  }
  return "const" in schema ? [{ value: schema.const, label: shown(schema.const) }] : null;
}

export function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Whether two values are equal as JSON. */
export function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

/**
 * The first problem of a value, or null.
 * @param {object} schema @param {unknown} value @param {(key: string, values?: object) => string} t
 */
export function problemOf(schema, value, t) {
  const choices = choicesOf(schema);
  if (choices && !choices.some((choice) => same(choice.value, value))) return t("form.problem.choice");
  if (typeof value === "string") return textProblem(schema, value, t);
  if (typeof value === "number") return numberProblem(schema, value, t);
  return Array.isArray(value) ? listProblem(schema, value, t) : null;
}

/** The limits of a value in words, to be shown before it is entered; null if it has none. */
export function rangeOf(schema, t) {
  const type = typeOf(schema);
  const [least, most] =
    type === "number" || type === "integer"
      ? [schema.minimum, schema.maximum]
      : type === "array"
        ? [schema.minItems || undefined, schema.maxItems]
        : type === "string"
          ? [schema.minLength > 1 ? schema.minLength : undefined, schema.maxLength]
          : [];
  const kind = { array: "items", string: "characters" }[type] ?? "numbers";
  // A limit that nobody reaches by accident is not worth a line.
  const upper = most <= (kind === "characters" ? LONG : HUGE) ? most : undefined;
  if (choicesOf(schema) || (least === undefined && upper === undefined)) return null;
  const form = least === undefined ? "most" : upper === undefined ? "least" : "both";
  return t(`form.range.${kind}.${form}`, { least, most: upper });
}

function textProblem(schema, value, t) {
  const length = [...value].length;
  if (length < (schema.minLength ?? 0)) return t("form.problem.short", { limit: schema.minLength, length });
  if (length > (schema.maxLength ?? Infinity)) return t("form.problem.long", { limit: schema.maxLength, length });
  if (schema.pattern !== undefined && !matches(schema.pattern, value)) {
    return t("form.problem.pattern", { pattern: schema.pattern });
  }
  const fits = FORMATS[schema.format];
  return fits && !fits(value) ? t(`form.problem.${schema.format}`) : null;
}

/** A pattern that this browser does not support is left to the server. */
function matches(pattern, value) {
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

const FORMATS = {
  email: (value) => EMAIL.test(value),
  uri: (value) => URL.canParse(value),
  date: (value) => DATE.test(value) && !Number.isNaN(Date.parse(value)),
  "date-time": (value) => !Number.isNaN(Date.parse(value)),
};

function numberProblem(schema, value, t) {
  if (typeOf(schema) === "integer" && !Number.isInteger(value)) return t("form.problem.integer");
  if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return t("form.problem.number_large");
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  if (value < (minimum ?? -Infinity)) return t("form.problem.minimum", { limit: minimum });
  if (value > (maximum ?? Infinity)) return t("form.problem.maximum", { limit: maximum });
  if (typeof exclusiveMinimum === "number" && value <= exclusiveMinimum) {
    return t("form.problem.above", { limit: exclusiveMinimum });
  }
  if (typeof exclusiveMaximum === "number" && value >= exclusiveMaximum) {
    return t("form.problem.below", { limit: exclusiveMaximum });
  }
  if (multipleOf > 0 && !isMultiple(value, multipleOf)) return t("form.problem.multiple", { step: multipleOf });
  return null;
}

function isMultiple(value, step) {
  const parts = value / step;
  return Math.abs(parts - Math.round(parts)) < 1e-9;
}

function listProblem(schema, value, t) {
  if (value.length < (schema.minItems ?? 0)) return t("form.problem.few", { limit: schema.minItems });
  if (value.length > (schema.maxItems ?? Infinity)) return t("form.problem.many", { limit: schema.maxItems });
  if (schema.uniqueItems && new Set(value.map((item) => JSON.stringify(item))).size < value.length) {
    return t("form.problem.twice");
  }
  return null;
}
