"""What `tapehead doctor` says about the update and the cache."""

import torch

from tapehead.commands import doctor
from tapehead.kernels import cache, dispatch
from tapehead.kernels.ntm_scan.cpu import entries
from tapehead.kernels.update import reference


def test_the_update_is_made():
    good, says = doctor._update()
    assert good
    assert "kernels.update" in says


def test_a_wrong_update_is_found(monkeypatch):
    def wrong(rule, state, gradient, costs, rates, squares):
        skipped = reference.update(rule, state, gradient, costs, rates, squares)
        state.parameters[1, 98] += 1e-5
        return skipped

    monkeypatch.setattr(dispatch, "update_kernel", lambda backend, device, optimiser: wrong)
    assert not doctor._update()[0]


def test_the_cache_is_described(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_said", set())
    monkeypatch.setenv("TAPEHEAD_CACHE", str(tmp_path / "cache"))
    assert doctor._cache() == (True, f"{tmp_path / 'cache'} does not hold the CPU kernels and can be written")
    for kernel in entries.ALL:
        cache.write(kernel.file("float32"), b"code")
    assert doctor._cache() == (True, f"{tmp_path / 'cache'} holds the CPU kernels and can be written")
    (tmp_path / "cache").chmod(0o777)
    assert "does not hold the CPU kernels and cannot be written, because" in doctor._cache()[1]
    assert "mode 777" in doctor._cache()[1]


def test_where_numba_does_not_compile(monkeypatch):
    monkeypatch.setattr(doctor.jit.core.config, "DISABLE_JIT", 1)
    assert "not needed" in doctor._cache()[1]
    if not torch.cuda.is_available():
        assert "update.reference" in doctor._update()[1]
