"""Sentences from inside the library: to a listener, or to the logger."""

import logging

from tapehead import notices


def test_the_innermost_listener_hears(caplog):
    outer, inner = [], []
    with notices.heard_by(outer.append):
        notices.tell("one")
        with notices.heard_by(inner.append):
            notices.tell("two")
        with notices.heard_by(None):
            notices.tell("three")
    assert (outer, inner) == (["one", "three"], ["two"])
    assert not caplog.records


def test_without_a_listener_it_is_a_warning_and_in_a_run_for_information(caplog):
    with caplog.at_level(logging.INFO, "tapehead"):
        notices.tell("one")
        with notices.heard_by(None):
            notices.tell("two")
    assert caplog.record_tuples == [
        ("tapehead", logging.WARNING, "tapehead: one"),
        ("tapehead", logging.INFO, "tapehead: two"),
    ]
