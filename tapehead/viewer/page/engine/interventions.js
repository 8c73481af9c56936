// @ts-check
/**
 * Interventions: plain data that says what is held, muted or edited from which step on, its text in the URL, and its
 * effect in a step.
 *
 *     pin.w0.gate.12-.1       write head 0: gate held at 1 from step 12 on
 *     mute.r1.3-9             read head 1 reads zeros in steps 3 to 9
 *     set.20.5.*.0            before step 20, slot 5 becomes zero (a number for *: that column alone)
 *     move.w0.14.-1           before step 14, the weighting of write head 0 is moved back by one slot
 *     scramble.20.0-15.7      before step 20, the rows of slots 0 to 15 are permuted, by the permutation of seed 7
 */
import { EngineError, shown } from "./errors.js";
import { Stream } from "./random.js";

/** @typedef {import("./api.js").Head} Head */
/** @typedef {import("./api.js").Intervention} Intervention */
/** @typedef {import("./api.js").NTMMachine} NTMMachine */

const MOST = 200; // interventions in one run
const MOST_STEPS = 1e6;
const MOST_VALUE = 1e6;

/** What may be held, with the least and the most that it can be.  @type {Object<string, [number, number]>} */
export const PINNABLE = { gate: [0, 1], strength: [0, 1000], sharpening: [1, 1000], shift: [-64, 64] };

/** @param {unknown} value @param {number} least @param {number} most @param {string} what */
function checkWhole(value, least, most, what) {
  if (!Number.isInteger(value) || Number(value) < least || Number(value) > most) {
    throw new EngineError(
      `${what} of an intervention is ${shown(value)}, but it must be a whole number from ${least} to ${most}.`,
    );
  }
}

/** @param {unknown} value @param {number} least @param {number} most @param {string} what */
function checkNumber(value, least, most, what) {
  if (typeof value !== "number" || !(value >= least && value <= most)) {
    throw new EngineError(
      `${what} of an intervention is ${shown(value)}, but it must be a number from ${least} to ${most}.`,
    );
  }
}

/** @param {any} head @param {import("./api.js").NTMConfig | undefined} config */
function checkHead(head, config) {
  if (head?.kind !== "read" && head?.kind !== "write")
    throw new EngineError("an intervention names no read or write head.");
  const heads = config ? config[head.kind === "read" ? "read_heads" : "write_heads"] : 64;
  checkWhole(head.index, 0, heads - 1, `the ${head.kind} head`);
}

/** @param {any} one @param {NTMMachine | null} machine */
function checkOne(one, machine) {
  const config = machine?.config;
  if (one.type === "pin" || one.type === "mute") {
    checkWhole(one.from, 0, MOST_STEPS, "the first step");
    if (one.to !== null) checkWhole(one.to, one.from, MOST_STEPS, "the last step");
    checkHead(one.head, config);
    if (one.type === "mute") return;
    if (!Object.hasOwn(PINNABLE, one.what)) {
      throw new EngineError(
        `an intervention holds ${shown(one.what)}, but only ${Object.keys(PINNABLE).join(", ")} can be held.`,
      );
    }
    const [least, most] =
      one.what === "shift" && config ? [-config.shift_range, config.shift_range] : PINNABLE[one.what];
    checkNumber(one.value, least, most, `the ${one.what}`);
  } else if (one.type === "move") {
    checkWhole(one.at, 0, MOST_STEPS, "the step");
    checkHead(one.head, config);
    checkWhole(one.by, -4095, 4095, "the number of slots");
  } else if (one.type === "set" || one.type === "scramble") {
    checkWhole(one.at, 0, MOST_STEPS, "the step");
    if (one.type === "scramble") {
      checkWhole(one.from, 0, 4095, "the first slot");
      checkWhole(one.to, one.from, 4095, "the last slot");
      checkWhole(one.seed, 0, 2 ** 32 - 1, "the seed");
      return;
    }
    checkWhole(one.slot, 0, 4095, "the slot");
    if (one.column !== null) checkWhole(one.column, 0, (config?.memory_width ?? 4096) - 1, "the column");
    checkNumber(one.value, -MOST_VALUE, MOST_VALUE, "the value");
  } else {
    throw new EngineError(
      `${shown(one.type)} is no kind of intervention: there are pin, mute, move, set and scramble.`,
    );
  }
}

/**
 * Refuse interventions that this machine cannot have. Slots behind the end of the tape have no effect.
 * @param {NTMMachine | null} machine  null: any machine
 * @param {Intervention[]} list
 */
export function checkInterventions(machine, list) {
  if (list.length > MOST)
    throw new EngineError(`there are ${list.length} interventions, but at most ${MOST} are possible.`);
  for (const one of list) checkOne(one, machine);
}

/**
 * What is done in one step.
 * @typedef {object} Actions
 * @property {(kind: "read" | "write", index: number) => Object<string, number>} pinned   values by name
 * @property {(kind: "read" | "write", index: number) => boolean} muted
 * @property {(kind: "read" | "write", index: number) => number} moved   slots by which the weighting of the step before
 *   is moved
 * @property {(memory: Float64Array, width: number) => boolean} editMemory   in place; whether there was anything to do
 */

/** @param {Head} head @param {string} kind @param {number} index */
function isHead(head, kind, index) {
  return head.kind === kind && head.index === index;
}

/**
 * @param {Intervention[]} list
 * @param {number} t
 * @returns {Actions}
 */
export function actionsAt(list, t) {
  const now = list.filter((one) => ("at" in one ? one.at === t : one.from <= t && (one.to === null || t <= one.to)));
  return {
    pinned(kind, index) {
      /** @type {Object<string, number>} */
      const values = {};
      for (const one of now) if (one.type === "pin" && isHead(one.head, kind, index)) values[one.what] = one.value;
      return values;
    },
    muted: (kind, index) => now.some((one) => one.type === "mute" && isHead(one.head, kind, index)),
    moved(kind, index) {
      return now.reduce((sum, one) => sum + (one.type === "move" && isHead(one.head, kind, index) ? one.by : 0), 0);
    },
    editMemory(memory, width) {
      for (const one of now) editMemory(one, memory, width);
      return now.some((one) => one.type === "set" || one.type === "scramble");
    },
  };
}

/** @param {Intervention} one @param {Float64Array} memory @param {number} width */
function editMemory(one, memory, width) {
  const slots = memory.length / width;
  if (one.type === "set" && one.slot < slots) {
    const from = one.slot * width;
    if (one.column === null) memory.fill(one.value, from, from + width);
    else memory[from + one.column] = one.value;
  } else if (one.type === "scramble") {
    const last = Math.min(one.to, slots - 1);
    const rows = permutation(last - one.from + 1, one.seed);
    const old = memory.slice();
    rows.forEach((row, i) => {
      const source = (one.from + row) * width;
      memory.set(old.subarray(source, source + width), (one.from + i) * width);
    });
  }
}

/**
 * The cells that the interventions before step t set or moved, as slots and columns.
 * @param {Intervention[]} list
 * @param {number} t
 * @param {number} slots
 * @param {number} width
 * @returns {Uint8Array} [N, M], one where a cell was set or moved
 */
export function editedCells(list, t, slots, width) {
  const edited = new Uint8Array(slots * width);
  for (const one of list) {
    if ((one.type !== "set" && one.type !== "scramble") || one.at !== t) continue;
    if (one.type === "scramble") {
      edited.fill(1, one.from * width, Math.min(one.to + 1, slots) * width);
    } else if (one.slot < slots) {
      if (one.column === null) edited.fill(1, one.slot * width, (one.slot + 1) * width);
      else edited[one.slot * width + one.column] = 1;
    }
  }
  return edited;
}

/** A fixed permutation of 0 .. count - 1, by Fisher and Yates.  @param {number} count @param {number} seed */
function permutation(count, seed) {
  const order = Array.from({ length: Math.max(count, 0) }, (_, i) => i);
  const draws = new Stream(seed, "scramble", 0);
  const words = draws.words(order.length);
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor((words[i] / 4294967296) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// --- the URL ---------------------------------------------------------------------------------------------------------

/** @param {Intervention[]} list */
export function encodeInterventions(list) {
  return list.map(encodeOne).join("~");
}

/** @param {Intervention} one */
function encodeOne(one) {
  if (one.type === "set") return `set.${one.at}.${one.slot}.${one.column ?? "*"}.${numberText(one.value)}`;
  if (one.type === "scramble") return `scramble.${one.at}.${one.from}-${one.to}.${one.seed}`;
  const head = `${one.head.kind[0]}${one.head.index}`;
  if (one.type === "move") return `move.${head}.${one.at}.${one.by}`;
  const steps = `${one.from}-${one.to ?? ""}`;
  return one.type === "mute" ? `mute.${head}.${steps}` : `pin.${head}.${one.what}.${steps}.${numberText(one.value)}`;
}

/** A number without a dot, which separates parts: 0.25 is 0_25.  @param {number} value */
function numberText(value) {
  return String(value).replace(".", "_");
}

const FORMS = [
  /^(pin)\.([rw])(\d{1,2})\.([a-z]+)\.(\d+)-(\d*)\.(-?[\d_]+(?:e[+-]?\d+)?)$/,
  /^(mute)\.([rw])(\d{1,2})\.(\d+)-(\d*)$/,
  /^(move)\.([rw])(\d{1,2})\.(\d+)\.(-?\d+)$/,
  /^(set)\.(\d+)\.(\d+)\.(\d+|\*)\.(-?[\d_]+(?:e[+-]?\d+)?)$/,
  /^(scramble)\.(\d+)\.(\d+)-(\d+)\.(\d+)$/,
];

/**
 * @param {string} text
 * @returns {Intervention[]}
 */
export function decodeInterventions(text) {
  const list = text === "" ? [] : text.split("~").map(decodeOne);
  checkInterventions(null, list);
  return list;
}

/** @param {string} text @returns {Intervention} */
function decodeOne(text) {
  const found = FORMS.map((form) => form.exec(text)).find((match) => match !== null);
  if (!found)
    throw new EngineError(`${shown(text)} is no intervention: they look like pin.w0.gate.12-.1 or mute.r0.3-9.`);
  const [type, ...parts] = found.slice(1);
  const number = (/** @type {string} */ part) => Number(part.replace("_", "."));
  if (type === "set") {
    const [at, slot, column, value] = parts;
    return {
      type,
      at: Number(at),
      slot: Number(slot),
      column: column === "*" ? null : Number(column),
      value: number(value),
    };
  }
  if (type === "scramble") {
    const [at, from, to, seed] = parts.map(Number);
    return { type, at, from, to, seed };
  }
  const head = /** @type {Head} */ ({ kind: parts[0] === "r" ? "read" : "write", index: Number(parts[1]) });
  const rest = parts.slice(2);
  if (type === "move") return { type, head, at: Number(rest[0]), by: Number(rest[1]) };
  if (type === "mute") return { type, head, from: Number(rest[0]), to: rest[1] === "" ? null : Number(rest[1]) };
  const [what, from, to, value] = rest;
  return /** @type {any} */ ({
    type,
    head,
    what,
    from: Number(from),
    to: to === "" ? null : Number(to),
    value: number(value),
  });
}

/**
 * One sentence without its full stop, heads counted from 1 and steps from 0: "write head 1: gate held at 1 from step 12
 * on".
 * @param {Intervention} one
 */
export function describeIntervention(one) {
  if (one.type === "set") {
    const column = one.column === null ? "" : `, column ${one.column}`;
    return `slot ${one.slot}${column} set to ${one.value} before step ${one.at}`;
  }
  if (one.type === "scramble") return `slots ${one.from} to ${one.to} scrambled before step ${one.at}`;
  const head = `${one.head.kind} head ${one.head.index + 1}`;
  if (one.type === "move")
    return `${head}: moved by ${one.by} ${Math.abs(one.by) === 1 ? "slot" : "slots"} before step ${one.at}`;
  const steps = one.to === null ? `from step ${one.from} on` : `in steps ${one.from} to ${one.to}`;
  return one.type === "mute" ? `${head}: muted ${steps}` : `${head}: ${one.what} held at ${one.value} ${steps}`;
}
