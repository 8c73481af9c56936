// @ts-check
/** Where an NTM starts every sequence, on a tape of any length. Mirrors tapehead/models/initial.py. */
import { MOST_SLOTS } from "./config.js";
import * as equations from "./equations.js";
import { EngineError, shown } from "./errors.js";
import { Stream } from "./random.js";
import { softmax } from "./tensors.js";

/** @typedef {import("./api.js").NTMMachine} NTMMachine */
/** @typedef {import("./api.js").State} State */

const ADDRESS_DIGITS = 7;

/**
 * @param {NTMMachine} machine
 * @param {number} [slots]  the machine's own number by default
 * @returns {State}
 */
export function initialState(machine, slots = machine.config.memory_slots) {
  if (!Number.isInteger(slots) || slots < 1 || slots > MOST_SLOTS) {
    throw new EngineError(`the tape has ${shown(slots)} slots, but it needs 1 to ${MOST_SLOTS}.`);
  }
  const { config, parameters } = machine;
  const m = config.memory_width;
  const layers = config.controller === "lstm" ? config.controller_layers : 0;
  /** @type {(name: string, size: number) => Float64Array} */
  const learnedOrZeros = (name, size) => parameters[name]?.data.slice() ?? new Float64Array(size);
  const memory = initialMemory(machine, slots);
  const readWeightings = weightings(machine, config.read_heads, "read", slots);
  const reads = learnedOrZeros("initial.reads", config.read_heads * m);
  if (config.initial_reads === "memory") {
    for (let h = 0; h < config.read_heads; h++) {
      equations.read(memory, readWeightings.subarray(h * slots, (h + 1) * slots), reads.subarray(h * m, (h + 1) * m));
    }
  }
  return {
    memory,
    readWeightings,
    writeWeightings: weightings(machine, config.write_heads, "write", slots),
    reads,
    hidden: learnedOrZeros("initial.hidden", layers * config.controller_size),
    cell: learnedOrZeros("initial.cell", layers * config.controller_size),
  };
}

/** @param {NTMMachine} machine @param {number} slots */
function initialMemory({ config, parameters }, slots) {
  const width = config.memory_width;
  const memory = new Float64Array(slots * width);
  for (let i = 0; i < slots; i++) {
    const row = memory.subarray(i * width, (i + 1) * width);
    if (config.initial_memory === "constant") {
      row.fill(config.initial_memory_value);
    } else if (config.initial_memory === "learned") {
      row.set(parameters["initial.memory"].data);
    } else if (config.initial_memory === "given") {
      if (i < config.memory_slots) row.set(parameters["initial.memory"].data.subarray(i * width, (i + 1) * width));
      else row.fill(config.initial_memory_value);
    } else if (config.initial_memory === "random") {
      const drawn = new Stream(0, "initial memory", 0, i).uniform(width);
      for (let j = 0; j < width; j++) row[j] = (2 * drawn[j] - 1) * config.initial_memory_scale;
    } else if (i < 2 ** ADDRESS_DIGITS) {
      for (let j = 0; j < ADDRESS_DIGITS; j++) row[j] = (2 * ((i >> j) & 1) - 1) * config.initial_memory_scale;
    }
  }
  return memory;
}

/**
 * @param {NTMMachine} machine
 * @param {number} heads
 * @param {"read" | "write"} kind
 * @param {number} slots
 */
function weightings({ config, parameters }, heads, kind, slots) {
  const found = new Float64Array(heads * slots);
  for (let h = 0; h < heads; h++) {
    const one = found.subarray(h * slots, (h + 1) * slots);
    if (config.initial_weightings === "first") one[0] = 1;
    else if (config.initial_weightings === "spread") one[h % slots] = 1;
    else if (config.initial_weightings !== "zeros") {
      const rate = config.initial_weightings === "learned" ? parameters[`initial.${kind}_rates`].data[h] : 0;
      for (let i = 0; i < slots; i++) one[i] = -rate * i;
      softmax(one);
    }
  }
  return found;
}
