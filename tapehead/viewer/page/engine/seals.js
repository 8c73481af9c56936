// @ts-check
/**
 * SHA-256 of files, and the seal of JSON files (tapehead/files.py). Browsers offer SHA-256 on https, localhost and file
 * pages; elsewhere nothing is compared.
 */

/**
 * @param {ArrayBuffer | Uint8Array} data
 * @returns {Promise<string | null>}  hexadecimal; null where the browser offers no SHA-256
 */
export async function sha256(data) {
  if (!globalThis.crypto?.subtle) return null;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", /** @type {BufferSource} */ (data)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Whether a sealed text is as it was written: its last field is the SHA-256 of all the text before it. True where that
 * cannot be found out.
 * @param {Uint8Array} data
 */
export async function isSealed(data) {
  const tail = new TextDecoder().decode(data.subarray(-68));
  const match = /^([0-9a-f]{64})"\n\}\n$/.exec(tail);
  if (!match) return false;
  const found = await sha256(data.subarray(0, -68));
  return found === null || found === match[1];
}
