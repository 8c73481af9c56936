// @ts-check
/** The paper's LSTM baseline, tapehead.PaperLSTM: every layer sees the input, the output layer sees every layer. */
import { lstmCell } from "./controllers.js";
import { linear, row, tensor } from "./tensors.js";

/** @typedef {import("./api.js").LSTMMachine} LSTMMachine */
/** @typedef {import("./api.js").LSTMTrace} LSTMTrace */
/** @typedef {import("./api.js").Tensor} Tensor */

/**
 * @param {LSTMMachine} machine
 * @param {Tensor} inputs  [T, I]
 * @returns {LSTMTrace}
 */
export function runLSTM(machine, inputs) {
  const { hidden_size: h, num_layers: layers, output_size: outputs } = machine.config;
  const { parameters } = machine;
  const steps = inputs.shape[0];
  const trace = {
    model: /** @type {const} */ ("lstm"),
    steps,
    inputs,
    hidden: tensor([steps, layers, h]),
    cells: tensor([steps, layers, h]),
    logits: tensor([steps, outputs]),
  };
  const none = new Float64Array(4 * h);
  const [fromBelow, fromBefore] = [new Float64Array(4 * h), new Float64Array(4 * h)];
  let hidden = parameters.initial_hidden.data;
  let cell = parameters.initial_cell.data;
  for (let t = 0; t < steps; t++) {
    const input = row(inputs, t);
    const newHidden = row(trace.hidden, t);
    const newCell = row(trace.cells, t);
    for (let layer = 0; layer < layers; layer++) {
      const part = [layer * h, (layer + 1) * h];
      const seen = new Float64Array(input.length + (layer ? h : 0));
      seen.set(input);
      if (layer) seen.set(newHidden.subarray((layer - 1) * h, layer * h), input.length);
      linear(parameters[`weight_input_${layer}`].data, parameters[`bias_${layer}`].data, seen, fromBelow);
      linear(parameters[`weight_hidden_${layer}`].data, none, hidden.subarray(...part), fromBefore);
      for (let i = 0; i < fromBelow.length; i++) fromBelow[i] += fromBefore[i];
      lstmCell(fromBelow, cell.subarray(...part), newHidden.subarray(...part), newCell.subarray(...part));
    }
    linear(parameters.output_weight.data, parameters.output_bias.data, newHidden, row(trace.logits, t));
    [hidden, cell] = [newHidden, newCell];
  }
  return trace;
}
