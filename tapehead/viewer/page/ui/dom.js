// @ts-check
/**
 * Small helpers over the DOM. Text always goes in as text, never as markup.
 */

/** @param {string} id */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element "${id}".`);
  return found;
}

/**
 * A new element. `props` are attributes; `on` maps event names to listeners, `text` is its text.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {(Node | string | null)[]} children
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on")
      Object.entries(value).forEach(([type, act]) => node.addEventListener(type, /** @type {any} */ (act)));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/** Replace the children of a node. @param {Element} node @param {(Node | string | null)[]} children */
export function fill(node, ...children) {
  node.replaceChildren(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null)));
}

/** Set text only if it changed: a screen reader hears less. @param {Element} node @param {string} text */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Show or hide. @param {Element} node @param {boolean} shown */
export function show(node, shown) {
  node.toggleAttribute("hidden", !shown);
}

/**
 * Options of a select, and which one is chosen; nothing is touched if they are as they were, so an open list stays
 *   open.
 * @param {HTMLSelectElement} select
 * @param {{value: string, text: string, group?: string}[]} options
 * @param {string} chosen
 */
export function choices(select, options, chosen) {
  const key = JSON.stringify(options);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren();
    const groups = new Map();
    for (const { value, text, group } of options) {
      const option = el("option", { value, text });
      if (!group) {
        select.append(option);
        continue;
      }
      if (!groups.has(group)) groups.set(group, select.appendChild(el("optgroup", { label: group })));
      groups.get(group).append(option);
    }
  }
  if (select.value !== chosen) select.value = chosen;
}

/**
 * A form control's value and limits, left alone while a person types in it.
 * @param {HTMLInputElement} input
 * @param {{value: number | string, min?: number, max?: number, step?: number}} given
 */
export function setInput(input, { value, min, max, step }) {
  if (min !== undefined) input.min = String(min);
  if (max !== undefined) input.max = String(max);
  if (step !== undefined) input.step = String(step);
  const typing = document.activeElement === input && input.type === "number";
  if (!typing && input.value !== String(value)) input.value = String(value);
}

/** A number with few digits, for labels and equations. @param {number} x @param {number} [digits] */
export function short(x, digits = 2) {
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  if (size !== 0 && (size < 10 ** -digits / 2 || size >= 1e5))
    return x.toExponential(1).replace("e-", "e−").replace("-", "−");
  return x.toFixed(size >= 100 ? 0 : digits).replace("-", "−");
}

/** "1 bit", "2 bits". @param {number} n @param {string} word @param {string} [many] */
export function plural(n, word, many = `${word}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? word : many}`;
}
