// @ts-check
/**
 * The algorithm of each task in a few lines, and which line a step belongs to. Copy follows the paper's section 4.1,
 *   in other
 * words; for tasks where the paper gives no pseudo-code, the lines say what was found in the trained machines of the
 *   zoo.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {{title: string, note: string, lines: string[], line: (view: View, t: number) => number}} Algorithm
 */

/**
 * The phase of a step: the input, the steps between input and answer, the answer.
 * @param {View} view
 * @param {number} t
 * @param {number} shown
 */
function phase(view, t, shown) {
  if (t < shown) return 0;
  return t < view.answer ? 1 : 2;
}

/** @type {Record<string, Algorithm>} */
const ALGORITHMS = {
  copy: {
    title: "Copy, after section 4.1 of the paper",
    note: "Pseudo-code in our words.",
    lines: [
      "put both heads on the first slot",
      "until the delimiter comes:",
      "    write the input vector to the slot of the write head",
      "    move the write head one slot on",
      "at the delimiter: put the read head on the first slot",
      "for every answer:",
      "    read the slot of the read head and output it",
      "    move the read head one slot on",
    ],
    line: (view, t) => [2, 4, 6][phase(view, t, view.content.sizes.length)],
  },
  "repeat-copy": {
    title: "Repeat copy",
    note: "A copy inside a loop; the paper describes it in section 4.2.",
    lines: [
      "until the delimiter comes:",
      "    write the input vector, move the write head one slot on",
      "take the number of repeats",
      "for every repeat:",
      "    go back to the first slot of the sequence",
      "    read it slot by slot and output it",
      "when no repeat is left: output the end marker",
    ],
    line: repeatLine,
  },
  "repeat-copy-pulses": {
    title: "Repeat copy with a count of pulses",
    note: "Not in the paper. The lines about counting were found in the machine of the zoo.",
    lines: [
      "until the delimiter comes:",
      "    write the input vector, move the write head one slot on",
      "for every pulse: move the write head one slot on (it counts)",
      "for every repeat:",
      "    go back to the first slot of the sequence; write head one slot back",
      "    read the sequence slot by slot and output it",
      "when the write head is back behind the sequence: output the end marker",
    ],
    line: repeatLine,
  },
  "associative-recall": {
    title: "Associative recall",
    note: "After section 4.3 of the paper, in our words.",
    lines: [
      "for every item:",
      "    write its vectors, one slot after the other",
      "at the query: take in its vectors",
      "find the slot that is like the query, by content",
      "move on to the item behind it",
      "read that item and output it",
    ],
    line: (view, t) => {
      const n = Number(view.task.spec.options.item_length ?? 3);
      if (t >= view.answer) return 5;
      if (t === view.answer - 1) return 3;
      return t < view.content.sizes.items * (n + 1) ? 1 : 2;
    },
  },
  ngrams: {
    title: "Dynamic N-grams",
    note:
      "The best predictor counts (Eq. 10). Section 4.4 of the paper supposes that the machine keeps counts in its " +
      "slots.",
    lines: [
      "for every bit:",
      "    go to the slot that stands for the last five bits",
      "    read what has followed these five bits so far",
      "    output the probability that a one follows",
      "    write down what did follow, in the slot of the context",
    ],
    line: () => 1,
  },
  "priority-sort": {
    title: "Priority sort",
    note:
      "The paper supposes that an item's slot depends on its priority. The machine of the zoo does a selection sort " +
      "instead.",
    lines: [
      "for every item:",
      "    write it, with its priority, to the next slot",
      "at the delimiter: begin",
      "for every answer:",
      "    find the highest priority that is left, by content",
      "    read that item and output it",
      "    cross it off: erase the slot that was just read",
    ],
    line: (view, t) => [1, 2, 4][phase(view, t, view.content.sizes.items)],
  },
  reverse: {
    title: "Reverse",
    note: "Not in the paper.",
    lines: [
      "until the delimiter comes:",
      "    write the symbol, move one slot on",
      "for every answer:",
      "    read the slot and output it",
      "    move one slot back",
    ],
    line: (view, t) => [1, 1, 3][phase(view, t, view.content.sizes.length)],
  },
};

/** @param {View} view @param {number} t */
function repeatLine(view, t) {
  const { length } = view.content.sizes;
  if (t < length) return 1;
  if (t < view.answer) return 2;
  if (t === view.sequence.steps - 1) return 6;
  return (t - view.answer) % length === 0 ? 4 : 5;
}

/** @param {View} view @returns {Algorithm | null} */
export function algorithmOf(view) {
  return ALGORITHMS[view.task.variety] ?? ALGORITHMS[view.task.name] ?? null;
}
