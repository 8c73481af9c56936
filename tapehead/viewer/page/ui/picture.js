// @ts-check
/**
 * Saving what is seen: all figures on the page, one below the other, as one SVG or PNG file.
 *
 * @typedef {import("./app.js").Scene} Scene
 */
import { byId, el } from "./dom.js";
import { FIGURES } from "./figures.js";
import { palette } from "./palette.js";
import { CanvasSurface, SvgSurface } from "./surface.js";
import { outcome } from "./words.js";

const GAP = 18;
const HEAD = 34;
const LINE = 20; // of the heading, where it takes two
const HEADING = { weight: "600", size: 14 };
const RATIO = 2; // pixels of a PNG per CSS pixel

/** The heading, in two lines where the figures are narrow, and the figures with their places. @param {Scene} scene */
function placed(scene) {
  const [machine, found] = heading(scene);
  const room = Math.max(...FIGURES.filter(({ seen }) => seen(scene)).map(({ id }) => byId(id).clientWidth || 600));
  const ruler = new CanvasSurface(document.createElement("canvas"), 1, 1, 1, false);
  const fits = 1.1 * ruler.measure(`${machine}: ${found}`, HEADING.size) <= room;
  const lines = fits ? [`${machine}: ${found}`] : [machine, found];
  let y = HEAD + LINE * (lines.length - 1);
  const parts = FIGURES.filter(({ seen }) => seen(scene)).map((figure) => {
    const width = byId(figure.id).clientWidth || 600;
    const part = { figure, width, height: figure.height(scene, width), y };
    y += part.height + GAP;
    return part;
  });
  return { lines, parts, width: room + 2 * GAP, height: y };
}

/** @param {Scene} scene */
const heading = ({ view, state }) => [`${view.machine.title}, step ${state.t}`, outcome(view.task, view.score)];

/** @param {import("./surface.js").Surface} surface @param {string[]} lines */
function drawHeading(surface, lines) {
  lines.forEach((line, i) => surface.text(line, GAP, 22 + LINE * i, { ...HEADING, fill: palette().ink }));
}

/** @param {Scene} scene @returns {string} */
function svgOf(scene) {
  const { lines, parts, width, height } = placed(scene);
  const colours = palette();
  const surface = new SvgSurface();
  surface.rect(0, 0, width, height, colours.paper);
  drawHeading(surface, lines);
  const groups = [surface.group(0, 0)];
  for (const { figure, width: w, y } of parts) {
    figure.draw(surface, scene, w);
    groups.push(surface.group(GAP, y));
  }
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>\n${groups.join("\n")}\n</svg>\n`;
}

/** @param {Scene} scene @returns {Promise<Blob>} */
function pngOf(scene) {
  const { lines, parts, width, height } = placed(scene);
  const canvas = document.createElement("canvas");
  const surface = new CanvasSurface(canvas, width, height, RATIO, false);
  drawHeading(surface, lines);
  for (const { figure, width: w, y } of parts) {
    surface.context.setTransform(RATIO, 0, 0, RATIO, RATIO * GAP, RATIO * y);
    figure.draw(surface, scene, w);
  }
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large for this browser."))),
      "image/png",
    ),
  );
}

/** @param {Blob} blob @param {string} name */
function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = /** @type {HTMLAnchorElement} */ (el("a", { href: url, download: name }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** @param {Scene} scene @param {"svg" | "png"} kind */
export async function savePicture(scene, kind) {
  const blob = kind === "svg" ? new Blob([svgOf(scene)], { type: "image/svg+xml" }) : await pngOf(scene);
  download(blob, `${scene.view.machine.title.replace(/[^a-zA-Z0-9-]+/g, "-")}-step-${scene.state.t}.${kind}`);
}
