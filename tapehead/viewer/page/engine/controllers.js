// @ts-check
/** One step of each kind of controller. Legend: C controller size, L layers. */
import { doubles, linear, put, rowsOf, sigmoid } from "./tensors.js";

/** @typedef {import("./api.js").NTMMachine} NTMMachine */

/**
 * An LSTM layer: gates input, forget, candidate, output. Writes the new hidden and cell state.
 * @param {Float64Array} gates  [4 C], before the activations
 * @param {Float64Array} cell  [C], of the step before
 * @param {Float64Array} newHidden
 * @param {Float64Array} newCell
 */
export function lstmCell(gates, cell, newHidden, newCell) {
  const size = cell.length;
  for (let i = 0; i < size; i++) {
    const kept = sigmoid(gates[size + i]) * cell[i];
    newCell[i] = kept + sigmoid(gates[i]) * Math.tanh(gates[2 * size + i]);
    newHidden[i] = sigmoid(gates[3 * size + i]) * Math.tanh(newCell[i]);
  }
}

/**
 * A layer of a controller, ready to run: its weights, and the vectors that a step fills.
 * @typedef {{rows: number[][], bias: Float64Array, seen: number[], out: Float64Array}} Layer   seen: what comes from
 *   below, and behind it the layer's own hidden state; out: before the activations
 */

/** @param {NTMMachine} machine @returns {Layer[]} */
export function controllerLayers({ config, parameters }) {
  return Array.from({ length: config.controller_layers }, (_, layer) => {
    const weight = parameters[`controller.weight_${layer}`];
    return {
      rows: rowsOf(weight),
      bias: parameters[`controller.bias_${layer}`].data,
      seen: doubles(weight.shape[1]),
      out: new Float64Array(weight.shape[0]),
    };
  });
}

/**
 * The controller's output for an input and the reads of the step before; hidden and cell [L, C] are read, newHidden and
 * newCell written.
 * @param {NTMMachine["config"]} config
 * @param {Layer[]} layers
 * @param {Float64Array} input  [I]
 * @param {Float64Array} reads  [R M]
 * @param {Float64Array} hidden
 * @param {Float64Array} cell
 * @param {Float64Array} newHidden
 * @param {Float64Array} newCell
 * @returns {Float64Array} [C]
 */
export function control(config, layers, input, reads, hidden, cell, newHidden, newCell) {
  const c = config.controller_size;
  let below = input;
  layers.forEach(({ rows, bias, seen, out }, layer) => {
    put(below, seen, 0);
    if (layer === 0) put(reads, seen, input.length);
    if (config.controller === "feedforward") {
      linear(rows, bias, seen, out);
      for (let i = 0; i < c; i++) out[i] = Math.tanh(out[i]);
      below = out;
      return;
    }
    const part = [layer * c, (layer + 1) * c];
    put(hidden.subarray(...part), seen, seen.length - c);
    linear(rows, bias, seen, out);
    below = newHidden.subarray(...part);
    lstmCell(out, cell.subarray(...part), below, newCell.subarray(...part));
  });
  return below;
}
