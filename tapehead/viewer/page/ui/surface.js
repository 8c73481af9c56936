// @ts-check
/**
 * What figures are drawn on: a canvas, or the text of an SVG file. Both have the same operations, so a saved picture is
 * made by the code that draws the page. Coordinates are CSS pixels.
 *
 * @typedef {{size?: number, anchor?: "start" | "middle" | "end", fill?: string, weight?: string, turn?: boolean,
 *   mono?: boolean}} TextLook
 * @typedef {{stroke: string, width?: number, dash?: number[]}} LineLook
 * @typedef {{
 *   rect(x: number, y: number, w: number, h: number, fill: string): void,
 *   frame(x: number, y: number, w: number, h: number, look: LineLook): void,
 *   line(points: number[], look: LineLook): void,
 *   area(points: number[], fill: string): void,
 *   curve(x0: number, x1: number, y: number, height: number, look: LineLook, opacity: number): void,
 *   disc(x: number, y: number, r: number, fill: string): void,
 *   text(text: string, x: number, y: number, look?: TextLook): void,
 *   pixels(x: number, y: number, w: number, h: number, columns: number, rows: number, words: Uint32Array): void,
 *   measure(text: string, size?: number): number,
 * }} Surface
 */

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const SIZE = 11;

const scratch = document.createElement("canvas");

/** @param {number} columns @param {number} rows @param {Uint32Array} words */
function bitmap(columns, rows, words) {
  if (scratch.width !== columns) scratch.width = columns;
  if (scratch.height !== rows) scratch.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (scratch.getContext("2d", { willReadFrequently: true }));
  context.putImageData(
    new ImageData(
      new Uint8ClampedArray(/** @type {ArrayBuffer} */ (words.buffer), words.byteOffset, 4 * columns * rows),
      columns,
      rows,
    ),
    0,
    0,
  );
  return scratch;
}

/** @implements {Surface} */
export class CanvasSurface {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {number} width
   * @param {number} height
   * @param {number} [ratio]
   * @param {boolean} [fixed] keep the CSS size
   */
  constructor(canvas, width, height, ratio = window.devicePixelRatio || 1, fixed = false) {
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== w) canvas.width = w;
    if (canvas.height !== h) canvas.height = h;
    if (!fixed && canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.imageSmoothingEnabled = false;
    this.context.lineJoin = "round";
    this.context.textBaseline = "alphabetic";
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
    if (columns && rows) this.context.drawImage(bitmap(columns, rows, words), x, y, w, h);
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
    this.ruler = new CanvasSurface(document.createElement("canvas"), 1, 1, 1, true);
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
    const url = bitmap(columns, rows, words).toDataURL("image/png");
    this.parts.push(
      `<image x="${r1(x)}" y="${r1(y)}" width="${r1(w)}" height="${r1(h)}" ` +
        `preserveAspectRatio="none" style="image-rendering:pixelated" href="${url}"/>`,
    );
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
