// @ts-check
/** One step of each kind of controller. Legend: C controller size, L layers. */
import { linear, sigmoid } from "./tensors.js";

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
 * The controller's output for an input and the reads of the step before; hidden and cell [L, C] are read, newHidden and
 * newCell written.
 * @param {NTMMachine} machine
 * @param {Float64Array} seen  [I + R M]
 * @param {Float64Array} hidden
 * @param {Float64Array} cell
 * @param {Float64Array} newHidden
 * @param {Float64Array} newCell
 * @returns {Float64Array} [C]
 */
export function control(machine, seen, hidden, cell, newHidden, newCell) {
  const { controller, controller_size: c, controller_layers: layers } = machine.config;
  let below = seen;
  for (let layer = 0; layer < layers; layer++) {
    const weight = machine.parameters[`controller.weight_${layer}`].data;
    const bias = machine.parameters[`controller.bias_${layer}`].data;
    if (controller === "feedforward") {
      const above = new Float64Array(c);
      linear(weight, bias, below, above);
      for (let i = 0; i < c; i++) above[i] = Math.tanh(above[i]);
      below = above;
      continue;
    }
    const part = [layer * c, (layer + 1) * c];
    const joined = new Float64Array(below.length + c);
    joined.set(below);
    joined.set(hidden.subarray(...part), below.length);
    const gates = new Float64Array(4 * c);
    linear(weight, bias, joined, gates);
    below = newHidden.subarray(...part);
    lstmCell(gates, cell.subarray(...part), below, newCell.subarray(...part));
  }
  return below;
}
