// @ts-check
/**
 * How a run is judged, in words. Where the next bit is left to chance (N-grams), a wrong guess is no mistake: such a
 *   run is
 * judged by its cost above the best possible, and predictions that are far from the best one are marked.
 *
 * @typedef {import("../engine/api.js").Task} Task
 * @typedef {import("../engine/api.js").Score} Score
 * @typedef {import("../engine/api.js").Sequence} Sequence
 */
import { plural } from "./dom.js";

const FAR = 0.15; // from the best possible probability

/** "3 wrong answers of 96 (2.1 bits)". @param {Task} task @param {Score} score */
export function outcome(task, score) {
  const bits = `${score.bits.toFixed(1)} bits`;
  if (task.bayes) return `${bits}, ${above(score.bits - score.optimalBits)} the best possible`;
  return `${plural(score.wrong, "wrong answer")} of ${score.answers} (${bits})`;
}

/** @param {number} excess */
function above(excess) {
  const size = Math.abs(excess).toFixed(1);
  return Number(size) === 0 ? "as few as" : `${size} ${excess > 0 ? "above" : "below"}`;
}

/** The name of what is marked in outputs. @param {Task} task */
export function markWord(task) {
  return task.bayes ? "far from best" : "wrong";
}

/** The best possible probability of a one at each step, or null. @type {WeakMap<Sequence, Float64Array>} */
const best = new WeakMap();

/** @param {Task} task @param {Sequence} sequence */
export function bestOf(task, sequence) {
  if (!task.bayes) return null;
  const known = best.get(sequence);
  if (known) return known;
  const found = task.bayes(sequence.targets.data);
  best.set(sequence, found);
  return found;
}

/** The output cells to mark, [T, O]. @param {Task} task @param {Sequence} sequence @param {Score} score */
export function marked(task, sequence, score) {
  const goal = bestOf(task, sequence);
  if (!goal) return score.errors;
  return Uint8Array.from(score.probabilities.data, (p, t) => (Math.abs(p - goal[t]) > FAR ? 1 : 0));
}

/**
 * How bad each step is, its name and its largest value: wrong bits, or the cost above the best possible.
 * @param {Task} task
 * @param {Sequence} sequence
 */
export function badness(task, sequence) {
  const goal = bestOf(task, sequence);
  if (!goal) {
    const size = task.outputSize;
    const wrong = (/** @type {Score} */ score) => (/** @type {number} */ t) => {
      let count = 0;
      for (let bit = 0; bit < size; bit++) count += score.errors[t * size + bit];
      return count;
    };
    return { name: "wrong bits", high: size, of: wrong };
  }
  const far = (/** @type {Score} */ score) => (/** @type {number} */ t) =>
    Math.abs(score.probabilities.data[t] - goal[t]);
  return { name: "distance", high: 1, of: far };
}
