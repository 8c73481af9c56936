// @ts-check
/** Associative recall, section 4.3: tapehead/tasks/associative_recall.py has the time diagram. */
import { askVector, bitChannels, emptySequence, marker, setInput, showVector } from "./parts.js";
import {
  begin,
  bitPlace,
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
export function associativeRecall(spec) {
  const options = withDefaults(spec, { items: [2, 6], item_length: 3, width: 6, density: [0.5, 0.5] });
  const { width, item_length: n, density } = options;
  checkCount("item_length", n, 1, 16);
  checkCount("width", width, 1, 64);
  checkMixture(density, 0);
  const sizes = [sizeInfo("items", options.items, 2, 30, "Items")];
  const inputChannels = [...bitChannels(width), marker("item"), marker("query")];
  /** @type {import("../api.js").Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    const query = draws.integers(1, 0, drawn.items - 2)[0];
    const values = randomVectors(draws, drawn.items * n, width, /** @type {any} */ (density));
    return content(drawn, values, width, { query });
  };
  return {
    name: "associative-recall",
    variety: "associative-recall",
    title: "Associative recall",
    spec: { name: "associative-recall", options },
    inputSize: width + 2,
    outputSize: width,
    loss: "binary",
    sizes,
    inputChannels,
    outputChannels: bitChannels(width),
    bayes: null,
    draw,
    encode(of) {
      const { items } = of.sizes;
      const query = of.query ?? 0;
      const asked = items * (n + 1);
      const answer = asked + n + 2;
      const sequence = emptySequence(of, answer + n, width + 2, width);
      for (let item = 0; item < items; item++) {
        setInput(sequence, item * (n + 1), width, 1);
        for (let i = 0; i < n; i++) showVector(sequence, item * (n + 1) + 1 + i, item * n + i);
      }
      setInput(sequence, asked, width + 1, 1);
      setInput(sequence, answer - 1, width + 1, 1);
      for (let i = 0; i < n; i++) {
        showVector(sequence, asked + 1 + i, query * n + i);
        askVector(sequence, answer + i, (query + 1) * n + i);
      }
      return sequence;
    },
    place(of, t, channel) {
      const asked = of.sizes.items * (n + 1);
      if (channel >= width) return null;
      if (t < asked) {
        const inside = t % (n + 1);
        return inside ? bitPlace(of, (Math.floor(t / (n + 1)) * n + inside - 1) * width + channel) : null;
      }
      if (t <= asked || t > asked + n) return null;
      return { field: "query", index: 0, kind: "number", value: of.query ?? 0, least: 0, most: of.sizes.items - 2 };
    },
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}
