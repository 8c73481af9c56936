// @ts-check
/**
 * The keyboard. Keys that a form control, a button or a list of tabs uses itself are left to it.
 *
 * @typedef {import("./app.js").Page} Page
 */
import { PANELS } from "./state.js";

/** @param {Page} page */
export function wireKeys(page) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !page.scene) return;
    const act = actionOf(page, event);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** Whether the focused element needs this key itself. @param {EventTarget | null} target @param {string} key */
function taken(target, key) {
  if (!(target instanceof Element)) return false;
  if (target.matches("input:not([type=range]):not([type=radio]), select, textarea")) return true;
  if (target.matches("input, [role=tab]")) return key.startsWith("Arrow") || key === "Home" || key === "End";
  if (target.matches("button, summary, a")) return key === " " || key === "Enter";
  return false;
}

/** @param {Page} page @param {KeyboardEvent} event @returns {(() => void) | null} */
function actionOf(page, event) {
  if (taken(event.target, event.key)) return null;
  const { state, player } = page;
  const last = page.scene ? page.scene.view.trace.steps - 1 : 0;
  const stride = event.shiftKey ? 10 : 1;
  const to = (/** @type {number} */ t) => () => {
    player.stop();
    page.update({ t: Math.max(0, Math.min(last, t)) });
  };
  switch (event.key) {
    case "ArrowLeft":
      return to(state.t - stride);
    case "ArrowRight":
      return to(state.t + stride);
    case "Home":
      return to(0);
    case "End":
      return to(last);
    case " ":
      return () => player.toggle("steps");
    case "l":
    case "L":
      return () => page.update({ panel: "lineage", pick: state.t });
    case "t":
    case "T":
      return () => page.openChapter(state.chapter ? 0 : 1);
    default:
      return openPanel(page, event.key) ?? (state.lock ? null : editing(page, event.key));
  }
}

/** @param {Page} page @param {string} key */
function openPanel(page, key) {
  const panel = PANELS[Number(key) - 1];
  return panel ? () => page.update({ panel }) : null;
}

/**
 * Keys that change the sequence or the run; the teacher's lock turns them off.
 * @param {Page} page
 * @param {string} key
 */
function editing(page, key) {
  const { state } = page;
  if (key === "m" || key === "M") {
    const head = { kind: /** @type {const} */ ("write"), index: state.write };
    return () =>
      page.update({ panel: "interventions", edits: [...state.edits, { type: "mute", from: state.t, to: null, head }] });
  }
  if (key === "u" || key === "U") return () => page.update({ edits: state.edits.slice(0, -1) });
  if (key === "n" || key === "N") return () => page.update({ seed: state.seed + 1, content: null, pick: null });
  return null;
}
