// @ts-check
/**
 * Showing the state: figures that are seen are drawn, texts and controls follow. Nothing else changes the page.
 *
 * @typedef {import("./app.js").Page} Page
 * @typedef {import("./app.js").Scene} Scene
 */
import { byId, choices, el, fill, plural, say, setInput, show } from "./dom.js";
import { FIGURES } from "./figures.js";
import { editCount, fillEdits, refreshForm } from "./interventions.js";
import { describeLineage, picked } from "./lineage.js";
import { fillEquations, slotShown } from "./microscope.js";
import { sizesOf } from "./model.js";
import { fillProgram } from "./program.js";
import { describeRace } from "./race.js";
import { HEADS, PANELS } from "./state.js";
import { CanvasSurface } from "./surface.js";
import { CHAPTERS } from "./tour.js";
import { describeTraining } from "./training.js";
import { outcome } from "./words.js";

const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));
const select = (/** @type {string} */ id) => /** @type {HTMLSelectElement} */ (byId(id));
const GROUPS = { zoo: "Zoo", run: "Runs", file: "Files" };

/** What does not need a machine: theme, lock, tour, the list of machines. @param {Page} page */
export function renderSetup(page) {
  const { state, room } = page;
  document.body.classList.toggle("locked", state.lock);
  say(byId("theme"), `Theme: ${state.theme}`);
  say(byId("lock"), state.lock ? "Unlock controls" : "Lock controls");
  byId("lock").setAttribute("aria-pressed", String(state.lock));
  const machines = room.ntms().map(({ id, title, group }) => ({ value: id, text: title, group: GROUPS[group] }));
  choices(select("machine"), machines, room.shown?.entry.id ?? "");
  renderTour(page);
}

/** @param {Page} page */
function renderTour(page) {
  const { state, room } = page;
  const chapter = CHAPTERS[state.chapter - 1];
  show(byId("tour"), Boolean(chapter));
  byId("tour-open").setAttribute("aria-expanded", String(Boolean(chapter)));
  if (!chapter) return;
  const there = room.find(chapter.machine);
  const key = `${state.chapter} ${there?.id}`;
  input("tour-back").disabled = state.chapter === 1;
  input("tour-next").disabled = state.chapter === CHAPTERS.length;
  if (byId("tour").dataset.key === key) return;
  byId("tour").dataset.key = key;
  say(byId("tour-count"), `Tour, chapter ${state.chapter} of ${CHAPTERS.length}`);
  say(byId("tour-title"), chapter.title);
  const missing = there
    ? []
    : [
        el("p", {
          class: "finding",
          text: `This page does not hold ${chapter.machine}. "tapehead view" shows the whole zoo.`,
        }),
      ];
  fill(byId("tour-body"), ...chapter.text.map((text) => el("p", { text })), ...missing);
  fill(
    byId("tour-tries"),
    ...(there ? chapter.tries : []).map(({ text, patch, play }) =>
      el("button", {
        type: "button",
        text,
        on: {
          click: () => {
            page.player.stop();
            page.update({ ...patch });
            if (play) page.player.play("steps");
          },
        },
      }),
    ),
  );
  fill(
    byId("tour-chapters"),
    ...CHAPTERS.map(({ title }, i) =>
      el(
        "li",
        {},
        el("button", {
          type: "button",
          text: String(i + 1),
          "aria-label": `Chapter ${i + 1}: ${title}`,
          title,
          "aria-current": i + 1 === state.chapter ? "step" : null,
          on: { click: () => page.openChapter(i + 1) },
        }),
      ),
    ),
  );
}

/** @param {Page} page @param {Scene} scene */
export function renderPage(page, scene) {
  renderFacts(page, scene);
  renderTransport(page, scene);
  renderSizes(scene);
  renderHeads(scene);
  renderPaint(scene);
  renderPanels(page, scene);
  drawFigures(scene);
  byId("room").dataset.drawn = String(Number(byId("room").dataset.drawn ?? 0) + 1);
}

/** Figures outside the window, which are drawn a frame later than those inside. @type {Set<Element>} */
const away = new Set();
const watcher = new IntersectionObserver(
  (entries) => entries.forEach(({ target, isIntersecting }) => away[isIntersecting ? "delete" : "add"](target)),
  { rootMargin: "100px" },
);
for (const { id } of FIGURES) watcher.observe(byId(id));
let later = 0;
/** What is drawn then, of the newest scene. @type {() => void} */
let drawAway = () => {};

/** @param {Scene} scene */
function drawFigures(scene) {
  /** @type {typeof FIGURES} */
  const waiting = [];
  for (const figure of FIGURES) {
    const canvas = byId(figure.id);
    const seen = figure.seen(scene);
    if (canvas.hidden === seen) show(canvas, seen);
    if (!seen) continue;
    if (away.has(canvas)) waiting.push(figure);
    else drawFigure(figure, scene);
  }
  drawAway = () => waiting.forEach((figure) => drawFigure(figure, scene));
  if (waiting.length && !later) {
    later = requestAnimationFrame(() => {
      later = 0;
      drawAway();
    });
  }
}

/** @param {import("./figures.js").Figure} figure @param {Scene} scene */
function drawFigure(figure, scene) {
  const canvas = /** @type {HTMLCanvasElement} */ (byId(figure.id));
  const width = canvas.clientWidth;
  if (!width) return;
  figure.draw(new CanvasSurface(canvas, width, figure.height(scene, width)), scene, width);
  const text = figure.describe(scene);
  if (canvas.getAttribute("aria-label") !== text) canvas.setAttribute("aria-label", text);
}

/** @param {Page} page @param {Scene} scene */
function renderFacts(page, { view, state, snapshot }) {
  const { score, task, machine, trace } = view;
  const { shown, source } = page.room;
  document.title = `${machine.title} · The tape room`;
  say(byId("headline"), `${machine.title}: ${shown ? shown.entry.detail : ""}`);
  const after = snapshot ? `After ${snapshot.episodes.toLocaleString("en")} training sequences: ` : "";
  const right = `${after ? "all" : "All"} ${score.answers} answers are right (${score.bits.toFixed(1)} bits)`;
  say(byId("verdict"), after + (!task.bayes && score.wrong === 0 ? right : outcome(task, score)));
  const past = task.sizes.filter(({ name, training }) => view.content.sizes[name] > training[1]);
  const sizes = past.map(
    ({ label, name, training }) =>
      `${label} ${view.content.sizes[name]} is past the training range (${training[0]} to ${training[1]})`,
  );
  const painted = state.content !== null ? ["the input is painted"] : [];
  say(
    byId("past"),
    [...sizes, ...painted, ...(view.edited ? [`${plural(state.edits.length, "intervention")} in force`] : [])].join(
      "; ",
    ),
  );
  say(
    byId("score-note"),
    `${trace.steps} steps on a tape of ${view.slots} slots of ${trace.memory.shape[2]} numbers. ` +
      `Drag over the input to paint it, click an output for its lineage.`,
  );
  say(byId("tape-note"), state.lock ? "" : "Point at a cell to read it; click it to change it (Interventions).");
  const kinds = {
    embedded: "This page holds its machine; nothing is loaded from anywhere.",
    static: "Machines are loaded from this site.",
    server: "Machines are loaded from tapehead view.",
    files: "Machines are loaded from files.",
  };
  say(
    byId("origin"),
    `${source ? (kinds[source.kind] ?? "") : ""} Weights: ${machine.precision}; ` +
      `${machine.parameterCount.toLocaleString("en")} parameters. Everything is computed in this page.`,
  );
}

/** @param {Page} page @param {Scene} scene */
function renderTransport(page, { view, state }) {
  setInput(input("time"), { value: state.t, max: view.trace.steps - 1 });
  const phase = view.answer < 0 ? "" : view.sequence.mask[state.t] ? ", answer" : ", input";
  say(byId("clock"), `step ${state.t} of ${view.trace.steps - 1}${view.task.bayes ? "" : phase}`);
  input("time").setAttribute("aria-valuetext", byId("clock").textContent ?? "");
  const playing = page.player.what === "steps";
  say(byId("play"), playing ? "Pause" : "Play");
  byId("play").setAttribute("aria-pressed", String(playing));
}

/** A slider for every size of the task. @param {Scene} scene */
function renderSizes({ view, state }) {
  const holder = byId("sizes");
  const key = view.task.sizes.map(({ name, most }) => name + most).join();
  if (holder.dataset.key !== key) {
    holder.dataset.key = key;
    fill(
      holder,
      ...view.task.sizes.map(({ name, label, least, most, training }) => {
        const range = training[0] === training[1] ? String(training[0]) : `${training[0]} to ${training[1]}`;
        return el(
          "label",
          { class: "size", title: `In training: ${range}` },
          label,
          el("input", { type: "range", id: `size-${name}`, min: least, max: most, step: 1, "data-size": name }),
          el("output", { id: `size-${name}-value`, for: `size-${name}` }),
        );
      }),
    );
  }
  const sizes = sizesOf(view.task, view.content.sizes);
  for (const { name } of view.task.sizes) {
    setInput(input(`size-${name}`), { value: sizes[name] });
    say(byId(`size-${name}-value`), String(sizes[name]));
  }
  setInput(input("slots"), { value: view.slots });
  setInput(input("seed"), { value: state.seed });
  input("unpaint").disabled = state.content === null;
}

/** @param {Scene} scene */
function renderHeads({ view, state }) {
  for (const kind of HEADS) {
    const count = view.trace[kind].weightings.shape[1];
    choices(
      select(`${kind}-head`),
      Array.from({ length: count }, (_, i) => ({ value: String(i), text: `${i + 1} of ${count}` })),
      String(state[kind]),
    );
  }
  select("span").value = state.span;
}

/** Buttons and fields for the input at the cursor: painting by keyboard. @param {Scene} scene */
function renderPaint({ view, state }) {
  const cells = view.task.inputChannels
    .map((channel, i) => ({ channel, i, cell: view.task.place(view.content, state.t, i) }))
    .filter(({ cell }) => cell !== null);
  const holder = byId("paint-bits");
  const key = cells.map(({ channel, i, cell }) => `${i}${channel.name}${cell?.kind}`).join();
  if (holder.dataset.key !== key) {
    holder.dataset.key = key;
    fill(
      holder,
      ...cells.map(({ channel, i, cell }) =>
        cell?.kind === "number"
          ? el(
              "label",
              {},
              channel.name,
              el("input", { type: "number", step: "any", "data-channel": i, id: `paint-${i}` }),
            )
          : el("button", { type: "button", "data-channel": i, id: `paint-${i}` }),
      ),
    );
    if (!cells.length)
      fill(
        holder,
        el("span", { class: "note", text: "Nothing to paint at this step: it has a delimiter, or no input." }),
      );
  }
  for (const { channel, i, cell } of cells) {
    const control = byId(`paint-${i}`);
    if (!cell) continue;
    if (cell.kind === "number")
      setInput(/** @type {HTMLInputElement} */ (control), {
        value: Number(cell.value.toFixed(4)),
        min: cell.least,
        max: cell.most,
      });
    else {
      say(control, String(Math.round(cell.value)));
      control.setAttribute("aria-label", `Input ${channel.name} at this step`);
      control.setAttribute("aria-pressed", String(cell.value > 0.5));
    }
  }
}

/** @param {Page} page @param {Scene} scene */
function renderPanels(page, scene) {
  const { state, view } = scene;
  for (const name of PANELS) {
    const [tab, seen] = [byId(`tab-${name}`), state.panel === name];
    tab.setAttribute("aria-selected", String(seen));
    tab.tabIndex = seen ? 0 : -1;
    show(byId(`panel-${name}`), seen);
  }
  const fills = {
    microscope: () => renderMicroscope(scene),
    lineage: () => {
      setInput(input("pick"), { value: picked(view, state), max: view.trace.steps - 1 });
      say(byId("lineage-text"), describeLineage(view, state));
    },
    interventions: () => {
      refreshForm(view);
      fillEdits(byId("edits"), state, (i) =>
        page.update({ edits: page.state.edits.filter((_, place) => place !== i) }),
      );
      say(byId("edit-count"), editCount(view));
    },
    program: () => fillProgram(view, state),
    training: () => renderTraining(page, scene),
    race: () => renderRace(page, scene),
  };
  fills[state.panel]();
}

/** @param {Scene} scene */
function renderMicroscope({ view, state }) {
  input(`kind-${state.kind}`).checked = true;
  setInput(input("slot"), { value: slotShown(view, state), max: view.slots - 1 });
  input("slot-auto").disabled = state.slot === null;
  fillEquations(byId("equations"), view, state);
}

/** @param {Page} page @param {Scene} scene */
function renderTraining(page, { view, snapshots, snapshot }) {
  say(byId("training-text"), describeTraining(view, snapshots, snapshot));
  show(byId("training-controls"), snapshots.length > 0);
  const at = snapshot ? snapshots.indexOf(snapshot) : snapshots.length;
  setInput(input("snapshot"), { value: at, max: snapshots.length });
  input("snapshot").setAttribute("aria-valuetext", snapshot ? `after ${snapshot.episodes} sequences` : "trained");
  const playing = page.player.what === "training";
  say(byId("training-play"), playing ? "Pause" : "Play training");
  byId("training-play").setAttribute("aria-pressed", String(playing));
}

/** @param {Page} page @param {Scene} scene */
function renderRace(page, { view, race }) {
  show(byId("race-controls"), race !== null);
  if (!race) {
    say(
      byId("race-text"),
      `There is no LSTM for the ${view.task.title} task here. ` +
        (page.room.source?.kind === "embedded" && view.task.name === "copy"
          ? `"tapehead view ${view.machine.title}" has one, from the zoo.`
          : `Train one with "tapehead train ${view.task.name} --model lstm", and "tapehead view" offers the race.`),
    );
    return;
  }
  const rivals = page.room.rivals().map(({ id, title }) => ({ value: id, text: title }));
  choices(select("rival"), rivals, page.track.entry()?.id ?? "");
  say(byId("race-size-name"), race.size.label);
  setInput(input("race-size"), { value: race.now, min: race.size.least, max: race.size.most });
  say(byId("race-size-value"), String(race.now));
  say(byId("race-text"), describeRace(view, race.score, race.name, race.size, race.now));
}
