// @ts-check
import { runLSTM } from "./lstm.js";
import { run } from "./machine.js";

/** @typedef {import("./api.js").Intervention} Intervention */
/** @typedef {import("./api.js").Machine} Machine */
/** @typedef {import("./api.js").Tensor} Tensor */
/** @typedef {import("./api.js").Trace} Trace */

/**
 * A sequence through a machine of any model. An LSTM has no tape and no heads: options do nothing to it.
 * @param {Machine} machine
 * @param {Tensor} inputs  [T, I]
 * @param {{slots?: number, interventions?: Intervention[], since?: {trace: Trace, step: number}}} [options]  of `run`
 * @returns {Trace}
 */
export function runMachine(machine, inputs, options = {}) {
  if (machine.model === "lstm") return runLSTM(machine, inputs);
  const { since, ...rest } = options;
  return run(machine, inputs, { ...rest, since: since?.trace.model === "ntm" ? { trace: since.trace, step: since.step } : undefined });
}
