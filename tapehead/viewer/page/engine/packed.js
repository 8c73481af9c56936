// @ts-check
/**
 * Weights inside an exported page: the bytes of all numbers, most significant bytes first, compressed by zlib, in
 * base64. tapehead/viewer/packed.py writes them. Encodings: float32; float24, which is float32 without the lowest byte;
 * float16.
 */
import { EngineError, shown } from "./errors.js";
import { float16 } from "./safetensors.js";
import { sizeOf, tensor } from "./tensors.js";

/** @typedef {import("./api.js").Tensor} Tensor */
/** @typedef {{encoding: string, shapes: [string, number[]][], data: string}} Packed */

/** @type {Object<string, number>} */
const BYTES = { float32: 4, float24: 3, float16: 2 };

/**
 * @param {Packed} packed
 * @returns {Promise<Object<string, Tensor>>}
 */
export async function unpack({ encoding, shapes, data }) {
  const bytes = BYTES[encoding];
  if (!bytes)
    throw new EngineError(`the weights in this page are ${shown(encoding)}, which it cannot read: export it again.`);
  const planes = await inflate(data);
  const total = shapes.reduce((sum, [, shape]) => sum + sizeOf(shape), 0);
  if (planes.length !== total * bytes) throw new EngineError("the weights in this page are damaged: export it again.");
  const view = new DataView(new ArrayBuffer(4));
  /** @param {number} i */
  const number = (i) => {
    for (let k = 0; k < bytes; k++) view.setUint8(k, planes[k * total + i]);
    return encoding === "float16" ? float16(view.getUint16(0)) : view.getFloat32(0);
  };
  let at = 0;
  return Object.fromEntries(
    shapes.map(([name, shape]) => [
      name,
      tensor(
        shape,
        Float64Array.from({ length: sizeOf(shape) }, () => number(at++)),
      ),
    ]),
  );
}

/** @param {string} text  base64 @returns {Promise<Uint8Array>} */
async function inflate(text) {
  try {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new EngineError("the weights in this page are damaged: export it again.");
  }
}
