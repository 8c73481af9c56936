// @ts-check
/**
 * The score: input, target, output, weightings and head parameters over time, under one cursor.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {import("./plots.js").Box} Box
 * @typedef {import("./surface.js").Surface} Surface
 * @typedef {{name: string, box: Box, rows: number}} Band
 * @typedef {{bands: Band[], first: number, end: number, left: number, width: number, height: number}} Layout
 */
import { short } from "./dom.js";
import { at, meanShift, rowOf, slotAt, stepWindow, strongest } from "./model.js";
import { palette } from "./palette.js";
import { HEADS } from "./state.js";
import { bestOf, marked, markWord, outcome } from "./words.js";
import { endTicks, heatMap, outline, rowTicks, timeAxis, timeLine, TITLE, titleLine, yName } from "./plots.js";

const LEFT = 50;
const RIGHT = 8;
const LEAST_STEP = 3; // pixels; longer sequences are shown in part
const STRIP = 30;
const FADED = 0.35; // of outputs that are not scored
const DIGITS = 7; // of a slot's number, as in NTMConfig's initial memory

/** Strips of head parameters. @type {{name: string, title: string, value: (heads: import("../engine/api.js").HeadTrace, t: number, head: number) => number, low?: number, high?: number}[]} */
const STRIPS = [
  { name: "strength", title: "Key strength β", value: (heads, t, h) => at(heads.strengths, t, h)[0] },
  { name: "gate", title: "Interpolation gate g: 1 by content, 0 from the last place", value: (heads, t, h) => at(heads.gates, t, h)[0], low: 0, high: 1 },
  { name: "shift", title: "Mean shift, slots per step", value: meanShift, low: -1, high: 1 },
  { name: "sharpening", title: "Sharpening γ", value: (heads, t, h) => at(heads.sharpenings, t, h)[0] },
];

/** @param {View} view @param {State} state @param {number} width @returns {Layout} */
export function layoutScore(view, state, width) {
  const { task, arc, trace } = view;
  const plot = width - LEFT - RIGHT;
  const { first, end } = stepWindow(trace.steps, state.t, Math.max(20, Math.floor(plot / LEAST_STEP)));
  const map = Math.round(Math.max(72, Math.min(132, arc.count * 5)));
  const channel = (/** @type {number} */ count) => Math.max(14, count * 10);
  const bands = [
    { name: "input", rows: task.inputSize, h: channel(task.inputSize) },
    { name: "target", rows: task.outputSize, h: channel(task.outputSize) },
    { name: "output", rows: task.outputSize, h: channel(task.outputSize) },
    ...(task.bayes ? [{ name: "bayes", rows: 1, h: 14 }] : []),
    { name: "write", rows: arc.count, h: map },
    { name: "read", rows: arc.count, h: map },
    ...(hasAddresses(view) ? [{ name: "digits", rows: DIGITS, h: 10 * DIGITS }] : []),
    ...STRIPS.map(({ name }) => ({ name, rows: 1, h: STRIP })),
  ];
  let y = 14;
  const placed = bands.map(({ name, rows, h }) => {
    y += TITLE;
    const box = { x: LEFT, y, w: plot, h };
    y += h + 5;
    return { name, rows, box };
  });
  return { bands: placed, first, end, left: LEFT, width: plot, height: y + 28 };
}

/** @param {Surface} surface @param {View} view @param {State} state @param {number} width @returns {Layout} */
export function drawScore(surface, view, state, width) {
  const layout = layoutScore(view, state, width);
  for (const band of layout.bands) {
    if (band.name === "input") drawInput(surface, view, layout, band);
    else if (band.name === "target") drawTarget(surface, view, layout, band);
    else if (band.name === "output") drawOutput(surface, view, layout, band);
    else if (band.name === "bayes") drawBayes(surface, view, layout, band);
    else if (band.name === "digits") drawDigits(surface, view, state, layout, band);
    else if (band.name === "write" || band.name === "read") drawWeightings(surface, view, state, layout, band);
    else drawStrip(surface, view, state, layout, band);
  }
  drawTimes(surface, view, state, layout);
  return layout;
}

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

/** Names of channels, the first and last of a run of bits only. @param {import("../engine/api.js").Channel[]} channels */
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
  const words = { delimiter: "delim", priority: "prior.", "end of input": "end", "bit before": "bit", "next bit": "next" };
  return words[name] ?? name;
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
function drawInput(surface, view, layout, band) {
  const { task, sequence } = view;
  const { ramps, signed, negative } = palette();
  const data = sequence.inputs.data;
  const size = task.inputSize;
  const numbers = task.inputChannels.map(({ kind }) => kind === "number");
  heatMap(surface, band.box, {
    columns: layout.end - layout.first, rows: size, ramp: ramps.ink,
    value: (column, row) => (numbers[row] ? 0 : data[(layout.first + column) * size + row]),
  });
  numbers.forEach((isNumber, row) => {
    if (!isNumber) return;
    const h = band.box.h / size;
    const box = { ...band.box, y: band.box.y + row * h, h };
    heatMap(surface, box, { columns: layout.end - layout.first, rows: 1, ramp: signed, low: -2, high: 2, value: (column) => data[(layout.first + column) * size + row] });
  });
  const marks = numbers.includes(true) ? [{ text: "number below 0", colour: negative, shape: "box" }, { text: "above 0", colour: palette().positive, shape: "box" }] : [];
  const ones = { text: "bit 1", colour: palette().ink, shape: "box" };
  cellGrid(surface, layout, band);
  finish(surface, band, "Input", "channel", channelTicks(task.inputChannels), { marks: [...marks, ones] });
}

/** @param {Surface} surface @param {Band} band @param {string} title @param {string} name @param {{row: number, text: string}[]} ticks @param {object} legend */
function finish(surface, band, title, name, ticks, legend) {
  outline(surface, band.box);
  titleLine(surface, band.box, title, legend);
  rowTicks(surface, band.box, ticks, band.rows);
  if (band.box.h > 40) yName(surface, band.box, name);
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
function drawTarget(surface, view, layout, band) {
  const size = view.task.outputSize;
  const { data } = view.sequence.targets;
  heatMap(surface, band.box, {
    columns: layout.end - layout.first, rows: size, ramp: palette().ramps.ink, value: (column, row) => data[(layout.first + column) * size + row],
  });
  cellGrid(surface, layout, band);
  finish(surface, band, "Target", "channel", channelTicks(view.task.outputChannels), { marks: [{ text: "bit 1", colour: palette().ink, shape: "box" }] });
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
function drawOutput(surface, view, layout, band) {
  const { task, sequence, score, baseScore, edited } = view;
  const colours = palette();
  const size = task.outputSize;
  const { data } = score.probabilities;
  heatMap(surface, band.box, {
    columns: layout.end - layout.first, rows: size, ramp: colours.ramps.ink,
    value: (column, row) => data[(layout.first + column) * size + row] * (sequence.mask[layout.first + column] ? 1 : FADED),
  });
  cellGrid(surface, layout, band);
  const [w, h] = [band.box.w / (layout.end - layout.first), band.box.h / size];
  const flags = marked(task, sequence, score);
  for (let t = layout.first; t < layout.end; t++) {
    for (let bit = 0; bit < size; bit++) {
      const [x, y, i] = [band.box.x + (t - layout.first) * w, band.box.y + bit * h, t * size + bit];
      if (edited && sequence.mask[t] && (data[i] > 0.5) !== (baseScore.probabilities.data[i] > 0.5)) {
        surface.disc(x + w / 2, y + h / 2, Math.max(1, Math.min(w, h) / 3), colours.ghost);
      }
      if (flags[i]) surface.frame(x + 0.75, y + 0.75, Math.max(1, w - 1.5), Math.max(1, h - 1.5), { stroke: colours.wrong, width: w < 5 ? 1 : 1.75 });
    }
  }
  const ghost = edited ? [{ text: "untouched run differs", colour: colours.ghost, shape: "box" }] : [];
  const what = task.bayes ? "Output: probability of a one" : "Output: probability, faded where not scored";
  finish(surface, band, what, "channel", channelTicks(task.outputChannels), {
    marks: [...ghost, { text: markWord(task), colour: colours.wrong, shape: "frame" }, { text: "1", colour: colours.ink, shape: "box" }],
  });
}

/** @param {Surface} surface @param {View} view @param {Layout} layout @param {Band} band */
function drawBayes(surface, view, layout, band) {
  const best = /** @type {Float64Array} */ (bestOf(view.task, view.sequence));
  heatMap(surface, band.box, { columns: layout.end - layout.first, rows: 1, ramp: palette().ramps.ink, value: (column) => best[layout.first + column] });
  finish(surface, band, "Best possible prediction (Eq. 10)", "", [], { ramp: palette().ramps.ink });
}

/** @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout @param {Band} band */
function drawWeightings(surface, view, state, layout, band) {
  const { arc, trace, base, edited } = view;
  const colours = palette();
  const kind = /** @type {"write" | "read"} */ (band.name);
  const [heads, head] = [trace[kind].weightings, state[kind]];
  const count = heads.shape[1];
  heatMap(surface, band.box, {
    columns: layout.end - layout.first, rows: arc.count, ramp: colours.ramps[kind],
    value: (column, row) => heads.data[((layout.first + column) * count + head) * arc.slots + slotAt(arc, row)],
  });
  if (edited) drawGhostPath(surface, layout, band, arc, base[kind].weightings, head);
  const ticks = slotTicks(arc, band.box.h);
  const of = count > 1 ? ` ${head + 1} of ${count}` : "";
  const title = `${kind === "write" ? "Write" : "Read"} head${of}: weighting`;
  finish(surface, band, title, "slot", ticks, { ramp: colours.ramps[kind], low: "weight 0" });
}

/** Whether every slot begins with its own number in binary. @param {View} view */
function hasAddresses({ machine }) {
  return machine.config.initial_memory === "addresses";
}

/** A digit of the number of the slot where the read head is, the lowest first. @param {View} view @param {State} state @param {number} t @param {number} digit */
function digitAt({ trace }, state, t, digit) {
  return (strongest(at(trace.read.weightings, t, state.read)) >> digit) & 1;
}

/** @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout @param {Band} band */
function drawDigits(surface, view, state, layout, band) {
  const colours = palette();
  heatMap(surface, band.box, {
    columns: layout.end - layout.first, rows: DIGITS, ramp: colours.ramps.read, high: 1.4,
    value: (column, row) => digitAt(view, state, layout.first + column, row),
  });
  cellGrid(surface, layout, band);
  const ticks = Array.from({ length: DIGITS }, (_, row) => ({ row, text: String(row) }));
  finish(surface, band, "Slot of the read head: its number in binary", "digit", ticks, { marks: [{ text: "digit 1", colour: colours.read, shape: "box" }] });
}

/** Slot numbers beside rows, as many as fit. @param {import("./model.js").Arc} arc @param {number} height */
export function slotTicks(arc, height) {
  const every = [1, 2, 5, 10, 20, 50, 100, 200].find((step) => (arc.count / step) * 12 <= height) ?? 500;
  return Array.from({ length: arc.count }, (_, row) => ({ row, text: String(slotAt(arc, row)) })).filter(({ row }) => slotAt(arc, row) % every === 0);
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

/** @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout @param {Band} band */
function drawStrip(surface, view, state, layout, band) {
  const colours = palette();
  const { trace, base, edited } = view;
  const strip = STRIPS.find(({ name }) => name === band.name) ?? STRIPS[0];
  const value = (/** @type {"write" | "read"} */ kind, /** @type {View["trace"]} */ run) => (/** @type {number} */ t) => strip.value(run[kind], t, state[kind]);
  let [low, high] = [strip.low ?? Infinity, strip.high ?? -Infinity];
  for (const kind of HEADS) {
    for (let t = 0; t < trace.steps; t++) {
      const now = value(kind, trace)(t);
      if (now < low) low = now;
      if (now > high) high = now;
    }
  }
  const span = { first: layout.first, end: layout.end, low, high };
  surface.rect(band.box.x, band.box.y, band.box.w, band.box.h, colours.paper);
  if (edited) for (const kind of HEADS) timeLine(surface, band.box, { ...span, value: value(kind, base), look: { stroke: colours.ghost, width: 1 } });
  timeLine(surface, band.box, { ...span, value: value("write", trace), look: { stroke: colours.write, width: 1.75 } });
  timeLine(surface, band.box, { ...span, value: value("read", trace), look: { stroke: colours.read, width: 1.75, dash: [4, 2.5] } });
  outline(surface, band.box);
  endTicks(surface, band.box, low, high);
  titleLine(surface, band.box, strip.title, { marks: [{ text: "write", colour: colours.write }, { text: "read", colour: colours.read, dash: [4, 2.5] }] });
}

/** The cursor, where the answer begins, and the time axis. @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout */
function drawTimes(surface, view, state, layout) {
  const colours = palette();
  const top = layout.bands[0].box.y;
  const box = layout.bands[layout.bands.length - 1].box;
  const step = layout.width / (layout.end - layout.first);
  const xOf = (/** @type {number} */ t) => layout.left + (t - layout.first) * step;
  if (view.answer > layout.first && view.answer < layout.end) {
    const x = xOf(view.answer);
    surface.line([x, top - TITLE, x, box.y + box.h], { stroke: colours.muted, dash: [2, 3] });
    surface.text("answer →", Math.min(x + 3, layout.left + layout.width - 46), 11, { fill: colours.muted, size: 10 });
  }
  timeAxis(surface, box, layout.first, layout.end);
  const x = xOf(state.t);
  surface.line([x, top - 4, x, box.y + box.h], { stroke: colours.cursor, width: 1.25 });
  surface.line([x + step, top - 4, x + step, box.y + box.h], { stroke: colours.cursor, width: 1.25 });
  cursorLabel(surface, x + step / 2, box, String(state.t));
}

/** The step at the cursor, in a box on the time axis. @param {Surface} surface @param {number} x @param {Box} box @param {string} text */
function cursorLabel(surface, x, box, text) {
  const colours = palette();
  const width = surface.measure(text, 10) + 8;
  surface.rect(x - width / 2, box.y + box.h + 1, width, 15, colours.cursor);
  surface.text(text, x, box.y + box.h + 12.5, { anchor: "middle", fill: colours.paper, size: 10, weight: "600" });
}

/**
 * What is at a point of the score: the band, step and row; null beside the figure.
 * @param {Layout} layout @param {number} x @param {number} y
 */
export function hitScore(layout, x, y) {
  const t = layout.first + Math.floor(((x - layout.left) / layout.width) * (layout.end - layout.first));
  if (t < layout.first || t >= layout.end) return null;
  const band = layout.bands.find(({ box }) => y >= box.y && y < box.y + box.h);
  const row = band ? Math.floor(((y - band.box.y) / band.box.h) * band.rows) : 0;
  return { t, band: band ? band.name : "", row };
}

/** A value of the score in words. @param {View} view @param {State} state @param {{t: number, band: string, row: number}} place */
export function readScore(view, state, { t, band, row }) {
  const { task, sequence, score, arc, trace } = view;
  const step = `Step ${t}`;
  if (band === "input") return `${step}: input ${task.inputChannels[row].name} is ${short(sequence.inputs.data[t * task.inputSize + row])}.`;
  if (band === "target") return `${step}: target ${task.outputChannels[row].name} is ${short(sequence.targets.data[t * task.outputSize + row], 0)}${sequence.mask[t] ? "" : ", not scored"}.`;
  if (band === "output") {
    const i = t * task.outputSize + row;
    const verdict = !sequence.mask[t] ? "not scored" : task.bayes ? `the bit is ${sequence.targets.data[i]}` : score.errors[i] ? "wrong" : "right";
    return `${step}: output ${task.outputChannels[row].name} is one with probability ${short(score.probabilities.data[i], 3)}; ${verdict}.`;
  }
  if (band === "bayes") return `${step}: the best possible probability of a one is ${short(bestOf(task, sequence)?.[t] ?? NaN, 3)}.`;
  if (band === "digits") return `${step}: digit ${row} of the number of the read head's slot is ${digitAt(view, state, t, row)}.`;
  if (band === "write" || band === "read") {
    const slot = slotAt(arc, row);
    return `${step}: ${band} head ${state[band] + 1} has weight ${short(at(trace[band].weightings, t, state[band])[slot], 3)} on slot ${slot}.`;
  }
  const strip = STRIPS.find(({ name }) => name === band);
  if (!strip) return `${step}.`;
  const [write, read] = HEADS.map((kind) => short(strip.value(trace[kind], t, state[kind])));
  return `${step}: ${strip.title.split(/[:,]/)[0].toLowerCase()} is ${write} for the write head, ${read} for the read head.`;
}

/** What the score shows, for those who do not see it. @param {View} view @param {State} state */
export function describeScore(view, state) {
  const { trace, task, score } = view;
  const [write, read] = HEADS.map((kind) => strongest(at(trace[kind].weightings, state.t, state[kind])));
  return `Score of ${trace.steps} time steps of the ${task.title} task: input, target, output, weightings and head parameters over time. ` +
    `Result: ${outcome(task, score)}. At step ${state.t} the write head is at slot ${write}, the read head at slot ${read}.`;
}
