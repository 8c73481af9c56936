// @ts-check
/**
 * The intervention panel: a form that makes plain data, the list of what is in force, and the answers with and
 *   without it.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {import("../engine/api.js").Intervention} Intervention
 */
import { describeIntervention } from "../engine/interventions.js";
import { byId, choices, el, fill, say, show } from "./dom.js";
import { palette } from "./palette.js";
import { HEADS } from "./state.js";
import { badness, outcome } from "./words.js";
import { endTicks, outline, timeAxis, timeLine, titleLine } from "./plots.js";

/**
 * What can be changed: how the form is labelled, what it needs, and the data that it makes.
 * @typedef {{from: number, to: number | null, head: import("../engine/api.js").Head, value: number, slot: number,
 *   column: number, slots: number}} Given
 * @typedef {{text: string, head?: boolean, slot?: boolean, column?: boolean, range?: boolean, value?: string, first?:
 *   number, make: (given: Given) => Intervention}} Kind
 * @type {Record<string, Kind>}
 */
const KINDS = {
  mute: {
    text: "mute a head",
    head: true,
    range: true,
    make: ({ from, to, head }) => ({ type: "mute", from, to, head }),
  },
  gate: { text: "pin gate g", head: true, range: true, value: "Gate (0 to 1)", first: 1, make: pin("gate") },
  strength: { text: "pin key strength β", head: true, range: true, value: "β", first: 0, make: pin("strength") },
  shift: { text: "pin the shift", head: true, range: true, value: "Slots per step", first: 0, make: pin("shift") },
  sharpening: {
    text: "pin sharpening γ",
    head: true,
    range: true,
    value: "γ (from 1)",
    first: 1,
    make: pin("sharpening"),
  },
  move: {
    text: "move a head",
    head: true,
    value: "By slots",
    first: 1,
    make: ({ from, head, value }) => ({ type: "move", at: from, head, by: Math.round(value) }),
  },
  cell: {
    text: "set a memory cell",
    slot: true,
    column: true,
    value: "Value",
    first: 0,
    make: ({ from, slot, column, value }) => ({ type: "set", at: from, slot, column, value }),
  },
  slot: {
    text: "set a whole slot",
    slot: true,
    value: "Value",
    first: 0,
    make: ({ from, slot, value }) => ({ type: "set", at: from, slot, column: null, value }),
  },
  scramble: {
    text: "scramble the slots",
    value: "Seed",
    first: 0,
    make: ({ from, value, slots }) => ({
      type: "scramble",
      at: from,
      from: 0,
      to: slots - 1,
      seed: Math.max(0, Math.round(value)),
    }),
  },
};

/** @param {"gate" | "strength" | "sharpening" | "shift"} what @returns {Kind["make"]} */
function pin(what) {
  return ({ from, to, head, value }) => ({ type: "pin", from, to, head, what, value });
}

const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));
const chosenKind = () => KINDS[input("edit-kind").value] ?? KINDS.mute;

/** Options of the form, which depend on the machine. @param {View} view */
export function refreshForm(view) {
  const kind = /** @type {HTMLSelectElement} */ (byId("edit-kind"));
  choices(
    kind,
    Object.entries(KINDS).map(([value, { text }]) => ({ value, text })),
    kind.value || "mute",
  );
  const heads = HEADS.flatMap((name) =>
    Array.from({ length: view.trace[name].weightings.shape[1] }, (_, i) => ({
      value: `${name} ${i}`,
      text: `${name} head ${i + 1}`,
    })),
  );
  const head = /** @type {HTMLSelectElement} */ (byId("edit-head"));
  choices(head, heads, heads.some(({ value }) => value === head.value) ? head.value : "write 0");
  input("edit-slot").max = String(view.slots - 1);
  input("edit-column").max = String(view.trace.memory.shape[2] - 1);
  for (const id of ["edit-from", "edit-to"]) input(id).max = String(view.trace.steps - 1);
  showFields();
}

/** Only the fields that the chosen kind needs. */
function showFields() {
  const kind = chosenKind();
  show(byId("edit-head-label"), Boolean(kind.head));
  show(byId("edit-slot-label"), Boolean(kind.slot));
  show(byId("edit-column-label"), Boolean(kind.column));
  show(byId("edit-value-label"), Boolean(kind.value));
  show(byId("edit-to-label"), Boolean(kind.range));
  say(byId("edit-value-name"), kind.value ?? "Value");
  say(byId("edit-from-name"), kind.range ? "From step" : "Before step");
}

/** A kind was chosen: its fields, with a first value that does something. */
export function kindChosen() {
  input("edit-value").value = String(chosenKind().first ?? 0);
  input("edit-to").value = "";
  showFields();
}

/**
 * Choose a memory cell, as a click on the tape does.
 * @param {number} slot
 * @param {number} column
 * @param {number} step
 */
export function chooseCell(slot, column, step) {
  input("edit-kind").value = "cell";
  kindChosen();
  [
    ["edit-slot", slot],
    ["edit-column", column],
    ["edit-from", step],
  ].forEach(([id, value]) => (input(String(id)).value = String(value)));
}

/** The data of the form. @param {View} view @returns {Intervention} */
export function fromForm(view) {
  const number = (/** @type {string} */ id) => Number(input(id).value);
  const [kind, index] = input("edit-head").value.split(" ");
  const steps = view.trace.steps - 1;
  const within = (/** @type {number} */ value, /** @type {number} */ most) =>
    Math.max(0, Math.min(most, Math.round(value)));
  const from = within(number("edit-from"), steps);
  const to = input("edit-to").value === "" ? null : Math.max(from, within(number("edit-to"), steps));
  return chosenKind().make({
    from,
    to,
    head: { kind: kind === "read" ? "read" : "write", index: Number(index) },
    value: number("edit-value"),
    slot: within(number("edit-slot"), view.slots - 1),
    column: within(number("edit-column"), view.trace.memory.shape[2] - 1),
    slots: view.slots,
  });
}

/**
 * The list is made again only when it changes, so that the focus stays.
 * @param {HTMLElement} list
 * @param {State} state
 * @param {(index: number) => void} remove
 */
export function fillEdits(list, state, remove) {
  const key = JSON.stringify(state.edits);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  if (!state.edits.length) {
    fill(
      list,
      el("li", {
        class: "note",
        text:
          "No intervention yet: choose a change, a head and a step, and apply it. A click on a cell of the tape " +
          "chooses that cell.",
      }),
    );
    return;
  }
  fill(
    list,
    ...state.edits.map((one, i) => {
      const text = describeIntervention(one);
      return el(
        "li",
        {},
        el("span", { text }),
        el("button", {
          type: "button",
          class: "teach",
          text: "Remove",
          "aria-label": `Remove: ${text}`,
          on: { click: () => remove(i) },
        }),
      );
    }),
  );
}

/** The result before and after. @param {View} view */
export function editCount({ edited, task, score, baseScore }) {
  const before = `Untouched run: ${outcome(task, baseScore)}.`;
  return edited ? `${before} With the interventions: ${outcome(task, score)}.` : before;
}

export const editChartHeight = () => 170;

/**
 * Wrong answers by step of both runs.
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {State} state
 * @param {number} width
 */
export function drawEditChart(surface, view, state, width) {
  const colours = palette();
  const { trace, task } = view;
  const box = { x: 50, y: 26, w: width - 60, h: 106 };
  const { name, high, of } = badness(task, view.sequence);
  const span = { first: 0, end: trace.steps, low: 0, high };
  surface.rect(box.x, box.y, box.w, box.h, colours.paper);
  timeLine(surface, box, { ...span, value: of(view.score), look: { stroke: colours.wrong, width: 2 } });
  timeLine(surface, box, {
    ...span,
    value: of(view.baseScore),
    look: { stroke: colours.ghost, width: 1.5, dash: [4, 3] },
  });
  outline(surface, box);
  endTicks(surface, box, 0, high);
  surface.text(name, 14, box.y + box.h / 2, { turn: true, anchor: "middle", fill: colours.muted, size: 10 });
  titleLine(surface, box, task.bayes ? "Distance from the best prediction, by step" : "Wrong bits, by step", {
    brief: task.bayes ? "Distance" : undefined,
    marks: [
      { text: "this run", colour: colours.wrong },
      { text: "untouched", colour: colours.ghost, dash: [4, 3] },
    ],
  });
  const x = box.x + ((state.t + 0.5) / trace.steps) * box.w;
  surface.line([x, box.y, x, box.y + box.h], { stroke: colours.cursor, width: 1 });
  timeAxis(surface, box, 0, trace.steps);
}
