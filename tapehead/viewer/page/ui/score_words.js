// @ts-check
/**
 * The score in words: a value under the pointer, and all of it for those who do not see it.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 */
import { short } from "./dom.js";
import { at, slotAt, strongest } from "./model.js";
import { digitAt } from "./score_bands.js";
import { STRIPS } from "./score_strips.js";
import { HEADS } from "./state.js";
import { bestOf, outcome } from "./words.js";

/**
 * A value of the score in words.
 * @param {View} view
 * @param {State} state
 * @param {{t: number, band: string, row: number}} place
 */
export function readScore(view, state, { t, band, row }) {
  const { task, sequence, arc, trace } = view;
  const value = valueAt(view, state, { t, band, row });
  if (band === "input") return `Step ${t}: input ${task.inputChannels[row].name} is ${value}.`;
  if (band === "target") {
    return `Step ${t}: target ${task.outputChannels[row].name} is ${value}${sequence.mask[t] ? "" : ", not scored"}.`;
  }
  if (band === "output") {
    const name = task.outputChannels[row].name;
    return `Step ${t}: output ${name} is one with probability ${value}; ${verdictAt(view, t, row)}.`;
  }
  if (band === "bayes") return `Step ${t}: the best possible probability of a one is ${value}.`;
  if (band === "digits") return `Step ${t}: digit ${row} of the number of the read head's slot is ${value}.`;
  if (band === "write" || band === "read") {
    return `Step ${t}: ${band} head ${state[band] + 1} has weight ${value} on slot ${slotAt(arc, row)}.`;
  }
  const strip = STRIPS.find(({ name }) => name === band);
  if (!strip) return `Step ${t}.`;
  const [write, read] = HEADS.map((kind) => short(strip.value(trace[kind], t, state[kind])));
  const name = strip.title.split(/[:,]/)[0].toLowerCase();
  return `Step ${t}: ${name} is ${write} for the write head, ${read} for the read head.`;
}

/**
 * The number in a cell of a band.
 * @param {View} view
 * @param {State} state
 * @param {{t: number, band: string, row: number}} place
 */
function valueAt(view, state, { t, band, row }) {
  const { task, sequence, score, arc, trace } = view;
  if (band === "input") return short(sequence.inputs.data[t * task.inputSize + row]);
  if (band === "target") return short(sequence.targets.data[t * task.outputSize + row], 0);
  if (band === "output") return short(score.probabilities.data[t * task.outputSize + row], 3);
  if (band === "bayes") return short(bestOf(task, sequence)?.[t] ?? NaN, 3);
  if (band === "digits") return String(digitAt(view, state, t, row));
  if (band === "write" || band === "read") {
    return short(at(trace[band].weightings, t, state[band])[slotAt(arc, row)], 3);
  }
  return "";
}

/** @param {View} view @param {number} t @param {number} channel */
function verdictAt({ task, sequence, score }, t, channel) {
  const i = t * task.outputSize + channel;
  if (!sequence.mask[t]) return "not scored";
  if (task.bayes) return `the bit is ${sequence.targets.data[i]}`;
  return score.errors[i] ? "wrong" : "right";
}

/** What the score shows, for those who do not see it. @param {View} view @param {State} state */
export function describeScore(view, state) {
  const { trace, task, score } = view;
  const [write, read] = HEADS.map((kind) => strongest(at(trace[kind].weightings, state.t, state[kind])));
  return (
    `Score of ${trace.steps} time steps of the ${task.title} task: input, target, output, weightings and head ` +
    `parameters over time. Result: ${outcome(task, score)}. At step ${state.t} the write head is at slot ${write}, ` +
    `the read head at slot ${read}.`
  );
}
