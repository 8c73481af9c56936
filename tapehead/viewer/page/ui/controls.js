// @ts-check
/**
 * Buttons, fields and files: each turns into one change of the state.
 *
 * @typedef {import("./app.js").Page} Page
 */
import { contentToText } from "../engine/tasks/index.js";
import { checkInterventions } from "../engine/interventions.js";
import { byId, say, show } from "./dom.js";
import { paint } from "./figure_events.js";
import { fromForm, kindChosen } from "./interventions.js";
import { address } from "./model.js";
import { savePicture } from "./picture.js";
import { HEADS, PANELS, THEMES, toHash } from "./state.js";

const valueOf = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.target).value;

/** @param {string} id @param {string} type @param {(event: Event) => void} act */
function on(id, type, act) {
  byId(id).addEventListener(type, act);
}

/** @param {Page} page */
export function wireControls(page) {
  wireTop(page);
  wireSetup(page);
  wireTransport(page);
  wireTabs(page);
  wirePanels(page);
  wireFiles(page);
}

/** @param {Page} page */
function wireTop(page) {
  on("skip", "click", (event) => {
    event.preventDefault(); // the address holds the state
    byId("main").focus();
  });
  on("tour-open", "click", () => page.openChapter(page.state.chapter ? 0 : 1));
  on("tour-close", "click", () => {
    page.openChapter(0);
    byId("tour-open").focus();
  });
  on("tour-back", "click", () => page.openChapter(page.state.chapter - 1));
  on("tour-next", "click", () => page.openChapter(page.state.chapter + 1));
  on("theme", "click", () => page.update({ theme: THEMES[(THEMES.indexOf(page.state.theme) + 1) % THEMES.length] }));
  on("lock", "click", () => page.update({ lock: !page.state.lock }));
  for (const kind of /** @type {const} */ (["svg", "png"])) {
    on(`save-${kind}`, "click", () => page.scene && savePicture(page.scene, kind).catch((error) => page.fail(error)));
  }
  on("copy-link", "click", () => copyLink(page));
}

/** @param {Page} page */
async function copyLink(page) {
  page.writeHash(false);
  const link = `${location.href.split("#")[0]}${toHash(page.state)}`;
  try {
    await navigator.clipboard.writeText(link);
    say(byId("copy-link"), "Link copied");
    setTimeout(() => say(byId("copy-link"), "Copy link"), 1500);
  } catch {
    page.notice(`The browser does not allow copying here. The link: ${link}`);
  }
}

/** @param {Page} page */
function wireSetup(page) {
  on("setup", "submit", (event) => event.preventDefault());
  on("machine", "focus", () =>
    page.room.refresh().then(
      () => page.ask(),
      (error) => page.fail(error),
    ),
  );
  on("machine", "change", (event) => page.chooseMachine(valueOf(event)));
  on("sizes", "input", (event) =>
    resize(page, /** @type {HTMLInputElement} */ (event.target).dataset.size ?? "", Number(valueOf(event))),
  );
  on("slots", "change", (event) => setWhole(page, valueOf(event), 1, (slots) => page.update({ slots, slot: null })));
  on("seed", "change", (event) => setWhole(page, valueOf(event), 0, (seed) => page.update({ seed, content: null })));
  on("redraw", "click", () => page.update({ seed: page.state.seed + 1, content: null, pick: null }));
  on("unpaint", "click", () => page.update({ content: null }));
  on("write-head", "change", (event) => page.update({ write: Number(valueOf(event)), kind: "write" }));
  on("read-head", "change", (event) => page.update({ read: Number(valueOf(event)), kind: "read" }));
  on("span", "change", (event) => page.update({ span: /** @type {"used" | "all"} */ (valueOf(event)) }));
  on("paint", "click", (event) => {
    const button = /** @type {Element} */ (event.target).closest("button[data-channel]");
    if (button)
      paint(
        page,
        page.state.t,
        Number(/** @type {HTMLElement} */ (button).dataset.channel),
        button.getAttribute("aria-pressed") === "true" ? 0 : 1,
      );
  });
  on("paint", "change", (event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (field.dataset.channel && Number.isFinite(field.valueAsNumber))
      paint(page, page.state.t, Number(field.dataset.channel), field.valueAsNumber);
  });
}

/** @param {Page} page @param {string} text @param {number} least @param {(value: number) => void} act */
function setWhole(page, text, least, act) {
  const value = Math.round(Number(text));
  if (text === "" || !Number.isFinite(value)) page.ask();
  else act(Math.max(least, Math.min(2 ** 32 - 1, value)));
}

/**
 * Another size: a painted sequence keeps what was painted.
 * @param {Page} page
 * @param {string} name
 * @param {number} value
 */
export function resize(page, name, value) {
  const { scene, state } = page;
  if (!scene || !name) return;
  const { task, content } = scene.view;
  const sizes = { ...content.sizes, [name]: value };
  if (name === "items" && "outputs" in sizes) sizes.outputs = Math.min(sizes.outputs, sizes.items);
  if (name === "outputs" && "items" in sizes) sizes.items = Math.max(sizes.outputs, sizes.items);
  const painted = state.content === null ? null : contentToText(task, task.resize(content, sizes, address(state)));
  page.update({ sizes, content: painted, pick: null });
}

/** @param {Page} page */
function wireTransport(page) {
  const to = (/** @type {(t: number, last: number) => number} */ where) => () => {
    const last = page.scene ? page.scene.view.trace.steps - 1 : 0;
    page.player.stop();
    page.update({ t: Math.max(0, Math.min(last, where(page.state.t, last))) });
  };
  on(
    "first",
    "click",
    to(() => 0),
  );
  on(
    "back",
    "click",
    to((t) => t - 1),
  );
  on(
    "forward",
    "click",
    to((t) => t + 1),
  );
  on(
    "last",
    "click",
    to((_, last) => last),
  );
  on("play", "click", () => page.player.toggle("steps"));
  on("transport", "mousedown", (event) => {
    // a mouse leaves the focus where it is, so that space still plays
    if (event.target instanceof HTMLButtonElement) event.preventDefault();
  });
  on("time", "input", (event) => page.update({ t: Number(valueOf(event)) }));
}

/** @param {Page} page */
function wireTabs(page) {
  for (const panel of PANELS) on(`tab-${panel}`, "click", () => page.update({ panel }));
  on("tabs", "keydown", (event) => {
    const { key } = /** @type {KeyboardEvent} */ (event);
    const at = PANELS.indexOf(page.state.panel);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: PANELS.length - 1 }[key];
    if (next === undefined) return;
    event.preventDefault();
    const panel = PANELS[(next + PANELS.length) % PANELS.length];
    page.update({ panel });
    byId(`tab-${panel}`).focus();
  });
}

/** @param {Page} page */
function wirePanels(page) {
  for (const kind of HEADS) on(`kind-${kind}`, "change", () => page.update({ kind, slot: null }));
  on("slot", "change", (event) => setWhole(page, valueOf(event), 0, (slot) => page.update({ slot })));
  on("slot-auto", "click", () => page.update({ slot: null }));
  on("pick", "change", (event) => setWhole(page, valueOf(event), 0, (pick) => page.update({ pick })));
  on("pick-cursor", "click", () => page.update({ pick: null }));
  on("edit-kind", "change", kindChosen);
  on("edit", "submit", (event) => {
    event.preventDefault();
    applyForm(page);
  });
  on("snapshot", "input", (event) => {
    page.player.stop();
    page.update({ snapshot: page.scene?.snapshots[Number(valueOf(event))]?.key ?? null });
  });
  on("training-play", "click", () => page.player.toggle("training"));
  on("rival", "change", (event) => page.update({ rival: valueOf(event) }));
  on("race-size", "input", (event) => resize(page, page.scene?.view.task.sizes[0].name ?? "", Number(valueOf(event))));
  on("race-sweep", "click", () => page.track.measure().catch((error) => page.fail(error)));
}

/** @param {Page} page */
function applyForm(page) {
  if (!page.scene) return;
  try {
    const edits = [...page.state.edits, fromForm(page.scene.view)];
    checkInterventions(page.scene.view.machine, edits);
    page.update({ edits });
  } catch (error) {
    page.fail(error);
  }
}

/** Files by the button, and dropped anywhere. @param {Page} page */
function wireFiles(page) {
  const files = /** @type {HTMLInputElement} */ (byId("files"));
  on("open-files", "click", () => files.click());
  on("files", "change", () => {
    if (files.files?.length) page.addFiles([...files.files]);
    files.value = "";
  });
  const carriesFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false;
  document.addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    show(byId("drop"), true);
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) show(byId("drop"), false);
  });
  document.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    show(byId("drop"), false);
    page.addFiles([...(event.dataTransfer?.files ?? [])]);
  });
}
