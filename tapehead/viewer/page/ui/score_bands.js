// @ts-check
/**
 * The bands of the score that have a row for every channel, slot or digit: what is in their boxes, and the words beside
 * them, which are mostly the same as before.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {import("./surface.js").Surface} Surface
 * @typedef {import("./score.js").Band} Band
 * @typedef {import("./score.js").Layout} Layout
 * @typedef {{title: string, name?: string, ticks?: {row: number, text: string}[], legend: object}} Words   name: of the
 *   y axis
 * @typedef {{grid?: boolean, draw: (surface: Surface, view: View, state: State, layout: Layout, band: Band) => void,
 *   words: (view: View, state: State, band: Band) => Words}} BandKind
 */
import { at, rowOf, slotAt, strongest } from "./model.js";
import { palette } from "./palette.js";
import { heatMap } from "./plots.js";
import { bestOf, marked, markWord } from "./words.js";

const FADED = 0.35; // of outputs that are not scored
export const DIGITS = 7; // of a slot's number, as in NTMConfig's initial memory

/** Lines between cells. @param {Surface} surface @param {Layout} layout @param {Band} band */
export function cellGrid(surface, layout, { box, rows }) {
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

/** @type {BandKind} */
const input = {
  grid: true,
  draw(surface, { task, sequence }, _state, layout, band) {
    const { ramps, signed } = palette();
    const data = sequence.inputs.data;
    const size = task.inputSize;
    const numbers = task.inputChannels.map(({ kind }) => kind === "number");
    const columns = layout.end - layout.first;
    heatMap(surface, band.box, {
      columns,
      rows: size,
      ramp: ramps.ink,
      value: (column, row) => (numbers[row] ? 0 : data[(layout.first + column) * size + row]),
    });
    numbers.forEach((isNumber, row) => {
      if (!isNumber) return;
      const h = band.box.h / size;
      const box = { ...band.box, y: band.box.y + row * h, h };
      const value = (/** @type {number} */ column) => data[(layout.first + column) * size + row];
      heatMap(surface, box, { columns, rows: 1, ramp: signed, low: -2, high: 2, value });
    });
  },
  words({ task }) {
    const { negative, positive, ink } = palette();
    const numbers = task.inputChannels.some(({ kind }) => kind === "number");
    const marks = numbers
      ? [
          { text: "number below 0", brief: "below 0", colour: negative, shape: "box" },
          { text: "above 0", colour: positive, shape: "box" },
        ]
      : [];
    const legend = { marks: [...marks, { text: "bit 1", colour: ink, shape: "box" }] };
    return { title: "Input", name: "channel", ticks: channelTicks(task.inputChannels), legend };
  },
};

/** @type {BandKind} */
const target = {
  grid: true,
  draw(surface, view, _state, layout, band) {
    const size = view.task.outputSize;
    const { data } = view.sequence.targets;
    heatMap(surface, band.box, {
      columns: layout.end - layout.first,
      rows: size,
      ramp: palette().ramps.ink,
      value: (column, row) => data[(layout.first + column) * size + row],
    });
  },
  words: ({ task }) => ({
    title: "Target",
    name: "channel",
    ticks: channelTicks(task.outputChannels),
    legend: { marks: [{ text: "bit 1", colour: palette().ink, shape: "box" }] },
  }),
};

/** @type {BandKind} */
const output = {
  grid: true,
  draw(surface, { task, sequence, score }, _state, layout, band) {
    const size = task.outputSize;
    const { data } = score.probabilities;
    heatMap(surface, band.box, {
      columns: layout.end - layout.first,
      rows: size,
      ramp: palette().ramps.ink,
      value: (column, row) =>
        data[(layout.first + column) * size + row] * (sequence.mask[layout.first + column] ? 1 : FADED),
    });
  },
  words({ task, edited }) {
    const colours = palette();
    const ghost = { text: "untouched run differs", brief: "differs", colour: colours.ghost, shape: "box" };
    return {
      title: task.bayes ? "Output: probability of a one" : "Output: probability, faded where not scored",
      name: "channel",
      ticks: channelTicks(task.outputChannels),
      legend: {
        marks: [
          ...(edited ? [ghost] : []),
          { text: markWord(task), colour: colours.wrong, shape: "frame" },
          { text: "1", colour: colours.ink, shape: "box" },
        ],
      },
    };
  },
};

/** Frames around wrong outputs, and dots where the untouched run differs: over the grid.
 * @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band
 */
export function markOutputs(surface, { task, sequence, score, baseScore, edited }, layout, band) {
  const colours = palette();
  const size = task.outputSize;
  const { data } = score.probabilities;
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
}

/** @type {BandKind} */
const bayes = {
  draw(surface, view, _state, layout, band) {
    const best = /** @type {Float64Array} */ (bestOf(view.task, view.sequence));
    heatMap(surface, band.box, {
      columns: layout.end - layout.first,
      rows: 1,
      ramp: palette().ramps.ink,
      value: (column) => best[layout.first + column],
    });
  },
  words: () => ({ title: "Best possible prediction (Eq. 10)", legend: { ramp: palette().ramps.ink } }),
};

/** @type {BandKind} */
const weightings = {
  draw(surface, view, state, layout, band) {
    const { arc, trace, base, edited } = view;
    const kind = /** @type {"write" | "read"} */ (band.name);
    const { data, shape } = trace[kind].weightings;
    const columns = layout.end - layout.first;
    const step = shape[1] * arc.slots;
    const from = layout.first * step + state[kind] * arc.slots;
    heatMap(surface, band.box, {
      columns,
      rows: arc.count,
      ramp: palette().ramps[kind],
      value: (column, row) => data[from + column * step + slotAt(arc, row)],
    });
    if (edited) drawGhostPath(surface, layout, band, arc, base[kind].weightings, state[kind]);
  },
  words({ arc, trace }, state, band) {
    const kind = /** @type {"write" | "read"} */ (band.name);
    const count = trace[kind].weightings.shape[1];
    const of = count > 1 ? ` ${state[kind] + 1} of ${count}` : "";
    return {
      title: `${kind === "write" ? "Write" : "Read"} head${of}: weighting`,
      name: "slot",
      ticks: slotTicks(arc, band.box.h),
      legend: { ramp: palette().ramps[kind], low: "weight 0" },
    };
  },
};

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

/** @type {BandKind} */
const digits = {
  grid: true,
  draw(surface, view, state, layout, band) {
    heatMap(surface, band.box, {
      columns: layout.end - layout.first,
      rows: DIGITS,
      ramp: palette().ramps.read,
      high: 1.4,
      value: (column, row) => digitAt(view, state, layout.first + column, row),
    });
  },
  words: () => ({
    title: "Slot of the read head: its number in binary",
    name: "digit",
    ticks: Array.from({ length: DIGITS }, (_, row) => ({ row, text: String(row) })),
    legend: { marks: [{ text: "digit 1", colour: palette().read, shape: "box" }] },
  }),
};

/** @type {Record<string, BandKind>} */
export const ROWS = { input, target, output, bayes, write: weightings, read: weightings, digits };

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
