// @ts-check
/**
 * A machine from what describes it (a card's or a run's task and model) and its parameters: exactly those that it must
 * have, or a sentence.
 */
import { lstmConfig, lstmShapes, ntmConfig, ntmShapes, parameterCount } from "./config.js";
import { EngineError, shown } from "./errors.js";
import { makeTask, TASK_NAMES } from "./tasks/index.js";

/** @typedef {import("./api.js").Machine} Machine */
/** @typedef {import("./api.js").TaskSpec} TaskSpec */
/** @typedef {import("./api.js").Tensor} Tensor */

/**
 * What describes a machine, in any source.
 * @typedef {object} Description
 * @property {string} id
 * @property {string} title
 * @property {Object<string, any>} task   name and options, in one table as in a card
 * @property {Object<string, any>} model   name and options
 * @property {Object<string, any> | null} card
 * @property {string} [precision]
 * @property {number | null} [episodes]
 */

/**
 * Name and options of a table such as {name: "copy", length: [1, 20]}; null for a task that the page does not have.
 * @param {any} table
 * @returns {TaskSpec | null}
 */
export function taskSpec(table) {
  const { name, ...options } = expectTable(table, "the task");
  return TASK_NAMES.includes(name) ? { name, options } : null;
}

/** @param {any} value @param {string} what @returns {Object<string, any>} */
export function expectTable(value, what) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new EngineError(`${what} is ${shown(value)}, but it must be a table of names and values.`);
  }
  return value;
}

/**
 * @param {Description} description
 * @param {Object<string, Tensor>} parameters
 * @returns {Machine}
 */
export function assemble(description, parameters) {
  const { name, ...options } = expectTable(description.model, "the model");
  if (name !== "ntm" && name !== "lstm") {
    throw new EngineError(`the model is ${shown(name)}, but the page runs ntm and lstm.`);
  }
  const spec = taskSpec(description.task);
  const task = spec && makeTask(spec);
  const sizes = task
    ? { input_size: task.inputSize, output_size: task.outputSize }
    : guessSizes(name, options, parameters);
  const config = name === "ntm" ? ntmConfig({ ...options, ...sizes }) : lstmConfig({ ...options, ...sizes });
  const shapes = name === "ntm" ? ntmShapes(/** @type {any} */ (config)) : lstmShapes(/** @type {any} */ (config));
  checkParameters(shapes, parameters);
  return /** @type {Machine} */ ({
    id: description.id,
    title: description.title,
    model: name,
    config,
    task: task && task.spec,
    card: description.card,
    precision: description.precision ?? "float32",
    parameterCount: parameterCount(shapes),
    episodes: description.episodes ?? null,
    parameters: Object.fromEntries(Object.keys(shapes).map((key) => [key, parameters[key]])),
  });
}

/** @param {Object<string, number[]>} shapes @param {Object<string, Tensor>} parameters */
function checkParameters(shapes, parameters) {
  for (const [name, shape] of Object.entries(shapes)) {
    const found = parameters[name];
    if (!found) throw new EngineError(`the weights lack ${name}, which a machine of this description has.`);
    if (found.shape.join() !== shape.join()) {
      throw new EngineError(
        `${name} has the shape [${found.shape}], but a machine of this description has [${shape}].`,
      );
    }
  }
  for (const name of Object.keys(parameters)) {
    if (!Object.hasOwn(shapes, name))
      throw new EngineError(`the weights have ${shown(name)}, which a machine of this description does not have.`);
  }
}

/**
 * Numbers of inputs and outputs of a machine whose task the page does not have, from its parameters.
 * @param {"ntm" | "lstm"} model
 * @param {Object<string, any>} options
 * @param {Object<string, Tensor>} parameters
 */
function guessSizes(model, options, parameters) {
  const outputs = parameters[model === "ntm" ? "output.bias" : "output_bias"]?.shape[0];
  if (model === "lstm") return { input_size: parameters.weight_input_0?.shape[1], output_size: outputs };
  const config = ntmConfig({ ...options, input_size: 1, output_size: 1 });
  const columns = parameters["controller.weight_0"]?.shape[1] ?? 0;
  const others = config.read_heads * config.memory_width + (config.controller === "lstm" ? config.controller_size : 0);
  return { input_size: columns - others, output_size: outputs };
}
