// @ts-check
/**
 * The program: the motion of the selected heads as run-length code, beside the algorithm of the task.
 *
 * @typedef {import("./model.js").View} View
 * @typedef {import("./state.js").State} State
 */
import { algorithmOf } from "./algorithms.js";
import { byId, el, fill, say } from "./dom.js";
import { programOf } from "./model.js";
import { HEADS } from "./state.js";

/** The lines of the selected heads. @param {View} view @param {State} state */
function programLines(view, state) {
  return programOf(view.machine, view.trace).filter(({ head }) => head.index === state[head.kind]);
}

/** @param {View} view @param {State} state */
export function fillProgram(view, state) {
  const lines = programLines(view, state);
  for (const kind of HEADS) {
    say(byId(`program-${kind}-title`), `${kind === "write" ? "Write" : "Read"} head ${state[kind] + 1}`);
    fillLines(
      byId(`program-${kind}`),
      lines.filter(({ head }) => head.kind === kind),
      state.t,
    );
  }
  fillAlgorithm(view, state);
}

/** @param {HTMLElement} list @param {import("../engine/api.js").ProgramLine[]} lines @param {number} t */
function fillLines(list, lines, t) {
  const key = lines.map(({ text, from }) => `${from}${text}`).join();
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    fill(
      list,
      ...lines.map(({ from, to, text }) =>
        el("li", { text: `${from === to ? `step ${from}` : `steps ${from}–${to}`}: ${text}` }),
      ),
    );
  }
  lines.forEach(({ from, to }, i) => light(list.children[i], t >= from && t <= to, list));
}

/** @param {View} view @param {State} state */
function fillAlgorithm(view, state) {
  const algorithm = algorithmOf(view);
  const list = byId("pseudo");
  say(byId("pseudo-title"), algorithm ? algorithm.title : "The algorithm");
  say(byId("pseudo-note"), algorithm ? algorithm.note : `There is no description of the ${view.task.title} task here.`);
  const lines = algorithm ? algorithm.lines : [];
  if (list.dataset.key !== lines.join()) {
    list.dataset.key = lines.join();
    fill(list, ...lines.map((text) => el("li", { text })));
  }
  const now = algorithm ? algorithm.line(view, state.t) : -1;
  lines.forEach((_, i) => light(list.children[i], i === now, list));
}

/**
 * Mark a line as the current one, and keep it in view inside its list.
 * @param {Element} line
 * @param {boolean} lit
 * @param {Element} list
 */
function light(line, lit, list) {
  if (lit === line.hasAttribute("aria-current")) return;
  if (!lit) {
    line.removeAttribute("aria-current");
    return;
  }
  line.setAttribute("aria-current", "step");
  const [item, whole] = [/** @type {HTMLElement} */ (line), /** @type {HTMLElement} */ (list)];
  const top = item.offsetTop - whole.offsetTop;
  if (top < whole.scrollTop || top + item.offsetHeight > whole.scrollTop + whole.clientHeight)
    whole.scrollTop = top - whole.clientHeight / 2;
}
