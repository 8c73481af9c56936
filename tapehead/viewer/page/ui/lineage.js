// @ts-check
/**
 * Lineage: when was written what an answer read? As arcs from one answer, and as a map of all read steps by all write
 *   steps.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 */
import { short } from "./dom.js";
import { at, lineageOf, originsOf } from "./model.js";
import { palette } from "./palette.js";
import { heatMap, outline, roundSteps, timeAxis, titleLine } from "./plots.js";

const LEFT = 50;
const ARCS = 190;
const SHOWN = 0.02; // weights below this have no arc

/** The step whose lineage is shown. @param {View} view @param {State} state */
export function picked(view, state) {
  return Math.min(state.pick ?? state.t, view.trace.steps - 1);
}

/** @param {View} view @param {State} state */
function lineageAt(view, state) {
  return lineageOf(view.machine, view.trace, state.read);
}

export const arcsHeight = () => ARCS + 74;

/** @param {import("./surface.js").Surface} surface @param {View} view @param {State} state @param {number} width */
export function drawArcs(surface, view, state, width) {
  const colours = palette();
  const steps = view.trace.steps;
  const [t, { map, rest, edited }] = [picked(view, state), lineageAt(view, state)];
  const box = { x: LEFT, y: 30, w: width - LEFT - 10, h: ARCS };
  const step = box.w / steps;
  const xOf = (/** @type {number} */ u) => box.x + (u + 0.5) * step;
  const y = box.y + box.h - 16;
  surface.rect(box.x, box.y, box.w, box.h, colours.paper);
  if (view.answer > 0) surface.rect(box.x + view.answer * step, y, box.w - view.answer * step, 16, colours.answer);
  titleLine(surface, { ...box, y: 18 }, `L(${t}, u): weight of the write at step u in the read at step ${t}`, {});
  for (let u = 0; u <= t; u++) {
    const share = map.data[t * steps + u];
    if (share < SHOWN) continue;
    const height = Math.min(box.h - 26, 20 + (Math.abs(xOf(t) - xOf(u)) / box.w) * box.h * 1.25) * 1.33;
    surface.curve(xOf(u), xOf(t), y, height, { stroke: colours.write, width: 1 + 7 * share }, 0.35 + 0.6 * share);
    if (share > 0.1)
      surface.text(short(share), xOf(u), y + 12, { anchor: "middle", fill: colours.ink, weight: "600", size: 10.5 });
  }
  surface.line([box.x, y, box.x + box.w, y], { stroke: colours.line });
  surface.area([xOf(t) - 5, y + 14, xOf(t), y + 3, xOf(t) + 5, y + 14], colours.read);
  restBar(surface, box, rest[t], edited[t]);
  outline(surface, box);
  timeAxis(
    surface,
    box,
    0,
    steps,
    width < 420 ? "time step" : "time step; arcs end at the read step, thickness is the weight",
  );
}

/**
 * What came from no write.
 * @param {import("./surface.js").Surface} surface
 * @param {import("./plots.js").Box} box
 * @param {number} rest
 * @param {number} edited
 */
function restBar(surface, box, rest, edited) {
  const { muted, ink } = palette();
  const text = `weight of the initial memory ${short(rest)}${edited > 0.005 ? `, set by hand ${short(edited)}` : ""}`;
  surface.text(text, box.x + box.w - 6, box.y + 14, {
    anchor: "end",
    fill: rest + edited > 0.1 ? ink : muted,
    size: 10.5,
  });
}

/** @param {number} width */
export function mapHeight(width) {
  return Math.min(width - LEFT - 10, 380) + 74;
}

/** @param {import("./surface.js").Surface} surface @param {View} view @param {State} state @param {number} width */
export function drawLineageMap(surface, view, state, width) {
  const colours = palette();
  const steps = view.trace.steps;
  const { map } = lineageAt(view, state);
  const size = Math.min(width - LEFT - 10, 380);
  const box = { x: LEFT, y: 30, w: size, h: size };
  heatMap(surface, box, {
    columns: steps,
    rows: steps,
    ramp: colours.ramps.write,
    value: (t, u) => map.data[t * steps + u],
  });
  titleLine(surface, { ...box, y: 22 }, "L(t, u): read step t, write step u", {
    ramp: colours.ramps.write,
    low: "weight 0",
  });
  const cell = size / steps;
  const t = picked(view, state);
  surface.frame(box.x + t * cell - 0.5, box.y, cell + 1, size, { stroke: colours.read, width: 1.25 });
  surface.line([box.x, box.y, box.x + size, box.y + size], { stroke: colours.line, dash: [2, 3] });
  outline(surface, box);
  for (const u of roundSteps(0, steps - 1, size / 36)) {
    surface.text(String(u), box.x - 4, box.y + (u + 0.5) * cell + 3.5, {
      anchor: "end",
      fill: colours.muted,
      size: 10,
    });
  }
  surface.text("write step u", 11, box.y + size / 2, { turn: true, anchor: "middle", fill: colours.muted, size: 10 });
  timeAxis(surface, box, 0, steps, "read step t");
}

/**
 * The read step under a point of the map, or null.
 * @param {View} view
 * @param {number} width
 * @param {number} x
 * @param {number} y
 */
export function hitMap(view, width, x, y) {
  const size = Math.min(width - LEFT - 10, 380);
  if (x < LEFT || x >= LEFT + size || y < 30 || y >= 30 + size) return null;
  return Math.floor(((x - LEFT) / size) * view.trace.steps);
}

/**
 * What the parts of a read vector are: each as its projection on the vector, as a share of it, so that they add up to
 *   one.
 * @param {View} view
 * @param {State} state
 * @returns {{u: number, part: number}[]} largest first; u -1: initial memory, -2: interventions
 */
function partsOf(view, state) {
  const parts = new Map();
  const found = originsOf(view.machine, view.trace, picked(view, state), state.read);
  const whole = at(view.trace.reads, picked(view, state), state.read);
  const norm = whole.reduce((sum, x) => sum + x * x, 0);
  if (norm < 1e-12) return [];
  for (const { u, vector } of found) {
    const along = vector.reduce((sum, x, i) => sum + x * whole[i], 0) / norm;
    parts.set(u, (parts.get(u) ?? 0) + along);
  }
  return [...parts].map(([u, part]) => ({ u, part })).sort((a, b) => b.part - a.part);
}

/** The finding in one sentence. @param {View} view @param {State} state */
export function describeLineage(view, state) {
  const t = picked(view, state);
  const head = view.trace.read.weightings.shape[1] > 1 ? `read head ${state.read + 1}` : "the read head";
  const parts = partsOf(view, state)
    .filter(({ part }) => part >= 0.05)
    .slice(0, 4);
  if (!parts.length) return `At step ${t} ${head} reads next to nothing.`;
  const words = parts.map(({ u, part }) => {
    const share = `${Math.round(100 * part)} %`;
    return u === -1
      ? `${share} is initial memory`
      : u === -2
        ? `${share} was set by hand`
        : `${share} was written at step ${u}`;
  });
  return `Of the vector that ${head} reads at step ${t}, ${words.join(", ")}.`;
}
