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

const UNREAD = 1e-6; // a slot that is read with less weight than this is left out of the map
const UNWRITTEN = 1e-9; // and so is a write with less weight than this

/**
 * What happened to the slots: for each of them the steps, latest first, before which it was edited or in which it was
 * written.
 * @typedef {{steps: number[][], edits: Map<number, Uint8Array>}} History   edits: the cells that were set or moved
 *   before a step
 */

/** @param {NTMMachine} machine @param {NTMTrace} trace @param {number} least  weight of a write @returns {History} */
function historyOf(machine, trace, least) {
  const { slots, written } = trace;
  const heads = written.shape[1];
  const edits = editsByStep(trace, machine.config.memory_width);
  /** @type {number[][]} */
  const steps = Array.from({ length: slots }, () => []);
  for (let u = trace.steps - 1; u >= 0; u--) {
    for (let i = 0; i < slots; i++) {
      let most = edits.has(u) ? 1 : 0;
      for (let h = 0; h < heads; h++) most = Math.max(most, written.data[(u * heads + h) * slots + i]);
      if (most > least) steps[i].push(u);
    }
  }
  return { steps, edits };
}

/**
 * Where the shares of one read vector go.
 * @typedef {object} Account
 * @property {(u: number, head: number, weight: number, survive: Float64Array) => void} write
 *   a write with `weight` (of the read times that of the write) of which survive [M] is left
 * @property {(u: number, slot: number, weight: number, lost: Float64Array) => void} edit   lost [M]: what an
 *   intervention before step u replaced
 * @property {(slot: number, weight: number, survive: Float64Array) => void} rest
 */

/**
 * Walk back in time from a read of one slot.
 * @param {NTMMachine} machine
 * @param {NTMTrace} trace
 * @param {History} history
 * @param {number} t
 * @param {number} slot
 * @param {number} weight   w_r(t, slot)
 * @param {Account} account
 */
function walkBack(machine, trace, history, t, slot, weight, account) {
  const { memory_width: width, write_heads: heads, order } = machine.config;
  const survive = new Float64Array(width).fill(1);
  for (const u of history.steps[slot]) {
    if (u > t) continue;
    if (u < t || order === "write_then_read") {
      for (let h = 0; h < heads; h++) {
        const w = trace.written.data[(u * heads + h) * trace.slots + slot];
        if (w > 0) account.write(u, h, weight * w, survive);
      }
      eraseBack(trace, u, slot, survive);
    }
    const edited = history.edits.get(u);
    if (edited) takeEdited(edited, u, slot, weight, survive, account);
  }
  account.rest(slot, weight, survive);
}

/**
 * Undo the erasing of step u.
 * @param {NTMTrace} trace
 * @param {number} u
 * @param {number} slot
 * @param {Float64Array} survive
 */
function eraseBack(trace, u, slot, survive) {
  const heads = trace.written.shape[1];
  const width = survive.length;
  for (let h = 0; h < heads; h++) {
    const at = u * heads + h;
    const w = trace.written.data[at * trace.slots + slot];
    for (let j = 0; j < width; j++) survive[j] *= 1 - w * trace.erase.data[at * width + j];
  }
}

/**
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
  account.edit(u, slot, weight, lost);
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
  const { read_heads: heads } = machine.config;
  const found = { map: tensor([steps, steps]), rest: new Float64Array(steps), edited: new Float64Array(steps) };
  const history = historyOf(machine, trace, UNWRITTEN);
  for (let t = 0; t < steps; t++) {
    const of = row(found.map, t);
    /** @type {Account} */
    const account = {
      write(u, head, weight, survive) {
        if (writeHead === null || writeHead === head) of[u] += weight * mean(survive);
      },
      edit: (_u, _slot, weight, lost) => (found.edited[t] += weight * mean(lost)),
      rest: (_slot, weight, survive) => (found.rest[t] += weight * mean(survive)),
    };
    for (let i = 0; i < slots; i++) {
      let weight = 0;
      for (let h = 0; h < heads; h++) {
        if (readHead === null || readHead === h) weight += trace.read.weightings.data[(t * heads + h) * slots + i];
      }
      if (weight > UNREAD) walkBack(machine, trace, history, t, i, weight, account);
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
 * @returns {Origin[]}
 */
export function origins(machine, trace, t, readHead) {
  const { read_heads: reading, write_heads: writing, memory_width: width } = machine.config;
  /** @type {Map<string, Origin>} */
  const found = new Map();
  /** @param {number} u @param {number} writeHead */
  const origin = (u, writeHead) => {
    const key = `${u}/${writeHead}`;
    const one = found.get(key) ?? { u, writeHead, share: 0, vector: new Float64Array(width) };
    found.set(key, one);
    return one;
  };
  /**
   * @param {Origin} to
   * @param {number} weight
   * @param {Float64Array} left
   * @param {Float64Array} values
   * @param {number} from
   */
  const put = (to, weight, left, values, from) => {
    to.share += weight * mean(left);
    for (let j = 0; j < width; j++) to.vector[j] += weight * left[j] * values[from + j];
  };
  /** @type {Account} */
  const account = {
    write: (u, h, weight, left) => put(origin(u, h), weight, left, trace.add.data, (u * writing + h) * width),
    edit: (u, slot, weight, lost) => put(origin(-2, -1), weight, lost, row(trace.memoryBefore, u), slot * width),
    rest: (slot, weight, left) => put(origin(-1, -1), weight, left, trace.initial.memory, slot * width),
  };
  const history = historyOf(machine, trace, 0);
  for (let i = 0; i < trace.slots; i++) {
    walkBack(
      machine,
      trace,
      history,
      t,
      i,
      trace.read.weightings.data[(t * reading + readHead) * trace.slots + i],
      account,
    );
  }
  return [...found.values()].sort((a, b) => b.share - a.share);
}
