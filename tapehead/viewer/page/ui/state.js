// @ts-check
/**
 * The state of the page, and its text in the URL. Everything that decides what is seen is here, so a link shows the
 *   same.
 *
 * @typedef {import("../engine/api.js").Intervention} Intervention
 * @typedef {"microscope" | "lineage" | "interventions" | "program" | "training" | "race"} Panel
 * @typedef {object} State
 * @property {string | null} machine     id in the source; null: the source's first
 * @property {Record<string, number>} sizes   of the task, those that differ from the first ones
 * @property {number | null} slots       of the tape; null: as trained
 * @property {number} seed               of the sequence
 * @property {string | null} content     a painted sequence as text; null: the one of the seed
 * @property {number} t                  the time step at the cursor
 * @property {Panel} panel               the view below the score
 * @property {number} write              the write head that is shown
 * @property {number} read               the read head that is shown
 * @property {"write" | "read"} kind     the head under the microscope
 * @property {number | null} slot        of the equations; null: the strongest
 * @property {number | null} pick        the step whose lineage is shown; null: the one at the cursor
 * @property {Intervention[]} edits
 * @property {"used" | "all"} span       the slots that are shown
 * @property {string | null} snapshot    key of a training snapshot; null: the trained machine
 * @property {string | null} rival       id of the LSTM in the race
 * @property {"system" | "light" | "dark"} theme
 * @property {number} chapter            of the tour, from 1; 0: no tour
 * @property {boolean} lock
 */
import { decodeInterventions, encodeInterventions } from "../engine/interventions.js";

export const PANELS = /** @type {Panel[]} */ ([
  "microscope",
  "lineage",
  "interventions",
  "program",
  "training",
  "race",
]);
export const HEADS = /** @type {const} */ (["write", "read"]);
export const THEMES = /** @type {const} */ (["system", "light", "dark"]);

/** @returns {State} */
export function initial() {
  return {
    machine: null,
    sizes: {},
    slots: null,
    seed: 0,
    content: null,
    t: 0,
    panel: "microscope",
    write: 0,
    read: 0,
    kind: "write",
    slot: null,
    pick: null,
    edits: [],
    span: "used",
    snapshot: null,
    rival: null,
    theme: "system",
    chapter: 0,
    lock: false,
  };
}

const whole = (/** @type {number} */ least) => (/** @type {string} */ text) => {
  const value = Number(text);
  return Number.isInteger(value) && value >= least && value < 2 ** 32 ? value : undefined;
};
const oneOf = (/** @type {readonly string[]} */ names) => (/** @type {string} */ text) =>
  names.includes(text) ? text : undefined;
const text = (/** @type {string} */ given) => given;

/** How each field is read; the name in the URL is the field's. @type {Record<string, (text: string) => any>} */
const READ = {
  machine: text,
  slots: whole(1),
  seed: whole(0),
  content: text,
  t: whole(0),
  panel: oneOf(PANELS),
  write: whole(0),
  read: whole(0),
  kind: oneOf(HEADS),
  slot: whole(0),
  pick: whole(0),
  edits: decodeInterventions,
  span: oneOf(["used", "all"]),
  snapshot: text,
  rival: text,
  theme: oneOf(THEMES),
  chapter: whole(0),
  lock: (given) => given === "1",
};

/** The hash of a state, without what is as at the start. @param {State} state */
export function toHash(state) {
  const start = /** @type {Record<string, any>} */ (initial());
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(/** @type {Record<string, any>} */ (state))) {
    if (name === "sizes") Object.entries(value).forEach(([size, count]) => parts.set(`size.${size}`, String(count)));
    else if (name === "edits") value.length && parts.set(name, encodeInterventions(value));
    else if (name === "lock") value && parts.set(name, "1");
    else if (value !== start[name] && value !== null) parts.set(name, String(value));
  }
  return `#${parts.toString()}`;
}

/**
 * The state of a hash. What cannot be read is left as at the start, and named in `problems`.
 * @param {string} hash
 * @returns {{state: State, problems: string[]}}
 */
export function fromHash(hash) {
  const state = /** @type {State & Record<string, any>} */ (initial());
  const problems = [];
  for (const [name, given] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (name.startsWith("size.")) {
      const count = whole(1)(given);
      if (count !== undefined) state.sizes[name.slice(5)] = count;
      else problems.push(`${name} is "${given}", which is no size.`);
      continue;
    }
    if (name === "x") continue; // no part of the state: makes a link another one
    if (!Object.hasOwn(READ, name)) {
      problems.push(`${name.slice(0, 40)} in the link is no setting of this page; it was left out.`);
      continue;
    }
    try {
      const value = READ[name](given);
      if (value !== undefined) state[name] = value;
      else problems.push(`${name} in the link is "${given.slice(0, 40)}", which is not possible; it was left out.`);
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
    }
  }
  return { state, problems };
}
