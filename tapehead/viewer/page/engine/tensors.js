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
 * out = weight [rows, columns] times vector + bias. Four rows at a time: an entry of the vector is loaded once for
 * four products, and an addition need not wait for the one before.
 * @param {Float64Array} weight
 * @param {Float64Array} bias
 * @param {Float64Array} vector
 * @param {Float64Array} out
 */
export function linear(weight, bias, vector, out) {
  const columns = vector.length;
  const whole = out.length - (out.length % 4);
  for (let i = 0; i < whole; i += 4) {
    const [p, q] = [i * columns, (i + 1) * columns];
    const [r, s] = [(i + 2) * columns, (i + 3) * columns];
    let a = bias[i];
    let b = bias[i + 1];
    let c = bias[i + 2];
    let d = bias[i + 3];
    for (let j = 0; j < columns; j++) {
      const x = vector[j];
      a += weight[p + j] * x;
      b += weight[q + j] * x;
      c += weight[r + j] * x;
      d += weight[s + j] * x;
    }
    out[i] = a;
    out[i + 1] = b;
    out[i + 2] = c;
    out[i + 3] = d;
  }
  for (let i = whole; i < out.length; i++) {
    let a = bias[i];
    for (let j = 0, at = i * columns; j < columns; j++) a += weight[at + j] * vector[j];
    out[i] = a;
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
