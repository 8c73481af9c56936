// @ts-check
/** The paper's LSTM baseline, tapehead.PaperLSTM: every layer sees the input, the output layer sees every layer. */
import { lstmCell } from "./controllers.js";
import { doubles, linear, put, row, rowsOf, tensor } from "./tensors.js";

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
  const weights = Array.from({ length: layers }, (_, layer) => ({
    below: rowsOf(parameters[`weight_input_${layer}`]),
    before: rowsOf(parameters[`weight_hidden_${layer}`]),
    bias: parameters[`bias_${layer}`].data,
  }));
  const output = rowsOf(parameters.output_weight);
  const [seen, remembered, told] = [doubles(inputs.shape[1] + h), doubles(h), doubles(layers * h)];
  let hidden = parameters.initial_hidden.data;
  let cell = parameters.initial_cell.data;
  for (let t = 0; t < steps; t++) {
    const input = row(inputs, t);
    const newHidden = row(trace.hidden, t);
    const newCell = row(trace.cells, t);
    put(input, seen, 0);
    for (let layer = 0; layer < layers; layer++) {
      const part = [layer * h, (layer + 1) * h];
      const { below, before, bias } = weights[layer];
      if (layer) put(newHidden.subarray((layer - 1) * h, layer * h), seen, input.length);
      put(hidden.subarray(...part), remembered, 0);
      linear(below, bias, seen, fromBelow);
      linear(before, none, remembered, fromBefore);
      for (let i = 0; i < fromBelow.length; i++) fromBelow[i] += fromBefore[i];
      lstmCell(fromBelow, cell.subarray(...part), newHidden.subarray(...part), newCell.subarray(...part));
    }
    put(newHidden, told, 0);
    linear(output, parameters.output_bias.data, told, row(trace.logits, t));
    [hidden, cell] = [newHidden, newCell];
  }
  return trace;
}
