// @ts-check
/** The tasks by name, and contents as text for the URL. */
import { EngineError, shown } from "../errors.js";
import { associativeRecall } from "./associative_recall.js";
import { copy } from "./copy.js";
import { ngrams } from "./ngrams.js";
import { addition, parity, reverse } from "./others.js";
import { prioritySort } from "./priority_sort.js";
import { repeatCopy } from "./repeat_copy.js";
import { checkSizes, content } from "./task.js";

/** @typedef {import("../api.js").Content} Content */
/** @typedef {import("../api.js").Task} Task */
/** @typedef {import("../api.js").TaskSpec} TaskSpec */

/** @type {Object<string, (spec: TaskSpec) => Task>} */
const TASKS = {
  copy,
  "repeat-copy": repeatCopy,
  "associative-recall": associativeRecall,
  ngrams,
  "priority-sort": prioritySort,
  reverse,
  parity,
  addition,
};

export const TASK_NAMES = Object.keys(TASKS);

/** @param {TaskSpec} spec @returns {Task} */
export function makeTask(spec) {
  if (!Object.hasOwn(TASKS, spec.name)) {
    throw new EngineError(`the task is ${shown(spec.name)}, but the page has ${TASK_NAMES.join(", ")}.`);
  }
  return TASKS[spec.name](spec);
}

/**
 * A content as text: sizes, values, and priorities or the query, with dots between them.
 * @param {Task} task
 * @param {Content} of
 */
export function contentToText(task, of) {
  const parts = task.sizes.map(({ name }) => String(of.sizes[name]));
  parts.push(base64(task.loss === "categorical" ? Uint8Array.from(of.values) : packBits(of.values)));
  if (of.priorities) parts.push(base64(new Uint8Array(Float32Array.from(of.priorities).buffer)));
  if (of.query !== null) parts.push(String(of.query));
  return parts.join(".");
}

/**
 * @param {Task} task
 * @param {string} text
 * @returns {Content}
 */
export function contentFromText(task, text) {
  const parts = text.split(".");
  /** @type {Object<string, number>} */
  const sizes = {};
  for (const { name } of task.sizes) sizes[name] = /^\d{1,6}$/.test(parts[0] ?? "") ? Number(parts.shift()) : NaN;
  checkSizes(task.sizes, sizes);
  if (task.name === "priority-sort") sizes.outputs = Math.min(sizes.outputs, sizes.items);
  const drawn = task.draw({ seed: 0, name: "text", step: 0, row: 0 }, sizes); // of the right lengths
  const bytes = bytesOf(parts.shift() ?? "");
  const values = task.loss === "categorical" ? Float64Array.from(bytes) : unpackBits(bytes, drawn.values.length);
  if (values.length !== drawn.values.length || values.some((value) => value >= Math.max(2, task.outputSize)))
    broken(text);
  let { priorities, query } = drawn;
  if (priorities) {
    const numbers = bytesOf(parts.shift() ?? "");
    if (numbers.length !== 4 * priorities.length) broken(text);
    priorities = Float64Array.from(new Float32Array(numbers.buffer));
    if (!priorities.every((value) => value >= -1 && value <= 1)) broken(text);
  }
  if (query !== null) {
    query = /^\d{1,6}$/.test(parts[0] ?? "") ? Number(parts.shift()) : -1;
    if (query < 0 || query > sizes.items - 2) broken(text);
  }
  if (parts.length) broken(text);
  return content(sizes, values, drawn.width, { priorities, query });
}

/** @param {string} text @returns {never} */
function broken(text) {
  throw new EngineError(`${shown(text)} is no sequence of this task: the link is cut off or of another task.`);
}

/** @param {Float64Array} bits */
function packBits(bits) {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, i) => (bytes[i >> 3] |= bit << (i & 7)));
  return bytes;
}

/** @param {Uint8Array} bytes @param {number} count */
function unpackBits(bytes, count) {
  if (bytes.length !== Math.ceil(count / 8)) return new Float64Array(0);
  return Float64Array.from({ length: count }, (_, i) => (bytes[i >> 3] >> (i & 7)) & 1);
}

/** The alphabet for URLs, without padding.  @param {Uint8Array} bytes */
function base64(bytes) {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
}

/** @param {string} text */
function bytesOf(text) {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return new Uint8Array(0);
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
}
