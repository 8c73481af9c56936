// @ts-check
/**
 * Addressed randomness, the bits of tapehead/streams.py: Philox4x32-10 at (seed, name, step, row).
 *
 *     key     = first two words of Philox(key=seed, counter=(crc32(name), 0, 0, 0))
 *     counter = (draw << 24 | block, row, step mod 2^32, step div 2^32)
 */
const WEYL = [0x9e3779b9, 0xbb67ae85];
const MULTIPLIERS = [0xd2511f53, 0xcd9e8d57];
const ROUNDS = 10;
const TWO_32 = 4294967296;

/** The high 32 bits of a product of two 32-bit words.  @param {number} a @param {number} b */
function high(a, b) {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const other = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + Math.floor(middle / 65536) + Math.floor(other / 65536)) >>> 0;
}

/**
 * Ten rounds; all are 32-bit words.
 * @param {number[]} counter  four
 * @param {number[]} key  two
 * @returns {number[]} four
 */
export function philox(counter, key) {
  let [a, b, c, d] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < ROUNDS; round++) {
    const first = (high(c, MULTIPLIERS[1]) ^ b ^ k0) >>> 0;
    const third = (high(a, MULTIPLIERS[0]) ^ d ^ k1) >>> 0;
    b = Math.imul(c, MULTIPLIERS[1]) >>> 0;
    d = Math.imul(a, MULTIPLIERS[0]) >>> 0;
    a = first;
    c = third;
    k0 = (k0 + WEYL[0]) >>> 0;
    k1 = (k1 + WEYL[1]) >>> 0;
  }
  return [a, b, c, d];
}

/** CRC-32 of a text in UTF-8.  @param {string} text */
export function crc32(text) {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** The numbers of one row at one address. Successive calls are successive draws, as in Python. */
export class Stream {
  /**
   * @param {number} seed  a whole number under 2^53
   * @param {string} name
   * @param {number} step  a whole number under 2^53
   * @param {number} [row]
   */
  constructor(seed, name, step, row = 0) {
    this.key = philox([crc32(name), 0, 0, 0], [seed % TWO_32, Math.floor(seed / TWO_32)]).slice(0, 2);
    this.step = [step % TWO_32, Math.floor(step / TWO_32)];
    this.row = row;
    this.draw = 0;
  }

  /** Whole numbers in [0, 2^32).  @param {number} n */
  words(n) {
    const found = new Float64Array(n);
    for (let block = 0; block * 4 < n; block++) {
      const four = philox([((this.draw << 24) | block) >>> 0, this.row, ...this.step], this.key);
      for (let k = 0; k < 4 && block * 4 + k < n; k++) found[block * 4 + k] = four[k];
    }
    this.draw += 1;
    return found;
  }

  /** Fair bits, 32 from each word, the lowest first.  @param {number} n */
  bits(n) {
    const words = this.words(Math.ceil(n / 32));
    return Float64Array.from({ length: n }, (_, i) => (words[i >> 5] >>> (i & 31)) & 1);
  }

  /**
   * Numbers in [0, 1), multiples of 2^-53 or of 2^-24.
   * @param {number} n
   * @param {24 | 53} [precision]
   */
  uniform(n, precision = 53) {
    if (precision === 24) return this.words(n).map((word) => (word >>> 8) * 2 ** -24);
    const words = this.words(2 * n);
    return Float64Array.from({ length: n }, (_, i) => {
      return ((words[2 * i] >>> 5) * 2 ** 26 + (words[2 * i + 1] >>> 6)) * 2 ** -53;
    });
  }

  /**
   * Whole numbers in {low..highest}, both included.
   * @param {number} n
   * @param {number} low
   * @param {number} highest
   */
  integers(n, low, highest) {
    const span = BigInt(highest - low + 1);
    return this.words(n).map((word) => low + Number((BigInt(word) * span) >> 32n));
  }
}
