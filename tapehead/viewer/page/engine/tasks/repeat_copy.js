// @ts-check
/**
 * Repeat copy, section 4.2, and the variant with the count as pulses: tapehead/tasks/repeat_copy.py has the time
 * diagram.
 */
import { askVector, bitChannels, emptySequence, marker, setInput, setTarget, showVector } from "./parts.js";
import {
  begin,
  bitPlace,
  checkChoice,
  checkCount,
  checkMixture,
  content,
  keepOld,
  paint,
  randomVectors,
  sizeInfo,
  withDefaults,
} from "./task.js";

/** @param {import("../api.js").TaskSpec} spec @returns {import("../api.js").Task} */
export function repeatCopy(spec) {
  const options = withDefaults(spec, {
    length: [1, 10],
    repeats: [1, 10],
    width: 8,
    count: "scalar",
    density: [0.5, 0.5],
    blanks: 0,
  });
  const { width, density, blanks } = options;
  checkCount("width", width, 1, 64);
  checkChoice("count", options.count, ["scalar", "pulses"]);
  checkMixture(density, blanks);
  const pulses = options.count === "pulses";
  const sizes = [
    sizeInfo("length", options.length, 1, 30, "Length"),
    sizeInfo("repeats", options.repeats, 1, 30, "Repeats"),
  ];
  const [low, high] = sizes[1].training;
  /** The count as the machine sees it: mean 0 and variance 1 over the training range.  @param {number} repeats */
  const normalised = (repeats) => {
    const sd = Math.sqrt(((high - low + 1) ** 2 - 1) / 12) || 1;
    return Math.fround((repeats - (low + high) / 2) / sd);
  };
  /** @type {import("../api.js").Channel[]} */
  const inputChannels = [
    ...bitChannels(width),
    marker("delimiter"),
    { name: pulses ? "pulses" : "count", kind: pulses ? "marker" : "number" },
  ];
  const outputChannels = [...bitChannels(width), marker("end")];
  /** @type {import("../api.js").Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    return content(drawn, randomVectors(draws, drawn.length, width, /** @type {any} */ (density), blanks), width);
  };
  return {
    name: "repeat-copy",
    variety: pulses ? "repeat-copy-pulses" : "repeat-copy",
    title: pulses ? "Repeat copy, count as pulses" : "Repeat copy",
    spec: { name: "repeat-copy", options },
    inputSize: width + 2,
    outputSize: width + 1,
    loss: "binary",
    sizes,
    inputChannels,
    outputChannels,
    bayes: null,
    draw,
    encode(of) {
      const { length, repeats } = of.sizes;
      const start = length + 1 + (pulses ? repeats : 0);
      const end = start + length * repeats;
      const sequence = emptySequence(of, end + 1, width + 2, width + 1);
      for (let i = 0; i < length; i++) showVector(sequence, i, i);
      setInput(sequence, length, width, 1);
      if (pulses) for (let k = 0; k < repeats; k++) setInput(sequence, length + 1 + k, width + 1, 1);
      else setInput(sequence, length, width + 1, normalised(repeats));
      for (let k = 0; k < length * repeats; k++) askVector(sequence, start + k, k % length);
      setTarget(sequence, end, width, 1);
      sequence.mask[end] = 1;
      return sequence;
    },
    place: (of, t, channel) => (t < of.sizes.length && channel < width ? bitPlace(of, t * width + channel) : null),
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}
