// @ts-check
/**
 * Running the rival. An LSTM of the paper has twenty times the parameters of the machine beside it, so it runs after
 *   the
 * repaint, and the page stays quick.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./race.js").Measured} Measured
 */
import { runLSTM } from "../engine/lstm.js";
import { run } from "../engine/machine.js";
import { score } from "../engine/scores.js";
import { address } from "./model.js";

const SIZES_MEASURED = 16;

export class RaceTrack {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    /** @type {{sequence: object, id: string, score: import("../engine/api.js").Score} | null} */
    this.last = null;
    this.waiting = 0;
    /** @type {Measured[]} */
    this.measured = [];
    this.measuredFor = "";
    this.sweep = 0;
  }

  /** The rival that the state names, or the first. */
  entry() {
    const rivals = this.page.room.rivals();
    return rivals.find(({ id }) => id === this.page.state.rival) ?? rivals[0] ?? null;
  }

  /**
   * What the race panel shows; null if there is no rival.
   * @param {View} view
   * @param {Record<string, number>} sizes
   * @returns {import("./app.js").Race | null}
   */
  race(view, sizes) {
    const entry = this.entry();
    if (!entry) return null;
    const key = `${view.machine.id} ${entry.id} ${view.slots}`;
    if (this.measuredFor !== key) this.forget(key);
    const size = view.task.sizes[0];
    const done = this.last && this.last.sequence === view.sequence && this.last.id === entry.id;
    if (!done) this.later(view, entry.id);
    return {
      name: entry.title,
      score: done && this.last ? this.last.score : null,
      size,
      now: sizes[size.name],
      measured: this.measured,
    };
  }

  /** @param {string} key */
  forget(key) {
    this.measuredFor = key;
    this.measured = [];
    this.sweep++;
  }

  /** Run the rival after this repaint. @param {View} view @param {string} id */
  later(view, id) {
    clearTimeout(this.waiting);
    this.waiting = window.setTimeout(() => {
      const machine = this.page.room.rival(id, (error) => (error ? this.page.fail(error) : this.page.ask()));
      if (!machine) return;
      const { logits } = runLSTM(machine, view.sequence.inputs);
      this.last = { sequence: view.sequence, id, score: score(view.task, view.sequence, logits) };
      this.page.ask();
    }, 30);
  }

  /** Wrong answers of both at sizes up to the largest, one after the other without holding up the page. */
  async measure() {
    const { scene } = this.page;
    const entry = this.entry();
    if (!scene || !scene.race || !entry) return;
    const { view } = scene;
    const rival = await this.page.room.loadRival(entry.id);
    this.measured = [];
    const mine = ++this.sweep;
    const { least, most, name } = view.task.sizes[0];
    const sizes = Array.from({ length: SIZES_MEASURED }, (_, i) =>
      Math.max(least, Math.round((most * (i + 1)) / SIZES_MEASURED)),
    );
    for (const size of sizes) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      if (mine !== this.sweep) return;
      const content = view.task.draw(address(this.page.state), { ...view.content.sizes, [name]: size });
      const sequence = view.task.encode(content);
      const ntm = score(view.task, sequence, run(view.machine, sequence.inputs, { slots: view.slots }).logits);
      const lstm = score(view.task, sequence, runLSTM(rival, sequence.inputs).logits);
      this.measured = [...this.measured, { size, ntm: ntm.wrong / ntm.answers, lstm: lstm.wrong / lstm.answers }];
      this.page.ask();
    }
  }
}
