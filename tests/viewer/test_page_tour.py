"""The tour, its experiments and the teacher's lock. What the chapters claim is checked here, on the zoo's machines."""

import re

import pytest
import tape_room

CHAPTERS = 8


@pytest.fixture(scope="module")
def room(chromium, served):
    with tape_room.opened(chromium, served.url, viewport={"width": 1280, "height": 1000}) as room:
        yield room


def experiment(room, text):
    room.page.get_by_role("button", name=text, exact=True).click()
    return room.settle()


def chapter(room, number):
    """Open a chapter as a reader does. Its text is there before its machine is loaded; nothing is drawn in between."""
    before = room.open("chapter=1").drawn()
    room.page.click(f"#tour-chapters li:nth-child({number}) button")
    room.until(lambda: room.text("tour-count") == f"Tour, chapter {number} of {CHAPTERS}")
    return room.until(lambda: room.drawn() != before)


def test_the_tour_is_opened_walked_through_and_closed(room):
    room.open().click("tour-open")
    titles = [room.text("tour-title")]
    assert room.page.is_disabled("#tour-back")
    for _ in range(CHAPTERS - 1):
        room.click("tour-next")
        titles.append(room.text("tour-title"))
    assert len(set(titles)) == CHAPTERS
    assert room.page.is_disabled("#tour-next")
    assert "chapter=8" in room.hash()
    room.click("tour-close")
    assert not room.page.is_visible("#tour")
    assert room.press("t").page.is_visible("#tour")


def test_a_chapter_is_a_link(room):
    chapter(room, 3)
    link, text = room.hash(), room.text("lineage-text")
    room.open().open(link.removeprefix("#"))
    assert room.text("tour-title") == "Where an answer comes from"
    assert room.text("lineage-text") == text


def test_chapter_1_plays(room):
    chapter(room, 1)
    experiment(room, "Play from the start").until(lambda: room.step > 0)
    assert room.text("play") == "Pause"
    experiment(room, "Step 6: writing")
    assert room.step == 6
    assert room.text("play") == "Play"


def test_chapter_2_moves_by_location(room):
    chapter(room, 2)
    gate, shift = (tape_room.plain(room.page.locator("#equations .filled").nth(i).inner_text()) for i in (2, 3))
    assert float(gate.split(" = ")[2].split(" x ")[0]) < 0.3
    assert "x 0.99" in shift or "x 1.000" in shift


def test_chapter_3_scrambles(room):
    chapter(room, 3)
    assert room.wrong == 0
    assert "100 % was written at step 5" in room.text("lineage-text")
    assert experiment(room, "Scramble the slots before step 16").wrong > 0
    assert experiment(room, "The last answer").wrong == 0


def test_chapter_4_copies_a_hundred_and_breaks_on_a_short_tape(room):
    chapter(room, 4)
    assert room.wrong == 0
    assert "past the training range" in room.text("past")
    assert experiment(room, "100 vectors").wrong == 0
    assert room.steps == 201
    assert experiment(room, "60 vectors on 32 slots").wrong > 0
    assert experiment(room, "40 vectors, against an LSTM").wrong == 0
    room.until(lambda: "copy-half-width-lstm:" in room.text("race-text"))
    assert int(re.search(r"lstm: (\d+) wrong answers of 320", room.text("race-text"))[1]) > 60


def test_chapter_5_learns(room):
    chapter(room, 5)
    room.set("snapshot", 0).until(lambda: room.wrong > 20)


def test_chapter_6_the_sorter_needs_write_head_5(room):
    chapter(room, 6)
    untouched = room.wrong
    assert untouched < 5
    assert experiment(room, "Mute write head 5 from step 21").wrong > 20
    broken = room.wrong
    assert experiment(room, "Mute write head 1 instead").wrong < broken
    assert experiment(room, "Untouched").wrong == untouched


def test_chapter_7_the_counter_is_off_by_one(room):
    """Moved back, the end marker comes a repeat earlier; moved on, another repeat begins where it should be."""
    chapter(room, 7)
    assert room.wrong == 0
    marker = 8  # the output channel, after eight bits
    said = {}
    for name, step in (("Move it back by one slot", 37), ("Move it on by one slot", 42)):
        experiment(room, name)
        assert room.step == step
        assert room.wrong > 0
        x, y = room.point(step, marker, band=2, channels=(10, 9, 9))
        room.page.mouse.move(x, y)
        said[step] = room.settle().text("readout")
    ended, goes_on = (
        float(re.search(r"output end is one with probability (\S+); wrong\.", said[step])[1]) for step in (37, 42)
    )
    assert ended > 0.5 > goes_on
    assert experiment(room, "Untouched").wrong == 0


def test_chapter_8_without_its_place_the_reader_forgets(room):
    chapter(room, 8)
    untouched = room.bits
    assert experiment(room, "Pin the read gate at 0 from step 20").bits > untouched + 5
    assert experiment(room, "Untouched").bits == untouched
    assert experiment(room, "200 bits, as in training").steps == 200


def test_chapter_8_the_place_is_the_context(room):
    """Each of the last five bits is a digit of the read head's slot, or its inverse, at nearly all steps."""
    chapter(room, 8)
    first, digits = 12, 7
    heights = (14, 14, 14, 14, 132, 132)  # input, target, output, best, write, read
    top = tape_room.INPUT_TOP + sum(height + tape_room.GAP for height in heights)
    bits = room.inked([tape_room.INPUT_TOP + 7])[0]
    place = room.inked([top + 10 * digit + 5 for digit in range(digits)])
    assert len(bits) == 60
    for ago in range(5):
        seen = bits[first - ago : len(bits) - ago]
        same = [sum(a == b for a, b in zip(seen, row[first:], strict=True)) / len(seen) for row in place]
        assert max(max(share, 1 - share) for share in same) > 0.9


def test_the_lock_hides_the_controls_and_keeps_the_sequence(room):
    room.open("t=4").click("lock")
    assert room.text("lock") == "Unlock controls"
    for name in ("setup", "open-files", "save-svg", "paint", "span"):
        assert not room.page.is_visible(f"#{name}")
    for name in ("score", "time", "tour-open", "play"):
        assert room.page.is_visible(f"#{name}")
    room.press("m", "n", "ArrowRight").click_cell(3, 3)
    assert room.text("past") == ""
    assert room.value("seed") == "0"
    assert room.step == 3  # the cursor still moves
    assert "lock=1" in room.hash()
    room.click("lock")
    assert room.page.is_visible("#setup")


def test_a_locked_lesson_is_a_link(room):
    room.open("chapter=6&lock=1&machine=priority-sort-ntm-lstm&t=26")
    assert not room.page.is_visible("#setup")
    assert room.page.is_visible("#tour-next")
    assert experiment(room, "Mute write head 5 from step 21").wrong > 20
