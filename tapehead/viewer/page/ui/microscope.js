// @ts-check
/**
 * The addressing microscope: five stages of one head at one step as bars over the slots, and Eqs 5 to 9 with its
 *   numbers.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 */
import { el, fill, short } from "./dom.js";
import { at, rowOf, slotAt, strongest } from "./model.js";
import { palette } from "./palette.js";
import { barChart, endTicks, outline, roundSteps } from "./plots.js";

/** @typedef {"previous" | "content" | "interpolated" | "shifted" | "weightings"} Stage */
/** @type {{name: Stage, title: string, about: string}[]} */
const STAGES = [
  { name: "previous", title: "1. Previous", about: "where it was" },
  { name: "content", title: "2. Content", about: "Eqs 5, 6: like the key" },
  { name: "interpolated", title: "3. Interpolated", about: "Eq. 7: gate g" },
  { name: "shifted", title: "4. Shifted", about: "Eq. 8: shift s" },
  { name: "weightings", title: "5. Sharpened", about: "Eq. 9: γ" },
];

/**
 * The slot of the equations: the chosen one, or the strongest after the step.
 * @param {View} view
 * @param {State} state
 */
export function slotShown(view, state) {
  if (state.slot !== null && state.slot < view.slots) return state.slot;
  return strongest(at(view.trace[state.kind].weightings, state.t, state[state.kind]));
}

/** @param {number} width */
function columnsFor(width) {
  return width >= 900 ? 5 : width >= 560 ? 3 : width >= 420 ? 2 : 1;
}

const ROW = 168;
const LEFT = 40;

/** @param {number} width */
export function microscopeHeight(width) {
  return Math.ceil(STAGES.length / columnsFor(width)) * ROW - 16;
}

/** @param {import("./surface.js").Surface} surface @param {View} view @param {State} state @param {number} width */
export function drawMicroscope(surface, view, state, width) {
  const { trace, arc } = view;
  const colours = palette();
  const [heads, head, columns] = [trace[state.kind], state[state.kind], columnsFor(width)];
  const shown = (/** @type {ArrayLike<number>} */ values) =>
    Array.from({ length: arc.count }, (_, row) => values[slotAt(arc, row)]);
  const lit = rowOf(arc, slotShown(view, state));
  const cell = width / columns;
  STAGES.forEach(({ name, title, about }, i) => {
    const box = { x: (i % columns) * cell + LEFT, y: Math.floor(i / columns) * ROW + 32, w: cell - LEFT - 10, h: 84 };
    const values = shown(at(heads[name], state.t, head));
    const high = niceTop(Math.max(...values));
    const ghost = i > 0 ? shown(at(heads[STAGES[i - 1].name], state.t, head)) : null;
    surface.rect(box.x, box.y, box.w, box.h, colours.paper);
    barChart(surface, box, { values, high, colour: colours[state.kind], ghost, lit });
    outline(surface, box);
    endTicks(surface, box, 0, high);
    surface.text("weight", box.x - 26, box.y + box.h / 2, {
      turn: true,
      anchor: "middle",
      fill: colours.muted,
      size: 10,
    });
    surface.text(title, box.x, box.y - 17, { fill: colours.ink, weight: "600", size: 12 });
    surface.text(about, box.x, box.y - 5, { fill: colours.muted, size: 10.5 });
    slotAxis(surface, box, arc);
  });
}

/** A round upper end at or above the largest value. @param {number} largest */
function niceTop(largest) {
  return [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((top) => largest <= top) ?? 1;
}

/**
 * @param {import("./surface.js").Surface} surface
 * @param {import("./plots.js").Box} box
 * @param {import("./model.js").Arc} arc
 */
function slotAxis(surface, box, arc) {
  const { muted } = palette();
  for (const row of roundSteps(0, arc.count - 1, box.w / 30)) {
    surface.text(String(slotAt(arc, row)), box.x + ((row + 0.5) / arc.count) * box.w, box.y + box.h + 12, {
      anchor: "middle",
      fill: muted,
      size: 10,
    });
  }
  surface.text("slot", box.x + box.w / 2, box.y + box.h + 24, { anchor: "middle", fill: muted, size: 10 });
}

/**
 * The slot under a point of the figure, or null.
 * @param {View} view
 * @param {number} width
 * @param {number} x
 * @param {number} y
 */
export function hitMicroscope(view, width, x, y) {
  const cell = width / columnsFor(width);
  const share = ((x % cell) - LEFT) / (cell - LEFT - 10);
  if (share < 0 || share >= 1 || y % ROW < 16) return null;
  return slotAt(view.arc, Math.floor(share * view.arc.count));
}

/**
 * Eqs 5 to 9 for one slot, as name and text.
 * @param {View} view @param {State} state @returns {{name: string, text: string}[]}
 */
export function equations(view, state) {
  const { trace, slots } = view;
  const [heads, t, head, i] = [trace[state.kind], state.t, state[state.kind], slotShown(view, state)];
  const of = (/** @type {keyof import("../engine/api.js").HeadTrace} */ name) => at(heads[name], t, head);
  const [beta, g, gamma] = [of("strengths")[0], of("gates")[0], of("sharpenings")[0]];
  const [previous, similarity, content, interpolated] = [
    of("previous"),
    of("similarity"),
    of("content"),
    of("interpolated"),
  ];
  const [shifted, weighting, shifts] = [of("shifted"), of("weightings"), of("shifts")];
  const n = (/** @type {number} */ x) => short(x, 3);
  const sum = (/** @type {ArrayLike<number>} */ values, /** @type {(x: number) => number} */ f) =>
    Array.from(values).reduce((total, x) => total + f(x), 0);
  const range = (shifts.length - 1) / 2;
  const terms = Array.from(shifts, (s, j) => ({ from: (((i - (j - range)) % slots) + slots) % slots, s }));
  const total = sum(shifted, (x) => x ** gamma);
  return [
    {
      name: `Eq. 6, similarity of the key and slot ${i}`,
      text: `K[k, M(${i})] = k · M(${i}) / (|k| |M(${i})|) = ${n(similarity[i])}`,
    },
    {
      name: "Eq. 5, content",
      text:
        `w_c(${i}) = exp(β K[k, M(${i})]) / Σ_j exp(β K[k, M(j)]) = ` +
        `exp(${n(beta)} × ${n(similarity[i])}) / ${n(sum(similarity, (x) => Math.exp(beta * x)))} = ${n(content[i])}`,
    },
    {
      name: "Eq. 7, interpolation",
      text:
        `w_g(${i}) = g w_c(${i}) + (1 − g) w_prev(${i}) = ` +
        `${n(g)} × ${n(content[i])} + ${n(1 - g)} × ${n(previous[i])} = ${n(interpolated[i])}`,
    },
    {
      name: "Eq. 8, shift",
      text:
        `w̃(${i}) = Σ_j w_g(j) s(${i} − j) = ` +
        `${terms.map(({ from, s }) => `w_g(${from}) × ${n(s)}`).join(" + ")} = ` +
        `${terms.map(({ from, s }) => `${n(interpolated[from])} × ${n(s)}`).join(" + ")} = ${n(shifted[i])}`,
    },
    {
      name: "Eq. 9, sharpening",
      text: `w(${i}) = w̃(${i})^γ / Σ_j w̃(j)^γ = ${n(shifted[i])}^${n(gamma)} / ${n(total)} = ${n(weighting[i])}`,
    },
  ];
}

/** @param {Element} list @param {View} view @param {State} state */
export function fillEquations(list, view, state) {
  const found = equations(view, state);
  if (list.childElementCount !== found.length)
    fill(list, ...found.map(() => el("li", {}, el("span", { class: "name" }), el("span", { class: "filled" }))));
  found.forEach(({ name, text }, i) => {
    list.children[i].children[0].textContent = name;
    list.children[i].children[1].textContent = text;
  });
}

/** @param {View} view @param {State} state */
export function describeMicroscope(view, state) {
  const heads = view.trace[state.kind];
  const parts = STAGES.map(({ name, title }) => {
    const values = at(heads[name], state.t, state[state.kind]);
    const slot = strongest(values);
    return `${title} slot ${slot}, ${short(values[slot])}`;
  });
  const head = `${state.kind} head ${state[state.kind] + 1}`;
  return `Addressing of ${head} at step ${state.t}; strongest slot of each stage: ${parts.join("; ")}.`;
}
