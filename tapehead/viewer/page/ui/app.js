// @ts-check
/**
 * The page: one state, one way to change it (`update`), one way to show it (`render`).
 *
 * @typedef {import("./state.js").State} State
 * @typedef {import("./model.js").View} View
 * @typedef {{name: string, score: import("../engine/api.js").Score | null, size: import("../engine/api.js").SizeInfo,
 *   now: number,
 *   measured: import("./race.js").Measured[]}} Race
 * @typedef {{state: State, view: View, snapshots: import("../engine/api.js").SnapshotEntry[],
 *   snapshot: import("../engine/api.js").SnapshotEntry | null, race: Race | null}} Scene
 */
import { wireControls } from "./controls.js";
import { byId, say, show } from "./dom.js";
import { wireFigures } from "./figure_events.js";
import { wireKeys } from "./keys.js";
import { derive, lineageOf, sizesOf } from "./model.js";
import { forgetPalette } from "./palette.js";
import { Player } from "./player.js";
import { RaceTrack } from "./race_track.js";
import { renderPage, renderSetup } from "./render.js";
import { Room } from "./room.js";
import { fromHash, initial, toHash } from "./state.js";
import { CHAPTERS, chapterState } from "./tour.js";

const URL_DELAY = 250; // milliseconds; browsers limit how often a page may change its address

export class Page {
  constructor() {
    /** @type {State} */
    this.state = initial();
    this.room = new Room();
    /** @type {Scene | null} */
    this.scene = null;
    this.loading = false;
    this.fresh = false; // opened without a state: the cursor starts where there is something to see
    this.frame = 0;
    this.timer = 0;
    this.address = location.hash; // as this page wrote or read it
    this.player = new Player(this);
    this.track = new RaceTrack(this);
  }

  async start() {
    const { state, problems } = fromHash(location.hash);
    this.state = state;
    this.fresh = location.hash.length < 2;
    this.applyTheme();
    wireControls(this);
    wireFigures(this);
    wireKeys(this);
    window.addEventListener("hashchange", () => this.follow());
    window.addEventListener("resize", () => this.ask());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.applyTheme();
      this.ask();
    });
    try {
      await this.room.open();
    } catch (error) {
      this.fail(error);
      return;
    }
    await this.load();
    if (problems.length) this.notice([byId("notice").textContent, ...problems].filter(Boolean).join(" "));
  }

  /** Change the state and show it. @param {Partial<State>} patch @param {{push?: boolean}} [how] */
  update(patch, { push = false } = {}) {
    const before = this.state;
    this.state = { ...before, ...patch };
    if (this.state.theme !== before.theme) this.applyTheme();
    if (!("t" in patch) || Object.keys(patch).length > 1) this.notice("");
    if (push) this.writeHash(true);
    else this.remember();
    if (this.state.machine !== before.machine) this.load();
    else this.ask();
  }

  /** Another machine: what belongs to the old one goes. @param {string} id */
  chooseMachine(id) {
    const { theme, lock, panel, span } = this.state;
    this.update({ ...initial(), theme, lock, panel, span, machine: id });
  }

  /** A chapter of the tour, or none. @param {number} number */
  openChapter(number) {
    this.player.stop();
    if (number < 1 || number > CHAPTERS.length) {
      this.update({ chapter: 0 });
      return;
    }
    const { theme, lock } = this.state;
    const wanted = chapterState(number, initial());
    const entry = this.room.find(CHAPTERS[number - 1].machine);
    if (entry) this.update({ ...wanted, machine: entry.id, theme, lock }, { push: true });
    else this.update({ chapter: number, edits: [] }, { push: true });
  }

  /** Load the machine of the state, and show it. */
  async load() {
    const race = this.room.challenge(this.state.machine);
    if (race) this.state = { ...this.state, machine: race.ntm.id, panel: "race", rival: race.lstm.id };
    const asked = this.state.machine;
    this.loading = true;
    try {
      const entry = this.room.find(asked) ?? (asked === null ? null : this.room.find(null));
      if (!entry)
        throw new Error("There is no machine here: drop a safetensors file with its config or card onto the page.");
      const missing = asked !== null && this.room.find(asked) === null;
      const shown = await this.room.prepare(entry);
      if (this.state.machine !== asked) return; // another one was chosen while this one was loading
      this.loading = false;
      this.room.shown = shown;
      this.state = { ...this.state, machine: entry.id };
      show(byId("loading"), false);
      show(byId("room"), true);
      if (missing) this.notice(`There is no machine "${asked.slice(0, 60)}" here; ${entry.title} is shown.`);
      if (race)
        this.notice(`${race.lstm.title} is an LSTM, which has no tape to show: it races against ${entry.title}.`);
      this.ask();
    } catch (error) {
      if (this.state.machine !== asked) return;
      this.loading = false;
      if (this.room.shown) this.state = { ...this.state, machine: this.room.shown.entry.id };
      this.fail(error);
    }
  }

  /** Machines of files. @param {File[]} files */
  async addFiles(files) {
    try {
      const entry = await this.room.addFiles(files);
      this.state = { ...this.state, machine: null }; // it may have the name of the one that is shown
      this.chooseMachine(entry.id);
    } catch (error) {
      this.fail(error);
    }
  }

  /**
   * Ask for a repaint in the next frame; many changes are one repaint. The machine runs at once for the first of them,
   * while the browser waits for the frame.
   */
  ask() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
    queueMicrotask(() => this.runAhead());
  }

  /** What the next repaint needs first. A state that the machine refuses is refused again there. */
  runAhead() {
    const { shown } = this.room;
    const machine = shown && !this.loading && this.room.machine(this.state.snapshot, () => this.ask());
    if (!machine || !this.frame) return;
    this.fit(machine);
    try {
      const view = derive(this.state, machine, shown.task);
      if (this.state.panel === "lineage") lineageOf(machine, view.trace, this.state.read);
    } catch {
      // `render` says why
    }
  }

  render() {
    renderSetup(this);
    const { shown } = this.room;
    if (!shown || this.loading) return; // the state belongs to the machine that comes
    const machine = this.room.machine(this.state.snapshot, () => this.ask());
    if (!machine) {
      if (!shown.snapshots.some(({ key }) => key === this.state.snapshot)) this.update({ snapshot: null });
      return;
    }
    this.fit(machine);
    try {
      this.scene = this.compose(machine);
    } catch (error) {
      this.recover(error);
      return;
    }
    renderPage(this, this.scene);
  }

  /** Bring the state into the limits of the machine and task. @param {import("../engine/api.js").NTMMachine} machine */
  fit(machine) {
    const { state } = this;
    const { config } = machine;
    const least = 2 * config.shift_range + 1;
    state.write = Math.min(state.write, config.write_heads - 1);
    state.read = Math.min(state.read, config.read_heads - 1);
    if (state.slots !== null) state.slots = Math.max(least, Math.min(1024, state.slots));
  }

  /** @param {import("../engine/api.js").NTMMachine} machine @returns {Scene} */
  compose(machine) {
    const { shown } = this.room;
    const { task, snapshots } = /** @type {NonNullable<typeof shown>} */ (shown);
    const view = derive(this.state, machine, task);
    if (this.fresh) this.state.t = Math.max(0, view.answer) + Math.floor((view.trace.steps - view.answer) / 3);
    this.fresh = false;
    this.state.t = Math.min(this.state.t, view.trace.steps - 1);
    const snapshot = snapshots.find(({ key }) => key === this.state.snapshot) ?? null;
    const race = this.state.panel === "race" ? this.track.race(view, sizesOf(task, view.content.sizes)) : null;
    return { state: this.state, view, snapshots, snapshot, race };
  }

  /** A state that the machine refuses: leave out what was changed by hand, and say why. @param {unknown} error */
  recover(error) {
    const { edits, content } = this.state;
    if (!edits.length && content === null) {
      this.fail(error);
      return;
    }
    this.state = { ...this.state, edits: [], content: null };
    this.remember();
    this.render();
    this.fail(error);
  }

  /** @param {unknown} error */
  fail(error) {
    show(byId("loading"), this.room.shown === null);
    if (this.room.shown === null) say(byId("loading"), "No machine is loaded.");
    this.notice(error instanceof Error ? error.message : String(error));
  }

  /** A sentence at the top of the page. @param {string} text */
  notice(text) {
    say(byId("notice"), text);
    show(byId("notice"), text !== "");
  }

  /** Put the state into the address, soon. */
  remember() {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.writeHash(false), URL_DELAY);
  }

  /** @param {boolean} push */
  writeHash(push) {
    clearTimeout(this.timer);
    if (location.hash !== this.address) return; // another link was followed; `follow` is about to show it
    const hash = toHash(this.state);
    if (hash === location.hash || (hash === "#" && location.hash === "")) return;
    if (push) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    this.address = location.hash;
  }

  /** The address was changed by the user or by the back button. */
  follow() {
    clearTimeout(this.timer);
    this.address = location.hash;
    const { state, problems } = fromHash(location.hash);
    this.player.stop();
    this.update(state);
    clearTimeout(this.timer);
    if (problems.length) this.notice(problems.join(" "));
  }

  applyTheme() {
    const { theme } = this.state;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    forgetPalette();
  }
}

new Page().start();
