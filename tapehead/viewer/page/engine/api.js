// @ts-check
/**
 * The engine's interface: all that the page imports of it, with its types.
 *
 * Legend, as in Python: T time, I input channels, O output channels, N slots, M width, R read heads, W write heads, H
 * heads of one kind, C controller size, L layers, r shift range. Tensors are flat, row-major; time is the first
 * dimension of everything in a trace.
 *
 * @typedef {{shape: number[], data: Float64Array}} Tensor
 *   `row(tensor, t)` is the part at index t of the first dimension, as a view.
 *
 * --- machines -------------------------------------------------------------------------------------------------------
 *
 * @typedef {object} NTMConfig   the options of NTMConfig in Python that a forward pass needs
 * @property {number} input_size
 * @property {number} output_size
 * @property {"lstm" | "feedforward"} controller
 * @property {number} controller_size
 * @property {number} controller_layers
 * @property {number} read_heads
 * @property {number} write_heads
 * @property {number} memory_slots
 * @property {number} memory_width
 * @property {"softmax" | "scalar"} shift
 * @property {number} shift_range
 * @property {"constant" | "random" | "addresses" | "learned" | "given"} initial_memory
 * @property {number} initial_memory_value
 * @property {number} initial_memory_scale
 * @property {"first" | "spread" | "uniform" | "learned" | "zeros"} initial_weightings
 * @property {"zeros" | "learned" | "memory"} initial_reads
 * @property {"zeros" | "learned"} initial_controller
 * @property {"write_then_read" | "read_then_write"} order
 * @property {"linear" | "tanh"} key_activation
 * @property {"linear" | "tanh" | "sigmoid"} add_activation
 * @property {"hidden_and_reads" | "hidden"} output_from
 * @property {number | null} interface_clip
 * @property {boolean} write_gate
 *
 * @typedef {{input_size: number, output_size: number, hidden_size: number, num_layers: number}} LSTMConfig
 *
 * @typedef {{name: string, options: Object<string, any>}} TaskSpec   name and options as in a card; `makeTask(spec)`
 *   makes the task
 *
 * @typedef {object} MachineBase
 * @property {string} id        unique in its source
 * @property {string} title     a short name to show, such as "copy-ntm-lstm"
 * @property {TaskSpec | null} task   what it was trained on; null if that is not known, or a task that the page does
 *   not have
 * @property {Object<string, any> | null} card   the card of a zoo machine: command, criteria, points, curve,
 *   environment ...; null for others
 * @property {string} precision   "float32", or how the weights were rounded to fit into a file
 * @property {number} parameterCount
 * @property {number | null} episodes   training sequences so far, where that is known (snapshots); null otherwise
 * @property {Object<string, Tensor>} parameters
 *
 * @typedef {MachineBase & {model: "ntm", config: NTMConfig}} NTMMachine
 * @typedef {MachineBase & {model: "lstm", config: LSTMConfig}} LSTMMachine
 * @typedef {NTMMachine | LSTMMachine} Machine
 *
 * --- running --------------------------------------------------------------------------------------------------------
 *
 * @typedef {object} State   a value: `step` never changes the one that it is given
 * @property {Float64Array} memory            [N, M]
 * @property {Float64Array} readWeightings    [R, N]
 * @property {Float64Array} writeWeightings   [W, N]
 * @property {Float64Array} reads             [R, M]
 * @property {Float64Array} hidden            [L, C]; L is 0 for a feedforward controller
 * @property {Float64Array} cell              [L, C]
 *
 * @typedef {object} HeadTrace   how the heads of one kind found their places, step by step
 * @property {Tensor} keys          [T, H, M]
 * @property {Tensor} strengths     [T, H]         beta
 * @property {Tensor} gates         [T, H]         g
 * @property {Tensor} shifts        [T, H, 2r+1]   entry j is the weight of a shift by j - r
 * @property {Tensor} sharpenings   [T, H]         gamma
 * @property {Tensor} previous      [T, H, N]      the weighting of the step before
 * @property {Tensor} similarity    [T, H, N]      cosine of the key and each slot, Eq. 6
 * @property {Tensor} content       [T, H, N]      Eq. 5
 * @property {Tensor} interpolated  [T, H, N]      Eq. 7
 * @property {Tensor} shifted       [T, H, N]      Eq. 8
 * @property {Tensor} weightings    [T, H, N]      Eq. 9
 *
 * @typedef {object} NTMTrace
 * @property {"ntm"} model
 * @property {number} steps   T
 * @property {number} slots   N
 * @property {Tensor} inputs        [T, I]
 * @property {HeadTrace} read
 * @property {HeadTrace} write
 * @property {Tensor} erase         [T, W, M]
 * @property {Tensor} add           [T, W, M]
 * @property {Tensor} writeGates    [T, W]      ones where the machine has no write gate
 * @property {Tensor} written       [T, W, N]   the weighting that was written with: the write gate times the weighting;
 *   zeros where the head is muted
 * @property {Tensor} memoryBefore  [T, N, M]   as the step finds it, cells that an intervention set included
 * @property {Tensor} memory        [T, N, M]   after the step
 * @property {Tensor} reads         [T, R, M]   zeros where the head is muted
 * @property {Tensor} hidden        [T, C]      the controller's output
 * @property {Tensor} hiddens       [T, L, C]
 * @property {Tensor} cells         [T, L, C]
 * @property {Tensor} logits        [T, O]
 * @property {State} initial   before the first step
 * @property {State} final     after the last step
 * @property {Intervention[]} interventions   those that it was run with
 *
 * @typedef {{model: "lstm", steps: number, inputs: Tensor, hidden: Tensor, cells: Tensor, logits: Tensor}} LSTMTrace
 *   hidden and cells [T, L, H], logits [T, O]
 * @typedef {NTMTrace | LSTMTrace} Trace
 *
 * --- interventions: plain data, applied while the machine runs ------------------------------------------------------
 *
 * @typedef {{kind: "read" | "write", index: number}} Head
 * @typedef {{type: "pin", from: number, to: number | null, head: Head, what: "gate" | "strength" | "sharpening", value:
 *   number}} PinNumber
 * @typedef {{type: "pin", from: number, to: number | null, head: Head, what: "shift", value: number}} PinShift
 *   value: the shift in slots, which may be a fraction: 0.25 puts 3/4 on 0 and 1/4 on +1; limited to the shift range
 * @typedef {{type: "mute", from: number, to: number | null, head: Head}} Mute   a write head writes nothing; a read
 *   head reads zeros
 * @typedef {{type: "set", at: number, slot: number, column: number | null, value: number}} SetCells
 *   the memory as step `at` finds it; column null: the whole slot
 * @typedef {{type: "scramble", at: number, from: number, to: number, seed: number}} Scramble
 *   permute the rows of slots from..to (both included) before step `at`, by a fixed permutation of that seed
 * @typedef {{type: "move", at: number, head: Head, by: number}} Move   before step `at`, the weighting that the head
 *   comes from is moved by so many slots
 * @typedef {PinNumber | PinShift | Mute | Move | SetCells | Scramble} Intervention   from..to are steps, both included;
 *   to null: until the end
 *
 * --- tasks ----------------------------------------------------------------------------------------------------------
 *
 * @typedef {{seed: number, name: string, step: number, row: number}} Address   of random numbers, as
 *   tapehead.stream(seed, name, step); row of the batch
 *
 * @typedef {object} Content   what a sequence is about, free of channels and time; every task uses the fields that it
 *   needs
 * @property {Object<string, number>} sizes   such as {length: 20}
 * @property {Float64Array} values   [count, width] bits of the vectors (copy, repeat copy, recall, sort),
 *   [length, 1] bits (N-grams, parity), [length, 2] (addition), [length, 1] numbers of the symbols (reverse)
 * @property {number} width
 * @property {Float64Array | null} priorities   [count] in -1..1 (sort)
 * @property {number | null} query   the item that is asked for, 0..items-2 (recall)
 *
 * @typedef {{name: string, kind: "bit" | "symbol" | "marker" | "number"}} Channel
 * @typedef {object} Sequence
 * @property {Content} content
 * @property {number} steps      T
 * @property {Tensor} inputs     [T, I]
 * @property {Tensor} targets    [T, O]
 * @property {Float64Array} mask [T], one at the steps that are scored
 *
 * @typedef {{name: string, least: number, most: number, training: [number, number], label: string}} SizeInfo
 *   least..most: what the page offers, far past `training`, the range of the training sequences
 *
 * @typedef {object} Task
 * @property {string} name      "copy", "repeat-copy", "associative-recall", "ngrams", "priority-sort", "reverse",
 *   "parity", "addition"
 * @property {string} variety   the name, or "repeat-copy-pulses"
 * @property {string} title     for headings: "Copy"
 * @property {TaskSpec} spec    with all options, the defaults too
 * @property {number} inputSize
 * @property {number} outputSize
 * @property {"binary" | "categorical"} loss
 * @property {SizeInfo[]} sizes
 * @property {Channel[]} inputChannels    one for each input
 * @property {Channel[]} outputChannels
 * @property {(address: Address, sizes: Object<string, number>) => Content} draw
 *   the sequence that Python's task.sample(stream(seed, name, step), batch_size > row, **sizes) has in that row
 * @property {(content: Content) => Sequence} encode
 * @property {(content: Content, t: number, channel: number) => (CellPlace | null)} place
 *   what an input cell shows of the content; null for cells that cannot be painted (delimiters, markers, silence)
 * @property {(content: Content, place: CellPlace, value: number) => Content} paint   a new content with that value
 * @property {(content: Content, sizes: Object<string, number>, address: Address) => Content} resize
 *   another size: what is there stays, the rest is drawn at the address
 * @property {((bits: ArrayLike<number>) => Float64Array) | null} bayes
 *   N-grams: the best possible probability of a one at every step, given the bits before it; null for other tasks
 *
 * @typedef {{field: "values" | "priorities" | "query", index: number, kind: "bit" | "symbol" | "number", value: number,
 *   least: number, most: number}} CellPlace
 *   a bit is painted 0 or 1; a symbol 0 or 1 (1 makes it the symbol of that step); a number anything from least to most
 *
 * @typedef {object} Score
 * @property {number} bits      cost in bits over the scored steps
 * @property {number} wrong     wrong answers
 * @property {number} answers   scored answers
 * @property {number} optimalBits   the least possible expected cost on this sequence; 0 where nothing is left to chance
 * @property {Uint8Array} errors    [T, O], one where an answer is wrong
 * @property {Tensor} probabilities [T, O]
 * @property {Float64Array} bitsByStep   [T], zeros where nothing is scored
 *
 * --- what a run means -----------------------------------------------------------------------------------------------
 *
 * @typedef {object} Lineage   of the read vectors: how much of what was read at t was written at u
 * @property {Tensor} map       [T, T]: share (t, u), the mean over the memory's columns of
 *                              sum_i w_r(t,i) w_w(u,i) prod_{u<k<=t} (1 - w_w(k,i) e_k); zero for u > t
 * @property {Float64Array} rest    [T]: the same for what is left of the initial memory
 * @property {Float64Array} edited  [T]: the same for cells that interventions set or moved
 *
 * @typedef {{u: number, writeHead: number, share: number, vector: Float64Array}} Origin
 *   vector [M]: what the write at step u contributes to the read vector; u -1: the initial memory, -2: interventions
 *
 * @typedef {object} ProgramLine   a run of equal moves of one head
 * @property {Head} head
 * @property {number} from   first step
 * @property {number} to     last step, included
 * @property {"WRITE" | "READ" | "HOLD"} op   HOLD: a write head that changes nothing
 * @property {"move" | "jump" | "spread"} motion   spread: no slot has most of the weight
 * @property {number} step   slots per step for a move: +1, -1, 0 ...
 * @property {number} slot   where the run begins
 * @property {"content" | "location"} by   how the first step got there
 * @property {number} count  steps
 * @property {string} text   "WRITE +1 x20" or "JUMP slot 3 (content)"
 *
 * --- where machines come from ---------------------------------------------------------------------------------------
 *
 * @typedef {object} MachineEntry
 * @property {string} id
 * @property {string} title
 * @property {"zoo" | "run" | "file"} group
 * @property {"ntm" | "lstm"} model
 * @property {TaskSpec | null} task
 * @property {string} detail    one line: "ntm, lstm controller; 61,880 parameters"
 * @property {boolean} snapshots   whether there are snapshots of its training
 *
 * @typedef {{key: string, episodes: number}} SnapshotEntry   oldest first
 *
 * @typedef {object} Source   one interface for the four origins
 * @property {"embedded" | "static" | "server" | "files"} kind
 * @property {boolean} live   whether `list` may answer otherwise later, as runs below a folder do
 * @property {string | null} first   the id of the machine to show first
 * @property {() => Promise<MachineEntry[]>} list
 * @property {(id: string) => Promise<Machine>} load
 * @property {(id: string) => Promise<SnapshotEntry[]>} snapshots   empty where there are none
 * @property {(id: string, key: string) => Promise<Machine>} loadSnapshot
 *
 * Every promise that is rejected has an EngineError, whose message is one sentence that can be shown to the user.
 *
 * Functions are exported below; their signatures stand where they are written.
 */

export { EngineError } from "./errors.js";
export {
  decodeInterventions,
  checkInterventions,
  describeIntervention,
  encodeInterventions,
  PINNABLE,
} from "./interventions.js";
export { initialState } from "./initial.js";
export { lineage, origins } from "./lineage.js";
export { runLSTM } from "./lstm.js";
export { run, stateAfter, step } from "./machine.js";
export { focus, program } from "./program.js";
export { score } from "./scores.js";
export { fileSource, joinSources, openSource } from "./sources.js";
export { contentFromText, contentToText, makeTask, TASK_NAMES } from "./tasks/index.js";
export { row, tensor } from "./tensors.js";
