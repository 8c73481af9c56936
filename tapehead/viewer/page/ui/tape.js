// @ts-check
/**
 * The tape at the cursor: memory cells, the heads with their spread, what the step erased and added, and the step
 *   before.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {{top: number, cells: import("./plots.js").Box, rows: number, first: number, width: number}} TapeLayout
 */
import { short } from "./dom.js";
import { at, rowOf, slotAt, strongest } from "./model.js";
import { palette } from "./palette.js";
import { HEADS } from "./state.js";
import { colourOf, heatMap, marksLegend, outline, titleLine, yName } from "./plots.js";

const MOST_ROWS = 40;
const STRIDE = 4; // the scale is found in every fourth step: what is written stays for longer
const CHANGED = 0.02; // of the largest value: smaller changes are not marked
const SEEN = 0.1; // a head with less weight on its strongest slot has no marker
const WRITTEN = 1e-6; // writes with less weight are left out
const LEFT = 40;
const BETWEEN = 10; // the weights of both heads
const MARKERS = 18; // room for the places of the heads, beside the cells

/** The rows that are shown: all of the arc, or those around the write head. @param {View} view @param {State} state */
function rowsShown(view, state) {
  const { arc, trace } = view;
  if (arc.count <= MOST_ROWS) return { first: 0, rows: arc.count };
  const centre = rowOf(arc, strongest(at(trace[state.kind].weightings, state.t, state[state.kind])));
  const first = Math.max(0, Math.min(arc.count - MOST_ROWS, centre - MOST_ROWS / 2));
  return { first, rows: MOST_ROWS };
}

/** @param {import("./surface.js").Surface} surface @param {View} view @param {State} state @param {number} width */
export function drawTape(surface, view, state, width) {
  const layout = layoutTape(view, state, width);
  const { cells } = layout;
  drawCells(surface, view, state, layout);
  drawHeads(surface, view, state, layout);
  outline(surface, cells);
  drawTapeText(surface, view, state, layout);
  return layout;
}

/**
 * @param {View} view
 * @param {State} state
 * @param {number} width
 * @returns {TapeLayout & {height: number, bars: number}}
 */
export function layoutTape(view, state, width) {
  const { first, rows } = rowsShown(view, state);
  const bars = Math.max(30, Math.min(64, width * 0.12));
  const x = LEFT + 2 * bars + BETWEEN + MARKERS;
  const w = width - x - 8;
  const h = rows * Math.max(10, Math.min(width < 420 ? 15 : 34, 620 / rows));
  return { top: 40, cells: { x, y: 40, w, h }, rows, first, width, bars, height: 40 + h + 58 };
}

/** The largest size of a value in a run's memory: one scale for all steps. @type {WeakMap<object, number>} */
const scales = new WeakMap();

/** @param {View["trace"]} trace */
function memoryScale(trace) {
  let scale = scales.get(trace);
  if (scale === undefined) {
    scale = 1e-3;
    const { data } = trace.memory;
    const row = trace.memory.shape[1] * trace.memory.shape[2];
    for (let t = trace.steps - 1; t >= 0; t -= STRIDE) {
      for (let i = t * row; i < (t + 1) * row; i++) {
        const size = data[i] < 0 ? -data[i] : data[i];
        if (size > scale) scale = size;
      }
    }
    scales.set(trace, scale);
  }
  return scale;
}

/**
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {TapeLayout} layout
 */
function drawCells(surface, view, state, { cells, rows, first }) {
  const { trace, arc } = view;
  const colours = palette();
  const columns = trace.memory.shape[2];
  const scale = memoryScale(trace);
  const from = state.t * arc.slots * columns;
  const { data } = trace.memory;
  const valueAt = (/** @type {number} */ column, /** @type {number} */ row) =>
    data[from + slotAt(arc, first + row) * columns + column];
  heatMap(surface, cells, { columns, rows, value: valueAt, ramp: colours.signed, low: -scale, high: scale });
  const [w, h] = [cells.w / columns, cells.h / rows];
  for (let row = 0; row < rows; row++) {
    drawChanges(surface, view, state, slotAt(arc, first + row), { ...cells, y: cells.y + row * h, h });
    if (w <= 6) continue;
    for (let column = 0; column < columns; column++) {
      if (valueAt(column, row) >= -0.15 * scale) continue;
      surface.rect(cells.x + (column + 0.5) * w - 2, cells.y + (row + 0.5) * h - 0.6, 4, 1.2, colours.paper);
    }
  }
}

/**
 * The cells of a slot that the step changed: what was there before, in a corner, and frames for erased and added.
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {number} slot
 * @param {import("./plots.js").Box} box
 */
function drawChanges(surface, { trace }, state, slot, box) {
  if (!isWritten(trace, state.t, slot)) return;
  const colours = palette();
  const scale = memoryScale(trace);
  const columns = trace.memory.shape[2];
  const { erased, added } = changes(trace, state.t, slot);
  const [w, h] = [box.w / columns, box.h];
  for (let column = 0; column < columns; column++) {
    const i = (state.t * trace.slots + slot) * columns + column;
    const [x, y, before] = [box.x + column * w, box.y, trace.memoryBefore.data[i]];
    if (Math.abs(trace.memory.data[i] - before) > CHANGED * scale) {
      surface.area([x, y, x + 0.55 * w, y, x, y + 0.55 * h], colourOf(colours.signed, before, -scale, scale));
      surface.line([x + 0.55 * w, y, x, y + 0.55 * h], { stroke: colours.ghost, width: 0.75 });
    }
    if (Math.abs(erased[column]) > CHANGED * scale)
      surface.frame(x + 1, y + 1, w - 2, h - 2, { width: 1.5, stroke: colours.erased, dash: [2.5, 2] });
    if (Math.abs(added[column]) > CHANGED * scale)
      surface.frame(x + 2.2, y + 2.2, w - 4.4, h - 4.4, { width: 1.25, stroke: colours.added });
  }
}

/** Whether a step wrote to a slot. @param {View["trace"]} trace @param {number} t @param {number} slot */
function isWritten({ written, slots }, t, slot) {
  const heads = written.shape[1];
  for (let h = 0; h < heads; h++) if (written.data[(t * heads + h) * slots + slot] >= WRITTEN) return true;
  return false;
}

/**
 * What a step took from a slot and added to it, by column.
 * @param {View["trace"]} trace
 * @param {number} t
 * @param {number} slot
 */
export function changes(trace, t, slot) {
  const [, heads, columns] = trace.erase.shape;
  const erased = new Float64Array(columns);
  const added = new Float64Array(columns);
  for (let head = 0; head < heads; head++) {
    const weight = at(trace.written, t, head)[slot];
    if (weight < WRITTEN) continue;
    const [erase, add] = [at(trace.erase, t, head), at(trace.add, t, head)];
    for (let column = 0; column < columns; column++) {
      erased[column] = 1 - (1 - erased[column]) * (1 - weight * erase[column]);
      added[column] += weight * add[column];
    }
  }
  const from = (t * trace.slots + slot) * columns;
  for (let column = 0; column < columns; column++) erased[column] *= trace.memoryBefore.data[from + column];
  return { erased, added };
}

/**
 * Bars of both weightings, with the step before as an outline.
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {TapeLayout & {bars: number}} layout
 */
function drawHeads(surface, view, state, { cells, rows, first, bars }) {
  const { trace, arc } = view;
  const colours = palette();
  const h = cells.h / rows;
  HEADS.forEach((kind, place) => {
    const x = LEFT + place * (bars + BETWEEN);
    const [now, before] = [
      at(trace[kind].weightings, state.t, state[kind]),
      at(trace[kind].previous, state.t, state[kind]),
    ];
    surface.rect(x, cells.y, bars, cells.h, colours.paper);
    for (let row = 0; row < rows; row++) {
      const slot = slotAt(arc, first + row);
      const y = cells.y + row * h;
      if (now[slot] > 0.003) surface.rect(x, y + 1, bars * now[slot], h - 2, colours[kind]);
      if (before[slot] > 0.003)
        surface.frame(x, y + 0.5, bars * before[slot], h - 1, { stroke: colours.ghost, width: 1.25, dash: [2, 2] });
    }
    const [best, row] = [strongest(now), rowOf(arc, strongest(now)) - first];
    const look = { anchor: /** @type {const} */ ("middle"), fill: colours[kind], weight: "600", size: 11 };
    if (now[best] > SEEN && row >= 0 && row < rows) marker(surface, kind, cells.x - MARKERS, cells.y + (row + 0.5) * h);
    else if (now[best] > SEEN && row < 0) surface.text(`↑ ${best}`, x + bars / 2, cells.y + 12, look);
    else if (now[best] > SEEN) surface.text(`↓ ${best}`, x + bars / 2, cells.y + cells.h - 4, look);
    outline(surface, { x, y: cells.y, w: bars, h: cells.h });
    surface.text(kind, x + bars / 2, cells.y - 5, { anchor: "middle", fill: colours[kind], weight: "600", size: 11 });
    surface.text("0", x, cells.y + cells.h + 12, { fill: colours.muted, size: 9.5 });
    surface.text("1", x + bars, cells.y + cells.h + 12, { anchor: "end", fill: colours.muted, size: 9.5 });
  });
}

/**
 * A triangle for the write head, a disc for the read head, which may be at the same slot.
 * @param {import("./surface.js").Surface} surface
 * @param {string} kind
 * @param {number} x
 * @param {number} y
 */
function marker(surface, kind, x, y) {
  const colours = palette();
  if (kind === "write") surface.area([x + 1, y - 5, x + 9, y, x + 1, y + 5], colours.write);
  else surface.disc(x + 13, y, 3.2, colours.read);
}

/**
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {TapeLayout & {bars: number, height: number}} layout
 */
function drawTapeText(surface, view, state, layout) {
  const { arc, trace } = view;
  const { first, rows, width, height } = layout;
  const key = [width, height, first, rows, arc.start, arc.slots, trace.memory.shape[2]].join();
  surface.layer("words", key, { x: 0, y: 0, w: width, h: height }, (on) => drawTapeWords(on, view, layout));
  const scale = memoryScale(trace);
  titleLine(surface, { x: LEFT - 30, y: 20, w: width - LEFT + 22, h: 0 }, `Memory after step ${state.t}`, {
    ramp: palette().signed,
    low: short(-scale, 1),
    high: short(scale, 1),
  });
}

/**
 * The words that are the same at every step.
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {TapeLayout & {bars: number}} layout
 */
function drawTapeWords(surface, view, { cells, rows, first, width, bars }) {
  const colours = palette();
  const { arc, trace } = view;
  const columns = trace.memory.shape[2];
  const look = { fill: colours.muted, size: 10 };
  for (let row = 0; row < rows; row++) {
    surface.text(String(slotAt(arc, first + row)), LEFT - 4, cells.y + ((row + 0.5) / rows) * cells.h + 3.5, {
      ...look,
      anchor: "end",
      size: 9.5,
    });
  }
  yName(surface, cells, "slot");
  surface.text("weight of head", LEFT + bars + BETWEEN / 2, cells.y + cells.h + 24, {
    ...look,
    anchor: "middle",
  });
  surface.text(
    width < 380 ? `column (0 to ${columns - 1})` : `column of the memory (0 to ${columns - 1})`,
    cells.x + cells.w / 2,
    cells.y + cells.h + 13,
    { ...look, anchor: "middle" },
  );
  marksLegend(surface, width - 8, cells.y + cells.h + 34, [
    { text: "erased", colour: colours.erased, shape: "dashed" },
    { text: "added", colour: colours.added, shape: "frame" },
  ]);
  marksLegend(surface, width - 8, cells.y + cells.h + 52, [
    { text: width < 380 ? "step before" : "corner, dashed bar: step before", colour: colours.ghost, shape: "dashed" },
    { text: "− below 0", colour: colours.negative, shape: "box" },
  ]);
}

/**
 * The memory cell at a point, or null.
 * @param {TapeLayout} layout
 * @param {View} view
 * @param {number} x
 * @param {number} y
 */
export function hitTape({ cells, rows, first }, view, x, y) {
  const columns = view.trace.memory.shape[2];
  const [column, row] = [Math.floor(((x - cells.x) / cells.w) * columns), Math.floor(((y - cells.y) / cells.h) * rows)];
  if (column < 0 || column >= columns || row < 0 || row >= rows) return null;
  return { slot: slotAt(view.arc, first + row), column };
}

/** @param {View} view @param {State} state */
export function describeTape({ trace, arc }, state) {
  const parts = HEADS.map((kind) => {
    const now = at(trace[kind].weightings, state.t, state[kind]);
    const slot = strongest(now);
    return `${kind} head ${state[kind] + 1} at slot ${slot} with weight ${short(now[slot])}`;
  });
  return `Memory after step ${state.t}, slots ${slotAt(arc, 0)} to ${slotAt(arc, arc.count - 1)}: ${parts.join(", ")}.`;
}
