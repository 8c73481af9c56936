// @ts-check
/**
 * Playing: the cursor moves on by a step in a fixed time, or the snapshots of training follow each other.
 */

const STEP = 140; // milliseconds
const SNAPSHOT = 450;

export class Player {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.timer = 0;
    /** @type {"steps" | "training" | null} */
    this.what = null;
  }

  /** @param {"steps" | "training"} what */
  toggle(what) {
    if (this.what === what) this.stop();
    else this.play(what);
  }

  /** @param {"steps" | "training"} what */
  play(what) {
    this.stop();
    this.what = what;
    const { page } = this;
    if (what === "steps" && page.scene && page.state.t >= page.scene.view.trace.steps - 1) page.update({ t: 0 });
    if (what === "training" && page.scene && page.state.snapshot === null)
      page.update({ snapshot: page.scene.snapshots[0]?.key ?? null });
    this.timer = window.setInterval(
      () => (what === "steps" ? this.step() : this.learn()),
      what === "steps" ? STEP : SNAPSHOT,
    );
    page.ask();
  }

  stop() {
    clearInterval(this.timer);
    this.what = null;
    this.page.ask();
  }

  step() {
    const { scene, state } = this.page;
    if (!scene || state.t >= scene.view.trace.steps - 1) this.stop();
    else this.page.update({ t: state.t + 1 });
  }

  learn() {
    const { scene, state } = this.page;
    const at = scene ? scene.snapshots.findIndex(({ key }) => key === state.snapshot) : -1;
    if (!scene || at < 0) this.stop();
    else this.page.update({ snapshot: scene.snapshots[at + 1]?.key ?? null });
  }
}
