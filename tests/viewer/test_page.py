"""The page's figures and controls: the cursor, painting, sizes, machines, heads, the address, pictures."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import tape_room
import torch

import tapehead

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def room(chromium, served):
    with tape_room.opened(chromium, served.url, viewport={"width": 1280, "height": 1000}) as room:
        room.page.goto(served.url)
        room.page.wait_for_selector(tape_room.READY)
        yield room


def sequence(length, seed=0):
    """What the page draws for a seed."""
    task = tapehead.make_task("copy")
    return task.sample(tapehead.stream(seed=seed, name="viewer", step=0), batch_size=1, length=length)


def test_the_first_view_has_a_machine_a_right_answer_and_named_figures(room):
    room.settle()
    assert room.text("headline").startswith("copy-ntm-lstm: ntm, lstm controller")
    assert room.text("verdict") == "All 96 answers are right (0.0 bits)"
    assert "25 time steps of the Copy task" in room.label("score")
    assert room.label("tape").startswith(f"Memory after step {room.step}")
    assert room.step > 12  # in the answer, where there is something to see


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        (["ArrowRight"], 7),
        (["ArrowLeft"], 5),
        (["Shift+ArrowRight"], 16),
        (["Home"], 0),
        (["End"], 24),
        (["Home", "ArrowLeft"], 0),
        (["End", "ArrowRight"], 24),
    ],
)
def test_keys_move_the_cursor(room, keys, step):
    room.open("t=6").press(*keys)
    assert room.step == step
    assert room.text("clock").startswith(f"step {step} of 24")
    assert f"Memory after step {step}," in room.label("tape")


def test_buttons_and_the_slider_move_the_cursor(room):
    room.open("t=6")
    seen = [room.click(name).step for name in ("forward", "back", "last", "first")]
    assert seen == [7, 6, 24, 0]
    assert room.set("time", 11).step == 11


def test_space_plays_and_pauses(room):
    room.open("t=3").press(" ")
    assert room.text("play") == "Pause"
    room.until(lambda: room.step > 4)
    room.press(" ")
    assert room.text("play") == "Play"
    step = room.step
    room.page.wait_for_timeout(300)
    assert room.step == step


def test_playing_stops_at_the_end(room):
    room.open("t=23").press(" ")
    room.until(lambda: room.text("play") == "Play")
    assert room.step == 24


def test_a_click_on_the_score_moves_the_cursor_and_dragging_scrubs(room):
    room.open("t=0")
    x, y = room.point(9, 0, band=1)
    room.page.mouse.click(x, y)
    assert room.settle().step == 9
    assert room.drag(room.point(4, 3, band=1), room.point(20, 3, band=1)).step == 20


def test_a_painted_bit_is_seen_by_the_machine(room):
    room.open("t=0")
    bit = sequence(12).inputs[4, 0, 2].item()
    before = room.pixels("score")
    room.click_cell(4, 2)
    assert room.text("past") == "the input is painted"
    assert room.page.get_attribute("#paint-2", "aria-pressed") == str(bit == 0).lower()
    assert room.wrong == 0  # the target follows, and the machine copies that too
    assert room.pixels("score") != before
    assert "content=" in room.hash()
    room.click("unpaint")
    assert room.text("past") == ""
    room.page.mouse.move(0, 0)
    assert room.set("time", 0).pixels("score") == before


def test_dragging_paints_a_row(room):
    room.open("t=0")
    start = sequence(12).inputs[1, 0, 6].item()
    room.drag(room.point(1, 6), room.point(6, 6))
    for step in range(1, 7):
        room.set("time", step)
        assert room.page.get_attribute("#paint-6", "aria-pressed") == str(start == 0).lower()


def test_the_delimiter_cannot_be_painted(room):
    room.open("t=0").click_cell(12, 8)
    assert room.text("past") == ""
    assert room.text("paint-bits") == "Nothing to paint at this step: it has a delimiter, or no input."


def test_bits_are_painted_by_keyboard(room):
    room.open("t=5")
    room.page.focus("#paint-3")
    before = room.page.get_attribute("#paint-3", "aria-pressed")
    room.press("Enter")
    assert room.page.get_attribute("#paint-3", "aria-pressed") != before
    assert room.page.evaluate("document.activeElement.id") == "paint-3"


def test_a_priority_is_painted_as_a_number(room):
    room.open("machine=priority-sort-ntm-lstm&t=2")
    room.page.fill("#paint-8", "0.5")
    room.page.keyboard.press("Tab")
    assert room.settle().value("paint-8") == "0.5"
    assert room.text("past") == "the input is painted"


def test_the_sequence_of_a_seed_is_that_of_python(room):
    room.open("seed=7&t=3")
    bits = [int(room.text(f"paint-{channel}")) for channel in range(8)]
    assert bits == sequence(12, seed=7).inputs[3, 0, :8].int().tolist()


def test_sizes_go_past_the_training_range(room):
    room.open().set("size-length", 50)
    assert room.steps == 101
    assert room.text("past") == "Length 50 is past the training range (1 to 20)"
    assert room.wrong == 0


def test_a_painted_sequence_keeps_its_paint_when_it_grows(room):
    room.open("t=0").click_cell(2, 0)
    bit = room.text("paint-0")
    room.set("size-length", 15).set("time", 2)
    assert room.steps == 31
    assert room.text("paint-0") == bit
    assert "painted" in room.text("past")


def test_a_tape_that_is_too_short_is_written_over(room):
    room.open("size.length=60")
    assert room.wrong == 0
    room.set("slots", 32)
    assert room.wrong > 100
    assert "a tape of 32 slots" in room.text("score-note")


def test_seeds_and_new_sequences(room):
    room.open("t=2")
    first = room.pixels("score")
    room.click("redraw")
    assert room.value("seed") == "1"
    assert room.pixels("score") != first
    assert room.set("seed", 0).pixels("score") == first
    room.press("n")
    assert room.value("seed") == "1"


def test_machines_are_chosen_from_a_list(room):
    room.open("t=9&panel=lineage").choose("machine", "priority-sort-ntm-lstm")
    room.until(lambda: room.text("headline").startswith("priority-sort"))
    assert room.page.locator("#sizes input").count() == 2
    assert room.page.locator("#write-head option").count() == 5
    assert "machine=priority-sort-ntm-lstm" in room.hash()


def test_heads_are_chosen_one_of_each_kind(room):
    room.open("machine=priority-sort-ntm-lstm&t=26")
    first = room.label("tape")
    assert "write head 1" in first
    room.choose("write-head", "4")
    assert "write head 5 at slot" in room.label("tape")
    room.choose("read-head", "2")
    assert "read head 3 at slot" in room.label("tape")


def test_all_slots_can_be_shown(room):
    room.open("t=5")
    assert "slots 127 to 14" in room.label("tape")
    room.choose("span", "all")
    assert "slots 0 to 127" in room.label("tape")


def test_pointing_reads_values(room):
    room.open("t=5")
    room.page.mouse.move(*room.point(3, 4))
    assert room.settle().text("readout") == f"Step 3: input bit 4 is {sequence(12).inputs[3, 0, 4]:.2f}."
    room.page.mouse.move(*room.point(15, 2, band=2))
    assert re.fullmatch(r"Step 15: output bit 2 is one with probability \S+; right\.", room.settle().text("readout"))
    box = room.box("tape")
    room.page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 100)
    assert re.match(r"Slot \d+, column \d+: .* after step 5; .* erased, .* added\.", room.settle().text("tape-note"))


def test_a_link_shows_the_same(room, chromium, served):
    room.open("t=0").click_cell(4, 2)
    room.tab("interventions").apply("gate", head="write 0", value=0.5, from_=3)
    room.set("time", 17)
    link, verdict, picture = room.hash(), room.text("verdict"), room.pixels("tape")
    with tape_room.opened(chromium, served.url, viewport={"width": 1280, "height": 1000}) as other:
        other.open(link.removeprefix("#"))
        assert other.text("verdict") == verdict
        assert other.step == 17
        assert other.pixels("tape") == picture
        assert other.text("edits").startswith("write head 1: gate held at 0.5 from step 3 on")


def test_the_back_button_goes_back_a_chapter(room):
    room.open("chapter=1")
    room.click("tour-next")
    assert room.text("tour-title") == "How a head finds its place"
    room.page.go_back()
    assert room.settle().text("tour-title") == "A network with a tape"


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("t=-4", "t in the link is"),
        ("panel=cellar", "panel in the link is"),
        ("painel=program", "painel in the link is no setting of this page; it was left out."),
        ("constructor=1", "constructor in the link is no setting of this page"),
        ("size.length=none", "which is no size"),
        ("edits=pin.w9.gate.0-.1", "write head"),
        ("edits=nonsense", "is no intervention"),
        ("content=%00%ff", ""),
        ("machine=nothing", 'There is no machine "nothing" here; copy-ntm-lstm is shown.'),
    ],
)
def test_a_damaged_link_is_a_sentence_and_a_working_page(room, state, says):
    room.open(state)
    assert says in room.text("notice")
    assert room.text("notice").endswith(".")
    assert room.wrong == 0


def test_pictures_are_saved(room, tmp_path):
    room.open("t=15&panel=lineage")
    with room.page.expect_download() as saved:
        room.page.click("#save-svg")
    assert saved.value.suggested_filename == "copy-ntm-lstm-step-15.svg"
    tree = ET.parse(saved.value.path())
    words = " ".join(text.text or "" for text in tree.iter(f"{SVG}text"))
    for name in (
        "Input",
        "Target",
        "slot",
        "time step",
        "Sharpening \N{GREEK SMALL LETTER GAMMA}",
        "Memory after step 15",
        "write step u",
        "read step t",
    ):
        assert name in words
    with room.page.expect_download() as saved:
        room.page.click("#save-png")
    saved.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_link_is_copied(room):
    room.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    room.open("t=15&panel=program").click("copy-link")
    room.until(lambda: room.text("copy-link") == "Link copied")
    copied = room.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(room.url)
    assert copied.endswith("#machine=copy-ntm-lstm&t=15&panel=program")


def test_themes(room):
    room.open("t=5")
    ground = "getComputedStyle(document.body).backgroundColor"
    light, picture = room.page.evaluate(ground), room.pixels("score")
    room.click("theme").click("theme")
    assert room.text("theme") == "Theme: dark"
    assert room.page.evaluate(ground) != light
    assert room.pixels("score") != picture
    assert "theme=dark" in room.hash()
    room.click("theme")
    assert room.page.evaluate(ground) == light


def test_the_outputs_are_those_of_python(room):
    """The readout of three output bits beside PyTorch's probabilities."""
    batch = sequence(12)
    with torch.no_grad():
        logits, _ = tapehead.load("copy-ntm-lstm")(batch.inputs)
    room.open("t=5")
    for step, bit in ((2, 1), (13, 0), (20, 7)):
        room.page.mouse.move(*room.point(step, bit, band=2))
        found = re.search(r"probability (\S+);", room.settle().text("readout"))
        assert found
        shown = float(found[1])
        assert shown == pytest.approx(torch.sigmoid(logits[step, 0, bit]).item(), abs=6e-4)


@pytest.fixture
def visited(chromium, served):
    """A page of its own: machines that were dropped onto it stay."""
    with tape_room.opened(chromium, served.url) as room:
        yield room


def test_dropped_files_are_a_machine(visited):
    zoo = Path(tapehead.__file__).parent / "zoo" / "machines"
    files = [zoo / f"copy-ntm-feedforward.{kind}" for kind in ("safetensors", "json")]
    visited.open()
    visited.page.set_input_files("#files", files)
    visited.until(lambda: visited.text("headline").startswith("copy-ntm-feedforward"))
    assert visited.wrong == 0
    assert visited.page.locator("#machine optgroup[label=Files] option").count() == 1


def test_damaged_files_are_a_sentence(visited, tmp_path):
    zoo = Path(tapehead.__file__).parent / "zoo" / "machines"
    card, weights = zoo / "copy-ntm-feedforward.json", (zoo / "copy-ntm-feedforward.safetensors").read_bytes()
    visited.open("t=4")
    for name, data in {"cut": weights[: len(weights) // 2], "noise": b"\xff" * 400, "empty": b""}.items():
        path = tmp_path / name / "copy-ntm-feedforward.safetensors"
        path.parent.mkdir()
        path.write_bytes(data)
        visited.page.set_input_files("#files", [path, card])
        visited.page.wait_for_selector("#notice:visible")
        assert visited.text("notice").endswith(".")
        assert visited.wrong == 0
        visited.press("n")
        assert not visited.page.is_visible("#notice")
    visited.page.set_input_files("#files", [card])
    visited.page.wait_for_selector("#notice:visible")


def test_files_over_the_page_are_asked_to_be_dropped(visited):
    visited.open()
    drag = """(type) => { const data = new DataTransfer(); data.items.add(new File(['x'], 'x.safetensors'));
        document.dispatchEvent(new DragEvent(type, {dataTransfer: data, cancelable: true})); }"""
    visited.page.evaluate(drag, "dragover")
    assert visited.page.is_visible("#drop")
    visited.page.evaluate(drag, "drop")
    visited.page.wait_for_selector("#notice:visible")
    assert not visited.page.is_visible("#drop")
