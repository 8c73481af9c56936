// @ts-check
/**
 * The strips of the score: what the controller asks of the heads, as lines over time.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {import("./surface.js").Surface} Surface
 * @typedef {import("./score.js").Band} Band
 * @typedef {import("./score.js").Layout} Layout
 */
import { at, meanShift } from "./model.js";
import { palette } from "./palette.js";
import { endTicks, timeLine } from "./plots.js";
import { HEADS } from "./state.js";

/**
 * Strips of head parameters.
 * @typedef {import("../engine/api.js").HeadTrace} HeadTrace
 * @type {{name: string, title: string, brief?: string, value: (heads: HeadTrace, t: number, head: number) => number,
 *   low?: number, high?: number}[]}
 */
export const STRIPS = [
  { name: "strength", title: "Key strength β", value: (heads, t, h) => at(heads.strengths, t, h)[0] },
  {
    name: "gate",
    title: "Interpolation gate g: 1 by content, 0 from the last place",
    brief: "Gate g",
    value: (heads, t, h) => at(heads.gates, t, h)[0],
    low: 0,
    high: 1,
  },
  { name: "shift", title: "Mean shift, slots per step", value: meanShift, low: -1, high: 1 },
  { name: "sharpening", title: "Sharpening γ", value: (heads, t, h) => at(heads.sharpenings, t, h)[0] },
];

/** @param {Surface} surface @param {View} view @param {State} state @param {Layout} layout @param {Band} band */
export function drawStrip(surface, view, state, layout, band) {
  const colours = palette();
  const { trace, base, edited } = view;
  const strip = STRIPS.find(({ name }) => name === band.name) ?? STRIPS[0];
  const value = (/** @type {"write" | "read"} */ kind, /** @type {View["trace"]} */ run) => (/** @type {number} */ t) =>
    strip.value(run[kind], t, state[kind]);
  let [low, high] = [strip.low ?? Infinity, strip.high ?? -Infinity];
  for (const kind of HEADS) {
    for (let t = 0; t < trace.steps; t++) {
      const now = value(kind, trace)(t);
      if (now < low) low = now;
      if (now > high) high = now;
    }
  }
  const span = { first: layout.first, end: layout.end, low, high };
  if (edited)
    for (const kind of HEADS)
      timeLine(surface, band.box, { ...span, value: value(kind, base), look: { stroke: colours.ghost, width: 1 } });
  timeLine(surface, band.box, { ...span, value: value("write", trace), look: { stroke: colours.write, width: 1.75 } });
  timeLine(surface, band.box, {
    ...span,
    value: value("read", trace),
    look: { stroke: colours.read, width: 1.75, dash: [4, 2.5] },
  });
  endTicks(surface, band.box, low, high);
}

/** @param {Band} band @returns {import("./score_bands.js").Words} */
export function stripWords(band) {
  const colours = palette();
  const { title, brief } = STRIPS.find(({ name }) => name === band.name) ?? STRIPS[0];
  const marks = [
    { text: "write", colour: colours.write },
    { text: "read", colour: colours.read, dash: [4, 2.5] },
  ];
  return { title, legend: { brief, marks } };
}
