// @ts-check
/**
 * Dynamic N-grams, section 4.4, and the best possible predictor (Eq. 10): tapehead/tasks/ngrams.py has the time
 * diagram.
 */
import { emptySequence, setInput, setTarget } from "./parts.js";
import { begin, bitPlace, checkChoice, checkCount, content, keepOld, paint, sizeInfo, withDefaults } from "./task.js";
import { EngineError } from "../errors.js";

const MAX_ORDER = 16;

/** sin(x) / x in powers of x^2, highest first. */
const SINE = Array.from({ length: 9 }, (_, i) => {
  const k = 8 - i;
  let factorial = 1;
  for (let j = 2; j <= 2 * k + 1; j++) factorial *= j;
  return (k % 2 ? -1 : 1) / factorial;
});

/** sin^2(pi u / 2): a Beta(1/2, 1/2) variable if u is uniform, to the same bits as in Python.  @param {number} u */
export function arcsine(u) {
  const x = Math.min(u, 1 - u) * (Math.PI / 2);
  const square = x * x;
  let ratio = SINE[0];
  for (const coefficient of SINE.slice(1)) ratio = ratio * square + coefficient;
  const sine = x * ratio;
  return u > 0.5 ? 1 - sine * sine : sine * sine;
}

/** @param {import("../api.js").TaskSpec} spec @returns {import("../api.js").Task} */
export function ngrams(spec) {
  const options = withDefaults(spec, { length: 200, order: 6, scored: "all" });
  const { order } = options;
  checkCount("order", order, 1, MAX_ORDER);
  checkChoice("scored", options.scored, ["all", "after_context"]);
  const unscored = options.scored === "after_context" ? order - 1 : 0;
  const sizes = [sizeInfo("length", options.length, unscored + 1, 500, "Length")];
  const contexts = 2 ** (order - 1);
  /** @type {import("../api.js").Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    const table = draws.uniform(contexts).map((u) => Math.floor(arcsine(u) * 2 ** 32));
    const words = draws.words(drawn.length);
    const bits = new Float64Array(drawn.length);
    let context = 0;
    for (let t = 0; t < bits.length; t++) {
      bits[t] = words[t] < (t >= order - 1 ? table[context] : 2 ** 31) ? 1 : 0;
      context = (2 * context + bits[t]) & (contexts - 1);
    }
    return content(drawn, bits, 1);
  };
  return {
    name: "ngrams",
    variety: "ngrams",
    title: "Dynamic N-grams",
    spec: { name: "ngrams", options },
    inputSize: 1,
    outputSize: 1,
    loss: "binary",
    sizes,
    inputChannels: [{ name: "bit before", kind: "bit" }],
    outputChannels: [{ name: "next bit", kind: "bit" }],
    draw,
    encode(of) {
      const { length } = of.sizes;
      const sequence = emptySequence(of, length, 1, 1);
      for (let t = 0; t < length; t++) {
        if (t) setInput(sequence, t, 0, of.values[t - 1]);
        setTarget(sequence, t, 0, of.values[t]);
        sequence.mask[t] = t >= unscored ? 1 : 0;
      }
      return sequence;
    },
    place: (of, t) => (t > 0 && t < of.sizes.length ? bitPlace(of, t - 1) : null),
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
    bayes(bits) {
      if (bits.length > 1e6) throw new EngineError(`there are ${bits.length} bits, but at most a million are counted.`);
      const ones = new Float64Array(contexts);
      const seen = new Float64Array(contexts);
      let context = 0;
      return Float64Array.from(bits, (bit, t) => {
        const known = t >= order - 1;
        const prediction = known ? (ones[context] + 0.5) / (seen[context] + 1) : 0.5;
        if (known) {
          ones[context] += bit;
          seen[context] += 1;
        }
        context = (2 * context + bit) & (contexts - 1);
        return prediction;
      });
    },
  };
}
