// @ts-check
/**
 * The training scrubber: snapshots of the weights from random to solved, and the learning curve of the card.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 * @typedef {import("../engine/api.js").SnapshotEntry} SnapshotEntry
 */
import { palette } from "./palette.js";
import { outline, roundSteps } from "./plots.js";
import { outcome } from "./words.js";

const BOX = { x: 60, y: 26, h: 150 };

export const curveHeight = () => BOX.y + BOX.h + 34;

/** @param {View} view @returns {[number, number][]} */
function curveOf(view) {
  const curve = view.machine.card?.curve;
  return Array.isArray(curve)
    ? curve.filter((point) => Array.isArray(point) && Number.isFinite(point[0]) && Number.isFinite(point[1]))
    : [];
}

/**
 * @param {import("./surface.js").Surface} surface
 * @param {View} view
 * @param {SnapshotEntry | null} snapshot
 * @param {number} width
 */
export function drawCurve(surface, view, snapshot, width) {
  const colours = palette();
  const curve = curveOf(view);
  const box = { ...BOX, w: width - BOX.x - 26 };
  const look = { fill: colours.muted, size: 10 };
  surface.rect(box.x, box.y, box.w, box.h, colours.paper);
  surface.text("Training cost (log scale)", box.x, box.y - 6, { fill: colours.ink, weight: "600", size: 11.5 });
  if (!curve.length) {
    surface.text("this machine has no learning curve", box.x + box.w / 2, box.y + box.h / 2, {
      ...look,
      anchor: "middle",
      size: 12,
    });
    outline(surface, box);
    return;
  }
  const last = Math.max(curve[curve.length - 1][0], snapshot?.episodes ?? 0);
  const logs = curve.map(([, bits]) => Math.log10(Math.max(bits, 1e-4)));
  const [low, high] = [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs))];
  const xOf = (/** @type {number} */ episodes) => box.x + (episodes / last) * box.w;
  const yOf = (/** @type {number} */ log) => box.y + box.h - ((log - low) / (high - low || 1)) * box.h;
  for (let power = low; power <= high; power++) {
    surface.line([box.x, yOf(power), box.x + box.w, yOf(power)], { stroke: colours.grid });
    surface.text(power >= 0 ? String(10 ** power) : (10 ** power).toFixed(-power), box.x - 5, yOf(power) + 3.5, {
      ...look,
      anchor: "end",
    });
  }
  surface.line(
    curve.flatMap(([episodes], i) => [xOf(episodes), yOf(logs[i])]),
    { stroke: colours.read, width: 2 },
  );
  if (snapshot) {
    const x = xOf(snapshot.episodes);
    surface.line([x, box.y, x, box.y + box.h], { stroke: colours.wrong, width: 2 });
    const early = x < box.x + 0.3 * box.w; // the curve is high there, and low later
    surface.text(
      `shown: ${snapshot.episodes.toLocaleString("en")}`,
      x + (early ? 5 : -5),
      early ? box.y + box.h - 8 : box.y + 14,
      { anchor: early ? "start" : "end", fill: colours.wrong, weight: "600", size: 11 },
    );
  }
  outline(surface, box);
  for (const episodes of roundSteps(0, last, box.w / 80)) {
    surface.text(episodes.toLocaleString("en"), xOf(episodes), box.y + box.h + 13, { ...look, anchor: "middle" });
  }
  surface.text("training sequences seen", box.x + box.w / 2, box.y + box.h + 27, { ...look, anchor: "middle" });
  surface.text("bits per sequence", 12, box.y + box.h / 2, { ...look, turn: true, anchor: "middle" });
}

/** @param {View} view @param {SnapshotEntry[]} snapshots @param {SnapshotEntry | null} now */
export function describeTraining(view, snapshots, now) {
  if (!snapshots.length)
    return "There are no snapshots of this machine's training. In the zoo, copy-ntm-lstm has them.";
  const cost = outcome(view.task, view.baseScore);
  if (!now) return `The trained machine: ${cost}. Move the slider back to see it learn.`;
  return `After ${now.episodes.toLocaleString("en")} training sequences: ${cost} on the sequence above.`;
}
