// @ts-check
/**
 * The bands of the score that have a row for every channel, slot or digit.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {import("./surface.js").Surface} Surface
 * @typedef {import("./score.js").Band} Band
 * @typedef {import("./score.js").Layout} Layout
 */
import { at, rowOf, slotAt, strongest } from "./model.js";
import { palette } from "./palette.js";
import { heatMap, outline, rowTicks, titleLine, yName } from "./plots.js";
import { bestOf, marked, markWord } from "./words.js";

const FADED = 0.35; // of outputs that are not scored
export const DIGITS = 7; // of a slot's number, as in NTMConfig's initial memory

/** @param {Surface} surface @param {Layout} layout @param {Band} band */
function cellGrid(surface, layout, { box, rows }) {
  const { grid } = palette();
  const steps = layout.end - layout.first;
  const step = box.w / steps;
  for (let row = 1; row < rows; row++) {
    const y = box.y + (row / rows) * box.h;
    surface.line([box.x, y, box.x + box.w, y], { stroke: grid, width: 0.75 });
  }
  if (step < 6) return;
  for (let column = 1; column < steps; column++) {
    const x = box.x + column * step;
    surface.line([x, box.y, x, box.y + box.h], { stroke: grid, width: 0.75 });
  }
}

/**
 * Names of channels, the first and last of a run of bits only.
 * @param {import("../engine/api.js").Channel[]} channels
 */
function channelTicks(channels) {
  const shown = (/** @type {number} */ i) => {
    const kind = channels[i].kind;
    const inside = channels[i - 1]?.kind === kind && channels[i + 1]?.kind === kind;
    return (kind !== "bit" && kind !== "symbol") || !inside;
  };
  return channels.map(({ name }, row) => ({ row, text: shorten(name) })).filter(({ row }) => shown(row));
}

/** @param {string} name */
function shorten(name) {
  /** @type {Record<string, string>} */
  const words = {
    delimiter: "delim",
    priority: "prior.",
    "end of input": "end",
    "bit before": "bit",
    "next bit": "next",
  };
  return words[name] ?? name;
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
export function drawInput(surface, view, layout, band) {
  const { task, sequence } = view;
  const { ramps, signed, negative } = palette();
  const data = sequence.inputs.data;
  const size = task.inputSize;
  const numbers = task.inputChannels.map(({ kind }) => kind === "number");
  heatMap(surface, band.box, {
    columns: layout.end - layout.first,
    rows: size,
    ramp: ramps.ink,
    value: (column, row) => (numbers[row] ? 0 : data[(layout.first + column) * size + row]),
  });
  numbers.forEach((isNumber, row) => {
    if (!isNumber) return;
    const h = band.box.h / size;
    const box = { ...band.box, y: band.box.y + row * h, h };
    heatMap(surface, box, {
      columns: layout.end - layout.first,
      rows: 1,
      ramp: signed,
      low: -2,
      high: 2,
      value: (column) => data[(layout.first + column) * size + row],
    });
  });
  const marks = numbers.includes(true)
    ? [
        { text: "number below 0", brief: "below 0", colour: negative, shape: "box" },
        { text: "above 0", colour: palette().positive, shape: "box" },
      ]
    : [];
  const ones = { text: "bit 1", colour: palette().ink, shape: "box" };
  cellGrid(surface, layout, band);
  finish(surface, band, "Input", "channel", channelTicks(task.inputChannels), { marks: [...marks, ones] });
}

/**
 * @param {Surface} surface
 * @param {Band} band
 * @param {string} title
 * @param {string} name
 * @param {{row: number, text: string}[]} ticks
 * @param {object} legend
 */
function finish(surface, band, title, name, ticks, legend) {
  outline(surface, band.box);
  titleLine(surface, band.box, title, legend);
  rowTicks(surface, band.box, ticks, band.rows);
  if (band.box.h > 40) yName(surface, band.box, name);
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
export function drawTarget(surface, view, layout, band) {
  const size = view.task.outputSize;
  const { data } = view.sequence.targets;
  heatMap(surface, band.box, {
    columns: layout.end - layout.first,
    rows: size,
    ramp: palette().ramps.ink,
    value: (column, row) => data[(layout.first + column) * size + row],
  });
  cellGrid(surface, layout, band);
  finish(surface, band, "Target", "channel", channelTicks(view.task.outputChannels), {
    marks: [{ text: "bit 1", colour: palette().ink, shape: "box" }],
  });
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
export function drawOutput(surface, view, layout, band) {
  const { task, sequence, score, baseScore, edited } = view;
  const colours = palette();
  const size = task.outputSize;
  const { data } = score.probabilities;
  heatMap(surface, band.box, {
    columns: layout.end - layout.first,
    rows: size,
    ramp: colours.ramps.ink,
    value: (column, row) =>
      data[(layout.first + column) * size + row] * (sequence.mask[layout.first + column] ? 1 : FADED),
  });
  cellGrid(surface, layout, band);
  const [w, h] = [band.box.w / (layout.end - layout.first), band.box.h / size];
  const flags = marked(task, sequence, score);
  for (let t = layout.first; t < layout.end; t++) {
    for (let bit = 0; bit < size; bit++) {
      const [x, y, i] = [band.box.x + (t - layout.first) * w, band.box.y + bit * h, t * size + bit];
      if (edited && sequence.mask[t] && data[i] > 0.5 !== baseScore.probabilities.data[i] > 0.5) {
        surface.disc(x + w / 2, y + h / 2, Math.max(1, Math.min(w, h) / 3), colours.ghost);
      }
      if (flags[i])
        surface.frame(x + 0.75, y + 0.75, Math.max(1, w - 1.5), Math.max(1, h - 1.5), {
          stroke: colours.wrong,
          width: w < 5 ? 1 : 1.75,
        });
    }
  }
  const ghost = edited ? [{ text: "untouched run differs", brief: "differs", colour: colours.ghost, shape: "box" }] : [];
  const what = task.bayes ? "Output: probability of a one" : "Output: probability, faded where not scored";
  finish(surface, band, what, "channel", channelTicks(task.outputChannels), {
    marks: [
      ...ghost,
      { text: markWord(task), colour: colours.wrong, shape: "frame" },
      { text: "1", colour: colours.ink, shape: "box" },
    ],
  });
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
export function drawBayes(surface, view, layout, band) {
  const best = /** @type {Float64Array} */ (bestOf(view.task, view.sequence));
  heatMap(surface, band.box, {
    columns: layout.end - layout.first,
    rows: 1,
    ramp: palette().ramps.ink,
    value: (column) => best[layout.first + column],
  });
  finish(surface, band, "Best possible prediction (Eq. 10)", "", [], { ramp: palette().ramps.ink });
}

/** @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout @param {Band} band */
export function drawWeightings(surface, view, state, layout, band) {
  const { arc, trace, base, edited } = view;
  const colours = palette();
  const kind = /** @type {"write" | "read"} */ (band.name);
  const [heads, head] = [trace[kind].weightings, state[kind]];
  const count = heads.shape[1];
  heatMap(surface, band.box, {
    columns: layout.end - layout.first,
    rows: arc.count,
    ramp: colours.ramps[kind],
    value: (column, row) => heads.data[((layout.first + column) * count + head) * arc.slots + slotAt(arc, row)],
  });
  if (edited) drawGhostPath(surface, layout, band, arc, base[kind].weightings, head);
  const ticks = slotTicks(arc, band.box.h);
  const of = count > 1 ? ` ${head + 1} of ${count}` : "";
  const title = `${kind === "write" ? "Write" : "Read"} head${of}: weighting`;
  finish(surface, band, title, "slot", ticks, { ramp: colours.ramps[kind], low: "weight 0" });
}

/** Whether every slot begins with its own number in binary. @param {View} view */
export function hasAddresses({ machine }) {
  return machine.config.initial_memory === "addresses";
}

/**
 * A digit of the number of the slot where the read head is, the lowest first.
 * @param {View} view
 * @param {State} state
 * @param {number} t
 * @param {number} digit
 */
export function digitAt({ trace }, state, t, digit) {
  return (strongest(at(trace.read.weightings, t, state.read)) >> digit) & 1;
}

/** @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout @param {Band} band */
export function drawDigits(surface, view, state, layout, band) {
  const colours = palette();
  heatMap(surface, band.box, {
    columns: layout.end - layout.first,
    rows: DIGITS,
    ramp: colours.ramps.read,
    high: 1.4,
    value: (column, row) => digitAt(view, state, layout.first + column, row),
  });
  cellGrid(surface, layout, band);
  const ticks = Array.from({ length: DIGITS }, (_, row) => ({ row, text: String(row) }));
  finish(surface, band, "Slot of the read head: its number in binary", "digit", ticks, {
    marks: [{ text: "digit 1", colour: colours.read, shape: "box" }],
  });
}

/** Slot numbers beside rows, as many as fit. @param {import("./model.js").Arc} arc @param {number} height */
function slotTicks(arc, height) {
  const every = [1, 2, 5, 10, 20, 50, 100, 200].find((step) => (arc.count / step) * 12 <= height) ?? 500;
  return Array.from({ length: arc.count }, (_, row) => ({ row, text: String(slotAt(arc, row)) })).filter(
    ({ row }) => slotAt(arc, row) % every === 0,
  );
}

/**
 * Where the head of the untouched run was, as a dashed line.
 * @param {Surface} surface @param {Layout} layout @param {Band} band @param {import("./model.js").Arc} arc
 * @param {import("../engine/api.js").Tensor} weightings @param {number} head
 */
function drawGhostPath(surface, layout, { box }, arc, weightings, head) {
  const { ghost } = palette();
  const step = box.w / (layout.end - layout.first);
  /** @type {number[]} */
  let points = [];
  const flush = () => {
    if (points.length) surface.line(points, { stroke: ghost, width: 1.25, dash: [3, 2] });
    points = [];
  };
  let before = -9;
  for (let t = layout.first; t < layout.end; t++) {
    const row = rowOf(arc, strongest(at(weightings, t, head)));
    if (Math.abs(row - before) > 3 || row < 0) flush();
    before = row;
    const [x, y] = [box.x + (t - layout.first) * step, box.y + ((row + 0.5) / arc.count) * box.h];
    if (row >= 0) points.push(x, y, x + step, y);
  }
  flush();
}
