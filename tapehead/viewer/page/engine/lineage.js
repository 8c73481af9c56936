// @ts-check
/**
 * When was the vector that a head reads written?
 *
 *     r_t = sum_u L(t, u) a_u + what is left of the initial memory
 *     L(t, u) = sum_i w_r(t, i) w_w(u, i) prod_{u < k <= t} (1 - w_w(k, i) e_k)
 *
 * e_k is a vector, so L has an entry for each column of the memory; the map shows their mean. With several write heads
 * the product runs over all of them. Where the machine reads before it writes, the product ends at k = t - 1.
 *
 * Legend: T time, N slots, M width, W write heads.
 */
import { editedCells } from "./interventions.js";
import { row, tensor } from "./tensors.js";

/** @typedef {import("./api.js").Lineage} Lineage */
/** @typedef {import("./api.js").NTMMachine} NTMMachine */
/** @typedef {import("./api.js").NTMTrace} NTMTrace */
/** @typedef {import("./api.js").Origin} Origin */

export const UNREAD = 1e-6; // a slot that is read with less weight than this is left out of the map
const UNWRITTEN = 1e-9; // and so is a write with less weight than this

/**
 * What happened to the slots: of each the steps, latest first, before which it was edited or in which it was written.
 * @typedef {{steps: (slot: number) => number[], edits: Map<number, Uint8Array>}} History   edits: the cells that were
 *   set or moved before a step
 */

/** @param {NTMMachine} machine @param {NTMTrace} trace @param {number} least  weight of a write @returns {History} */
function historyOf(machine, trace, least) {
  const { slots, written } = trace;
  const heads = written.shape[1];
  const edits = editsByStep(trace, machine.config.memory_width);
  /** @type {(number[] | undefined)[]} */
  const known = new Array(slots);
  /** @param {number} slot */
  const find = (slot) => {
    const steps = [];
    for (let u = trace.steps - 1; u >= 0; u--) {
      let most = edits.has(u) ? 1 : 0;
      for (let h = 0; h < heads; h++) most = Math.max(most, written.data[(u * heads + h) * slots + slot]);
      if (most > least) steps.push(u);
    }
    return steps;
  };
  return { steps: (slot) => (known[slot] ??= find(slot)), edits };
}

/**
 * Where the shares of one read vector go. `left` is the mean of the array beside it, which is used again after the
 * call.
 * @typedef {object} Account
 * @property {(u: number, head: number, weight: number, survive: Float64Array, left: number) => void} write
 *   a write with `weight` (of the read times that of the write) of which survive [M] is left
 * @property {(u: number, slot: number, weight: number, lost: Float64Array, left: number) => void} edit   lost [M]: what
 *   an intervention before step u replaced
 * @property {(slot: number, weight: number, survive: Float64Array, left: number) => void} rest
 */

/**
 * Walk back in time from a read of one slot.
 * @param {NTMMachine} machine
 * @param {NTMTrace} trace
 * @param {History} history
 * @param {number} t
 * @param {number} slot
 * @param {number} weight   w_r(t, slot)
 * @param {Float64Array} survive   [M], written over
 * @param {Account} account
 */
function walkBack(machine, trace, history, t, slot, weight, survive, account) {
  const { write_heads: heads, order } = machine.config;
  const newest = order === "write_then_read" ? t : t - 1; // the last write that the read can see
  let left = 1;
  survive.fill(1);
  for (const u of history.steps(slot)) {
    if (u > t) continue;
    if (u <= newest) {
      for (let h = 0; h < heads; h++) {
        const w = trace.written.data[(u * heads + h) * trace.slots + slot];
        if (w > 0) account.write(u, h, weight * w, survive, left);
      }
      left = eraseBack(trace, u, slot, survive);
    }
    const edited = history.edits.get(u);
    if (edited) left = takeEdited(edited, u, slot, weight, survive, account);
  }
  account.rest(slot, weight, survive, left);
}

/**
 * Undo the erasing of step u; the mean of what survives.
 * @param {NTMTrace} trace
 * @param {number} u
 * @param {number} slot
 * @param {Float64Array} survive
 */
function eraseBack(trace, u, slot, survive) {
  const heads = trace.written.shape[1];
  const width = survive.length;
  const erase = trace.erase.data;
  let sum = 0;
  for (let h = 0; h < heads; h++) {
    const from = (u * heads + h) * width;
    const w = trace.written.data[(u * heads + h) * trace.slots + slot];
    sum = 0;
    for (let j = 0; j < width; j++) sum += survive[j] *= 1 - w * erase[from + j];
  }
  return sum / width;
}

/**
 * What an intervention replaced is its own; the mean of what survives.
 * @param {Uint8Array} edited
 * @param {number} u
 * @param {number} slot
 * @param {number} weight
 * @param {Float64Array} survive
 * @param {Account} account
 */
function takeEdited(edited, u, slot, weight, survive, account) {
  const lost = new Float64Array(survive.length);
  for (let j = 0; j < lost.length; j++) {
    if (!edited[slot * lost.length + j]) continue;
    lost[j] = survive[j];
    survive[j] = 0;
  }
  account.edit(u, slot, weight, lost, mean(lost));
  return mean(survive);
}

/** @param {NTMTrace} trace @param {number} width */
function editsByStep(trace, width) {
  /** @type {Map<number, Uint8Array>} */
  const edits = new Map();
  for (const one of trace.interventions) {
    if ((one.type === "set" || one.type === "scramble") && !edits.has(one.at)) {
      edits.set(one.at, editedCells(trace.interventions, one.at, trace.slots, width));
    }
  }
  return edits;
}

/** @param {Float64Array} values */
function mean(values) {
  let sum = 0;
  for (let j = 0; j < values.length; j++) sum += values[j];
  return sum / values.length;
}

/**
 * The map of a run: how much of what was read at t was written at u. Null, the default, is the sum over all heads of
 * that kind.
 * @param {NTMMachine} machine
 * @param {NTMTrace} trace
 * @param {number | null} [readHead]
 * @param {number | null} [writeHead]
 * @returns {Lineage}
 */
export function lineage(machine, trace, readHead = null, writeHead = null) {
  const { steps, slots } = trace;
  const { read_heads: heads, memory_width: width } = machine.config;
  const found = { map: tensor([steps, steps]), rest: new Float64Array(steps), edited: new Float64Array(steps) };
  const history = historyOf(machine, trace, UNWRITTEN);
  const survive = new Float64Array(width);
  const [map, reading] = [found.map.data, trace.read.weightings.data];
  let t = 0;
  /** @type {Account} */
  const account = {
    write(u, head, weight, _survive, left) {
      if (writeHead === null || writeHead === head) map[t * steps + u] += weight * left;
    },
    edit: (_u, _slot, weight, _lost, left) => (found.edited[t] += weight * left),
    rest: (_slot, weight, _survive, left) => (found.rest[t] += weight * left),
  };
  for (; t < steps; t++) {
    for (let i = 0; i < slots; i++) {
      let weight = 0;
      for (let h = 0; h < heads; h++) {
        if (readHead === null || readHead === h) weight += reading[(t * heads + h) * slots + i];
      }
      if (weight > UNREAD) walkBack(machine, trace, history, t, i, weight, survive, account);
    }
  }
  return found;
}

/**
 * Where one read vector comes from, the largest share first. The vectors add up to what the head reads at step t.
 * @param {NTMMachine} machine
 * @param {NTMTrace} trace
 * @param {number} t
 * @param {number} readHead
 * @param {number} [least]   slots that are read with this weight or less are left out; 0: none is
 * @returns {Origin[]}
 */
export function origins(machine, trace, t, readHead, least = 0) {
  const { read_heads: reading, write_heads: writing, memory_width: width } = machine.config;
  /** @type {Map<number, Origin>} */
  const found = new Map();
  /** @param {number} u @param {number} writeHead */
  const origin = (u, writeHead) => {
    const key = u < 0 ? u : u * writing + writeHead;
    let one = found.get(key);
    if (!one) found.set(key, (one = { u, writeHead, share: 0, vector: new Float64Array(width) }));
    return one;
  };
  /**
   * @param {Origin} to
   * @param {number} weight
   * @param {Float64Array} left
   * @param {number} share   the mean of left
   * @param {Float64Array} values
   * @param {number} from
   */
  const put = (to, weight, left, share, values, from) => {
    to.share += weight * share;
    for (let j = 0; j < width; j++) to.vector[j] += weight * left[j] * values[from + j];
  };
  /** @type {Account} */
  const account = {
    write: (u, h, weight, left, share) =>
      put(origin(u, h), weight, left, share, trace.add.data, (u * writing + h) * width),
    edit: (u, slot, weight, lost, share) =>
      put(origin(-2, -1), weight, lost, share, row(trace.memoryBefore, u), slot * width),
    rest: (slot, weight, left, share) => put(origin(-1, -1), weight, left, share, trace.initial.memory, slot * width),
  };
  const history = historyOf(machine, trace, 0);
  const survive = new Float64Array(width);
  const weights = trace.read.weightings.data.subarray((t * reading + readHead) * trace.slots);
  for (let i = 0; i < trace.slots; i++) {
    if (weights[i] > least) walkBack(machine, trace, history, t, i, weights[i], survive, account);
  }
  return [...found.values()].sort((a, b) => b.share - a.share);
}
