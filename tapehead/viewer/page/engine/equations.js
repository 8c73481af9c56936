// @ts-check
/**
 * Equations 2 to 9 of the paper, in float64, with the epsilons of tapehead/equations.py. Every function writes into
 * `out`.
 *
 * Legend: N slots, M width. memory [N, M], weightings [N], keys and vectors [M].
 */
import { softmax } from "./tensors.js";

const NORM_EPSILON = 1e-18;
const SHARPEN_EPSILON = 1e-20;

/** 1 - w is 1 in float64 for weights under this: a write with one changes nothing. */
const NEGLIGIBLE = 1e-17;

/**
 * Eq. 2: r = sum_i w(i) M(i).
 * @param {Float64Array} memory
 * @param {Float64Array} weighting
 * @param {Float64Array} out
 */
export function read(memory, weighting, out) {
  const width = out.length;
  out.fill(0);
  for (let i = 0, at = 0; i < weighting.length; i++, at += width) {
    const w = weighting[i];
    for (let j = 0; j < width; j++) out[j] += w * memory[at + j];
  }
}

/**
 * Eqs. 3 and 4, for all write heads: the memory after them. First every head erases, then every head adds.
 * @param {Float64Array} memory
 * @param {Float64Array} weightings  [W, N]
 * @param {Float64Array} erase  [W, M]
 * @param {Float64Array} add  [W, M]
 * @param {number} width
 * @param {Float64Array} out
 */
export function write(memory, weightings, erase, add, width, out) {
  const slots = memory.length / width;
  out.set(memory);
  for (const erasing of [true, false]) {
    for (let h = 0, from = 0; from < erase.length; h++, from += width) {
      for (let i = 0, at = 0; i < slots; i++, at += width) {
        const w = weightings[h * slots + i];
        if (w < NEGLIGIBLE) continue;
        if (erasing) for (let j = 0; j < width; j++) out[at + j] *= 1 - w * erase[from + j];
        else for (let j = 0; j < width; j++) out[at + j] += w * add[from + j];
      }
    }
  }
}

/**
 * A vector's largest entry, at least one, and its norm after division by that: squares cannot overflow.
 * @param {Float64Array} vectors
 * @param {number} from
 * @param {number} width
 * @returns {[number, number]}
 */
function bounded(vectors, from, width) {
  let scale = 1;
  for (let j = from; j < from + width; j++) {
    const size = Math.abs(vectors[j]);
    if (size > scale) scale = size;
  }
  let sum = 0;
  for (let j = from; j < from + width; j++) {
    const value = vectors[j] / scale;
    sum += value * value;
  }
  return [scale, Math.sqrt(sum + NORM_EPSILON)];
}

/**
 * Scales and norms of the rows of a memory, which are the same for all heads: [N] each.
 * @typedef {{scales: Float64Array, norms: Float64Array}} Rows
 * @param {Float64Array} memory
 * @param {number} width
 * @returns {Rows}
 */
export function rowNorms(memory, width) {
  const slots = memory.length / width;
  const scales = new Float64Array(slots);
  const norms = new Float64Array(slots);
  for (let i = 0; i < slots; i++) [scales[i], norms[i]] = bounded(memory, i * width, width);
  return { scales, norms };
}

/**
 * Eq. 6: K[k, M(i)] = k . M(i) / (|k| |M(i)|).
 * @param {Float64Array} key
 * @param {Float64Array} memory
 * @param {Rows} rows
 * @param {Float64Array} out
 */
export function similarity(key, memory, rows, out) {
  const width = key.length;
  const [scale, norm] = bounded(key, 0, width);
  const unit = key.map((value) => value / scale);
  for (let i = 0, at = 0; i < out.length; i++, at += width) {
    let even = 0;
    let odd = 0;
    let j = 0;
    for (; j + 1 < width; j += 2) {
      even += unit[j] * memory[at + j];
      odd += unit[j + 1] * memory[at + j + 1];
    }
    if (j < width) even += unit[j] * memory[at + j];
    out[i] = (even + odd) / rows.scales[i] / (norm * rows.norms[i]);
  }
}

/**
 * Eq. 5: w_c = softmax_i(beta K[k, M(i)]).
 * @param {Float64Array} similarities
 * @param {number} strength
 * @param {Float64Array} out
 */
export function contentWeighting(similarities, strength, out) {
  for (let i = 0; i < out.length; i++) out[i] = strength * similarities[i];
  softmax(out);
}

/**
 * Eq. 7: w_g = g w_c + (1 - g) w_prev.
 * @param {number} gate
 * @param {Float64Array} content
 * @param {Float64Array} previous
 * @param {Float64Array} out
 */
export function interpolate(gate, content, previous, out) {
  for (let i = 0; i < out.length; i++) out[i] = gate * content[i] + (1 - gate) * previous[i];
}

/**
 * Eq. 8: entry j of `shifts` moves the focus by j - r, circularly.
 * @param {Float64Array} weighting
 * @param {Float64Array} shifts  [2r+1]
 * @param {Float64Array} out
 */
export function shift(weighting, shifts, out) {
  const slots = out.length;
  const range = (shifts.length - 1) / 2;
  out.fill(0);
  for (let j = 0; j < shifts.length; j++) {
    const weight = shifts[j];
    let from = (((range - j) % slots) + slots) % slots;
    for (let i = 0; i < slots; i++) {
      out[i] += weight * weighting[from];
      if (++from === slots) from = 0;
    }
  }
}

/**
 * The scalar shift, a width-one uniform distribution from `amount` in [-r, r] on, as weights of the shifts -r .. r.
 * @param {number} amount
 * @param {Float64Array} out  [2r+1]
 */
export function scalarShift(amount, out) {
  const range = (out.length - 1) / 2;
  const whole = Math.floor(amount);
  const part = amount - whole;
  out.fill(0);
  out[whole + range] = 1 - part;
  if (whole + 1 <= range) out[whole + 1 + range] += part;
}

/**
 * Eq. 9: w(i) = w~(i)^gamma / sum_j w~(j)^gamma, as a softmax of logarithms.
 * @param {Float64Array} weighting
 * @param {number} gamma
 * @param {Float64Array} out
 */
export function sharpen(weighting, gamma, out) {
  for (let i = 0; i < out.length; i++) out[i] = gamma * Math.log(weighting[i] + SHARPEN_EPSILON);
  softmax(out);
}
