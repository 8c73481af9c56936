// @ts-check
/** What answers cost, in bits, and which are wrong. Mirrors tapehead/losses.py. */
import { row, sigmoid, softmax, tensor } from "./tensors.js";

/** @typedef {import("./api.js").Score} Score */
/** @typedef {import("./api.js").Sequence} Sequence */
/** @typedef {import("./api.js").Task} Task */
/** @typedef {import("./api.js").Tensor} Tensor */

/**
 * The score of logits [T, O] on a sequence.
 * @param {Task} task
 * @param {Sequence} sequence
 * @param {Tensor} logits
 * @returns {Score}
 */
export function score(task, sequence, logits) {
  const { steps, mask, targets } = sequence;
  const outputs = task.outputSize;
  const errors = new Uint8Array(steps * outputs);
  const probabilities = tensor([steps, outputs]);
  const bitsByStep = new Float64Array(steps);
  const [rate, perStep] = task.loss === "binary" ? [rateBinary, outputs] : [rateCategorical, 1];
  let [bits, wrong, answers] = [0, 0, 0];
  for (let t = 0; t < steps; t++) {
    const wrongHere = new Uint8Array(outputs);
    const cost = rate(row(logits, t), row(targets, t), row(probabilities, t), wrongHere) / Math.LN2;
    if (!mask[t]) continue;
    bits += bitsByStep[t] = cost;
    errors.set(wrongHere, t * outputs);
    wrong += wrongHere.reduce((sum, one) => sum + one, 0);
    answers += perStep;
  }
  return { bits, wrong, answers, optimalBits: optimalBits(task, sequence), errors, probabilities, bitsByStep };
}

/**
 * A step whose outputs are bits: its cost in nats; probabilities and wrong bits are filled in.
 * @param {Float64Array} logits
 * @param {Float64Array} targets
 * @param {Float64Array} probabilities
 * @param {Uint8Array} wrong
 */
function rateBinary(logits, targets, probabilities, wrong) {
  let cost = 0;
  for (let j = 0; j < logits.length; j++) {
    const x = logits[j];
    cost += Math.max(x, 0) - x * targets[j] + Math.log1p(Math.exp(-Math.abs(x)));
    probabilities[j] = sigmoid(x);
    wrong[j] = (targets[j] > 0.5 ? x > 0 : x <= 0) ? 0 : 1;
  }
  return cost;
}

/**
 * A step that is one of O symbols; the symbol that was answered is marked if it is wrong.
 * @param {Float64Array} logits
 * @param {Float64Array} targets
 * @param {Float64Array} probabilities
 * @param {Uint8Array} wrong
 */
function rateCategorical(logits, targets, probabilities, wrong) {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const total = most + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - most), 0));
  let cost = 0;
  for (let j = 0; j < logits.length; j++) cost -= targets[j] * (logits[j] - total);
  probabilities.set(logits);
  softmax(probabilities);
  const answer = logits.indexOf(most);
  const right = targets.indexOf(targets.reduce((a, b) => Math.max(a, b), 0));
  if (answer !== right) wrong[Math.max(answer, 0)] = 1;
  return cost;
}

/** The cost of the best possible predictor on this sequence.  @param {Task} task @param {Sequence} sequence */
function optimalBits(task, sequence) {
  if (!task.bayes) return 0;
  const bits = sequence.targets.data;
  const ones = task.bayes(bits);
  let total = 0;
  for (let t = 0; t < bits.length; t++) if (sequence.mask[t]) total -= Math.log2(bits[t] > 0.5 ? ones[t] : 1 - ones[t]);
  return total;
}
