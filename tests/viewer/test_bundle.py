"""The exporter's bundler: our module style, and nothing else."""

import pytest

from tapehead.viewer import assets
from tapehead.viewer.bundle import bundle

MODULES = {
    "main.js": """// @ts-check
import { twice, sum as plus } from "./lib/numbers.js";
import * as texts from "./lib/texts.js";
import { PI_TEXT } from "./index.js";
import "./effect.js";

/** @type {string} */
const title = `kept:
// in a template
/** also this */
`;
globalThis.result = [twice(2), plus(1, 2), texts.shout("a"), PI_TEXT, new texts.Box(4).value, globalThis.effect, title];
""",
    "index.js": 'export { PI as PI_TEXT } from "./lib/numbers.js";\n',
    "effect.js": "globalThis.effect = 1;\n",
    "lib/numbers.js": """
export function twice(x) {
  return 2 * x; // a comment behind code stays
}
const sum = (/** @type {number} */ a, b) => a + b;
export { sum };
export const PI = "3.14";
""",
    "lib/texts.js": """import {
  twice,
} from "./numbers.js";
export async function later() {}
export class Box {
  constructor(value) { this.value = twice(value); }
}
export const shout = (text) => `${text}!`;
""",
}


def test_a_bundle_does_what_the_modules_do(page):
    text = bundle(MODULES, "main.js")
    page.evaluate(f"() => {{ {text} }}")
    title = "kept:\n// in a template\n/** also this */\n"
    assert page.evaluate("globalThis.result") == [4, 3, "a!", "3.14", 8, 1, title]
    assert text == bundle(dict(reversed(MODULES.items())), "main.js")
    assert "@type" not in text
    assert text.count("function twice") == 1


def test_code_behind_a_type_at_the_beginning_of_a_line_stays():
    source = "const box =\n  /** @type {unknown} */ ({ value: 1 });\nuse(box);\n/** the end */\nuse(box);\n"
    text = bundle({"main.js": source}, "main.js")
    assert "({ value: 1 });\nuse(box);\nuse(box);" in text
    assert "the end" not in text


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("export default function f() {}\n", "does not know"),
        ("export let x = 1;\n", "does not know"),
        ('import x from "./y.js";\n', "does not know"),
        ('export * from "./y.js";\n', "does not know"),
        ('const x = import("./y.js");\n', "does not know"),
        ("await fetch('x');\n", "does not know"),
        ('import { default as x } from "./y.js";\n', "does not know"),
        ('import { x } from "./nowhere.js";\n', "is not there"),
        ('import { x } from "../../outside.js";\n', "is not there"),
        ('import { x } from "./main.js";\n', "in a circle"),
        ('const x = "</SCRIPT>";\n', "would end the script"),
        ('const x = "<!--";\n', "would end the script"),
    ],
)
def test_other_forms_are_refused(source, says):
    with pytest.raises(ValueError, match=says):
        bundle({"main.js": source, "y.js": "export const y = 1;\n"}, "main.js")


def test_the_page_is_in_our_style():
    sources = {name: data.decode() for name, data in assets.page_files().items() if name.endswith(".js")}
    text = bundle(sources, assets.ENTRY)
    assert len(text) < 300_000
