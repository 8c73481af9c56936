// @ts-check
/** An error whose message is one sentence for the user; everything else that is thrown is a bug. */
export class EngineError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = "EngineError";
  }
}

/**
 * A value from outside as it stands in a sentence: short, and on one line.
 * @param {unknown} value
 */
export function shown(value) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch {
    text = undefined;
  }
  text = text === undefined ? String(value) : text;
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
