"""Copy and repeat copy with other bits than fair ones: for curricula."""

import pytest
import torch
from task_checks import check_addressing, check_fair

from tapehead.streams import stream
from tapehead.tasks import make_task

TASKS = ["copy", "repeat-copy"]


def vectors_of(task, **options):
    """The vectors shown, [steps, W], of sequences of one length, and which sequence each belongs to."""
    made = make_task(task, length=8, **options)
    batch = made.sample(stream(3, "t", range(10)), batch_size=100)
    return batch.inputs[:, :8, :, : made.width].transpose(1, 2).flatten(0, 1)  # [sequences, 8, W]


@pytest.mark.parametrize("task", TASKS)
def test_the_defaults_are_the_papers_bits(task):
    plain = make_task(task).sample(stream(1, "t", 2), batch_size=5)
    said = make_task(task, density=[0.5, 0.5], blanks=0).sample(stream(1, "t", 2), batch_size=5)
    assert all(torch.equal(a, b) for a, b in zip(plain, said, strict=True))
    check_fair(vectors_of(task))


@pytest.mark.parametrize("task", TASKS)
def test_each_sequence_has_a_density_of_its_own(task):
    vectors = vectors_of(task, density=(0.0, 1.0))
    share = vectors.mean(dim=(1, 2))
    # uniform shares: mean 1/2, variance 1/12 and a little from 64 draws each; fair bits would have 1/256
    assert abs(float(share.mean()) - 0.5) < 4 * (1 / 12 / 1000) ** 0.5
    assert abs(float(share.var()) - 1 / 12) < 0.015
    assert float(vectors_of(task, density=(0.2, 0.2)).mean()) == pytest.approx(0.2, abs=4 * (0.16 / 64000) ** 0.5)
    assert not vectors_of(task, density=(0.0, 0.0)).any()
    assert vectors_of(task, density=(1.0, 1.0)).all()


@pytest.mark.parametrize("task", TASKS)
def test_blank_vectors(task):
    blank = (vectors_of(task, blanks=0.3) == 0).all(dim=-1)
    expected = 0.3 + 0.7 * 2**-8
    assert float(blank.float().mean()) == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 8000) ** 0.5)
    shown = vectors_of(task, blanks=0.3)[~blank]
    assert float(shown.mean()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("task", TASKS)
def test_targets_say_what_was_shown(task):
    made = make_task(task, length=4, density=(0, 1), blanks=0.2)
    batch = made.sample(stream(0, "t", 0), batch_size=20)
    for b in range(20):
        start = int(batch.mask[:, b].argmax())
        assert torch.equal(batch.targets[start : start + 4, b, : made.width], batch.inputs[:4, b, : made.width])


@pytest.mark.parametrize("task", TASKS)
def test_addressing(task):
    check_addressing(make_task(task, density=(0.1, 0.9), blanks=0.1))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("density", [(0.6, 0.4), (-0.1, 0.5), (0.5, 1.1), (0.5,), 0.5, (float("nan"), 1)])
def test_wrong_densities_are_refused(task, density):
    with pytest.raises(
        ValueError, match=r"density is .* must be (a pair with 0 <= low <= high <= 1|a list of 2 such as)"
    ):
        make_task(task, density=density)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("blanks", [-0.1, 1, 1.5, "many", float("nan")])
def test_wrong_blanks_are_refused(task, blanks):
    with pytest.raises(ValueError, match=r"blanks is .* must be (a share of at least 0 and under 1|a finite number)"):
        make_task(task, blanks=blanks)
