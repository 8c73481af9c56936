"""Parameter counts and gradients, which are computed when they are asked for."""

import torch

from tapehead.paper import properties
from tapehead.paper.tables import TABLES


def test_the_parameters_of_an_lstm_follow_the_formula():
    """P = 4H(3x + 5H + 3) + 6H + y(3H + 1), with 10 inputs and 9 outputs."""
    lstm = {one.capacity: one.parameters for one in properties.memory_growth() if "LSTM" in one.name}
    assert lstm == {h: 4 * h * (3 * 10 + 5 * h + 3) + 6 * h + 9 * (3 * h + 1) for h in properties.HIDDEN}
    assert lstm[256] == TABLES["copy-lstm"].printed


def test_the_parameters_of_an_ntm_do_not_depend_on_its_slots():
    ntm = {one.capacity: one.parameters for one in properties.memory_growth() if "NTM" in one.name}
    assert set(ntm) == set(properties.SLOTS)
    assert len(set(ntm.values())) == 1
    assert properties.separation()[1]


def test_separation_fails_where_parameters_grow_with_slots(monkeypatch):
    growth = [one._replace(parameters=one.parameters + one.capacity) for one in properties.memory_growth()]
    monkeypatch.setattr(properties, "memory_growth", lambda: growth)
    assert not properties.separation()[1]


def test_gradients_are_those_of_finite_differences():
    errors = properties.gradient_errors()
    assert set(errors) == {"lstm", "feedforward"}
    assert max(errors.values()) < 1e-8  # 8e-11 was seen
    assert properties.differentiable()[1]


def test_a_wrong_gradient_is_found(monkeypatch):
    real = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: tuple(1.001 * g for g in real(*a, **k)))
    assert properties._gradient_error("lstm") > properties.WORST_ERROR


def test_table_3_is_exact_but_for_the_misprint():
    ours, held = properties.table_3()
    assert ours == "4 of 5 exact; priority-sort-lstm 348,424 for 384,424"
    assert held
