"""What code inside the engine's page may use, and its numbers in Python."""

import base64

import numpy as np

PRELUDE = """
const sentence = (work) => {
  try {
    work();
    return "taken";
  } catch (error) {
    return error instanceof api.EngineError ? error.message : `bug: ${error}`;
  }
};
const packed = (data) => {
  const bytes = new Uint8Array(Float64Array.from(data).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
};
"""


def unpacked(text: str) -> np.ndarray:
    """What `packed` gave back of a page's numbers."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8")
