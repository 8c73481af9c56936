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
import { stepWindow } from "./model.js";
import { palette } from "./palette.js";
import { outline, rowTicks, timeAxis, TITLE, titleLine, yName } from "./plots.js";
import { cellGrid, DIGITS, hasAddresses, markOutputs, ROWS } from "./score_bands.js";
import { drawStrip, STRIPS, stripWords } from "./score_strips.js";
import { HEADS } from "./state.js";

const LEFT = 50;
const RIGHT = 8;
const LEAST_STEP = 3; // pixels; longer sequences are shown in part
const STRIP = 30;

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
  const { arc, task, trace } = view;
  const places = [width, layout.height, layout.first, layout.end, task.variety];
  const channels = [...task.inputChannels, ...task.outputChannels].map(({ name }) => name);
  const heads = HEADS.map((kind) => `${state[kind]} of ${trace[kind].weightings.shape[1]}`);
  const shown = [...channels, ...heads, arc.start, arc.count, view.edited];
  const whole = { x: 0, y: 0, w: width, h: layout.height };
  const words = (/** @type {Surface} */ on) => layout.bands.forEach((band) => drawWords(on, view, state, band));
  surface.layer("words", [...places, ...shown].join(), whole, words, false);
  for (const band of layout.bands) {
    const rows = ROWS[band.name];
    if (rows) rows.draw(surface, view, state, layout, band);
    else drawStrip(surface, view, state, layout, band);
    if (rows?.grid) surface.layer(band.name, places.join(), band.box, (on) => cellGrid(on, layout, band));
    if (band.name === "output") markOutputs(surface, view, layout, band);
    outline(surface, band.box);
  }
  drawTimes(surface, view, state, layout);
  return layout;
}

/**
 * Title, legend, ticks and name of a band.
 * @param {Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {Band} band
 */
function drawWords(surface, view, state, band) {
  const { title, name, ticks, legend } = ROWS[band.name]?.words(view, state, band) ?? stripWords(band);
  titleLine(surface, band.box, title, legend);
  rowTicks(surface, band.box, ticks ?? [], band.rows);
  if (name && band.box.h > 40) yName(surface, band.box, name);
}

/**
 * The cursor, where the answer begins, and the time axis.
 * @param {Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {Layout} layout
 */
function drawTimes(surface, view, state, layout) {
  const colours = palette();
  const box = layout.bands[layout.bands.length - 1].box;
  const step = layout.width / (layout.end - layout.first);
  const xOf = (/** @type {number} */ t) => layout.left + (t - layout.first) * step;
  const down = (/** @type {number} */ x, /** @type {import("./surface.js").LineLook} */ look) => {
    for (const { box } of layout.bands) surface.line([x, box.y - 3, x, box.y + box.h], look); // not through the titles
  };
  if (view.answer > layout.first && view.answer < layout.end) {
    const x = xOf(view.answer);
    down(x, { stroke: colours.muted, dash: [2, 3] });
    surface.text("answer →", Math.min(x + 3, layout.left + layout.width - 46), 11, { fill: colours.muted, size: 10 });
  }
  timeAxis(surface, box, layout.first, layout.end, "time step", state.t);
  const x = xOf(state.t);
  down(x, { stroke: colours.cursor, width: 1.25 });
  down(x + step, { stroke: colours.cursor, width: 1.25 });
  cursorLabel(surface, x + step / 2, box, String(state.t));
}

/**
 * The step at the cursor, in a box on the time axis.
 * @param {Surface} surface
 * @param {number} x
 * @param {Box} box
 * @param {string} text
 */
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
