"""The views below the score: addressing, lineage, interventions, program, training and race."""

import re
import threading

import pytest
import tape_room
import torch

import tapehead
from tapehead.models.lstm import PaperLSTM
from tapehead.viewer import catalogue
from tapehead.viewer.server import Content, Server


class Rival(catalogue.Machine):
    """An LSTM with random weights that copies nothing."""

    id, title, group = "small-lstm", "small-lstm", "run"
    detail = "lstm; random"

    def __init__(self):
        self.model = {"name": "lstm", "hidden_size": 6, "num_layers": 2}
        self.task = dict(catalogue.ZooMachine("copy-ntm-lstm").task)

    def weights(self):
        torch.manual_seed(0)
        return {name: value.detach() for name, value in PaperLSTM(9, 8, hidden_size=6, num_layers=2).named_parameters()}

    def snapshots(self):
        return []

    def snapshot(self, key):
        raise KeyError(key)


@pytest.fixture(scope="module")
def room(chromium, served):
    with tape_room.opened(chromium, served.url, viewport={"width": 1280, "height": 1000}) as room:
        yield room


@pytest.fixture(scope="module")
def python_trace():
    """What PyTorch's machine does on the page's first sequence."""
    task = tapehead.make_task("copy")
    batch = task.sample(tapehead.stream(seed=0, name="viewer", step=0), batch_size=1, length=12)
    with torch.no_grad():
        return tapehead.load("copy-ntm-lstm")(batch.inputs, return_trace=True)[2]


def numbers(text):
    return [float(found) for found in re.findall(r"-?[\d.]+(?:e-\d+)?", text)]


def test_the_equations_hold_the_numbers_of_python(room, python_trace):
    room.open("t=6&panel=microscope")
    eqs = [tape_room.plain(text) for text in room.page.locator("#equations .filled").all_inner_texts()]
    slot = python_trace.write.weightings[6, 0, 0].argmax().item()
    assert room.value("slot") == str(slot)
    heads = python_trace.write
    gate, content, previous = heads.gates[6, 0, 0], heads.content[6, 0, 0, slot], heads.weightings[5, 0, 0, slot]
    wanted = [gate, content, 1 - gate, previous, heads.interpolated[6, 0, 0, slot]]
    assert numbers(eqs[2].partition("w_prev(7) =")[2]) == pytest.approx([float(x) for x in wanted], abs=6e-4)
    assert numbers(eqs[4])[-1] == pytest.approx(heads.weightings[6, 0, 0, slot].item(), abs=6e-4)
    assert eqs[4].startswith(f"w({slot}) = ")


def test_the_microscope_looks_at_either_head_and_any_slot(room):
    room.open("t=15&panel=microscope").click("kind-read")
    assert room.label("microscope").startswith("Addressing of read head 1 at step 15")
    strongest = room.value("slot")
    room.set("slot", 9)
    assert "w(9) =" in room.text("equations")
    room.click("slot-auto")
    assert room.value("slot") == strongest
    box = room.box("microscope")
    room.page.mouse.click(box["x"] + 200, box["y"] + 60)
    assert room.settle().value("slot") != strongest
    assert "slot=" in room.hash()


def test_a_click_on_an_output_shows_its_lineage(room):
    room.open("t=0").click_cell(16, 3, band=2)
    assert room.page.get_attribute("#tab-lineage", "aria-selected") == "true"
    assert (
        room.text("lineage-text") == "Of the vector that the read head reads at step 16, 100 % was written at step 3."
    )
    assert room.step == 16


def test_every_answer_of_a_copy_comes_from_its_own_step(room):
    room.open("panel=lineage&t=13")
    for step in (13, 20, 24):
        room.set("pick", step)
        assert f"at step {step}, 100 % was written at step {step - 13}." in room.text("lineage-text")
    room.click("pick-cursor")
    assert "reads at step 13," in room.text("lineage-text")


def test_the_map_is_clicked_and_the_key_l_picks(room):
    room.open("panel=lineage&t=2")
    box = room.box("lineage-map")
    size = min(box["width"] - 60, 380)
    room.page.mouse.click(box["x"] + 50 + size * (18.5 / 25), box["y"] + 30 + size / 2)
    assert room.settle().value("pick") == "18"
    room.open("t=21").press("l")
    assert room.value("pick") == "21"
    assert "was written at step 8." in room.text("lineage-text")


def test_scrambled_slots_break_the_lineage(room):
    room.open("panel=lineage&t=18&pick=18&edits=scramble.16.0-127.1")
    assert "was set by hand" in room.text("lineage-text")
    assert room.wrong > 0


def test_a_muted_head_breaks_the_answer_and_removing_it_mends_it(room):
    room.open("t=5").tab("interventions")
    assert "No intervention yet" in room.text("edits")
    room.apply("mute", head="write 0", from_=0)
    assert room.text("edits").startswith("write head 1: muted from step 0 on")
    assert room.wrong > 20
    assert room.text("past") == "1 intervention in force"
    before, after = room.text("edit-count").split(" With the interventions: ")
    assert before == "Untouched run: 0 wrong answers of 96 (0.0 bits)."
    assert after.startswith(f"{room.wrong} wrong answers of 96 (")
    assert "edits=mute.w0.0-" in room.hash()
    room.page.click("#edits button")
    assert room.settle().wrong == 0


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("gate", {"head": "write 0", "value": 1, "from_": 2, "to": 9}, "write head 1: gate held at 1 in steps 2 to 9"),
        ("strength", {"head": "read 0", "value": 0, "from_": 13}, "read head 1: strength held at 0 from step 13 on"),
        ("shift", {"head": "read 0", "value": 0, "from_": 13}, "read head 1: shift held at 0 from step 13 on"),
        (
            "sharpening",
            {"head": "write 0", "value": 1, "from_": 0},
            "write head 1: sharpening held at 1 from step 0 on",
        ),
        ("move", {"head": "read 0", "value": 2, "from_": 13}, "read head 1: moved by 2 slots before step 13"),
        ("cell", {"slot": 3, "column": 4, "value": 5, "from_": 10}, "slot 3, column 4"),
        ("slot", {"slot": 3, "value": 0, "from_": 10}, "slot 3"),
        ("scramble", {"value": 3, "from_": 13}, "before step 13"),
    ],
)
def test_every_kind_of_intervention(room, kind, fields, says):
    room.open("panel=interventions")
    before, bits = room.pixels("score"), room.bits
    room.apply(kind, **fields)
    assert says in room.text("edits")
    assert room.pixels("score") != before
    assert room.bits > bits or kind == "strength"  # this machine's read head does not look by content
    assert "Wrong bits by step" in room.label("edit-chart")


def test_the_read_head_moved_on_by_two_reads_two_steps_ahead(room):
    room.open("panel=lineage&t=14&pick=14&edits=move.r0.13.2")
    assert "was written at step 3." in room.text("lineage-text")


def test_an_impossible_value_is_refused_in_a_sentence(room):
    room.open("panel=interventions").apply("gate", head="write 0", value=5, from_=0)
    assert room.text("notice") == "the gate of an intervention is 5, but it must be a number from 0 to 1."
    assert "No intervention yet" in room.text("edits")


def test_a_click_on_the_tape_chooses_a_cell(room):
    room.open("t=8")
    box = room.box("tape")
    room.page.mouse.click(box["x"] + box["width"] - 30, box["y"] + 120)
    room.settle()
    assert room.page.get_attribute("#tab-interventions", "aria-selected") == "true"
    assert room.value("edit-kind") == "cell"
    assert room.value("edit-from") == "9"
    assert 0 < int(room.value("edit-column")) < 20


def test_keys_mute_and_undo(room):
    room.open("t=3").press("m")
    assert room.text("edits").startswith("write head 1: muted from step 3 on")
    assert room.wrong > 0
    room.press("u")
    assert room.wrong == 0


def test_the_program_is_lit_at_the_cursor(room):
    room.open("t=5&panel=program")
    assert "steps 0-12: WRITE +1 x13" in room.text("program-write")
    lit = "#panel-program [aria-current]"
    assert [tape_room.plain(line).strip() for line in room.page.locator(lit).all_inner_texts()] == [
        "steps 0-12: WRITE +1 x13",
        "steps 0-12: READ 0 x13",
        "write the input vector to the slot of the write head",
    ]
    room.set("time", 20)
    now = room.page.locator(lit).all_inner_texts()
    assert "READ +1 x12" in now[1]
    assert now[2].strip() == "read the slot of the read head and output it"


@pytest.mark.parametrize(("key", "panel"), [("1", "microscope"), ("2", "lineage"), ("4", "program"), ("6", "race")])
def test_numbers_open_views(room, key, panel):
    room.open("panel=training").press(key)
    assert room.page.is_visible(f"#panel-{panel}")
    assert room.page.locator("[role=tabpanel]:visible").count() == 1


def test_arrows_move_between_the_tabs(room):
    room.open()
    room.page.focus("#tab-microscope")
    room.press("ArrowRight", "ArrowRight")
    assert room.page.evaluate("document.activeElement.id") == "tab-interventions"
    assert room.press("End").page.is_visible("#panel-race")


def test_training_goes_from_random_to_solved(room):
    room.open("panel=training&t=6")
    assert room.text("training-text").startswith("The trained machine: 0 wrong answers of 96")
    room.set("snapshot", 0).until(lambda: "After" in room.text("training-text"))
    assert room.text("verdict").startswith("After ")
    first = room.wrong
    assert first > 20
    last = int(room.page.get_attribute("#snapshot", "max"))
    room.set("snapshot", last - 1).until(lambda: room.wrong == 0)
    room.set("snapshot", last)
    assert room.text("training-text").startswith("The trained machine")


def test_training_plays(room):
    room.open("panel=training").click("training-play")
    room.until(lambda: room.text("training-play") == "Pause")
    room.until(lambda: int(room.value("snapshot")) >= 1)
    room.click("training-play").until(lambda: room.text("training-play") == "Play training")


def test_a_machine_without_snapshots_says_so(room):
    room.open("panel=training&machine=ngrams-ntm-feedforward&size.length=20")
    assert room.text("training-text").startswith("There are no snapshots of this machine's training.")
    assert not room.page.is_visible("#training-controls")


def test_without_an_lstm_there_is_no_race(room):
    room.open("panel=race&machine=priority-sort-ntm-lstm")
    assert room.text("race-text").startswith("There is no LSTM for the Priority sort task here. Train one")
    assert not room.page.is_visible("#race-controls")


def test_the_zoo_has_a_rival_for_copying(room):
    """It has learned the task, as far as it was trained, and fails past that, where the machine does not."""

    def wrong(length):
        room.open(f"panel=race&size.length={length}&seed=3")
        room.until(lambda: "copy-half-width-lstm:" in room.text("race-text"))
        found = re.findall(r": (\d+) wrong answers? of (\d+)", room.text("race-text"))
        return [int(one) / int(of) for one, of in found]

    assert wrong(10) == [0.0, 0.0]
    ntm, lstm = wrong(40)
    assert ntm == 0.0
    assert lstm > 0.2


@pytest.mark.parametrize("first", ["copy-half-width-lstm", None])
def test_an_lstm_that_is_asked_for_is_shown_in_the_race(chromium, first):
    """`tapehead view` of an LSTM, and a link to one."""
    machines = [catalogue.ZooMachine(name) for name in ("ngrams-ntm-lstm", "copy-ntm-lstm", "copy-half-width-lstm")]
    with Server(Content(lambda: (list(machines), first))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with tape_room.opened(chromium, server.url) as room:
            room.open("" if first else "machine=copy-half-width-lstm")
            assert room.text("notice").startswith("copy-half-width-lstm is an LSTM, which has no tape to show")
            assert room.text("headline").startswith("copy-ntm-lstm:")
            room.until(lambda: "copy-half-width-lstm:" in room.text("race-text"))
        server.shutdown()


def test_the_race_is_run_on_the_same_input(chromium):
    machines = [catalogue.ZooMachine("copy-ntm-lstm"), Rival()]
    with Server(Content(lambda: (list(machines), machines[0].id))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with tape_room.opened(chromium, server.url) as room:
            room.open("panel=race&size.length=8")
            room.until(lambda: "small-lstm:" in room.text("race-text"))
            said = room.text("race-text").split(". ", 2)
            assert said[:2] == ["Length 8, inside the training range", "NTM: 0 wrong answers of 64 (0.0 bits)"]
            assert re.match(r"small-lstm: \d+ wrong answers of 64", said[2])
            room.set("race-size", 30).until(
                lambda: "Length 30, past the training range (1 to 20)." in room.text("race-text")
            )
            assert room.steps == 61
            assert [option.strip() for option in room.page.locator("#rival option").all_inner_texts()] == ["small-lstm"]
            assert room.page.locator("#machine option").count() == 1  # an LSTM has no tape to watch
            room.click("race-sweep").until(lambda: room.label("race-chart").count("NTM") >= 2)
            assert room.page.is_visible("#race-chart")
        server.shutdown()


def test_figures_outside_the_window_follow(room):
    """They are drawn a frame later, also while the machine plays."""
    room.open("panel=microscope&t=9").page.evaluate("scrollTo(0, 0)")
    assert room.page.evaluate("document.getElementById('microscope').getBoundingClientRect().top > innerHeight")
    seen = {room.pixels("microscope"), room.set("time", 3).pixels("microscope")}
    assert len(seen) == 2
    label = room.label("microscope")
    room.click("play").until(lambda: room.label("microscope") != label)
    room.page.keyboard.press("Escape")
