// @ts-check
/**
 * The Neural Turing Machine, step by step, with every internal tensor kept. Mirrors
 * tapehead/kernels/ntm_scan/reference.py, in float64.
 *
 * Legend: T time, N slots, M width, H heads of one kind, R read heads, W write heads.
 */
import { interfaceParts, partsSize } from "./config.js";
import { control } from "./controllers.js";
import * as equations from "./equations.js";
import { initialState } from "./initial.js";
import { actionsAt, checkInterventions } from "./interventions.js";
import { linear, row, sigmoid, softmax, softplus, tensor } from "./tensors.js";

/** @typedef {import("./api.js").HeadTrace} HeadTrace */
/** @typedef {import("./api.js").Intervention} Intervention */
/** @typedef {import("./api.js").NTMConfig} NTMConfig */
/** @typedef {import("./api.js").NTMMachine} NTMMachine */
/** @typedef {import("./api.js").NTMTrace} NTMTrace */
/** @typedef {import("./api.js").State} State */
/** @typedef {import("./api.js").Tensor} Tensor */
/** @typedef {import("./equations.js").Rows} Rows */
/** @typedef {import("./interventions.js").Actions} Actions */

/**
 * A sequence from its first step to its last. since: an earlier run of this machine on a tape of the same length, whose
 * inputs and interventions are the same before that step, so that only the rest is computed.
 * @param {NTMMachine} machine
 * @param {Tensor} inputs  [T, I]
 * @param {{slots?: number, state?: State, interventions?: Intervention[], since?: {trace: NTMTrace, step: number}}}
 *   [options]
 * @returns {NTMTrace}
 */
export function run(machine, inputs, options = {}) {
  const interventions = options.interventions ?? [];
  checkInterventions(machine, interventions);
  const initial = options.state ?? initialState(machine, options.slots);
  const trace = emptyTrace(machine.config, inputs, initial, interventions);
  const start = options.since ? takeOver(trace, options.since.trace, options.since.step) : 0;
  let rows = equations.rowNorms(stateAfter(trace, start - 1).memory, machine.config.memory_width);
  for (let t = start; t < trace.steps; t++) rows = advance(machine, trace, t, rows, actionsAt(interventions, t));
  trace.final = stateAfter(trace, trace.steps - 1);
  return trace;
}

/**
 * One step from a state.
 * @param {NTMMachine} machine
 * @param {State} state
 * @param {Float64Array} input  [I]
 * @returns {{state: State, logits: Float64Array}}
 */
export function step(machine, state, input) {
  const trace = run(machine, tensor([1, input.length], input), { state });
  return { state: trace.final, logits: row(trace.logits, 0) };
}

/**
 * The state after step t of a run; t = -1 is the initial state.
 * @param {NTMTrace} trace
 * @param {number} t
 * @returns {State}
 */
export function stateAfter(trace, t) {
  if (t < 0) return trace.initial;
  return {
    memory: row(trace.memory, t),
    readWeightings: row(trace.read.weightings, t),
    writeWeightings: row(trace.write.weightings, t),
    reads: row(trace.reads, t),
    hidden: row(trace.hiddens, t),
    cell: row(trace.cells, t),
  };
}

/**
 * @param {NTMConfig} config
 * @param {Tensor} inputs
 * @param {State} initial
 * @param {Intervention[]} interventions
 * @returns {NTMTrace}
 */
function emptyTrace(config, inputs, initial, interventions) {
  const steps = inputs.shape[0];
  const m = config.memory_width;
  const slots = initial.memory.length / m;
  const layers = config.controller === "lstm" ? config.controller_layers : 0;
  const [reading, writing] = [config.read_heads, config.write_heads];
  const edited = interventions.some(({ type }) => type === "set" || type === "scramble");
  const moved = interventions.some(({ type }) => type === "move");
  const [memoryBefore, memory] = beforeAndAfter([steps, slots, m], edited);
  return {
    model: "ntm",
    steps,
    slots,
    inputs,
    read: emptyHeads(config, steps, reading, slots, moved),
    write: emptyHeads(config, steps, writing, slots, moved),
    erase: tensor([steps, writing, m]),
    add: tensor([steps, writing, m]),
    writeGates: tensor([steps, writing]),
    written: tensor([steps, writing, slots]),
    memoryBefore,
    memory,
    reads: tensor([steps, reading, m]),
    hidden: tensor([steps, config.controller_size]),
    hiddens: tensor([steps, layers, config.controller_size]),
    cells: tensor([steps, layers, config.controller_size]),
    logits: tensor([steps, config.output_size]),
    initial,
    final: initial,
    interventions,
  };
}

/**
 * A tensor before and after every step. Nothing comes between two steps, unless they are apart: then both are views of
 * one piece.
 * @param {number[]} shape  steps first
 * @param {boolean} apart
 * @returns {[Tensor, Tensor]}
 */
function beforeAndAfter(shape, apart) {
  if (apart) return [tensor(shape), tensor(shape)];
  const whole = tensor([shape[0] + 1, ...shape.slice(1)]).data;
  const step = whole.length / (shape[0] + 1);
  return [tensor(shape, whole.subarray(0, whole.length - step)), tensor(shape, whole.subarray(step))];
}

/**
 * @param {NTMConfig} config
 * @param {number} steps
 * @param {number} heads
 * @param {number} slots
 * @param {boolean} moved
 * @returns {HeadTrace}
 */
function emptyHeads(config, steps, heads, slots, moved) {
  const overSlots = () => tensor([steps, heads, slots]);
  const [previous, weightings] = beforeAndAfter([steps, heads, slots], moved);
  return {
    keys: tensor([steps, heads, config.memory_width]),
    strengths: tensor([steps, heads]),
    gates: tensor([steps, heads]),
    shifts: tensor([steps, heads, 2 * config.shift_range + 1]),
    sharpenings: tensor([steps, heads]),
    previous,
    similarity: overSlots(),
    content: overSlots(),
    interpolated: overSlots(),
    shifted: overSlots(),
    weightings,
  };
}

/**
 * Take the steps before `step` over from an earlier run; the step to go on from, 0 if that was on another tape.
 * @param {NTMTrace} trace
 * @param {NTMTrace} earlier
 * @param {number} step
 */
function takeOver(trace, earlier, step) {
  const start = Math.min(step, earlier.steps, trace.steps);
  if (earlier.slots !== trace.slots || earlier.logits.shape[1] !== trace.logits.shape[1] || start <= 0) return 0;
  /** @param {any} to @param {any} from */
  const copy = (to, from) => {
    for (const [name, part] of Object.entries(to)) {
      if (part === trace.inputs || !part) continue;
      if (part.data instanceof Float64Array)
        part.data.set(from[name].data.subarray(0, (part.data.length / trace.steps) * start));
      else if (name === "read" || name === "write") copy(part, from[name]);
    }
  };
  copy(trace, earlier);
  return start;
}

/**
 * Step t, from the state after the step before: writes it into the trace. Takes and gives the norms of the memory's
 * rows.
 * @param {NTMMachine} machine
 * @param {NTMTrace} trace
 * @param {number} t
 * @param {Rows} rows
 * @param {Actions} actions
 * @returns {Rows}
 */
function advance(machine, trace, t, rows, actions) {
  const { config, parameters } = machine;
  const state = stateAfter(trace, t - 1);
  const input = row(trace.inputs, t);
  const before = row(trace.memoryBefore, t);
  before.set(state.memory);
  if (actions.editMemory(before, config.memory_width)) rows = equations.rowNorms(before, config.memory_width);

  const seen = joined(input, state.reads);
  const hidden = control(machine, seen, state.hidden, state.cell, row(trace.hiddens, t), row(trace.cells, t));
  row(trace.hidden, t).set(hidden);
  const vector = new Float64Array(parameters["interface.bias"].data.length);
  linear(parameters["interface.weight"].data, parameters["interface.bias"].data, hidden, vector);
  if (config.interface_clip !== null) clip(vector, config.interface_clip);

  const rowsAfter = useMemory(config, trace, t, vector, state, rows, actions);

  const reads = row(trace.reads, t);
  const told = config.output_from === "hidden_and_reads" ? joined(hidden, reads) : hidden;
  linear(parameters["output.weight"].data, parameters["output.bias"].data, told, row(trace.logits, t));
  return rowsAfter;
}

/**
 * Both kinds of heads on the tape, in the order of the configuration.
 * @param {NTMConfig} config
 * @param {NTMTrace} trace
 * @param {number} t
 * @param {Float64Array} vector  the interface
 * @param {State} state
 * @param {Rows} rowsBefore
 * @param {Actions} actions
 * @returns {Rows}
 */
function useMemory(config, trace, t, vector, state, rowsBefore, actions) {
  const parts = interfaceParts(config);
  const readSize = partsSize(parts.read);
  const writeSize = partsSize(parts.write);
  const ofWriting = config.read_heads * readSize;
  const before = row(trace.memoryBefore, t);
  const after = row(trace.memory, t);

  setPrevious(trace.write, t, state.writeWeightings, (h) => actions.moved("write", h));
  for (let h = 0; h < config.write_heads; h++) {
    const raw = split(parts.write, vector, ofWriting + h * writeSize);
    setAddressing(config, trace.write, t, h, raw, actions.pinned("write", h));
    address(trace.write, t, h, before, rowsBefore);
    setWriting(config, trace, t, h, raw, actions.muted("write", h));
  }
  equations.write(before, row(trace.written, t), row(trace.erase, t), row(trace.add, t), config.memory_width, after);

  const rowsAfter = equations.rowNorms(after, config.memory_width);
  const [found, rowsFound] = config.order === "write_then_read" ? [after, rowsAfter] : [before, rowsBefore];
  setPrevious(trace.read, t, state.readWeightings, (h) => actions.moved("read", h));
  for (let h = 0; h < config.read_heads; h++) {
    const raw = split(parts.read, vector, h * readSize);
    setAddressing(config, trace.read, t, h, raw, actions.pinned("read", h));
    address(trace.read, t, h, found, rowsFound);
    if (!actions.muted("read", h))
      equations.read(found, headRow(trace.read.weightings, t, h), headRow(trace.reads, t, h));
  }
  return rowsAfter;
}

/**
 * The weightings that the heads come from, each moved by so many slots.
 * @param {HeadTrace} heads
 * @param {number} t
 * @param {Float64Array} weightings  [H, N]
 * @param {(h: number) => number} movedBy
 */
function setPrevious(heads, t, weightings, movedBy) {
  row(heads.previous, t).set(weightings);
  for (let h = 0; h < heads.previous.shape[1]; h++) {
    const by = movedBy(h);
    const one = headRow(heads.previous, t, h);
    const slots = one.length;
    if (by) one.set(one.map((_, i) => weightings[h * slots + ((((i - by) % slots) + slots) % slots)]));
  }
}

/**
 * A head's entries of the interface vector, by part.
 * @param {Object<string, number>} parts
 * @param {Float64Array} vector
 * @param {number} from
 */
function split(parts, vector, from) {
  /** @type {Object<string, Float64Array>} */
  const found = {};
  for (const [name, size] of Object.entries(parts)) {
    found[name] = vector.subarray(from, from + size);
    from += size;
  }
  return found;
}

/**
 * The activations of the addressing part, and the values that interventions hold.
 * @param {NTMConfig} config
 * @param {HeadTrace} heads
 * @param {number} t
 * @param {number} h
 * @param {Object<string, Float64Array>} raw
 * @param {Object<string, number>} pinned
 */
function setAddressing(config, heads, t, h, raw, pinned) {
  const key = headRow(heads.keys, t, h);
  for (let j = 0; j < key.length; j++) key[j] = config.key_activation === "tanh" ? Math.tanh(raw.key[j]) : raw.key[j];
  headRow(heads.strengths, t, h)[0] = pinned.strength ?? softplus(raw.strength[0]);
  headRow(heads.gates, t, h)[0] = pinned.gate ?? sigmoid(raw.gate[0]);
  headRow(heads.sharpenings, t, h)[0] = pinned.sharpening ?? 1 + softplus(raw.sharpening[0]);
  const shifts = headRow(heads.shifts, t, h);
  if (pinned.shift !== undefined) {
    equations.scalarShift(pinned.shift, shifts);
  } else if (config.shift === "softmax") {
    shifts.set(raw.shift);
    softmax(shifts);
  } else {
    equations.scalarShift(config.shift_range * Math.tanh(raw.shift[0]), shifts);
  }
}

/**
 * Figure 2 of the paper, Eqs. 5 to 9.
 * @param {HeadTrace} heads
 * @param {number} t
 * @param {number} h
 * @param {Float64Array} memory
 * @param {Rows} rows
 */
function address(heads, t, h, memory, rows) {
  const similarity = headRow(heads.similarity, t, h);
  const content = headRow(heads.content, t, h);
  const interpolated = headRow(heads.interpolated, t, h);
  const shifted = headRow(heads.shifted, t, h);
  equations.similarity(headRow(heads.keys, t, h), memory, rows, similarity);
  equations.contentWeighting(similarity, headRow(heads.strengths, t, h)[0], content);
  equations.interpolate(headRow(heads.gates, t, h)[0], content, headRow(heads.previous, t, h), interpolated);
  equations.shift(interpolated, headRow(heads.shifts, t, h), shifted);
  equations.sharpen(shifted, headRow(heads.sharpenings, t, h)[0], headRow(heads.weightings, t, h));
}

/**
 * What a write head erases and adds, and where.
 * @param {NTMConfig} config
 * @param {NTMTrace} trace
 * @param {number} t
 * @param {number} h
 * @param {Object<string, Float64Array>} raw
 * @param {boolean} muted
 */
function setWriting(config, trace, t, h, raw, muted) {
  const erase = headRow(trace.erase, t, h);
  const add = headRow(trace.add, t, h);
  for (let j = 0; j < erase.length; j++) {
    erase[j] = sigmoid(raw.erase[j]);
    add[j] = raw.add[j];
    if (config.add_activation === "tanh") add[j] = Math.tanh(add[j]);
    else if (config.add_activation === "sigmoid") add[j] = sigmoid(add[j]);
  }
  const gate = config.write_gate ? sigmoid(raw.write_gate[0]) : 1;
  headRow(trace.writeGates, t, h)[0] = gate;
  const weighting = headRow(trace.write.weightings, t, h);
  const written = headRow(trace.written, t, h);
  if (!muted) for (let i = 0; i < written.length; i++) written[i] = gate * weighting[i];
}

/**
 * The part of a tensor [T, H, ...] that belongs to a step and a head, as a view.
 * @param {Tensor} of
 * @param {number} t
 * @param {number} h
 */
function headRow(of, t, h) {
  const heads = of.shape[1];
  const size = of.data.length / (of.shape[0] * heads);
  const from = (t * heads + h) * size;
  return of.data.subarray(from, from + size);
}

/** @param {Float64Array} first @param {Float64Array} second */
function joined(first, second) {
  const both = new Float64Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** @param {Float64Array} values @param {number} limit */
function clip(values, limit) {
  for (let i = 0; i < values.length; i++) values[i] = Math.max(-limit, Math.min(limit, values[i]));
}
