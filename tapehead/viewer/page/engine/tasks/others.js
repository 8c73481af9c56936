// @ts-check
/**
 * Tasks that are not in the paper: reverse, parity, addition. Time diagrams: the files of those names in
 * tapehead/tasks.
 */
import { emptySequence, marker, setInput, setTarget, showVector } from "./parts.js";
import { begin, bitPlace, checkCount, content, keepOld, paint, sizeInfo, withDefaults } from "./task.js";

/** @typedef {import("../api.js").Channel} Channel */
/** @typedef {import("../api.js").Task} Task */
/** @typedef {import("../api.js").TaskSpec} TaskSpec */

/** Channels of a one-hot symbol.  @param {number} count @returns {Channel[]} */
function symbolChannels(count) {
  return Array.from({ length: count }, (_, k) => ({ name: `symbol ${k}`, kind: "symbol" }));
}

/** @param {TaskSpec} spec @returns {Task} */
export function reverse(spec) {
  const options = withDefaults(spec, { length: [1, 20], symbols: 8 });
  const { symbols } = options;
  checkCount("symbols", symbols, 2, 64);
  const sizes = [sizeInfo("length", options.length, 1, 200, "Length")];
  /** @type {Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    return content(drawn, draws.integers(drawn.length, 0, symbols - 1), 1);
  };
  return {
    name: "reverse",
    variety: "reverse",
    title: "Reverse",
    spec: { name: "reverse", options },
    inputSize: symbols + 1,
    outputSize: symbols,
    loss: "categorical",
    sizes,
    inputChannels: [...symbolChannels(symbols), marker("delimiter")],
    outputChannels: symbolChannels(symbols),
    bayes: null,
    draw,
    encode(of) {
      const { length } = of.sizes;
      const sequence = emptySequence(of, 2 * length + 1, symbols + 1, symbols);
      for (let i = 0; i < length; i++) {
        setInput(sequence, i, of.values[i], 1);
        setTarget(sequence, 2 * length - i, of.values[i], 1);
        sequence.mask[length + 1 + i] = 1;
      }
      setInput(sequence, length, symbols, 1);
      return sequence;
    },
    place(of, t, channel) {
      if (t >= of.sizes.length || channel >= symbols) return null;
      const value = of.values[t] === channel ? 1 : 0;
      return { field: "values", index: t * symbols + channel, kind: "symbol", value, least: 0, most: 1 };
    },
    paint(old, place, value) {
      if (place.kind !== "symbol" || !value) return old; // a step always has a symbol: another one takes its place
      const changed = old.values.slice();
      changed[Math.floor(place.index / symbols)] = place.index % symbols;
      return { ...old, values: changed };
    },
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}

/** @param {TaskSpec} spec @returns {Task} */
export function parity(spec) {
  const options = withDefaults(spec, { length: [1, 20] });
  const sizes = [sizeInfo("length", options.length, 1, 400, "Length")];
  /** @type {Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    return content(drawn, draws.bits(drawn.length), 1);
  };
  return {
    name: "parity",
    variety: "parity",
    title: "Parity",
    spec: { name: "parity", options },
    inputSize: 2,
    outputSize: 1,
    loss: "binary",
    sizes,
    inputChannels: [{ name: "bit", kind: "bit" }, marker("end")],
    outputChannels: [{ name: "odd", kind: "bit" }],
    bayes: null,
    draw,
    encode(of) {
      const { length } = of.sizes;
      const sequence = emptySequence(of, length + 1, 2, 1);
      for (let i = 0; i < length; i++) setInput(sequence, i, 0, of.values[i]);
      setInput(sequence, length, 1, 1);
      setTarget(sequence, length, 0, of.values.reduce((sum, bit) => sum + bit, 0) % 2);
      sequence.mask[length] = 1;
      return sequence;
    },
    place: (of, t, channel) => (t < of.sizes.length && channel === 0 ? bitPlace(of, t) : null),
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}

/** @param {TaskSpec} spec @returns {Task} */
export function addition(spec) {
  const options = withDefaults(spec, { length: [1, 10] });
  const sizes = [sizeInfo("length", options.length, 1, 100, "Length")];
  /** @type {Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    return content(drawn, draws.bits(2 * drawn.length), 2);
  };
  return {
    name: "addition",
    variety: "addition",
    title: "Addition",
    spec: { name: "addition", options },
    inputSize: 3,
    outputSize: 1,
    loss: "binary",
    sizes,
    inputChannels: [{ name: "a", kind: "bit" }, { name: "b", kind: "bit" }, marker("end")],
    outputChannels: [{ name: "sum", kind: "bit" }],
    bayes: null,
    draw,
    encode(of) {
      const { length } = of.sizes;
      const sequence = emptySequence(of, 2 * length + 2, 3, 1);
      let carry = 0;
      for (let i = 0; i <= length; i++) {
        const total = carry + (i < length ? of.values[2 * i] + of.values[2 * i + 1] : 0);
        if (i < length) showVector(sequence, i, i);
        setTarget(sequence, length + 1 + i, 0, total % 2);
        sequence.mask[length + 1 + i] = 1;
        carry = total >= 2 ? 1 : 0;
      }
      setInput(sequence, length, 2, 1);
      return sequence;
    },
    place: (of, t, channel) => (t < of.sizes.length && channel < 2 ? bitPlace(of, 2 * t + channel) : null),
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}
