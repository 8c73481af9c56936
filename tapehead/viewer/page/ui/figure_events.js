// @ts-check
/**
 * Pointers on the figures: painting input, moving the cursor, picking an answer, choosing slots and cells, reading
 *   values.
 *
 * @typedef {import("./app.js").Page} Page
 */
import { contentToText } from "../engine/tasks/index.js";
import { byId, say, short } from "./dom.js";
import { chooseCell } from "./interventions.js";
import { hitMap } from "./lineage.js";
import { hitMicroscope } from "./microscope.js";
import { hitScore, layoutScore } from "./score.js";
import { readScore } from "./score_words.js";
import { changes, hitTape, layoutTape } from "./tape.js";

/** @param {Page} page */
export function wireFigures(page) {
  wireScore(page);
  onPoint("tape", "click", (x, y, width) => {
    if (!page.scene || page.state.lock) return;
    const cell = hitTape(layoutTape(page.scene.view, page.state, width), page.scene.view, x, y);
    if (!cell) return;
    page.update({ panel: "interventions" });
    chooseCell(cell.slot, cell.column, Math.min(page.state.t + 1, page.scene.view.trace.steps - 1));
  });
  onPoint("tape", "pointermove", (x, y, width) => readTape(page, x, y, width));
  onPoint("microscope", "click", (x, y, width) => {
    const slot = page.scene ? hitMicroscope(page.scene.view, width, x, y) : null;
    if (slot !== null) page.update({ slot });
  });
  onPoint("lineage-map", "click", (x, y, width) => {
    const t = page.scene ? hitMap(page.scene.view, width, x, y) : null;
    if (t !== null) page.update({ pick: t, t });
  });
}

/**
 * @param {string} id
 * @param {"click" | "pointermove" | "pointerdown" | "pointerup"} type
 * @param {(x: number, y: number, width: number, event: PointerEvent) => void} act
 */
function onPoint(id, type, act) {
  const canvas = byId(id);
  canvas.addEventListener(type, (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    const point = /** @type {PointerEvent} */ (event);
    act(point.clientX - left, point.clientY - top, canvas.clientWidth, point);
  });
}

/** @param {Page} page */
function wireScore(page) {
  const canvas = byId("score");
  /** @type {{kind: "paint", value: number} | {kind: "move"} | null} */
  let drag = null;
  const hit = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width) =>
    page.scene ? hitScore(layoutScore(page.scene.view, page.state, width), x, y) : null;
  onPoint("score", "pointerdown", (x, y, width, event) => {
    const place = hit(x, y, width);
    if (!place || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const cell = place.band === "input" ? cellAt(page, place.t, place.row) : null;
    if (cell && cell.kind !== "number" && !page.state.lock) {
      drag = { kind: "paint", value: cell.value > 0.5 ? 0 : 1 };
      paint(page, place.t, place.row, drag.value);
      return;
    }
    drag = { kind: "move" };
    page.player.stop();
    if (place.band === "output") page.update({ t: place.t, pick: place.t, panel: "lineage" });
    else page.update({ t: place.t });
  });
  onPoint("score", "pointermove", (x, y, width) => {
    const place = hit(x, y, width);
    if (!place || !page.scene) return;
    if (drag?.kind === "paint" && place.band === "input") paint(page, place.t, place.row, drag.value);
    else if (drag?.kind === "move" && place.t !== page.state.t) page.update({ t: place.t });
    say(byId("readout"), readScore(page.scene.view, page.state, place));
  });
  onPoint("score", "pointerup", () => (drag = null));
  canvas.addEventListener("pointercancel", () => (drag = null));
}

/** @param {Page} page @param {number} t @param {number} channel */
function cellAt(page, t, channel) {
  return page.scene ? page.scene.view.task.place(page.scene.view.content, t, channel) : null;
}

/**
 * Paint one input cell; nothing happens where it has that value.
 * @param {Page} page
 * @param {number} t
 * @param {number} channel
 * @param {number} value
 */
export function paint(page, t, channel, value) {
  const cell = cellAt(page, t, channel);
  if (!cell || cell.value === value || !page.scene) return;
  const { task } = page.scene.view;
  const content = task.paint(page.scene.view.content, cell, Math.max(cell.least, Math.min(cell.most, value)));
  page.update({ content: contentToText(task, content), t });
}

/** @param {Page} page @param {number} x @param {number} y @param {number} width */
function readTape(page, x, y, width) {
  if (!page.scene) return;
  const { view, state } = page.scene;
  const cell = hitTape(layoutTape(view, state, width), view, x, y);
  if (!cell) return;
  const { trace } = view;
  const columns = trace.memory.shape[2];
  const i = (state.t * trace.slots + cell.slot) * columns + cell.column;
  const { erased, added } = changes(trace, state.t, cell.slot);
  say(
    byId("tape-note"),
    `Slot ${cell.slot}, column ${cell.column}: ${short(trace.memory.data[i], 3)} after step ${state.t}; ` +
      `${short(trace.memoryBefore.data[i], 3)} before, ` +
      `${short(erased[cell.column], 3)} erased, ${short(added[cell.column], 3)} added.`,
  );
}
