"""Parts of a model that torch.compile leaves as they are."""

from collections.abc import Callable
from typing import Any

import torch


def run_uncompiled(function: Callable[..., Any], *given: Any) -> Any:
    """A function's result in eager mode, by a graph break.

    As `torch.compiler.disable`, which loads a second's worth of modules where it is applied, compiling or not.
    """
    run: Any = torch.compiler.disable(function)
    return run(*given)


run_uncompiled._torchdynamo_disable = True  # type: ignore[attr-defined]
