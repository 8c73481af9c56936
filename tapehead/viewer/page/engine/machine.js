// @ts-check
/**
 * The Neural Turing Machine, step by step, with every internal tensor kept. Mirrors
 * tapehead/kernels/ntm_scan/reference.py, in float64.
 *
 * Legend: T time, N slots, M width, H heads of one kind, R read heads, W write heads.
 */
import { interfaceParts, partsSize } from "./config.js";
import { control, controllerLayers } from "./controllers.js";
import * as equations from "./equations.js";
import { initialState } from "./initial.js";
import { actionsAt, checkInterventions } from "./interventions.js";
import { doubles, linear, put, row, rowsOf, sigmoid, softmax, softplus, tensor } from "./tensors.js";

/** @typedef {import("./api.js").HeadTrace} HeadTrace */
/** @typedef {import("./api.js").Intervention} Intervention */
/** @typedef {import("./api.js").NTMConfig} NTMConfig */
/** @typedef {import("./api.js").NTMMachine} NTMMachine */
/** @typedef {import("./api.js").NTMTrace} NTMTrace */
/** @typedef {import("./api.js").State} State */
/** @typedef {import("./api.js").Tensor} Tensor */
/** @typedef {import("./controllers.js").Layer} Layer */
/** @typedef {import("./interventions.js").Actions} Actions */

/**
 * A sequence from its first step to its last. since: an earlier run of this machine on a tape of the same length, whose
 * inputs and interventions are the same before that step, so that only the rest is computed. into: a run that nobody
 * needs any more, whose memory this one takes if the sizes are equal; it may be the one of `since`, and then nothing is
 * copied.
 * @param {NTMMachine} machine
 * @param {Tensor} inputs  [T, I]
 * @param {{slots?: number, state?: State, interventions?: Intervention[], since?: {trace: NTMTrace, step: number},
 *   into?: NTMTrace}} [options]
 * @returns {NTMTrace}
 */
export function run(machine, inputs, options = {}) {
  const interventions = options.interventions ?? [];
  checkInterventions(machine, interventions);
  const initial = options.state ?? initialState(machine, options.slots);
  const trace = emptyTrace(machine.config, inputs, initial, interventions, options.into);
  const start = options.since ? takeOver(trace, options.since.trace, options.since.step) : 0;
  const work = workFor(machine, trace.slots);
  equations.inverseNorms(stateAfter(trace, start - 1).memory, machine.config.memory_width, work.norms);
  for (let t = start; t < trace.steps; t++) advance(machine.config, work, trace, t, actionsAt(interventions, t));
  trace.final = stateAfter(trace, trace.steps - 1);
  return trace;
}

/**
 * What all steps of a run use.
 * @typedef {Object<string, Float64Array>} Parts   a head's entries of the interface vector, by part
 * @typedef {object} Work
 * @property {Layer[]} layers
 * @property {{rows: number[][], bias: Float64Array, out: Float64Array}} interface
 * @property {{read: Parts[], write: Parts[]}} heads   views of the interface vector
 * @property {{rows: number[][], bias: Float64Array}} output
 * @property {number[]} told   the controller's output, and behind it the reads: what both of these layers see
 * @property {Float64Array} norms   [N] one divided by the norms of the memory's rows, before the step and after it
 * @property {Float64Array} otherNorms   [N] in the middle of a step, those of the other side of the write
 */

/** @param {NTMMachine} machine @param {number} slots @returns {Work} */
function workFor(machine, slots) {
  const { config, parameters } = machine;
  const vector = new Float64Array(parameters["interface.bias"].data.length);
  const parts = interfaceParts(config);
  const readSize = partsSize(parts.read);
  const writeSize = partsSize(parts.write);
  const reading = Array.from({ length: config.read_heads }, (_, h) => split(parts.read, vector, h * readSize));
  const writing = Array.from({ length: config.write_heads }, (_, h) =>
    split(parts.write, vector, config.read_heads * readSize + h * writeSize),
  );
  return {
    layers: controllerLayers(machine),
    interface: {
      rows: rowsOf(parameters["interface.weight"]),
      bias: parameters["interface.bias"].data,
      out: vector,
    },
    heads: { read: reading, write: writing },
    output: { rows: rowsOf(parameters["output.weight"]), bias: parameters["output.bias"].data },
    told: doubles(config.controller_size + config.read_heads * config.memory_width),
    norms: new Float64Array(slots),
    otherNorms: new Float64Array(slots),
  };
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

/** The layout of each trace.  @type {WeakMap<NTMTrace, string>} */
const layouts = new WeakMap();

/**
 * A trace to be filled, in the memory of another one if its layout is the same.
 * @param {NTMConfig} config
 * @param {Tensor} inputs
 * @param {State} initial
 * @param {Intervention[]} interventions
 * @param {NTMTrace} [into]
 * @returns {NTMTrace}
 */
function emptyTrace(config, inputs, initial, interventions, into) {
  const steps = inputs.shape[0];
  const slots = initial.memory.length / config.memory_width;
  const edited = interventions.some(({ type }) => type === "set" || type === "scramble");
  const moved = interventions.some(({ type }) => type === "move");
  const layout = JSON.stringify([config, steps, slots, edited, moved]);
  const tensors = into && layouts.get(into) === layout ? into : emptyTensors(config, steps, slots, edited, moved);
  /** @type {NTMTrace} */
  const trace = { ...tensors, model: "ntm", steps, slots, inputs, initial, final: initial, interventions };
  layouts.set(trace, layout);
  return trace;
}

/**
 * @param {NTMConfig} config
 * @param {number} steps
 * @param {number} slots
 * @param {boolean} edited
 * @param {boolean} moved
 */
function emptyTensors(config, steps, slots, edited, moved) {
  const m = config.memory_width;
  const layers = config.controller === "lstm" ? config.controller_layers : 0;
  const [reading, writing] = [config.read_heads, config.write_heads];
  const [memoryBefore, memory] = beforeAndAfter([steps, slots, m], edited);
  return {
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
  if (earlier.memory === trace.memory) return start;
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
 * Step t, from the state after the step before: writes it into the trace.
 * @param {NTMConfig} config
 * @param {Work} work
 * @param {NTMTrace} trace
 * @param {number} t
 * @param {Actions} actions
 */
function advance(config, work, trace, t, actions) {
  const state = stateAfter(trace, t - 1);
  const before = row(trace.memoryBefore, t);
  before.set(state.memory);
  if (actions.editMemory(before, config.memory_width)) equations.inverseNorms(before, config.memory_width, work.norms);

  const input = row(trace.inputs, t);
  const [hiddens, cells] = [row(trace.hiddens, t), row(trace.cells, t)];
  const hidden = control(config, work.layers, input, state.reads, state.hidden, state.cell, hiddens, cells);
  row(trace.hidden, t).set(hidden);
  put(hidden, work.told, 0);
  linear(work.interface.rows, work.interface.bias, work.told, work.interface.out);
  if (config.interface_clip !== null) clip(work.interface.out, config.interface_clip);

  useMemory(config, work, trace, t, state, before, actions);

  put(row(trace.reads, t), work.told, hidden.length);
  linear(work.output.rows, work.output.bias, work.told, row(trace.logits, t));
}

/**
 * Both kinds of heads on the tape, in the order of the configuration.
 * @param {NTMConfig} config
 * @param {Work} work
 * @param {NTMTrace} trace
 * @param {number} t
 * @param {State} state
 * @param {Float64Array} before  the memory
 * @param {Actions} actions
 */
function useMemory(config, work, trace, t, state, before, actions) {
  const after = row(trace.memory, t);
  setPrevious(trace.write, t, state.writeWeightings, (h) => actions.moved("write", h));
  for (let h = 0; h < config.write_heads; h++) {
    const raw = work.heads.write[h];
    setAddressing(config, trace.write, t, h, raw, actions.pinned("write", h));
    address(trace.write, t, h, before, work.norms);
    setWriting(config, trace, t, h, raw, actions.muted("write", h));
  }
  equations.write(before, row(trace.written, t), row(trace.erase, t), row(trace.add, t), config.memory_width, after);

  equations.inverseNorms(after, config.memory_width, work.otherNorms);
  const [found, norms] = config.order === "write_then_read" ? [after, work.otherNorms] : [before, work.norms];
  setPrevious(trace.read, t, state.readWeightings, (h) => actions.moved("read", h));
  for (let h = 0; h < config.read_heads; h++) {
    setAddressing(config, trace.read, t, h, work.heads.read[h], actions.pinned("read", h));
    address(trace.read, t, h, found, norms);
    const vector = headRow(trace.reads, t, h);
    if (actions.muted("read", h)) vector.fill(0);
    else equations.read(found, headRow(trace.read.weightings, t, h), vector);
  }
  [work.norms, work.otherNorms] = [work.otherNorms, work.norms];
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
  const at = t * heads.gates.shape[1] + h;
  heads.strengths.data[at] = pinned.strength ?? softplus(raw.strength[0]);
  heads.gates.data[at] = pinned.gate ?? sigmoid(raw.gate[0]);
  heads.sharpenings.data[at] = pinned.sharpening ?? 1 + softplus(raw.sharpening[0]);
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
 * @param {Float64Array} norms  one divided by the norm of each row
 */
function address(heads, t, h, memory, norms) {
  const at = t * heads.gates.shape[1] + h;
  const similarity = headRow(heads.similarity, t, h);
  const content = headRow(heads.content, t, h);
  const interpolated = headRow(heads.interpolated, t, h);
  const shifted = headRow(heads.shifted, t, h);
  equations.similarity(headRow(heads.keys, t, h), memory, norms, similarity);
  equations.contentWeighting(similarity, heads.strengths.data[at], content);
  equations.interpolate(heads.gates.data[at], content, headRow(heads.previous, t, h), interpolated);
  equations.shift(interpolated, headRow(heads.shifts, t, h), shifted);
  equations.sharpen(shifted, heads.sharpenings.data[at], headRow(heads.weightings, t, h));
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
  trace.writeGates.data[t * config.write_heads + h] = gate;
  const weighting = headRow(trace.write.weightings, t, h);
  const written = headRow(trace.written, t, h);
  const share = muted ? 0 : gate;
  for (let i = 0; i < written.length; i++) written[i] = share * weighting[i];
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

/** @param {Float64Array} values @param {number} limit */
function clip(values, limit) {
  for (let i = 0; i < values.length; i++) values[i] = Math.max(-limit, Math.min(limit, values[i]));
}
