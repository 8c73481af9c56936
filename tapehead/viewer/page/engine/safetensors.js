// @ts-check
/**
 * A strict reader of safetensors files. Whatever is not exactly a file of float tensors that follow each other without
 * gaps is refused in one sentence, before anything of its size is allocated.
 */
import { EngineError, shown } from "./errors.js";
import { sizeOf, tensor } from "./tensors.js";

/** @typedef {import("./api.js").Tensor} Tensor */

const MOST_BYTES = 256 << 20;
const MOST_HEADER = 1 << 20;
const MOST_TENSORS = 10_000;
const MOST_DIMENSIONS = 8;

/**
 * Bytes of a number, and how it is read.
 * @type {Object<string, {bytes: number, get: (view: DataView, at: number) => number}>}
 */
const TYPES = {
  F64: { bytes: 8, get: (view, at) => view.getFloat64(at, true) },
  F32: { bytes: 4, get: (view, at) => view.getFloat32(at, true) },
  F16: { bytes: 2, get: (view, at) => float16(view.getUint16(at, true)) },
};

/** @param {string} why @returns {never} */
function refuse(why) {
  throw new EngineError(`the file of weights is damaged or no safetensors file: ${why}.`);
}

/**
 * The number of a 16-bit float.
 * @param {number} bits
 */
export function float16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/**
 * The tensors of a file.
 * @param {ArrayBuffer} buffer
 * @returns {Object<string, Tensor>}
 */
export function readSafetensors(buffer) {
  const { entries, data } = readHeader(buffer);
  /** @type {Object<string, Tensor>} */
  const found = Object.create(null);
  let end = 0;
  for (const { name, type, shape, from, to } of entries) {
    if (from !== end) refuse(`tensor ${shown(name)} begins at byte ${from}, but the one before ends at ${end}`);
    if (to - from !== sizeOf(shape) * type.bytes)
      refuse(`tensor ${shown(name)} of shape [${shape}] has ${to - from} bytes`);
    if (to > data.byteLength) refuse(`tensor ${shown(name)} ends at byte ${to}, but there are ${data.byteLength}`);
    found[name] = readTensor(name, type, shape, data, from);
    end = to;
  }
  if (end !== data.byteLength) refuse(`${data.byteLength - end} bytes follow the last tensor`);
  return found;
}

/**
 * @typedef {{name: string, type: {bytes: number, get: (view: DataView, at: number) => number}, shape: number[], from:
 *   number, to: number}} Entry
 */

/**
 * @param {ArrayBuffer} buffer
 * @returns {{entries: Entry[], data: DataView}}  in the order of their places
 */
function readHeader(buffer) {
  if (buffer.byteLength > MOST_BYTES)
    refuse(`it has ${buffer.byteLength} bytes, but the page reads at most ${MOST_BYTES}`);
  if (buffer.byteLength < 10) refuse(`it has ${buffer.byteLength} bytes`);
  const length = new DataView(buffer).getBigUint64(0, true);
  if (length > BigInt(MOST_HEADER) || Number(length) > buffer.byteLength - 8)
    refuse(`its header is said to have ${length} bytes`);
  const text = new Uint8Array(buffer, 8, Number(length));
  if (text[0] !== 0x7b) refuse("its header does not begin with {");
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text));
  } catch {
    return refuse("its header is not JSON");
  }
  const data = new DataView(buffer, 8 + Number(length));
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  if (entries.length > MOST_TENSORS)
    refuse(`it has ${entries.length} tensors, but the page reads at most ${MOST_TENSORS}`);
  return {
    entries: entries.map(([name, value]) => readEntry(name, value)).sort((a, b) => a.from - b.from || a.to - b.to),
    data,
  };
}

/** @param {string} name @param {any} value @returns {Entry} */
function readEntry(name, value) {
  const { dtype, shape, data_offsets: offsets } = value ?? {};
  if (typeof dtype !== "string" || !Object.hasOwn(TYPES, dtype)) {
    refuse(`tensor ${shown(name)} is of type ${shown(dtype)}, but the page reads ${Object.keys(TYPES).join(", ")}`);
  }
  if (!isCounts(shape) || shape.length > MOST_DIMENSIONS || sizeOf(shape) > MOST_BYTES)
    refuse(`tensor ${shown(name)} has the shape ${shown(shape)}`);
  if (!isCounts(offsets) || offsets.length !== 2 || offsets[0] > offsets[1])
    refuse(`tensor ${shown(name)} lies at ${shown(offsets)}`);
  return { name, type: TYPES[dtype], shape, from: offsets[0], to: offsets[1] };
}

/** @param {unknown} value @returns {value is number[]} */
function isCounts(value) {
  return Array.isArray(value) && value.every((part) => Number.isSafeInteger(part) && part >= 0);
}

/**
 * @param {string} name
 * @param {Entry["type"]} type
 * @param {number[]} shape
 * @param {DataView} data
 * @param {number} from
 */
function readTensor(name, type, shape, data, from) {
  const values = new Float64Array(sizeOf(shape));
  for (let i = 0; i < values.length; i++) {
    values[i] = type.get(data, from + i * type.bytes);
    if (!Number.isFinite(values[i])) refuse(`number ${i} of tensor ${shown(name)} is not finite`);
  }
  return tensor(shape, values);
}
