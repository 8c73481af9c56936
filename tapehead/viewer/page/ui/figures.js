// @ts-check
/**
 * The figures of the page: which are seen, how tall they are, how they are drawn. The page and saved pictures both
 *   use this list.
 *
 * @typedef {import("./app.js").Scene} Scene
 * @typedef {{id: string, title: string, seen: (scene: Scene) => boolean, height: (scene: Scene, width: number) =>
 *   number,
 * draw: (surface: import("./surface.js").Surface, scene: Scene, width: number) => void, describe: (scene: Scene) =>
 *   string}} Figure
 */
import { drawScore, layoutScore } from "./score.js";
import { describeScore } from "./score_words.js";
import { describeTape, drawTape, layoutTape } from "./tape.js";
import { describeMicroscope, drawMicroscope, microscopeHeight } from "./microscope.js";
import { arcsHeight, describeLineage, drawArcs, drawLineageMap, mapHeight } from "./lineage.js";
import { drawEditChart, editChartHeight, editCount } from "./interventions.js";
import { curveHeight, describeTraining, drawCurve } from "./training.js";
import { describeRace, drawRace, drawRaceChart, raceChartHeight, raceHeight } from "./race.js";

const onPanel =
  (/** @type {string} */ name) =>
  (/** @type {Scene} */ { state }) =>
    state.panel === name;

/** @type {Figure[]} */
export const FIGURES = [
  {
    id: "score",
    title: "Score",
    seen: () => true,
    height: ({ view, state }, width) => layoutScore(view, state, width).height,
    draw: (surface, { view, state }, width) => drawScore(surface, view, state, width),
    describe: ({ view, state }) => describeScore(view, state),
  },
  {
    id: "tape",
    title: "Tape",
    seen: () => true,
    height: ({ view, state }, width) => layoutTape(view, state, width).height,
    draw: (surface, { view, state }, width) => drawTape(surface, view, state, width),
    describe: ({ view, state }) => describeTape(view, state),
  },
  {
    id: "microscope",
    title: "Addressing",
    seen: onPanel("microscope"),
    height: (_, width) => microscopeHeight(width),
    draw: (surface, { view, state }, width) => drawMicroscope(surface, view, state, width),
    describe: ({ view, state }) => describeMicroscope(view, state),
  },
  {
    id: "arcs",
    title: "Lineage",
    seen: onPanel("lineage"),
    height: arcsHeight,
    draw: (surface, { view, state }, width) => drawArcs(surface, view, state, width),
    describe: ({ view, state }) => describeLineage(view, state),
  },
  {
    id: "lineage-map",
    title: "Lineage map",
    seen: onPanel("lineage"),
    height: (_, width) => mapHeight(width),
    draw: (surface, { view, state }, width) => drawLineageMap(surface, view, state, width),
    describe: ({ view, state }) => `Map of read steps by write steps. ${describeLineage(view, state)}`,
  },
  {
    id: "edit-chart",
    title: "Interventions",
    seen: onPanel("interventions"),
    height: editChartHeight,
    draw: (surface, { view, state }, width) => drawEditChart(surface, view, state, width),
    describe: ({ view }) => `Wrong bits by step. ${editCount(view)}`,
  },
  {
    id: "curve",
    title: "Training",
    seen: onPanel("training"),
    height: curveHeight,
    draw: (surface, { view, snapshot }, width) => drawCurve(surface, view, snapshot, width),
    describe: ({ view, snapshots, snapshot }) =>
      `Learning curve: bits per sequence by training sequences. ${describeTraining(view, snapshots, snapshot)}`,
  },
  {
    id: "race",
    title: "Race",
    seen: ({ state, race }) => state.panel === "race" && race !== null,
    height: ({ view }) => raceHeight(view),
    draw: (surface, { view, race, state }, width) =>
      race && drawRace(surface, view, race.score, race.name, state.t, width),
    describe: ({ view, race }) => (race ? describeRace(view, race.score, race.name, race.size, race.now) : ""),
  },
  {
    id: "race-chart",
    title: "Race by size",
    seen: ({ state, race }) => state.panel === "race" && race !== null && race.measured.length > 0,
    height: raceChartHeight,
    draw: (surface, { race }, width) => race && drawRaceChart(surface, race.measured, race.size, race.now, width),
    describe: ({ race }) =>
      race
        ? race.measured
            .map(
              ({ size, ntm, lstm }) =>
                `${race.size.name} ${size}: NTM ${Math.round(100 * ntm)} %, LSTM ${Math.round(100 * lstm)} %`,
            )
            .join("; ")
        : "",
  },
];
