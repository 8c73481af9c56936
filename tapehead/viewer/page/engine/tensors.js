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
 * A plain array for so many numbers. V8 checks every access to a typed array again, and reads plain arrays of doubles
 * twice as fast; with whole numbers at the start it would make another kind of array.
 * @param {number} length
 * @returns {number[]}
 */
export function doubles(length) {
  return Array.from({ length }, () => 0.5);
}

/** Rows of weights, by the weights that they were made of.  @type {WeakMap<Float64Array, number[][]>} */
const rowsMade = new WeakMap();

/**
 * The rows of a matrix as plain arrays, made once.
 * @param {Tensor} of  [rows, columns]
 */
export function rowsOf(of) {
  let found = rowsMade.get(of.data);
  if (!found) {
    found = Array.from({ length: of.shape[0] }, (_, i) => {
      const values = doubles(of.shape[1]);
      put(row(of, i), values, 0);
      return values;
    });
    rowsMade.set(of.data, found);
  }
  return found;
}

/**
 * Copy numbers into a plain array, from an index on.
 * @param {ArrayLike<number>} from
 * @param {number[]} to
 * @param {number} at
 */
export function put(from, to, at) {
  for (let i = 0; i < from.length; i++) to[at + i] = from[i];
}

/**
 * out = weight times vector + bias, with as many entries of the vector as a row has. Four rows at a time: an entry of
 * the vector is loaded once for four products, and an addition need not wait for the one before.
 * @param {number[][]} rows  of the weight
 * @param {ArrayLike<number>} bias
 * @param {number[]} vector
 * @param {Float64Array} out
 */
export function linear(rows, bias, vector, out) {
  const whole = rows.length - (rows.length % 4);
  for (let i = 0; i < whole; i += 4) {
    const p = rows[i];
    const q = rows[i + 1];
    const r = rows[i + 2];
    const s = rows[i + 3];
    let a = bias[i];
    let b = bias[i + 1];
    let c = bias[i + 2];
    let d = bias[i + 3];
    for (let j = 0; j < p.length; j++) {
      const x = vector[j];
      a += p[j] * x;
      b += q[j] * x;
      c += r[j] * x;
      d += s[j] * x;
    }
    out[i] = a;
    out[i + 1] = b;
    out[i + 2] = c;
    out[i + 3] = d;
  }
  for (let i = whole; i < rows.length; i++) {
    const p = rows[i];
    let a = bias[i];
    for (let j = 0; j < p.length; j++) a += p[j] * vector[j];
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
  const share = 1 / sum;
  for (let i = 0; i < values.length; i++) values[i] *= share;
}
