// @ts-check
/**
 * The tour: eight chapters. Each is a state of the page, so a chapter is a link; its experiments are changes of that
 *   state.
 *
 * @typedef {import("./state.js").State} State
 * @typedef {{text: string, patch: Partial<State>, play?: boolean}} Try
 * @typedef {{title: string, machine: string, text: string[], state: Partial<State>, tries: Try[]}} Chapter
 */

const WRITE_1 = /** @type {const} */ ({ kind: "write", index: 0 });
const WRITE_5 = /** @type {const} */ ({ kind: "write", index: 4 });
const READ_1 = /** @type {const} */ ({ kind: "read", index: 0 });

/** @type {Chapter[]} */
export const CHAPTERS = [
  {
    title: "A network with a tape",
    machine: "copy-ntm-lstm",
    text: [
      "A Neural Turing Machine is a small network, the controller, with a memory beside it. It reads and writes " +
        "the memory through heads. This one was trained to copy: it sees vectors of eight bits, then a delimiter, " +
        "then has to output the vectors again.",
      "Play it. While the input comes in, the write head moves down the tape by one slot a step. After the " +
        "delimiter the read head starts at the same slot and follows the same path. Then paint input bits of your " +
        "own: drag over the input. The machine runs in this page and answers at once.",
    ],
    state: { sizes: { length: 12 }, seed: 3, t: 0, panel: "program" },
    tries: [
      { text: "Play from the start", patch: { t: 0 }, play: true },
      { text: "Step 6: writing", patch: { t: 6 } },
      { text: "Step 18: reading", patch: { t: 18 } },
    ],
  },
  {
    title: "How a head finds its place",
    machine: "copy-ntm-lstm",
    text: [
      "A head is never at one slot only: it has a weight on every slot. Five stages compute the weights from what " +
        "the controller asks for. The previous weighting is mixed with a lookup by content, shifted, and sharpened.",
      "Here the write head moves by location: its gate g is near 0, so the content lookup hardly counts, and the " +
        "shift moves the weight on by one slot. The read head waits where it is, with a shift of 0, and moves on in " +
        "the same way once the answer begins. Chapters 6 and 8 show heads that jump by content.",
    ],
    state: { sizes: { length: 12 }, seed: 3, t: 6, panel: "microscope", kind: "write" },
    tries: [
      { text: "Write head at step 6", patch: { t: 6, kind: "write" } },
      { text: "Read head, waiting", patch: { t: 6, kind: "read" } },
      { text: "Read head at the first answer", patch: { t: 13, kind: "read" } },
    ],
  },
  {
    title: "Where an answer comes from",
    machine: "copy-ntm-lstm",
    text: [
      "Which input step does an answer depend on? The memory can say it exactly: what is read is a sum over " +
        "slots, what is in a slot is a sum over the writes that have not been erased. So every answer has a " +
        "lineage.",
      "Each answer of this machine was written at one step. On the map, copying is a straight line: step t reads " +
        "what was written L + 1 steps before. Scramble the slots, and the line breaks.",
    ],
    state: { sizes: { length: 12 }, seed: 3, t: 18, pick: 18, panel: "lineage" },
    tries: [
      { text: "The first answer", patch: { t: 13, pick: 13, edits: [] } },
      { text: "The last answer", patch: { t: 24, pick: 24, edits: [] } },
      {
        text: "Scramble the slots before step 16",
        patch: { t: 18, pick: 18, edits: [{ type: "scramble", at: 16, from: 0, to: 127, seed: 1 }] },
      },
    ],
  },
  {
    title: "Longer than anything it was trained on",
    machine: "copy-ntm-lstm",
    text: [
      "It was trained on at most 20 vectors. What it learned is a loop, and a loop does not know how long it " +
        "runs: the same weights copy 100 vectors. The program beside it shows the loop as code.",
      "The tape ends at 128 slots and goes round. Give it fewer slots than vectors, and it writes over its own " +
        "beginning. An LSTM has no tape and keeps everything in its state: in the race one that learned the same task " +
        "gets the same 40 vectors.",
    ],
    state: { sizes: { length: 60 }, seed: 3, t: 30, panel: "program" },
    tries: [
      { text: "20 vectors, as in training", patch: { sizes: { length: 20 }, t: 10, slots: null, panel: "program" } },
      { text: "100 vectors", patch: { sizes: { length: 100 }, t: 50, slots: null, panel: "program" } },
      { text: "60 vectors on 32 slots", patch: { sizes: { length: 60 }, slots: 32, t: 60, panel: "program" } },
      { text: "40 vectors, against an LSTM", patch: { sizes: { length: 40 }, slots: null, t: 60, panel: "race" } },
    ],
  },
  {
    title: "Learning to copy",
    machine: "copy-ntm-lstm",
    text: [
      "At the start of training the weights are random and the heads go nowhere. Move the slider through the " +
        "snapshots: at some point a diagonal appears in both weightings, and the cost falls.",
      "The machine did not learn to copy a little better each time. It found the loop, and then the rest follows.",
    ],
    state: { sizes: { length: 12 }, seed: 3, t: 6, panel: "training" },
    tries: [],
  },
  {
    title: "A sorter that crosses off",
    machine: "priority-sort-ntm-lstm",
    text: [
      "This machine sees 20 vectors, each with a priority, and outputs the 16 highest in order. The paper " +
        "supposes that an item is written to a slot that depends on its priority. This machine does something else: " +
        "it writes the items as they come, finds the highest that is left by content, and a write head crosses it " +
        "off a step later.",
      "Write head 5 crosses off. Mute it from the first answer on, and the read head finds the same item again.",
    ],
    state: { seed: 2, t: 26, panel: "interventions", write: 4, read: 0 },
    tries: [
      {
        text: "Mute write head 5 from step 21",
        patch: { edits: [{ type: "mute", from: 21, to: null, head: WRITE_5 }], write: 4 },
      },
      {
        text: "Mute write head 1 instead",
        patch: { edits: [{ type: "mute", from: 21, to: null, head: WRITE_1 }], write: 0 },
      },
      { text: "Untouched", patch: { edits: [], write: 4 } },
    ],
  },
  {
    title: "A counter made of a head",
    machine: "repeat-copy-pulses-ntm-lstm",
    text: [
      "The task: a sequence, then some pulses, then the sequence as many times as there were pulses, then an end " +
        "marker. The write head counts. Behind the sequence it moves on by one slot with each pulse, and comes back " +
        "by one slot with each repeat. When it is back, the machine ends.",
      "So the count is a place, and a place can be changed. Move the write head by one slot during the first " +
        "repeat, and the machine is off by one.",
    ],
    state: { sizes: { length: 5, repeats: 6 }, seed: 5, t: 14, panel: "interventions", kind: "write" },
    tries: [
      { text: "Move it back by one slot", patch: { edits: [{ type: "move", at: 14, head: WRITE_1, by: -1 }], t: 37 } },
      { text: "Move it on by one slot", patch: { edits: [{ type: "move", at: 14, head: WRITE_1, by: 1 }], t: 42 } },
      { text: "Untouched", patch: { edits: [], t: 42 } },
    ],
  },
  {
    title: "A place that is a memory",
    machine: "ngrams-ntm-feedforward",
    text: [
      "The task is to predict the next bit of a random source in which the last five bits decide. This controller " +
        "has no state of its own: from one step to the next it keeps only what it reads. Yet it knows the last five " +
        "bits.",
      "It keeps them as a place. Each slot starts with its own number in binary, and the read head jumps so that " +
        "the digits of that number are the last five bits, some of them inverted. The band below the read head " +
        "shows these digits: compare them with the input. Pin the gate of the read head at 0, so that it cannot " +
        "jump by content, and it loses the context.",
    ],
    state: { sizes: { length: 60 }, seed: 0, t: 30, panel: "interventions", kind: "read" },
    tries: [
      {
        text: "Pin the read gate at 0 from step 20",
        patch: { edits: [{ type: "pin", from: 20, to: null, head: READ_1, what: "gate", value: 0 }], t: 30 },
      },
      { text: "Untouched", patch: { edits: [], t: 30 } },
      { text: "200 bits, as in training", patch: { sizes: { length: 200 }, edits: [], t: 120 } },
    ],
  },
];

/**
 * The whole state of a chapter: what the tour does not say is as at the start.
 * @param {number} number
 * @param {State} start
 */
export function chapterState(number, start) {
  const chapter = CHAPTERS[number - 1];
  return { ...start, machine: chapter.machine, ...chapter.state, chapter: number };
}
