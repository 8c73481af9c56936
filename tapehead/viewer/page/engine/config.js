// @ts-check
/**
 * What a machine is: its options with Python's defaults, the names and shapes of its parameters, and the sentences that
 * refuse another.
 */
import { EngineError, shown } from "./errors.js";
import { sizeOf } from "./tensors.js";

/** @typedef {import("./api.js").NTMConfig} NTMConfig */
/** @typedef {import("./api.js").LSTMConfig} LSTMConfig */
/** @typedef {Object<string, number[]>} Shapes */

export const MOST_SLOTS = 4096; // more cannot be drawn, and take long to run
const MOST_WIDTH = 4096;
const ADDRESS_DIGITS = 7;

/** The options of tapehead.NTM with their defaults; those that only training needs are known and not used. */
export const NTM_DEFAULTS = {
  controller: "lstm",
  controller_size: 100,
  controller_layers: 1,
  num_heads: 1,
  memory_slots: 128,
  memory_width: 20,
  shift: "softmax",
  shift_range: 1,
  read_heads: null,
  write_heads: null,
  initial_memory: "constant",
  initial_memory_value: 1e-6,
  initial_memory_scale: 0.1,
  initial_weightings: "first",
  initial_reads: "zeros",
  initial_controller: "zeros",
  order: "write_then_read",
  key_activation: "linear",
  add_activation: "linear",
  output_from: "hidden_and_reads",
  forget_bias: 1,
  read_gate_bias: 0,
  write_gate_bias: 0,
  strength_bias: 0,
  sharpen_bias: 0,
  interface_clip: null,
  write_gate: false,
};

/** The options of tapehead.PaperLSTM with their defaults. */
export const LSTM_DEFAULTS = { hidden_size: 256, num_layers: 3, forget_bias: 1 };

/** @type {Object<string, any[]>} */
const CHOICES = {
  controller: ["lstm", "feedforward"],
  shift: ["softmax", "scalar"],
  initial_memory: ["constant", "random", "addresses", "learned", "given"],
  initial_weightings: ["first", "spread", "uniform", "learned", "zeros"],
  initial_reads: ["zeros", "learned", "memory"],
  initial_controller: ["zeros", "learned"],
  order: ["write_then_read", "read_then_write"],
  key_activation: ["linear", "tanh"],
  add_activation: ["linear", "tanh", "sigmoid"],
  output_from: ["hidden_and_reads", "hidden"],
  write_gate: [false, true],
};

/** Whole numbers, each with the least and the most that the page takes.  @type {Object<string, [number, number]>} */
const WHOLE = {
  input_size: [1, MOST_WIDTH],
  output_size: [1, MOST_WIDTH],
  controller_size: [1, MOST_WIDTH],
  controller_layers: [1, 64],
  num_heads: [1, 64],
  read_heads: [1, 64],
  write_heads: [1, 64],
  memory_slots: [1, MOST_SLOTS],
  memory_width: [1, MOST_WIDTH],
  shift_range: [0, 64],
  hidden_size: [1, MOST_WIDTH],
  num_layers: [1, 64],
};

/**
 * @param {Object<string, any>} options
 * @param {string} name
 */
function checkOption(options, name) {
  const value = options[name];
  if (name in CHOICES) {
    if (!CHOICES[name].includes(value)) {
      throw new EngineError(`${name} is ${shown(value)}, but the page knows ${CHOICES[name].join(", ")}.`);
    }
  } else if (name in WHOLE) {
    const [least, most] = WHOLE[name];
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new EngineError(`${name} is ${shown(value)}, but the page takes whole numbers from ${least} to ${most}.`);
    }
  } else if (typeof value !== "number" || !Number.isFinite(value)) {
    throw new EngineError(`${name} is ${shown(value)}, but it must be a finite number.`);
  }
}

/**
 * Options over their defaults; unknown ones are refused.
 * @param {Object<string, any>} defaults
 * @param {Object<string, any>} options
 */
function complete(defaults, options) {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(defaults, name) && name !== "input_size" && name !== "output_size") {
      throw new EngineError(
        `the model has an option ${shown(name)}, which the page does not know: it is for a newer page.`,
      );
    }
  }
  /** @type {Object<string, any>} */
  const whole = { ...defaults, ...options };
  for (const name of Object.keys(whole)) {
    if (!(whole[name] === null && defaults[name] === null)) checkOption(whole, name);
  }
  return whole;
}

/**
 * The configuration of an NTM from the options of its card.
 * @param {Object<string, any>} options  input_size and output_size included
 * @returns {NTMConfig}
 */
export function ntmConfig(options) {
  const whole = complete(NTM_DEFAULTS, options);
  const { num_heads, forget_bias, read_gate_bias, write_gate_bias, strength_bias, sharpen_bias, ...used } = whole;
  used.read_heads = whole.read_heads ?? num_heads;
  used.write_heads = whole.write_heads ?? num_heads;
  if (used.initial_memory === "addresses" && used.memory_width < ADDRESS_DIGITS) {
    throw new EngineError(
      `initial_memory is addresses, which have ${ADDRESS_DIGITS} digits, but memory_width is ${used.memory_width}.`,
    );
  }
  if (used.shift === "scalar" && used.shift_range < 1) {
    throw new EngineError("shift_range is 0, but a scalar shift needs a range of at least 1.");
  }
  if (used.interface_clip !== null && !(used.interface_clip > 0)) {
    throw new EngineError(`interface_clip is ${used.interface_clip}, but it must be positive.`);
  }
  return /** @type {any} */ (used);
}

/**
 * @param {Object<string, any>} options
 * @returns {LSTMConfig}
 */
export function lstmConfig(options) {
  const { forget_bias, ...used } = complete(LSTM_DEFAULTS, options);
  return /** @type {any} */ (used);
}

/**
 * Entries of the interface vector that a read head and a write head have, part by part, in their order.
 * @param {NTMConfig} config
 */
export function interfaceParts(config) {
  const m = config.memory_width;
  const shift = config.shift === "softmax" ? 2 * config.shift_range + 1 : 1;
  const read = { key: m, strength: 1, gate: 1, shift, sharpening: 1 };
  return { read, write: { ...read, erase: m, add: m, write_gate: config.write_gate ? 1 : 0 } };
}

/** @param {Object<string, number>} parts */
export function partsSize(parts) {
  return Object.values(parts).reduce((sum, size) => sum + size, 0);
}

/** Names and shapes of an NTM's parameters.  @param {NTMConfig} config @returns {Shapes} */
export function ntmShapes(config) {
  const c = config.controller_size;
  const reads = config.read_heads * config.memory_width;
  const recurrent = config.controller === "lstm";
  /** @type {Shapes} */
  const shapes = {};
  for (let layer = 0; layer < config.controller_layers; layer++) {
    const below = layer ? c : config.input_size + reads;
    shapes[`controller.weight_${layer}`] = recurrent ? [4 * c, below + c] : [c, below];
    shapes[`controller.bias_${layer}`] = [recurrent ? 4 * c : c];
  }
  const parts = interfaceParts(config);
  const size = config.read_heads * partsSize(parts.read) + config.write_heads * partsSize(parts.write);
  shapes["interface.weight"] = [size, c];
  shapes["interface.bias"] = [size];
  shapes["output.weight"] = [config.output_size, c + (config.output_from === "hidden_and_reads" ? reads : 0)];
  shapes["output.bias"] = [config.output_size];
  return { ...shapes, ...initialShapes(config) };
}

/** The learned parts of the start.  @param {NTMConfig} config @returns {Shapes} */
function initialShapes(config) {
  /** @type {Shapes} */
  const shapes = {};
  if (config.initial_memory === "learned") shapes["initial.memory"] = [config.memory_width];
  if (config.initial_memory === "given") shapes["initial.memory"] = [config.memory_slots, config.memory_width];
  if (config.initial_weightings === "learned") {
    shapes["initial.read_rates"] = [config.read_heads];
    shapes["initial.write_rates"] = [config.write_heads];
  }
  if (config.initial_reads === "learned") shapes["initial.reads"] = [config.read_heads, config.memory_width];
  if (config.initial_controller === "learned" && config.controller === "lstm") {
    shapes["initial.hidden"] = [config.controller_layers, config.controller_size];
    shapes["initial.cell"] = [config.controller_layers, config.controller_size];
  }
  return shapes;
}

/** @param {LSTMConfig} config @returns {Shapes} */
export function lstmShapes(config) {
  const h = config.hidden_size;
  /** @type {Shapes} */
  const shapes = {};
  for (let layer = 0; layer < config.num_layers; layer++) {
    shapes[`weight_input_${layer}`] = [4 * h, config.input_size + (layer ? h : 0)];
    shapes[`weight_hidden_${layer}`] = [4 * h, h];
    shapes[`bias_${layer}`] = [4 * h];
  }
  shapes.initial_hidden = [config.num_layers, h];
  shapes.initial_cell = [config.num_layers, h];
  shapes.output_weight = [config.output_size, config.num_layers * h];
  shapes.output_bias = [config.output_size];
  return shapes;
}

/** @param {Shapes} shapes */
export function parameterCount(shapes) {
  return Object.values(shapes).reduce((sum, shape) => sum + sizeOf(shape), 0);
}
