// @ts-check
/**
 * What is loaded: the source, its machines, the machine that is shown, its snapshots, and the rival of the race.
 *
 * @typedef {import("../engine/api.js").Source} Source
 * @typedef {import("../engine/api.js").MachineEntry} MachineEntry
 * @typedef {import("../engine/api.js").NTMMachine} NTMMachine
 * @typedef {import("../engine/api.js").LSTMMachine} LSTMMachine
 * @typedef {import("../engine/api.js").SnapshotEntry} SnapshotEntry
 */
import { EngineError } from "../engine/errors.js";
import { fileSource, joinSources, openSource } from "../engine/sources.js";
import { makeTask } from "../engine/tasks/index.js";

const DISTRIBUTION = ["density", "blanks", "scored"]; // options that change which sequences are drawn, not their form

/** What two tasks must have in common to take the same sequences. @param {import("../engine/api.js").Task} task */
function formOf({ spec, sizes }) {
  const free = [...DISTRIBUTION, ...sizes.map(({ name }) => name)];
  const options = Object.entries(spec.options).filter(([name]) => !free.includes(name));
  return JSON.stringify([spec.name, options.sort()]);
}

export class Room {
  constructor() {
    /** @type {Source | null} */
    this.source = null;
    /** @type {MachineEntry[]} */
    this.entries = [];
    /**
     * @type {{entry: MachineEntry, trained: NTMMachine, task: import("../engine/api.js").Task, snapshots:
     *   SnapshotEntry[]} | null}
     */
    this.shown = null;
    /** @type {Map<string, Promise<any>>} */
    this.loads = new Map();
    /** @type {Map<string, any>} */
    this.loaded = new Map();
  }

  async open() {
    this.source = await openSource();
    this.entries = await this.source.list();
  }

  /** The list again, where it may have changed: a run below the folder of `tapehead view`. */
  async refresh() {
    if (this.source?.live) this.entries = await this.source.list();
  }

  /** Add the machines of files. @param {File[]} files @returns {Promise<MachineEntry>} the first of them */
  async addFiles(files) {
    const added = await fileSource(files);
    const found = await added.list();
    if (!found.length)
      throw new EngineError("The files hold no machine: give a safetensors file with its config or card.");
    this.source = this.source ? joinSources(added, this.source) : added;
    this.loads.clear(); // a file may have the name of one that was loaded before
    this.loaded.clear();
    this.entries = await this.source.list();
    return this.entries.find(({ id, title }) => id === found[0].id && title === found[0].title) ?? found[0];
  }

  /** Machines that can be watched. */
  ntms() {
    return this.entries.filter(({ model }) => model === "ntm");
  }

  /** LSTMs of the same task, for the race. */
  rivals() {
    if (!this.shown) return [];
    const wanted = formOf(this.shown.task);
    return this.entries.filter(({ model, task }) => model === "lstm" && task && formOf(makeTask(task)) === wanted);
  }

  /**
   * An LSTM that was asked for by its id, or as the first machine, and a machine of its task, which it can race against.
   * @param {string | null} name
   */
  challenge(name) {
    const lstm = this.entries.find(({ id, model }) => model === "lstm" && id === (name ?? this.source?.first));
    if (!lstm || !lstm.task) return null;
    const wanted = formOf(makeTask(lstm.task));
    const ntm = this.ntms().find(({ task }) => task && formOf(makeTask(task)) === wanted);
    return ntm ? { lstm, ntm } : null;
  }

  /** An entry by id, title, or the last part of its id. @param {string | null} name */
  find(name) {
    const known = this.ntms();
    if (name === null) return known.find(({ id }) => id === this.source?.first) ?? known[0] ?? null;
    return (
      known.find(({ id }) => id === name) ??
      known.find(({ id, title }) => title === name || id.endsWith(`/${name}`)) ??
      null
    );
  }

  /** A machine with its task and snapshots, to be shown. @param {MachineEntry} entry */
  async prepare(entry) {
    const source = /** @type {Source} */ (this.source);
    const trained = await this.once(`machine ${entry.id}`, () => source.load(entry.id));
    if (!trained.task)
      throw new EngineError(
        `${entry.title} was trained on a task that this page does not have, so it has no input to show.`,
      );
    const task = makeTask(trained.task);
    const snapshots = entry.snapshots ? await this.once(`snapshots ${entry.id}`, () => source.snapshots(entry.id)) : [];
    return { entry, trained, task, snapshots };
  }

  /**
   * The machine of a snapshot, or the trained one; null while it loads.
   * @param {string | null} key
   * @param {() => void} ready
   * @returns {NTMMachine | null}
   */
  machine(key, ready) {
    if (!this.shown) return null;
    const { entry, trained } = this.shown;
    if (key === null) return trained;
    const name = `snapshot ${entry.id} ${key}`;
    if (this.loaded.has(name)) return this.loaded.get(name);
    this.once(name, () => /** @type {Source} */ (this.source).loadSnapshot(entry.id, key)).then(ready, ready);
    return null;
  }

  /** @param {string} id @param {(error?: Error) => void} ready @returns {LSTMMachine | null} */
  rival(id, ready) {
    const name = `machine ${id}`;
    if (this.loaded.has(name)) return this.loaded.get(name);
    this.loadRival(id).then(() => ready(), ready);
    return null;
  }

  /** @param {string} id @returns {Promise<LSTMMachine>} */
  loadRival(id) {
    return this.once(`machine ${id}`, () => /** @type {Source} */ (this.source).load(id));
  }

  /** Load something once; what failed can be tried again. @param {string} name @param {() => Promise<any>} load */
  once(name, load) {
    if (!this.loads.has(name)) {
      const promise = load().then((value) => {
        this.loaded.set(name, value);
        return value;
      });
      this.loads.set(name, promise);
      promise.catch(() => this.loads.delete(name));
    }
    return /** @type {Promise<any>} */ (this.loads.get(name));
  }
}
