// @ts-check
/**
 * What all tasks share: options with defaults, sizes as ranges, random vectors as tapehead/tasks/task.py draws them,
 * painting, resizing.
 */
import { EngineError, shown } from "../errors.js";
import { Stream } from "../random.js";

/** @typedef {import("../api.js").Address} Address */
/** @typedef {import("../api.js").CellPlace} CellPlace */
/** @typedef {import("../api.js").Content} Content */
/** @typedef {import("../api.js").SizeInfo} SizeInfo */
/** @typedef {import("../api.js").TaskSpec} TaskSpec */

/**
 * Options over defaults; unknown ones are refused.
 * @template {Object<string, any>} Options
 * @param {TaskSpec} spec
 * @param {Options} defaults
 * @returns {Options}
 */
export function withDefaults(spec, defaults) {
  for (const name of Object.keys(spec.options)) {
    if (!Object.hasOwn(defaults, name))
      throw new EngineError(`the task ${spec.name} has an option ${shown(name)}, which the page does not know.`);
  }
  return { ...defaults, ...spec.options };
}

/** @param {string} name @param {unknown} value @param {number} least @param {number} most */
export function checkCount(name, value, least, most) {
  if (!Number.isInteger(value) || Number(value) < least || Number(value) > most) {
    throw new EngineError(`${name} is ${shown(value)}, but the page takes whole numbers from ${least} to ${most}.`);
  }
}

/** @param {string} name @param {unknown} value @param {unknown[]} choices */
export function checkChoice(name, value, choices) {
  if (!choices.includes(value))
    throw new EngineError(`${name} is ${shown(value)}, but the page knows ${choices.join(", ")}.`);
}

/** Shares of ones and of blank vectors.  @param {unknown} density @param {unknown} blanks */
export function checkMixture(density, blanks) {
  const pair = Array.isArray(density) && density.length === 2 && density.every((share) => typeof share === "number");
  if (!pair || !(0 <= density[0] && density[0] <= density[1] && density[1] <= 1)) {
    throw new EngineError(`density is ${shown(density)}, but it must be a pair of shares such as [0.5, 0.5].`);
  }
  if (typeof blanks !== "number" || !(blanks >= 0 && blanks < 1)) {
    throw new EngineError(`blanks is ${shown(blanks)}, but it must be a share of at least 0 and under 1.`);
  }
}

/**
 * A size of the task.
 * @param {string} name
 * @param {unknown} value   of its option: a number, or a pair
 * @param {number} least
 * @param {number} most   what the page offers
 * @param {string} label
 * @returns {SizeInfo}
 */
export function sizeInfo(name, value, least, most, label) {
  const [low, high] = Array.isArray(value) ? value : [value, value];
  const whole = Number.isInteger(low) && Number.isInteger(high) && (!Array.isArray(value) || value.length === 2);
  if (!whole || low < least || high < low || high > 1e6) {
    throw new EngineError(
      `${name} is ${shown(value)}, but it must be a whole number of at least ${least}, or a pair of them.`,
    );
  }
  return { name, least, most: Math.max(most, high), training: [low, high], label };
}

/**
 * The stream at an address, with the sizes drawn, or skipped where they are given, in the task's order.
 * @param {Address} address
 * @param {SizeInfo[]} infos
 * @param {Object<string, number>} given
 * @returns {{draws: Stream, sizes: Object<string, number>}}
 */
export function begin(address, infos, given) {
  const draws = new Stream(address.seed, address.name, address.step, address.row);
  /** @type {Object<string, number>} */
  const sizes = {};
  for (const { name, training } of infos) {
    const [low, high] = given[name] === undefined ? training : [given[name], given[name]];
    sizes[name] = draws.integers(1, low, high)[0];
  }
  checkSizes(infos, sizes);
  return { draws, sizes };
}

/** @param {SizeInfo[]} infos @param {Object<string, number>} sizes */
export function checkSizes(infos, sizes) {
  for (const { name, least, most } of infos) checkCount(name, sizes[name], least, most);
}

/**
 * Random bits [count, width]. The first vectors do not depend on `count`.
 * @param {Stream} draws
 * @param {number} count
 * @param {number} width
 * @param {[number, number]} [density]
 * @param {number} [blanks]
 */
export function randomVectors(draws, count, width, density = [0.5, 0.5], blanks = 0) {
  const [low, high] = density;
  /** @type {Float64Array} */
  let bits;
  if (low === 0.5 && high === 0.5) {
    bits = draws.bits(count * width);
  } else {
    const share = low + (high - low) * draws.uniform(1, 24)[0];
    bits = draws.uniform(count * width, 24).map((value) => (value < share ? 1 : 0));
  }
  if (blanks) {
    const drawn = draws.uniform(count, 24);
    for (let i = 0; i < bits.length; i++) if (drawn[Math.floor(i / width)] < blanks) bits[i] = 0;
  }
  return bits;
}

/**
 * @param {Object<string, number>} sizes
 * @param {Float64Array} values
 * @param {number} width
 * @param {{priorities?: Float64Array | null, query?: number | null}} [rest]
 * @returns {Content}
 */
export function content(sizes, values, width, rest = {}) {
  return { sizes, values, width, priorities: rest.priorities ?? null, query: rest.query ?? null };
}

/** The place of a bit of the content.  @param {Content} of @param {number} index @returns {CellPlace} */
export function bitPlace(of, index) {
  return { field: "values", index, kind: "bit", value: of.values[index], least: 0, most: 1 };
}

/**
 * A content with another value at a place; the one that is given does not change.
 * @param {Content} of
 * @param {CellPlace} place
 * @param {number} value
 * @returns {Content}
 */
export function paint(of, place, value) {
  if (typeof value !== "number" || !(value >= place.least && value <= place.most)) {
    throw new EngineError(
      `the value painted is ${shown(value)}, but it must be a number from ${place.least} to ${place.most}.`,
    );
  }
  if (place.field === "query") return { ...of, query: Math.round(value) };
  const changed = /** @type {Float64Array} */ (of[place.field]).slice();
  changed[place.index] = place.kind === "number" ? Math.fround(value) : Math.round(value);
  return { ...of, [place.field]: changed };
}

/**
 * A freshly drawn content with what an old one has, as far as both reach.
 * @param {Content} fresh
 * @param {Content} old
 * @returns {Content}
 */
export function keepOld(fresh, old) {
  const values = fresh.values.slice();
  values.set(old.values.subarray(0, Math.min(old.values.length, values.length)));
  const priorities = fresh.priorities && fresh.priorities.slice();
  if (priorities && old.priorities)
    priorities.set(old.priorities.subarray(0, Math.min(old.priorities.length, priorities.length)));
  const query = old.query !== null && fresh.query !== null ? Math.min(old.query, fresh.sizes.items - 2) : fresh.query;
  return { ...fresh, values, priorities, query };
}
