// @ts-check
/**
 * The parts that figures are made of: heat maps, bars, lines, ticks, legends.
 * A box is {x, y, w, h} in CSS pixels.
 *
 * @typedef {import("./surface.js").Surface} Surface
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 */
import { short } from "./dom.js";
import { palette, rampColour } from "./palette.js";

export const TITLE = 16; // height of a title line
const TICK = 10; // size of tick labels
const RAMP = 44; // width of a colour legend

/**
 * A title with an optional legend at its right end. Where both do not fit, the title ends at its first colon or comma,
 * then words of the legend get shorter, then the title is its brief form.
 * @param {Surface} surface @param {Box} box @param {string} title
 * @param {{ramp?: Uint32Array, low?: string, high?: string, marks?: Mark[], brief?: string}} [legend]
 * @typedef {{text: string, brief?: string, colour: string, dash?: number[],
 *   shape?: "line" | "box" | "frame" | "dashed"}} Mark
 */
export function titleLine(surface, box, title, legend = {}) {
  const colours = palette();
  const [right, y] = [box.x + box.w, box.y - 4];
  const whole = { low: legend.low ?? "0", marks: legend.marks ?? [] };
  const short = {
    low: whole.low.split(" ").at(-1) ?? whole.low,
    marks: whole.marks.map((mark) => ({ ...mark, text: mark.brief ?? mark.text })),
  };
  const taken = ({ low, marks } = whole) =>
    (legend.ramp ? RAMP + surface.measure(low + (legend.high ?? "1"), TICK) + 12 : 0) +
    marks.reduce((sum, mark) => sum + markWidth(surface, mark), 0);
  const width = (/** @type {string} */ text) => surface.measure(text, 11.5) * 1.1 + 8;
  const first = title.split(/: |, (?![^(]*\))| \(/)[0];
  const forms = [
    { text: title, words: whole },
    { text: first, words: whole },
    { text: first, words: short },
    { text: legend.brief ?? first, words: short },
  ];
  const { text, words } = forms.find(({ text, words }) => width(text) + taken(words) <= box.w) ?? forms[3];
  surface.text(text, box.x, y, { fill: colours.ink, weight: "600", size: 11.5 });
  if (legend.ramp) rampLegend(surface, right, y, legend.ramp, words.low, legend.high ?? "1");
  else marksLegend(surface, right, y, words.marks);
}

/**
 * @param {Surface} surface
 * @param {number} right
 * @param {number} y
 * @param {Uint32Array} table
 * @param {string} low
 * @param {string} high
 */
function rampLegend(surface, right, y, table, low, high) {
  const { muted, line } = palette();
  const end = right - surface.measure(high, TICK) - 4;
  surface.text(high, right, y, { anchor: "end", fill: muted, size: TICK });
  surface.pixels(end - RAMP, y - 8, RAMP, 8, 256, 1, table);
  surface.frame(end - RAMP, y - 8, RAMP, 8, { stroke: line, width: 0.75 });
  surface.text(low, end - RAMP - 4, y, { anchor: "end", fill: muted, size: TICK });
}

/** @param {Surface} surface @param {Mark} mark */
function markWidth(surface, { text, shape = "line" }) {
  return surface.measure(text, TICK) + 4 + (shape === "line" ? 28 : 20);
}

/** @param {Surface} surface @param {number} right @param {number} y @param {Mark[]} marks */
export function marksLegend(surface, right, y, marks) {
  const { muted } = palette();
  let x = right;
  for (const mark of [...marks].reverse()) {
    const { text, colour, dash = [], shape = "line" } = mark;
    const end = x - surface.measure(text, TICK) - 4;
    surface.text(text, x, y, { anchor: "end", fill: muted, size: TICK });
    if (shape === "line") surface.line([end - 16, y - 4, end, y - 4], { stroke: colour, width: 2, dash });
    else if (shape === "box") surface.rect(end - 9, y - 8, 9, 9, colour);
    else surface.frame(end - 9, y - 8, 8, 8, { stroke: colour, width: 1.75, dash: shape === "dashed" ? [2.5, 2] : [] });
    x -= markWidth(surface, mark);
  }
}

/**
 * A heat map. `value(column, row)` is looked up in the ramp between `low` and `high`.
 * @param {Surface} surface @param {Box} box
 * @param {{columns: number, rows: number, value: (column: number, row: number) => number, ramp: Uint32Array, low?:
 *   number, high?: number}} map
 */
export function heatMap(surface, box, { columns, rows, value, ramp, low = 0, high = 1 }) {
  const words = new Uint32Array(columns * rows);
  const scale = 255 / (high - low || 1);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, at++) {
      const level = (value(column, row) - low) * scale;
      words[at] = ramp[level <= 0 ? 0 : level >= 255 ? 255 : (level + 0.5) | 0];
    }
  }
  surface.pixels(box.x, box.y, box.w, box.h, columns, rows, words);
}

/** The frame of a plot. @param {Surface} surface @param {Box} box */
export function outline(surface, box) {
  surface.frame(box.x, box.y, box.w, box.h, { stroke: palette().line, width: 1 });
}

/** The name of a y axis, turned, left of the ticks. @param {Surface} surface @param {Box} box @param {string} name */
export function yName(surface, box, name) {
  surface.text(name, 9, box.y + box.h / 2, { turn: true, anchor: "middle", fill: palette().muted, size: TICK });
}

/**
 * Labels at the left of rows.
 * @param {Surface} surface
 * @param {Box} box
 * @param {{row: number, text: string}[]} ticks
 * @param {number} rows
 */
export function rowTicks(surface, box, ticks, rows) {
  const { muted } = palette();
  let last = -Infinity;
  for (const { row, text } of ticks) {
    const y = box.y + ((row + 0.5) / rows) * box.h;
    if (y - last < TICK - 0.5) continue;
    last = y;
    surface.text(text, box.x - 4, y + 3.5, { anchor: "end", fill: muted, size: TICK });
  }
}

/** The two ends of a y axis. @param {Surface} surface @param {Box} box @param {number} low @param {number} high */
export function endTicks(surface, box, low, high) {
  const { muted } = palette();
  const digits = high - low < 0.05 ? 3 : high - low < 0.5 ? 2 : 1;
  const label = (/** @type {number} */ x) =>
    x === 0 ? "0" : short(x, Number.isInteger(x) || (Math.abs(x) >= 10 && digits === 1) ? 0 : digits);
  surface.text(label(high), box.x - 4, box.y + 7, { anchor: "end", fill: muted, size: 9.5 });
  surface.text(label(low), box.x - 4, box.y + box.h, { anchor: "end", fill: muted, size: 9.5 });
}

/**
 * Round numbers from first to last, at most `most` of them.
 * @param {number} first
 * @param {number} last
 * @param {number} most
 */
export function roundSteps(first, last, most) {
  let step = 1;
  for (let i = 0; (last - first) / step > most; i++) step = [2, 5, 10][i % 3] * 10 ** Math.floor(i / 3);
  const found = [];
  for (let x = Math.ceil(first / step) * step; x <= last; x += step) found.push(x);
  return found;
}

/**
 * The time axis below a box that shows the steps from `first` up to, not including, `end`. taken: a step that has a
 * label of its own; ticks that it would touch are left out.
 * @param {Surface} surface @param {Box} box @param {number} first @param {number} end @param {string} [name]
 * @param {number | null} [taken]
 */
export function timeAxis(surface, box, first, end, name = "time step", taken = null) {
  const { muted, line } = palette();
  const width = box.w / (end - first);
  const half = (/** @type {number} */ t) => surface.measure(String(t), TICK) / 2;
  for (const t of roundSteps(first, end - 1, Math.max(2, box.w / 44))) {
    if (taken !== null && Math.abs(t - taken) * width < half(t) + half(taken) + 7) continue;
    const x = box.x + (t - first + 0.5) * width;
    surface.line([x, box.y + box.h, x, box.y + box.h + 3], { stroke: line });
    surface.text(String(t), x, box.y + box.h + 13, { anchor: "middle", fill: muted, size: TICK });
  }
  surface.text(name, box.x + box.w / 2, box.y + box.h + 25, { anchor: "middle", fill: muted, size: TICK });
}

/**
 * Bars over slots, with lines at other values, where these are not above the scale.
 * @param {Surface} surface @param {Box} box
 * @param {{values: ArrayLike<number>, high: number, colour: string, ghost?: ArrayLike<number> | null, lit?: number}}
 *   bars
 */
export function barChart(surface, box, { values, high, colour, ghost = null, lit = -1 }) {
  const { ghost: faint, mark } = palette();
  const width = box.w / values.length;
  const gap = width > 4 ? 1 : 0;
  for (let i = 0; i < values.length; i++) {
    const height = Math.min(1, values[i] / high) * box.h;
    const x = box.x + i * width;
    if (i === lit) surface.rect(x, box.y, width, box.h, mark);
    if (height > 0.2) surface.rect(x + gap / 2, box.y + box.h - height, width - gap, height, colour);
    if (ghost && ghost[i] > 0.004 * high && ghost[i] <= high) {
      const top = box.y + box.h - (ghost[i] / high) * box.h;
      surface.rect(x, top - 0.75, width, 1.5, faint);
    }
  }
}

/**
 * A line over time in steps, `value(t)` between low and high.
 * @param {Surface} surface @param {Box} box
 * @param {{first: number, end: number, value: (t: number) => number, low: number, high: number, look:
 *   import("./surface.js").LineLook}} given
 */
export function timeLine(surface, box, { first, end, value, low, high, look }) {
  const heights = [];
  for (let t = first; t < end; t++) {
    const share = (value(t) - low) / (high - low || 1);
    heights.push(box.y + box.h - Math.max(0, Math.min(1, share)) * (box.h - 2) - 1);
  }
  surface.steps(box.x, box.w / (end - first), heights, look);
}

/**
 * The colour of a value on a ramp.
 * @param {Uint32Array} ramp
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export function colourOf(ramp, value, low, high) {
  return rampColour(ramp, (value - low) / (high - low || 1));
}
