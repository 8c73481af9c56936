// @ts-check
/**
 * The race: the machine against an LSTM on the same input, at sizes inside and past the training range.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("../engine/api.js").Score} Score
 * @typedef {{size: number, ntm: number, lstm: number}} Measured   shares of wrong answers
 */
import { stepWindow } from "./model.js";
import { palette } from "./palette.js";
import { heatMap, outline, roundSteps, timeAxis, TITLE, titleLine, yName } from "./plots.js";
import { marked, markWord, outcome } from "./words.js";

const LEFT = 50;

/** @param {View} view */
export function raceHeight(view) {
  return 3 * (bandHeight(view) + TITLE + 8) + 34;
}

/** @param {View} view */
function bandHeight(view) {
  return Math.max(18, view.task.outputSize * 9);
}

/**
 * Target and both outputs, from the first answer on. @param {import("./surface.js").Surface} surface @param {View} view
 * @param {Score | null} rival @param {string} name @param {number} t @param {number} width
 */
export function drawRace(surface, view, rival, name, t, width) {
  const first = Math.max(0, view.answer);
  const plot = width - LEFT - 10;
  const shown = stepWindow(view.trace.steps - first, Math.max(0, t - first), Math.max(20, Math.floor(plot / 3)));
  const [from, end] = [first + shown.first, first + shown.end];
  const size = view.task.outputSize;
  let y = 0;
  /** @type {(title: string, data: Float64Array, errors: Uint8Array | null) => import("./plots.js").Box} */
  const band = (title, data, errors) => {
    y += TITLE;
    const box = { x: LEFT, y, w: plot, h: bandHeight(view) };
    y += box.h + 8;
    drawBand(surface, box, { from, end, size, data, errors });
    const mark = { text: markWord(view.task), colour: palette().wrong, shape: /** @type {const} */ ("frame") };
    titleLine(surface, box, title, { marks: errors ? [mark] : [] });
    if (size > 1) yName(surface, box, "channel");
    return box;
  };
  const output = (/** @type {string} */ who, /** @type {Score} */ score) =>
    band(`${who}: ${outcome(view.task, score)}`, score.probabilities.data, marked(view.task, view.sequence, score));
  band("Target", view.sequence.targets.data, null);
  let box = output("NTM", view.score);
  if (rival) box = output("LSTM", rival);
  else surface.text(`${name} is running …`, LEFT, y + 30, { fill: palette().muted, size: 12 });
  timeAxis(surface, box, from, end, "time step, from the first answer on");
}

/**
 * @param {import("./surface.js").Surface} surface @param {import("./plots.js").Box} box
 * @param {{from: number, end: number, size: number, data: Float64Array, errors: Uint8Array | null}} given
 */
function drawBand(surface, box, { from, end, size, data, errors }) {
  const { ramps, wrong } = palette();
  heatMap(surface, box, {
    columns: end - from,
    rows: size,
    ramp: ramps.ink,
    value: (column, row) => data[(from + column) * size + row],
  });
  outline(surface, box);
  if (!errors) return;
  const [w, h] = [box.w / (end - from), box.h / size];
  for (let t = from; t < end; t++) {
    for (let bit = 0; bit < size; bit++) {
      if (errors[t * size + bit])
        surface.frame(box.x + (t - from) * w + 0.5, box.y + bit * h + 0.5, Math.max(1, w - 1), Math.max(1, h - 1), {
          stroke: wrong,
          width: w < 5 ? 1 : 1.75,
        });
    }
  }
}

export const raceChartHeight = () => 200;

/**
 * Share of wrong answers by size. @param {import("./surface.js").Surface} surface @param {Measured[]} measured
 * @param {{name: string, training: [number, number], most: number}} size @param {number} now @param {number} width
 */
export function drawRaceChart(surface, measured, size, now, width) {
  const colours = palette();
  const box = { x: LEFT, y: 26, w: width - LEFT - 12, h: 132 };
  const xOf = (/** @type {number} */ x) => box.x + (x / size.most) * box.w;
  const yOf = (/** @type {number} */ share) => box.y + box.h * (1 - Math.min(1, share / 0.6));
  surface.rect(box.x, box.y, box.w, box.h, colours.paper);
  surface.rect(xOf(0), box.y, xOf(size.training[1]) - xOf(0), box.h, colours.answer);
  surface.text("training sizes", xOf(0) + 4, box.y + 12, { fill: colours.muted, size: 10 });
  titleLine(surface, box, "Wrong answers, share by size", {
    marks: [
      { text: "NTM", colour: colours.write },
      { text: "LSTM", colour: colours.read, dash: [5, 3] },
    ],
  });
  const line = (/** @type {"ntm" | "lstm"} */ key) => measured.flatMap((point) => [xOf(point.size), yOf(point[key])]);
  surface.line(line("ntm"), { stroke: colours.write, width: 2.25 });
  surface.line(line("lstm"), { stroke: colours.read, width: 2.25, dash: [5, 3] });
  for (const point of measured) {
    surface.area(
      [
        xOf(point.size) - 4,
        yOf(point.ntm) + 3,
        xOf(point.size),
        yOf(point.ntm) - 5,
        xOf(point.size) + 4,
        yOf(point.ntm) + 3,
      ],
      colours.write,
    );
    surface.disc(xOf(point.size), yOf(point.lstm), 3, colours.read);
  }
  surface.line([xOf(now), box.y, xOf(now), box.y + box.h], { stroke: colours.cursor });
  outline(surface, box);
  for (const share of [0, 0.2, 0.4, 0.6])
    surface.text(`${Math.round(100 * share)} %`, box.x - 4, yOf(share) + 3.5, {
      anchor: "end",
      fill: colours.muted,
      size: 10,
    });
  for (const x of roundSteps(0, size.most, box.w / 50))
    surface.text(String(x), xOf(x), box.y + box.h + 13, { anchor: "middle", fill: colours.muted, size: 10 });
  surface.text(size.name, box.x + box.w / 2, box.y + box.h + 27, { anchor: "middle", fill: colours.muted, size: 10 });
}

/**
 * @param {View} view
 * @param {Score | null} rival
 * @param {string} name
 * @param {{label: string, training: [number, number]}} size
 * @param {number} now
 */
export function describeRace(view, rival, name, size, now) {
  if (!rival) return `${name} is running on the same input …`;
  const past =
    now > size.training[1]
      ? `past the training range (${size.training[0]} to ${size.training[1]})`
      : "inside the training range";
  const [mine, its] = [view.score, rival].map((score) => outcome(view.task, score));
  return `${size.label} ${now}, ${past}. NTM: ${mine}. ${name}: ${its}.`;
}
