// @ts-check
/** Priority sort, section 4.5: tapehead/tasks/priority_sort.py has the time diagram. */
import { askVector, bitChannels, emptySequence, marker, setInput, showVector } from "./parts.js";
import { begin, bitPlace, checkCount, content, keepOld, paint, randomVectors, sizeInfo, withDefaults } from "./task.js";

/** @param {import("../api.js").TaskSpec} spec @returns {import("../api.js").Task} */
export function prioritySort(spec) {
  const options = withDefaults(spec, { items: 20, outputs: 16, width: 8 });
  const { width } = options;
  checkCount("width", width, 1, 64);
  const sizes = [
    sizeInfo("items", options.items, 1, 60, "Items"),
    sizeInfo("outputs", options.outputs, 1, 60, "Outputs"),
  ];
  /** @type {import("../api.js").Channel[]} */
  const inputChannels = [...bitChannels(width), { name: "priority", kind: "number" }, marker("end of input")];
  /** @type {import("../api.js").Task["draw"]} */
  const draw = (address, given) => {
    const { draws, sizes: drawn } = begin(address, sizes, given);
    drawn.outputs = Math.min(drawn.outputs, drawn.items);
    const values = randomVectors(draws, drawn.items, width);
    const priorities = draws.uniform(drawn.items, 24).map((u) => u * 2 - 1);
    return content(drawn, values, width, { priorities });
  };
  return {
    name: "priority-sort",
    variety: "priority-sort",
    title: "Priority sort",
    spec: { name: "priority-sort", options },
    inputSize: width + 2,
    outputSize: width,
    loss: "binary",
    sizes,
    inputChannels,
    outputChannels: bitChannels(width),
    bayes: null,
    draw,
    encode(of) {
      const { items, outputs } = of.sizes;
      const priorities = of.priorities ?? new Float64Array(items);
      const sequence = emptySequence(of, items + 1 + outputs, width + 2, width);
      for (let i = 0; i < items; i++) {
        showVector(sequence, i, i);
        setInput(sequence, i, width, priorities[i]);
      }
      setInput(sequence, items, width + 1, 1);
      const ranking = Array.from({ length: items }, (_, i) => i).sort((a, b) => priorities[b] - priorities[a] || a - b);
      for (let k = 0; k < outputs; k++) askVector(sequence, items + 1 + k, ranking[k]);
      return sequence;
    },
    place(of, t, channel) {
      if (t >= of.sizes.items || channel > width) return null;
      if (channel < width) return bitPlace(of, t * width + channel);
      return { field: "priorities", index: t, kind: "number", value: of.priorities?.[t] ?? 0, least: -1, most: 1 };
    },
    paint,
    resize: (old, given, address) => keepOld(draw(address, { ...old.sizes, ...given }), old),
  };
}
