// @ts-check
/**
 * Everything that follows from the state: the sequence, the runs, their scores, lineage and program. Each is computed
 *   once
 * and kept until what it depends on changes.
 *
 * @typedef {import("./state.js").State} State
 * @typedef {import("../engine/api.js").NTMMachine} NTMMachine
 * @typedef {import("../engine/api.js").NTMTrace} NTMTrace
 * @typedef {import("../engine/api.js").Task} Task
 * @typedef {import("../engine/api.js").Sequence} Sequence
 * @typedef {import("../engine/api.js").Content} Content
 * @typedef {import("../engine/api.js").Score} Score
 * @typedef {{machine: NTMMachine, task: Task, content: Content, sequence: Sequence, base: NTMTrace, baseScore: Score,
 *   trace: NTMTrace,
 *   score: Score, edited: boolean, slots: number, arc: Arc, answer: number}} View
 * @typedef {{start: number, count: number, slots: number}} Arc   slots on the ring that are shown, from `start` on
 */
import { run } from "../engine/machine.js";
import { score } from "../engine/scores.js";
import { lineage, origins, UNREAD } from "../engine/lineage.js";
import { program } from "../engine/program.js";
import { contentFromText } from "../engine/tasks/index.js";

const USED = 0.05; // a slot is used if a head ever has this weight on it
const LEAST_SHOWN = 8;

/**
 * Remember the last result for the last arguments.
 * @template {any[]} A
 * @template R
 * @param {(...given: A) => R} compute
 */
function last(compute) {
  /** @type {A | null} */
  let before = null;
  /** @type {R} */
  let result;
  return (/** @type {A} */ ...given) => {
    if (!before || given.some((value, i) => value !== /** @type {A} */ (before)[i])) {
      result = compute(...given);
      before = given;
    }
    return result;
  };
}

/** @param {State} state */
export function address(state) {
  return { seed: state.seed, name: "viewer", step: 0, row: 0 };
}

/**
 * The sizes of the state for a task: those given, within what the page offers, or the first ones.
 * @param {Task} task
 * @param {Record<string, number>} given
 */
export function sizesOf(task, given) {
  return Object.fromEntries(
    task.sizes.map(({ name, least, most, training }) => [
      name,
      Math.min(most, Math.max(least, given[name] ?? firstSize(training))),
    ]),
  );
}

/**
 * A size to begin with: inside the training range, and small enough that every step can be seen.
 * @param {[number, number]} training
 */
function firstSize([low, high]) {
  return high === low ? high : Math.max(low, Math.min(high, Math.ceil(0.6 * high)));
}

/**
 * @param {Task} task
 * @param {string | null} text
 * @param {number} seed
 * @param {string} sizes as JSON
 */
function makeContent(task, text, seed, sizes) {
  if (text !== null) return contentFromText(task, text);
  return task.draw({ seed, name: "viewer", step: 0, row: 0 }, JSON.parse(sizes));
}

// The last run of each kind, whose memory the next one takes.
/** @type {{machine: NTMMachine, trace: NTMTrace} | null} */
let untouched = null;
/** @type {NTMTrace | undefined} */
let changed;

/**
 * The untouched run. Steps before the first changed input are those of the run before, which is written over.
 * @param {NTMMachine} machine
 * @param {Sequence} sequence
 * @param {number} slots
 */
function runUntouched(machine, sequence, slots) {
  const before = untouched && untouched.machine === machine ? untouched.trace : null;
  const alike = before && before.slots === slots && before.steps === sequence.steps;
  const since = alike ? { trace: before, step: firstChange(before.inputs, sequence.inputs) } : undefined;
  const trace = run(machine, sequence.inputs, { slots, since, into: untouched?.trace });
  untouched = { machine, trace };
  return trace;
}

/**
 * The run with interventions: the untouched one, up to the first of them.
 * @param {NTMMachine} machine
 * @param {Sequence} sequence
 * @param {NTMTrace} base
 * @param {State["edits"]} edits
 */
function runEdited(machine, sequence, base, edits) {
  const first = Math.min(...edits.map((edit) => ("at" in edit ? edit.at : edit.from)));
  const since = { trace: base, step: Math.min(first, base.steps) };
  changed = run(machine, sequence.inputs, { slots: base.slots, interventions: edits, since, into: changed });
  return changed;
}

/**
 * The first step whose inputs differ.
 * @param {import("../engine/api.js").Tensor} before
 * @param {import("../engine/api.js").Tensor} now
 */
function firstChange(before, now) {
  const at = now.data.findIndex((value, i) => value !== before.data[i]);
  return at < 0 ? now.shape[0] : Math.floor(at / now.shape[1]);
}

/** @param {Task} task @param {Sequence} sequence @param {NTMTrace} trace */
function scoreTrace(task, sequence, trace) {
  return score(task, sequence, trace.logits);
}

/** @param {NTMTrace} base @param {NTMTrace} trace @param {string} span @returns {Arc} */
function shownArc(base, trace, span) {
  return span === "all" ? { start: 0, count: base.slots, slots: base.slots } : usedArc([base, trace]);
}

/** @param {Task} task @param {Content} content */
function encode(task, content) {
  return task.encode(content);
}

const [contentOf, sequenceOf] = [last(makeContent), last(encode)];
const [baseOf, editedOf] = [last(runUntouched), last(runEdited)];
const [baseScoreOf, scoreOf, arcOf] = [last(scoreTrace), last(scoreTrace), last(shownArc)];

/** @param {NTMMachine} machine @param {NTMTrace} trace @param {number} readHead */
function lineageOfHead(machine, trace, readHead) {
  return lineage(machine, trace, readHead);
}

/** @param {NTMMachine} machine @param {NTMTrace} trace @param {number} t @param {number} readHead */
function originsAt(machine, trace, t, readHead) {
  return origins(machine, trace, t, readHead, UNREAD);
}

/** Lineage of one read head, origins of one read vector, program: only what is looked at is computed. */
export const lineageOf = last(lineageOfHead);
export const originsOf = last(originsAt);
export const programOf = last(program);

/**
 * @param {State} state @param {NTMMachine} machine @param {Task} task
 * @returns {View}
 */
export function derive(state, machine, task) {
  const content = contentOf(task, state.content, state.seed, JSON.stringify(sizesOf(task, state.sizes)));
  const sequence = sequenceOf(task, content);
  const slots = state.slots ?? machine.config.memory_slots;
  const base = baseOf(machine, sequence, slots);
  const edited = state.edits.length > 0;
  const trace = edited ? editedOf(machine, sequence, base, state.edits) : base;
  const baseScore = baseScoreOf(task, sequence, base);
  const arc = arcOf(base, trace, state.span);
  const answer = sequence.mask.indexOf(1);
  return {
    machine,
    task,
    content,
    sequence,
    base,
    trace,
    edited,
    slots,
    arc,
    answer,
    baseScore,
    score: edited ? scoreOf(task, sequence, trace) : baseScore,
  };
}

/**
 * The shortest stretch of the ring of slots that holds all that heads used.
 * @param {NTMTrace[]} traces
 * @returns {Arc}
 */
function usedArc(traces) {
  const slots = traces[0].slots;
  const used = new Uint8Array(slots);
  for (const trace of traces) {
    for (const { data } of [trace.read.weightings, trace.write.weightings]) {
      for (let i = 0; i < data.length; i++) if (data[i] > USED) used[i % slots] = 1;
    }
  }
  let [gapStart, gap] = [0, 0];
  for (let start = 0; start < slots; start++) {
    if (used[start] || (!used[(start + slots - 1) % slots] && start > 0)) continue;
    let length = 0;
    while (length < slots && !used[(start + length) % slots]) length++;
    if (length > gap) [gapStart, gap] = [start, length];
  }
  const count = Math.min(slots, Math.max(LEAST_SHOWN, slots - gap + 2));
  const first = gap === 0 ? 0 : gapStart + gap - 1;
  return count === slots ? { start: 0, count, slots } : { start: ((first % slots) + slots) % slots, count, slots };
}

/** The slot in a row of the figures. @param {Arc} arc @param {number} row */
export function slotAt(arc, row) {
  return (arc.start + row) % arc.slots;
}

/** The row of a slot, or -1 if it is not shown. @param {Arc} arc @param {number} slot */
export function rowOf(arc, slot) {
  const row = (((slot - arc.start) % arc.slots) + arc.slots) % arc.slots;
  return row < arc.count ? row : -1;
}

/**
 * The slot with the largest weight.
 * @param {ArrayLike<number>} weights
 * @param {number} [from]
 * @param {number} [count]
 */
export function strongest(weights, from = 0, count = weights.length) {
  let best = 0;
  for (let i = 1; i < count; i++) if (weights[from + i] > weights[from + best]) best = i;
  return best;
}

/**
 * The part of a tensor [T, H, ...] at a step and head, as a view.
 * @param {import("../engine/api.js").Tensor} tensor
 * @param {number} t
 * @param {number} head
 */
export function at(tensor, t, head) {
  const size = tensor.shape.slice(2).reduce((product, length) => product * length, 1);
  const from = (t * tensor.shape[1] + head) * size;
  return tensor.data.subarray(from, from + size);
}

/**
 * The mean shift of a head at a step, in slots.
 * @param {import("../engine/api.js").HeadTrace} heads
 * @param {number} t
 * @param {number} head
 */
export function meanShift(heads, t, head) {
  const taps = at(heads.shifts, t, head);
  const centre = (taps.length - 1) / 2;
  let mean = 0;
  for (let j = 0; j < taps.length; j++) mean += (j - centre) * taps[j];
  return mean;
}

/** The steps that fit into a width, around the cursor. @param {number} steps @param {number} t @param {number} most */
export function stepWindow(steps, t, most) {
  if (steps <= most) return { first: 0, end: steps };
  const first = Math.max(0, Math.min(steps - most, t - Math.floor(most / 2)));
  return { first, end: first + most };
}
