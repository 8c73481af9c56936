// @ts-check
/** Sequences step by step: an empty one, and its cells by step and channel. */
import { tensor } from "../tensors.js";

/** @typedef {import("../api.js").Channel} Channel */
/** @typedef {import("../api.js").Content} Content */
/** @typedef {import("../api.js").Sequence} Sequence */

/**
 * A sequence of zeros.
 * @param {Content} content
 * @param {number} steps
 * @param {number} inputs
 * @param {number} outputs
 * @returns {Sequence}
 */
export function emptySequence(content, steps, inputs, outputs) {
  return {
    content,
    steps,
    inputs: tensor([steps, inputs]),
    targets: tensor([steps, outputs]),
    mask: new Float64Array(steps),
  };
}

/** @param {Sequence} sequence @param {number} t @param {number} channel @param {number} value */
export function setInput(sequence, t, channel, value) {
  sequence.inputs.data[t * sequence.inputs.shape[1] + channel] = value;
}

/** @param {Sequence} sequence @param {number} t @param {number} channel @param {number} value */
export function setTarget(sequence, t, channel, value) {
  sequence.targets.data[t * sequence.targets.shape[1] + channel] = value;
}

/**
 * A vector of the content at the inputs of a step.
 * @param {Sequence} sequence
 * @param {number} t
 * @param {number} vector
 */
export function showVector(sequence, t, vector) {
  const { values, width } = sequence.content;
  for (let j = 0; j < width; j++) setInput(sequence, t, j, values[vector * width + j]);
}

/**
 * A vector of the content as the scored answer of a step.
 * @param {Sequence} sequence
 * @param {number} t
 * @param {number} vector
 */
export function askVector(sequence, t, vector) {
  const { values, width } = sequence.content;
  for (let j = 0; j < width; j++) setTarget(sequence, t, j, values[vector * width + j]);
  sequence.mask[t] = 1;
}

/** Channels "bit 0" .. of a vector.  @param {number} width @returns {Channel[]} */
export function bitChannels(width) {
  return Array.from({ length: width }, (_, j) => ({ name: `bit ${j}`, kind: "bit" }));
}

/** @param {string} name @returns {Channel} */
export function marker(name) {
  return { name, kind: "marker" };
}
