// @ts-check
/** @typedef {import("./api.js").Tensor} Tensor */

/** @param {number[]} shape */
export function sizeOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/**
 * A tensor of that shape, of zeros unless data is given.
 * @param {number[]} shape
 * @param {Float64Array} [data]
 * @returns {Tensor}
 */
export function tensor(shape, data = new Float64Array(sizeOf(shape))) {
  return { shape, data };
}

/**
 * The part at an index of the first dimension, as a view.
 * @param {Tensor} of
 * @param {number} index
 * @returns {Float64Array}
 */
export function row(of, index) {
  const size = of.shape[0] ? of.data.length / of.shape[0] : 0;
  return of.data.subarray(index * size, (index + 1) * size);
}

/**
 * out = weight [rows, columns] times vector + bias. Four sums at a time: an addition need not wait for the one before.
 * @param {Float64Array} weight
 * @param {Float64Array} bias
 * @param {Float64Array} vector
 * @param {Float64Array} out
 */
export function linear(weight, bias, vector, out) {
  const columns = vector.length;
  const whole = columns - (columns % 4);
  for (let i = 0, at = 0; i < out.length; i++) {
    let a = bias[i];
    let b = 0;
    let c = 0;
    let d = 0;
    let j = 0;
    for (; j < whole; j += 4, at += 4) {
      a += weight[at] * vector[j];
      b += weight[at + 1] * vector[j + 1];
      c += weight[at + 2] * vector[j + 2];
      d += weight[at + 3] * vector[j + 3];
    }
    for (; j < columns; j++, at++) a += weight[at] * vector[j];
    out[i] = a + b + (c + d);
  }
}

/** @param {number} x */
export function sigmoid(x) {
  if (x >= 0) return 1 / (1 + Math.exp(-x));
  const e = Math.exp(x);
  return e / (1 + e);
}

/** As torch has it: linear above 20.  @param {number} x */
export function softplus(x) {
  return x > 20 ? x : Math.log1p(Math.exp(x));
}

/**
 * Softmax in place.
 * @param {Float64Array} values
 */
export function softmax(values) {
  let most = -Infinity;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i] = Math.exp(values[i] - most);
  for (let i = 0; i < values.length; i++) values[i] /= sum;
}
