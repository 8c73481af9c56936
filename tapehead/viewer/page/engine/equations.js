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
 * Eq. 2: r = sum_i w(i) M(i). Four columns at a time: each adds up in a variable of its own.
 * @param {Float64Array} memory
 * @param {Float64Array} weighting
 * @param {Float64Array} out
 */
export function read(memory, weighting, out) {
  const width = out.length;
  const slots = weighting.length;
  const whole = width - (width % 4);
  for (let j = 0; j < whole; j += 4) {
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    for (let i = 0, at = j; i < slots; i++, at += width) {
      const w = weighting[i];
      a += w * memory[at];
      b += w * memory[at + 1];
      c += w * memory[at + 2];
      d += w * memory[at + 3];
    }
    out[j] = a;
    out[j + 1] = b;
    out[j + 2] = c;
    out[j + 3] = d;
  }
  for (let j = whole; j < width; j++) {
    let a = 0;
    for (let i = 0, at = j; i < slots; i++, at += width) a += weighting[i] * memory[at];
    out[j] = a;
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
  if (erase.length === width) {
    writeOne(memory, weightings, erase, add, out);
    return;
  }
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
 * The same for one write head.
 * @param {Float64Array} memory
 * @param {Float64Array} weighting  [N]
 * @param {Float64Array} erase  [M]
 * @param {Float64Array} add  [M]
 * @param {Float64Array} out
 */
function writeOne(memory, weighting, erase, add, out) {
  const width = erase.length;
  for (let i = 0, at = 0; i < weighting.length; i++) {
    const w = weighting[i];
    for (let j = 0; j < width; j++, at++) out[at] = memory[at] * (1 - w * erase[j]) + w * add[j];
  }
}

/**
 * One divided by the norm of a vector, with numbers whose squares overflow, too.
 * @param {Float64Array} vectors
 * @param {number} from
 * @param {number} width
 */
function inverseNorm(vectors, from, width) {
  let sum = NORM_EPSILON;
  for (let j = from; j < from + width; j++) sum += vectors[j] * vectors[j];
  return sum < Infinity ? 1 / Math.sqrt(sum) : 1 / Math.hypot(...vectors.subarray(from, from + width));
}

/**
 * One divided by the norm of each row of a memory, which all heads need.
 * @param {Float64Array} memory
 * @param {number} width
 * @param {Float64Array} out
 */
export function inverseNorms(memory, width, out) {
  for (let i = 0; i < out.length; i++) out[i] = inverseNorm(memory, i * width, width);
}

/**
 * Eq. 6: K[k, M(i)] = k . M(i) / (|k| |M(i)|).
 * @param {Float64Array} key
 * @param {Float64Array} memory
 * @param {Float64Array} inverses  of the norms of the rows
 * @param {Float64Array} out
 */
export function similarity(key, memory, inverses, out) {
  const width = key.length;
  const inverse = inverseNorm(key, 0, width);
  for (let i = 0, at = 0; i < out.length; i++, at += width) {
    let even = 0;
    let odd = 0;
    let j = 0;
    for (; j + 1 < width; j += 2) {
      even += key[j] * memory[at + j];
      odd += key[j + 1] * memory[at + j + 1];
    }
    if (j < width) even += key[j] * memory[at + j];
    out[i] = (even + odd) * inverse * inverses[i];
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
  const stay = 1 - gate;
  for (let i = 0; i < out.length; i++) out[i] = gate * content[i] + stay * previous[i];
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
    const by = (((j - range) % slots) + slots) % slots;
    for (let i = 0; i < slots - by; i++) out[i + by] += weight * weighting[i];
    for (let i = slots - by; i < slots; i++) out[i + by - slots] += weight * weighting[i];
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
