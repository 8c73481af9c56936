// @ts-check
/**
 * Colours. Each comes from a custom property of the stylesheet, so light and dark have one home.
 *
 * Ramps go from the background to a dark (in the dark theme: light) colour, so that a larger value also has more
 *   contrast in
 * grey. Signs, which grey cannot show, are also drawn as glyphs. Write and read heads differ in hue, dash and marker.
 */

const NAMES = [
  "paper",
  "panel",
  "ink",
  "muted",
  "line",
  "grid",
  "write",
  "read",
  "wrong",
  "answer",
  "positive",
  "negative",
  "erased",
  "added",
  "ghost",
  "cursor",
  "mark",
];

/**
 * @typedef {Record<string, string> & {ramps: Record<string, Uint32Array>, signed: Uint32Array}} Palette
 */

/** @type {Palette | null} */
let current = null;

/** The colours of the theme that is shown. @returns {Palette} */
export function palette() {
  const known = current ?? readPalette();
  current = known;
  return known;
}

/** Read the colours again after the theme changed. */
export function forgetPalette() {
  current = null;
}

/** Whether the dark colours are shown: by the switch, or by the system. */
function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const dark = isDark();
  const colours = Object.fromEntries(
    NAMES.map((name) => [
      name,
      (style.getPropertyValue(`--${name}`).match(/#[0-9a-f]{6}/gi) ?? ["#000000"]).at(dark ? -1 : 0) ?? "",
    ]),
  );
  const zero = colours.paper;
  const ramps = {
    ink: ramp([zero, mix(zero, colours.ink, 0.45), colours.ink]),
    write: ramp([zero, mix(zero, colours.write, 0.55), colours.write, mix(colours.write, colours.ink, 0.6)]),
    read: ramp([zero, mix(zero, colours.read, 0.55), colours.read, mix(colours.read, colours.ink, 0.6)]),
  };
  const positive = [mix(zero, colours.positive, 0.55), colours.positive, mix(colours.positive, colours.ink, 0.55)];
  const negative = [mix(zero, colours.negative, 0.55), colours.negative, mix(colours.negative, colours.ink, 0.55)];
  const signed = ramp([...negative.reverse(), zero, ...positive]);
  /** @type {any} */
  const whole = { ...colours, ramps, signed };
  return whole;
}

/** @param {string} hex @returns {number[]} */
function parse(hex) {
  const digits = hex.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

/** Between two colours. @param {string} from @param {string} to @param {number} share */
function mix(from, to, share) {
  const [a, b] = [parse(from), parse(to)];
  return `#${a
    .map((x, i) =>
      Math.round(x + (b[i] - x) * share)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

/** 256 colours through the given ones, as the words of an ImageData (little-endian RGBA). @param {string[]} stops */
function ramp(stops) {
  const table = new Uint32Array(256);
  const parsed = stops.map(parse);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const [r, g, b] = parsed[low].map((x, c) => Math.round(x + (parsed[low + 1][c] - x) * (at - low)));
    table[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return table;
}

/** A colour of a ramp as CSS. @param {Uint32Array} table @param {number} share between 0 and 1 */
export function rampColour(table, share) {
  const word = table[Math.max(0, Math.min(255, Math.round(share * 255)))];
  return `rgb(${word & 255}, ${(word >> 8) & 255}, ${(word >> 16) & 255})`;
}
