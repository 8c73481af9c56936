// @ts-check
/**
 * Where machines come from. One interface for four origins:
 *
 *     embedded   a page that `tapehead view --export` wrote: everything is in a script element of type application/json
 *     server     `tapehead view`: files below machines/ beside the page; the list follows the runs on the disk
 *     static     `tapehead site`: the same files, written once
 *     files      dropped onto the page
 *
 * Beside the page of a server or a site:
 *
 *     machines/index.json                      {kind, live, first, machines: [entry ...]}
 *     machines/ID/machine.json                 task, model, card
 *     machines/ID/weights.safetensors
 *     machines/ID/snapshots/KEY.safetensors
 */
import { EngineError, shown } from "./errors.js";
import { assemble, expectTable, taskSpec } from "./load.js";
import { unpack } from "./packed.js";
import { readSafetensors } from "./safetensors.js";
import { isSealed, sha256 } from "./seals.js";

/** @typedef {import("./api.js").Machine} Machine */
/** @typedef {import("./api.js").MachineEntry} MachineEntry */
/** @typedef {import("./api.js").SnapshotEntry} SnapshotEntry */
/** @typedef {import("./api.js").Source} Source */
/** @typedef {import("./api.js").Tensor} Tensor */

/**
 * A machine as the index lists it.
 * @typedef {object} Listed
 * @property {string} id
 * @property {string} title
 * @property {"zoo" | "run" | "file"} group
 * @property {Object<string, any>} task
 * @property {Object<string, any>} model
 * @property {string} detail
 * @property {SnapshotEntry[]} snapshots
 */

/** How a source reads what it has listed.
 * @typedef {object} Reader
 * @property {() => Promise<{kind: "embedded" | "static" | "server" | "files", live: boolean, first: string | null,
 *   machines: Listed[]}>} index
 * @property {(id: string) => Promise<Object<string, any>>} about   machine.json
 * @property {(id: string, snapshot: string | null) => Promise<{parameters: Object<string, Tensor>, precision: string}>}
 *   weights
 */

const DATA = "tapehead-data"; // the id of the script element that holds the machines of an exported page
const MOST_JSON = 16 << 20;

/**
 * The machines that the page comes with: its own, those beside it, or none.
 * @returns {Promise<Source>}
 */
export async function openSource() {
  const element = document.getElementById(DATA);
  if (element) return makeSource(embeddedReader(parseJSON(element.textContent ?? "", "the data of this page")));
  return makeSource(remoteReader(document.baseURI));
}

/**
 * Files that were dropped onto the page: NAME.safetensors with NAME.json, its card, or with the config.json of its run.
 * @param {File[]} files
 * @returns {Promise<Source>}
 */
export async function fileSource(files) {
  return makeSource(await fileReader(files));
}

/**
 * One source of all machines of several; the first one's machine is shown first.
 * @param {Source[]} sources
 * @returns {Source}
 */
export function joinSources(...sources) {
  /** @type {Map<string, Source>} */
  const owners = new Map();
  /** @param {string} id */
  const owner = async (id) => {
    if (!owners.has(id)) await list();
    const found = owners.get(id);
    if (!found) throw new EngineError(`there is no machine ${shown(id)} here.`);
    return found;
  };
  const list = async () => {
    const lists = await Promise.all(sources.map((source) => source.list()));
    lists.forEach((entries, i) => entries.forEach((entry) => owners.has(entry.id) || owners.set(entry.id, sources[i])));
    return lists.flatMap((entries, i) => entries.filter((entry) => owners.get(entry.id) === sources[i]));
  };
  return {
    kind: sources[0].kind,
    live: sources.some((source) => source.live),
    first: sources.find((source) => source.first !== null)?.first ?? null,
    list,
    load: async (id) => (await owner(id)).load(id),
    snapshots: async (id) => (await owner(id)).snapshots(id),
    loadSnapshot: async (id, key) => (await owner(id)).loadSnapshot(id, key),
  };
}

/** @param {Reader} reader @returns {Promise<Source>} */
async function makeSource(reader) {
  const opened = await reader.index();
  /** @param {string} id */
  const listed = async (id) => {
    const index = opened.live ? await reader.index() : opened;
    const found = index.machines.find((machine) => machine.id === id);
    if (!found) throw new EngineError(`there is no machine ${shown(id)} here: it may have been moved or removed.`);
    return found;
  };
  /** @param {string} id @param {SnapshotEntry | null} snapshot @returns {Promise<Machine>} */
  const load = async (id, snapshot) => {
    const { title } = await listed(id);
    const about = expectTable(await reader.about(id), `the description of ${title}`);
    const { parameters, precision } = await reader.weights(id, snapshot && snapshot.key);
    const { task, model, card } = about;
    return assemble(
      { id, title, task, model, card: card ?? null, precision, episodes: snapshot?.episodes ?? null },
      parameters,
    );
  };
  return {
    kind: opened.kind,
    live: opened.live,
    first: opened.first,
    list: async () => (opened.live ? await reader.index() : opened).machines.map(toEntry),
    load: (id) => load(id, null),
    snapshots: async (id) => (await listed(id)).snapshots,
    loadSnapshot: async (id, key) => {
      const found = (await listed(id)).snapshots.find((snapshot) => snapshot.key === key);
      if (!found) throw new EngineError(`there is no snapshot ${shown(key)} of ${shown(id)} here.`);
      return load(id, found);
    },
  };
}

/** @param {Listed} listed @returns {MachineEntry} */
function toEntry({ id, title, group, task, model, detail, snapshots }) {
  return { id, title, group, model: model.name, task: taskSpec(task), detail, snapshots: snapshots.length > 0 };
}

/** @param {string} text @param {string} what */
function parseJSON(text, what) {
  try {
    return expectTable(JSON.parse(text), what);
  } catch (error) {
    if (error instanceof EngineError) throw error;
    throw new EngineError(`${what} is damaged: it is not JSON.`);
  }
}

// --- an exported page ------------------------------------------------------------------------------------------------

/**
 * @param {Object<string, any>} data  {index, machines: {ID: {about, weights, snapshots: {KEY: weights}}}}
 * @returns {Reader}
 */
function embeddedReader(data) {
  return {
    index: async () => data.index,
    about: async (id) => data.machines[id].about,
    async weights(id, snapshot) {
      const packed = snapshot === null ? data.machines[id].weights : data.machines[id].snapshots[snapshot];
      return { parameters: await unpack(packed), precision: packed.encoding };
    },
  };
}

// --- beside the page -------------------------------------------------------------------------------------------------

/** @param {string} base  the page's address @returns {Reader} */
function remoteReader(base) {
  /** @param {string[]} parts */
  const get = async (...parts) => {
    const place = ["machines", ...parts.map(encodeURIComponent)].join("/");
    let answer;
    try {
      answer = await fetch(new URL(place, base), { credentials: "omit", cache: "no-cache" });
    } catch {
      throw new EngineError("the server does not answer: start `tapehead view` again, or check the connection.");
    }
    if (!answer.ok)
      throw new EngineError(`the server has no ${parts.join("/")} (${answer.status})${await reasonOf(answer)}.`);
    return answer;
  };
  return {
    index: async () => /** @type {any} */ (parseJSON(await (await get("index.json")).text(), "the list of machines")),
    about: async (id) => parseJSON(await (await get(id, "machine.json")).text(), "the description of the machine"),
    async weights(id, snapshot) {
      const parts = snapshot === null ? [id, "weights.safetensors"] : [id, "snapshots", `${snapshot}.safetensors`];
      const data = await (await get(...parts)).arrayBuffer();
      return { parameters: readSafetensors(data), precision: snapshot === null ? "float32" : "float16" };
    },
  };
}

/** What a server of ours says about a refusal.  @param {Response} answer */
async function reasonOf(answer) {
  if (!answer.headers.get("content-type")?.startsWith("text/plain")) return "";
  const text = (await answer.text()).trim().replace(/\.$/, "");
  return text && text.length < 300 ? `: ${text}` : "";
}

// --- dropped files ---------------------------------------------------------------------------------------------------

/** @param {File[]} files @returns {Promise<Reader>} */
async function fileReader(files) {
  const weights = files.filter(
    (file) => file.name.endsWith(".safetensors") && !file.name.endsWith(".snapshots.safetensors"),
  );
  const tables = files.filter((file) => file.name.endsWith(".json"));
  if (!weights.length) {
    throw new EngineError(
      "no file of weights was dropped: drop NAME.safetensors with its card, NAME.json, or its run's config.json.",
    );
  }
  /** @type {Map<string, {about: Object<string, any>, file: File}>} */
  const found = new Map();
  for (const file of weights) {
    const stem = file.name.replace(/\.safetensors$/, "");
    const table = tables.find(({ name }) => name === `${stem}.json`) ?? (tables.length === 1 ? tables[0] : null);
    if (!table)
      throw new EngineError(
        `${shown(file.name)} came without its card: drop ${shown(`${stem}.json`)} or its run's config.json with it.`,
      );
    found.set(`file:${stem}`, { about: await readTable(table), file });
  }
  const machines = [...found].map(([id, { about }]) => ({
    id,
    title: id.slice("file:".length),
    group: /** @type {const} */ ("file"),
    task: about.task,
    model: about.model,
    detail: "dropped onto the page",
    snapshots: [],
  }));
  return {
    index: async () => ({ kind: "files", live: false, first: machines[0].id, machines }),
    about: async (id) => /** @type {any} */ (found.get(id)).about,
    weights: async (id) => {
      const { about, file } = /** @type {any} */ (found.get(id));
      const data = await file.arrayBuffer();
      const digest = about.card && (await sha256(data));
      if (digest && digest !== about.card.sha256) {
        throw new EngineError(
          `${shown(file.name)} does not match the SHA-256 on its card: it is damaged, or another machine's.`,
        );
      }
      return { parameters: readSafetensors(data), precision: "float32" };
    },
  };
}

/** Task, model and card from a card or from a run's config.json.  @param {File} file */
async function readTable(file) {
  if (file.size > MOST_JSON)
    throw new EngineError(`${shown(file.name)} has ${file.size} bytes, but the page reads at most ${MOST_JSON}.`);
  const data = new Uint8Array(await file.arrayBuffer());
  const table = parseJSON(new TextDecoder().decode(data), shown(file.name));
  if (!(await isSealed(data)))
    throw new EngineError(`${shown(file.name)} is damaged or was edited: its seal does not match.`);
  const experiment = expectTable(table.experiment, `the experiment in ${shown(file.name)}`);
  const task = expectTable(experiment.task, `the task in ${shown(file.name)}`);
  const model = expectTable(experiment.model, `the model in ${shown(file.name)}`);
  return { task, model, card: typeof table.name === "string" && Array.isArray(table.points) ? table : null };
}
