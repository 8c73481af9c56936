// @ts-check
/** Copy, section 4.1: tapehead/tasks/copy.py has the time diagram. */
import { askVector, bitChannels, emptySequence, marker, setInput, showVector } from "./parts.js";
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
export function copy(spec) {
  const options = withDefaults(spec, {
    length: [1, 20],
    width: 8,
    paper_channels: false,
    density: [0.5, 0.5],
    blanks: 0,
  });
  const { width, density, blanks } = options;
  checkCount("width", width, 1, 64);
  checkChoice("paper_channels", options.paper_channels, [false, true]);
  checkMixture(density, blanks);
  const sizes = [sizeInfo("length", options.length, 1, 200, "Length")];
  const unused = options.paper_channels ? [marker("unused")] : [];
  const inputChannels = [...bitChannels(width), marker("delimiter"), ...unused];
  const outputChannels = [...bitChannels(width), ...unused];
  /** @type {import("../api.js").Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    return content(drawn, randomVectors(draws, drawn.length, width, /** @type {any} */ (density), blanks), width);
  };
  return {
    name: "copy",
    variety: "copy",
    title: "Copy",
    spec: { name: "copy", options },
    inputSize: inputChannels.length,
    outputSize: outputChannels.length,
    loss: "binary",
    sizes,
    inputChannels,
    outputChannels,
    bayes: null,
    draw,
    encode(of) {
      const { length } = of.sizes;
      const sequence = emptySequence(of, 2 * length + 1, inputChannels.length, outputChannels.length);
      for (let i = 0; i < length; i++) {
        showVector(sequence, i, i);
        askVector(sequence, length + 1 + i, i);
      }
      setInput(sequence, length, width, 1);
      return sequence;
    },
    place: (of, t, channel) => (t < of.sizes.length && channel < width ? bitPlace(of, t * width + channel) : null),
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}
