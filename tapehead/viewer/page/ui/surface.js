// @ts-check
/**
 * What figures are drawn on: a canvas, or the text of an SVG file. Both have the same operations, so a saved picture is
 * made by the code that draws the page. Coordinates are CSS pixels.
 *
 * @typedef {import("./plots.js").Box} Box
 * @typedef {{size?: number, anchor?: "start" | "middle" | "end", fill?: string, weight?: string, turn?: boolean,
 *   mono?: boolean}} TextLook
 * @typedef {{stroke: string, width?: number, dash?: number[]}} LineLook
 * @typedef {{
 *   rect(x: number, y: number, w: number, h: number, fill: string): void,
 *   frame(x: number, y: number, w: number, h: number, look: LineLook): void,
 *   line(points: number[], look: LineLook): void,
 *   steps(x: number, width: number, heights: number[], look: LineLook): void,
 *   area(points: number[], fill: string): void,
 *   curve(x0: number, x1: number, y: number, height: number, look: LineLook, opacity: number): void,
 *   disc(x: number, y: number, r: number, fill: string): void,
 *   text(text: string, x: number, y: number, look?: TextLook): void,
 *   pixels(x: number, y: number, w: number, h: number, columns: number, rows: number, words: Uint32Array): void,
 *   layer(name: string, key: string, box: Box, draw: (on: Surface) => void, clear?: boolean): void,
 *   measure(text: string, size?: number): number,
 * }} Surface
 */

import { palette } from "./palette.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const SIZE = 11;

/**
 * What a figure of the page keeps from one drawing to the next: parts that were the same, and a bitmap for each of its
 * maps, because one that waits to be drawn must not be written over.
 * @typedef {{key: string, colours: object, picture: HTMLCanvasElement}} Layer
 * @typedef {{layers: Map<string, Layer>, bitmaps: HTMLCanvasElement[]}} Kept
 */
/** @type {WeakMap<HTMLCanvasElement, Kept>} */
const keptBy = new WeakMap();

/** @param {HTMLCanvasElement} canvas @returns {Kept} */
function keptOf(canvas) {
  const kept = keptBy.get(canvas) ?? { layers: new Map(), bitmaps: [] };
  keptBy.set(canvas, kept);
  return kept;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} columns
 * @param {number} rows
 * @param {Uint32Array} words
 */
function bitmap(canvas, columns, rows, words) {
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== rows) canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  const bytes = new Uint8ClampedArray(/** @type {ArrayBuffer} */ (words.buffer), words.byteOffset, 4 * columns * rows);
  context.putImageData(new ImageData(bytes, columns, rows), 0, 0);
  return canvas;
}

/**
 * The pieces of a dashed line along one axis; without dashes it is one.
 * @param {number} from
 * @param {number} to
 * @param {number[]} dash
 * @param {(start: number, stop: number) => void} draw
 */
function eachDash(from, to, dash, draw) {
  if (to <= from) return;
  const [on, off] = dash;
  if (!dash.length) {
    draw(from, to);
    return;
  }
  for (let at = Math.floor(from / (on + off)) * (on + off); at < to; at += on + off) {
    const [start, stop] = [Math.max(at, from), Math.min(at + on, to)];
    if (stop > start) draw(start, stop);
  }
}

/** @implements {Surface} */
export class CanvasSurface {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {number} width
   * @param {number} height
   * @param {number} [ratio]
   * @param {boolean} [shown] whether it is a figure of the page, with a height in CSS pixels
   * @param {boolean} [clear] whether its ground can be seen through
   */
  constructor(canvas, width, height, ratio = window.devicePixelRatio || 1, shown = true, clear = false) {
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== w) canvas.width = w;
    if (canvas.height !== h) canvas.height = h;
    if (shown && canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
    this.ratio = ratio;
    this.kept = shown ? keptOf(canvas) : null;
    this.maps = 0;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: clear }));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.lineJoin = "round";
    this.context.textBaseline = "alphabetic";
    if (clear) this.context.clearRect(0, 0, width, height);
    else this.rect(0, 0, width, height, palette().paper);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {string} fill */
  rect(x, y, w, h, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, w, h);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {LineLook} look */
  frame(x, y, w, h, look) {
    this.look(look);
    this.context.strokeRect(x, y, w, h);
  }

  /** @param {number[]} points x and y in turn @param {LineLook} look */
  line(points, look) {
    this.path(points);
    this.look(look);
    this.context.stroke();
  }

  /**
   * A line of level pieces, each so wide, from x on. As rectangles: where there is no graphics card, a browser takes
   * several times as long for the outline of such a path.
   * @param {number} x
   * @param {number} width
   * @param {number[]} heights
   * @param {LineLook} look
   */
  steps(x, width, heights, { stroke, width: thick = 1, dash = [] }) {
    const { context } = this;
    const half = thick / 2;
    const corner = dash.length ? 0 : half;
    const levels = heights.map((y) => Math.round(4 * y) / 4);
    context.fillStyle = stroke;
    for (let i = 0, end = 0; i < levels.length; i = end) {
      const y = levels[i];
      const from = x + i * width;
      for (end = i + 1; end < levels.length && levels[end] === y;) end++;
      eachDash(from, x + end * width, dash, (start, stop) =>
        context.fillRect(start - corner, y - half, stop - start + 2 * corner, thick),
      );
      const before = levels[i - 1] ?? y;
      eachDash(Math.min(before, y), Math.max(before, y), dash, (start, stop) =>
        context.fillRect(from - half, start, thick, stop - start),
      );
    }
  }

  /** @param {number[]} points x and y in turn @param {string} fill */
  area(points, fill) {
    this.path(points);
    this.context.closePath();
    this.context.fillStyle = fill;
    this.context.fill();
  }

  /**
   * @param {number} x0
   * @param {number} x1
   * @param {number} y
   * @param {number} height
   * @param {LineLook} look
   * @param {number} opacity
   */
  curve(x0, x1, y, height, look, opacity) {
    const { context } = this;
    context.beginPath();
    context.moveTo(x0, y);
    context.bezierCurveTo(x0, y - height, x1, y - height, x1, y);
    this.look(look);
    context.globalAlpha = opacity;
    context.stroke();
    context.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y @param {number} r @param {string} fill */
  disc(x, y, r, fill) {
    this.context.beginPath();
    this.context.arc(x, y, r, 0, 2 * Math.PI);
    this.context.fillStyle = fill;
    this.context.fill();
  }

  /** @param {string} text @param {number} x @param {number} y @param {TextLook} [look] */
  text(
    text,
    x,
    y,
    { size = SIZE, anchor = "start", fill = "#000000", weight = "400", turn = false, mono = false } = {},
  ) {
    const { context } = this;
    context.font = `${weight} ${size}px ${mono ? MONO : FONT}`;
    context.fillStyle = fill;
    context.textAlign = anchor === "middle" ? "center" : anchor;
    if (!turn) {
      context.fillText(text, x, y);
      return;
    }
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    context.restore();
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {number} columns
   * @param {number} rows
   * @param {Uint32Array} words
   */
  pixels(x, y, w, h, columns, rows, words) {
    if (!columns || !rows) return;
    const place = this.maps++;
    const canvas = this.kept?.bitmaps[place] ?? document.createElement("canvas");
    if (this.kept) this.kept.bitmaps[place] = canvas;
    this.context.drawImage(bitmap(canvas, columns, rows, words), x, y, w, h);
  }

  /**
   * A part of a figure that is mostly the same as before: drawn when the key is another one, and kept as a picture.
   * Only what is inside the box is seen.
   * @param {string} name
   * @param {string} key  of all that it depends on but the colours
   * @param {Box} box
   * @param {(on: Surface) => void} draw
   * @param {boolean} [clear] whether what was drawn before shows through
   */
  layer(name, key, box, draw, clear = true) {
    if (!this.kept) {
      draw(this);
      return;
    }
    const { ratio } = this;
    const colours = palette();
    const [x, y] = [Math.floor(box.x * ratio), Math.floor(box.y * ratio)];
    let layer = this.kept.layers.get(name);
    if (!layer || layer.key !== key || layer.colours !== colours) {
      layer = { key, colours, picture: layer ? layer.picture : document.createElement("canvas") };
      const inside = new CanvasSurface(layer.picture, box.w + 1, box.h + 1, ratio, false, clear);
      inside.context.translate(-x / ratio, -y / ratio);
      draw(inside);
      this.kept.layers.set(name, layer);
    }
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.drawImage(layer.picture, x, y);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** @param {string} text @param {number} [size] */
  measure(text, size = SIZE) {
    this.context.font = `400 ${size}px ${FONT}`;
    return this.context.measureText(text).width;
  }

  /** @param {number[]} points */
  path(points) {
    this.context.beginPath();
    for (let i = 0; i < points.length; i += 2) this.context.lineTo(points[i], points[i + 1]);
  }

  /** @param {LineLook} look */
  look({ stroke, width = 1, dash = [] }) {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = width;
    this.context.setLineDash(dash);
  }
}

const r1 = (/** @type {number} */ x) => String(Math.round(x * 10) / 10);
const escaped = (/** @type {string} */ text) =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
const stroked = (/** @type {LineLook} */ { stroke, width = 1, dash = [] }) =>
  `fill="none" stroke="${stroke}" stroke-width="${r1(width)}"` +
  (dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "");

/** @implements {Surface} */
export class SvgSurface {
  constructor() {
    /** @type {string[]} */
    this.parts = [];
    this.ruler = new CanvasSurface(document.createElement("canvas"), 1, 1, 1, false);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {string} fill */
  rect(x, y, w, h, fill) {
    this.parts.push(`<rect x="${r1(x)}" y="${r1(y)}" width="${r1(w)}" height="${r1(h)}" fill="${fill}"/>`);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {LineLook} look */
  frame(x, y, w, h, look) {
    this.parts.push(`<rect x="${r1(x)}" y="${r1(y)}" width="${r1(w)}" height="${r1(h)}" ${stroked(look)}/>`);
  }

  /** @param {number[]} points x and y in turn @param {LineLook} look */
  line(points, look) {
    this.parts.push(`<polyline points="${points.map(r1).join(" ")}" ${stroked(look)}/>`);
  }

  /** @param {number} x @param {number} width @param {number[]} heights @param {LineLook} look */
  steps(x, width, heights, look) {
    this.line(
      heights.flatMap((y, i) => [x + i * width, y, x + (i + 1) * width, y]),
      look,
    );
  }

  /** @param {number[]} points x and y in turn @param {string} fill */
  area(points, fill) {
    this.parts.push(`<polygon points="${points.map(r1).join(" ")}" fill="${fill}"/>`);
  }

  /**
   * @param {number} x0
   * @param {number} x1
   * @param {number} y
   * @param {number} height
   * @param {LineLook} look
   * @param {number} opacity
   */
  curve(x0, x1, y, height, look, opacity) {
    const at = [x0, y, x0, y - height, x1, y - height, x1, y].map(r1);
    this.parts.push(
      `<path d="M${at[0]} ${at[1]}C${at.slice(2).join(" ")}" opacity="${r1(opacity)}" ${stroked(look)}/>`,
    );
  }

  /** @param {number} x @param {number} y @param {number} r @param {string} fill */
  disc(x, y, r, fill) {
    this.parts.push(`<circle cx="${r1(x)}" cy="${r1(y)}" r="${r1(r)}" fill="${fill}"/>`);
  }

  /** @param {string} text @param {number} x @param {number} y @param {TextLook} [look] */
  text(
    text,
    x,
    y,
    { size = SIZE, anchor = "start", fill = "#000000", weight = "400", turn = false, mono = false } = {},
  ) {
    const turned = turn ? ` transform="rotate(-90 ${r1(x)} ${r1(y)})"` : "";
    const family = escaped(mono ? MONO : FONT);
    this.parts.push(
      `<text x="${r1(x)}" y="${r1(y)}" font-family="${family}" font-size="${size}" font-weight="${weight}" ` +
        `text-anchor="${anchor}" fill="${fill}"${turned}>${escaped(text)}</text>`,
    );
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {number} columns
   * @param {number} rows
   * @param {Uint32Array} words
   */
  pixels(x, y, w, h, columns, rows, words) {
    if (!columns || !rows) return;
    const url = bitmap(document.createElement("canvas"), columns, rows, words).toDataURL("image/png");
    this.parts.push(
      `<image x="${r1(x)}" y="${r1(y)}" width="${r1(w)}" height="${r1(h)}" ` +
        `preserveAspectRatio="none" style="image-rendering:pixelated" href="${url}"/>`,
    );
  }

  /**
   * @param {string} _name
   * @param {string} _key
   * @param {Box} _box
   * @param {(on: Surface) => void} draw
   */
  layer(_name, _key, _box, draw) {
    draw(this);
  }

  /** @param {string} text @param {number} [size] */
  measure(text, size = SIZE) {
    return this.ruler.measure(text, size);
  }

  /** What was drawn since the last call, moved. @param {number} x @param {number} y */
  group(x, y) {
    const inside = this.parts.join("\n");
    this.parts = [];
    return `<g transform="translate(${r1(x)} ${r1(y)})">\n${inside}\n</g>`;
  }
}
