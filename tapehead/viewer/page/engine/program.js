// @ts-check
/** The motion of the heads as run-length code: WRITE +1 x20; JUMP slot 3 (content); READ +1 x20. */
import { row } from "./tensors.js";

/** @typedef {import("./api.js").Head} Head */
/** @typedef {import("./api.js").NTMMachine} NTMMachine */
/** @typedef {import("./api.js").NTMTrace} NTMTrace */
/** @typedef {import("./api.js").ProgramLine} ProgramLine */

const FOCUSED = 0.5; // a head is at a slot that has more than this share of its weight
const CHANGE = 0.05; // a write that changes no cell by more than this part of the tape's largest entry holds

/**
 * Where a weighting is: its largest slot, and the mean and deviation around it in slots, the tape being a circle.
 * @param {ArrayLike<number>} weighting
 */
export function focus(weighting) {
  const slots = weighting.length;
  let slot = 0;
  for (let i = 1; i < slots; i++) if (weighting[i] > weighting[slot]) slot = i;
  let [total, first, second] = [0, 0, 0];
  for (let i = 0; i < slots; i++) {
    const away = distance(slot, i, slots);
    total += weighting[i];
    first += weighting[i] * away;
    second += weighting[i] * away * away;
  }
  const offset = total > 0 ? first / total : 0;
  const variance = total > 0 ? second / total - offset * offset : 0;
  return {
    slot,
    weight: weighting[slot],
    mean: (((slot + offset) % slots) + slots) % slots,
    spread: Math.sqrt(Math.max(variance, 0)),
  };
}

/**
 * From one slot to another the shorter way round, forwards if both are equal.
 * @param {number} from
 * @param {number} to
 * @param {number} slots
 */
function distance(from, to, slots) {
  const forwards = (((to - from) % slots) + slots) % slots;
  return forwards > slots / 2 ? forwards - slots : forwards;
}

/** One step of one head.
 * @typedef {{op: ProgramLine["op"], motion: ProgramLine["motion"], step: number, slot: number, by: ProgramLine["by"]}}
 *   Move
 */

/**
 * The program of a run, head by head: write heads first, as the machine uses them.
 * @param {NTMMachine} machine
 * @param {NTMTrace} trace
 * @returns {ProgramLine[]}
 */
export function program(machine, trace) {
  const { write_heads: writing, read_heads: reading, shift_range: range } = machine.config;
  let largest = 0;
  for (const value of trace.memory.data) if (Math.abs(value) > largest) largest = Math.abs(value);
  /** @type {ProgramLine[]} */
  const lines = [];
  for (const [kind, count] of /** @type {["write" | "read", number][]} */ ([
    ["write", writing],
    ["read", reading],
  ])) {
    for (let index = 0; index < count; index++) {
      const head = { kind, index };
      lines.push(
        ...joinMoves(
          head,
          Array.from({ length: trace.steps }, (_, t) => moveAt(trace, head, t, range, largest)),
        ),
      );
    }
  }
  return lines;
}

/**
 * @param {NTMTrace} trace
 * @param {Head} head
 * @param {number} t
 * @param {number} range
 * @param {number} largest
 * @returns {Move}
 */
function moveAt(trace, head, t, range, largest) {
  const heads = trace[head.kind];
  const part = (/** @type {import("./api.js").Tensor} */ of) =>
    row({ shape: of.shape.slice(1), data: row(of, t) }, head.index);
  const now = focus(part(heads.weightings));
  const before = focus(part(heads.previous));
  const step = distance(before.slot, now.slot, trace.slots);
  const by = row(heads.gates, t)[head.index] > 0.5 ? "content" : "location";
  const op = head.kind === "read" ? "READ" : changeOf(trace, head.index, t) > CHANGE * largest ? "WRITE" : "HOLD";
  if (now.weight < FOCUSED) return { op, motion: "spread", step: 0, slot: now.slot, by };
  const jumps = Math.abs(step) > range || before.weight < FOCUSED;
  return { op, motion: jumps ? "jump" : "move", step, slot: now.slot, by };
}

/** The most that a write head changes a cell in a step.  @param {NTMTrace} trace @param {number} h @param {number} t */
function changeOf(trace, h, t) {
  const heads = trace.written.shape[1];
  const width = trace.add.shape[2];
  const before = row(trace.memoryBefore, t);
  const from = (t * heads + h) * trace.slots;
  const at = (t * heads + h) * width;
  let most = 0;
  for (let i = 0; i < trace.slots; i++) {
    const w = trace.written.data[from + i];
    if (w < 1e-3) continue;
    for (let j = 0; j < width; j++) {
      const change = w * (trace.add.data[at + j] - trace.erase.data[at + j] * before[i * width + j]);
      most = Math.max(most, Math.abs(change));
    }
  }
  return most;
}

/** @param {Head} head @param {Move[]} moves @returns {ProgramLine[]} */
function joinMoves(head, moves) {
  /** @type {ProgramLine[]} */
  const lines = [];
  moves.forEach((move, t) => {
    const last = lines.at(-1);
    const goes =
      last && last.motion === move.motion && last.op === move.op && last.step === move.step && move.motion !== "jump";
    if (last && goes) {
      last.to = t;
      last.count += 1;
    } else {
      lines.push({ head, from: t, to: t, count: 1, text: "", ...move });
    }
  });
  for (const line of lines) line.text = describe(line);
  return lines;
}

/** @param {ProgramLine} line */
function describe(line) {
  if (line.motion === "jump") return `JUMP slot ${line.slot} (${line.by})${line.op === "HOLD" ? "" : `, ${line.op}`}`;
  if (line.motion === "spread") return `${line.op} spread x${line.count}`;
  const step = line.step > 0 ? `+${line.step}` : String(line.step);
  return `${line.op} ${step} x${line.count}`;
}
