"""One contract for every model that maps sequences to sequences.

Legend: S seeds, T time, B batch, I inputs, O outputs, P parameters.

A model is used in two ways. As a layer it is called like `torch.nn.LSTM`: `y, state = model(x, state, lengths)`. In
training it stands for a population of S machines of one configuration, whose parameters are the rows of a tensor
[S, P]; the module then is a template and its own parameters are not touched.
"""

import abc
import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tapehead.kernels.ntm_scan.contract import is_vmapped, tree_map


class SequenceModel(nn.Module, abc.ABC):
    """`y, state = model(x, state=None, lengths=None)`: x [T, B, I] or, unbatched, [T, I]; y are logits [T, B, O].

    With `batch_first=True`, x and y are [B, T, ...]; state and trace never are. `lengths` [B] gives each row's number
    of steps: beyond it y is zero and the state is that of the row's last step. State is a value: in and out.
    """

    input_size: int
    output_size: int
    batch_first: bool

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        lengths: Tensor | None = None,
        *,
        slots: Tensor | None = None,
        return_trace: bool = False,
    ) -> Any:
        """Logits and final state; with `return_trace`, also a trace of every step.

        `slots` [B] limits the memory slots that each row may use; only models with a memory take it.
        """
        x, unbatched = self._as_batch(x)
        if unbatched and state is not None:
            state = type(state)(*(part.unsqueeze(0) for part in state))
        y, state, trace = self._run(x, state, self._check_lengths(lengths, x), slots, return_trace)
        if unbatched:
            y = y.squeeze(1)
            state = type(state)(*(part.squeeze(0) for part in state))
            trace = tree_map(lambda part: part.squeeze(1), trace) if return_trace else None
        elif self.batch_first:
            y = y.transpose(0, 1)
        return (y, state, trace) if return_trace else (y, state)

    @abc.abstractmethod
    def _run(
        self, x: Tensor, state: Any, lengths: Tensor | None, slots: Tensor | None, return_trace: bool
    ) -> tuple[Tensor, Any, Any]:
        """The model on x [T, B, I]; the trace may be None unless asked for."""

    @abc.abstractmethod
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh initial parameters."""

    def choose_backend(self, backend: str) -> None:
        """Set the backend of the model's kernels; a model without kernels of its own runs in torch alone."""
        if backend not in ("auto", "reference"):
            raise ValueError(f"backend is {backend!r}, but {type(self).__name__} has no kernels: use 'auto'.")

    def backend_in_use(self) -> str:
        """What runs this model where it is now."""
        return "torch"

    def constants(self) -> list[Tensor]:
        """Tensors that every update reads and that are kept from one to the next: a captured update must hold them."""
        return []

    def check_slots(self, most: int) -> None:
        """Refuse to train with up to `most` memory slots if the model does not have so many."""
        raise ValueError(
            f"{most} memory slots were asked for, but {type(self).__name__} has no memory: leave slots out."
        )

    def _as_batch(self, x: Tensor) -> tuple[Tensor, bool]:
        """x as [T, B, I], and whether it came unbatched."""
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"input has shape {tuple(x.shape)}, but this model takes [time, batch, {self.input_size}]"
                f" (or [batch, time, ...] with batch_first, or [time, {self.input_size}] for one sequence)."
            )
        if x.ndim == 2:
            return x.unsqueeze(1), True
        return (x.transpose(0, 1) if self.batch_first else x), False

    @staticmethod
    def _check_lengths(lengths: Tensor | None, x: Tensor) -> Tensor | None:
        if lengths is None:
            return None
        lengths = torch.as_tensor(lengths, device=x.device)
        check_counts("lengths", lengths, x.shape[1])
        if is_vmapped(lengths):
            return lengths  # its values cannot be looked at
        low, high = int(lengths.min()), int(lengths.max())
        if low < 1 or high > x.shape[0]:
            raise ValueError(
                f"lengths run from {low} to {high}, but must lie between 1 and the {x.shape[0]} steps given."
            )
        return lengths

    # --- populations -------------------------------------------------------------------------------------------------

    def flat_parameters(self) -> Tensor:
        """A copy of this module's parameters as one vector [P], in the order of `named_parameters`."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters()])

    def load_flat(self, flat: Tensor) -> None:
        """Set this module's parameters from one vector [P]."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), self.split_flat(flat).values(), strict=True):
                parameter.copy_(value)

    def split_flat(self, flat: Tensor) -> dict[str, Tensor]:
        """Named views of flat parameters [..., P]."""
        named = dict(self.named_parameters())
        parts = flat.split([parameter.numel() for parameter in named.values()], dim=-1)
        return {
            name: part.unflatten(-1, parameter.shape)
            for part, (name, parameter) in zip(parts, named.items(), strict=True)
        }

    def initial_population(self, seeds: list[int], attempt: int = 0) -> Tensor:
        """Fresh parameters [S, P], each row drawn from its own seed alone; others for every attempt."""
        rows = []
        for seed in seeds:
            number = seed
            if attempt:
                digest = hashlib.sha256(f"{seed}, attempt {attempt}".encode()).digest()
                number = int.from_bytes(digest[:8], "little")
            self.reset_parameters(torch.Generator().manual_seed(number))
            rows.append(self.flat_parameters())
        return torch.stack(rows)

    def population(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None = None) -> Tensor:
        """Logits [S, T, B, O] of S machines: flat [S, P], inputs [S, T, B, I], lengths and slots [S, B]."""
        outputs = []
        for s in range(flat.shape[0]):  # one by one, so that a seed's bits do not depend on its neighbours
            given = {} if slots is None else {"slots": slots[s]}
            x = inputs[s].transpose(0, 1) if self.batch_first else inputs[s]
            y, _ = torch.func.functional_call(self, self.split_flat(flat[s]), (x, None, lengths[s]), given)
            outputs.append(y.transpose(0, 1) if self.batch_first else y)
        return torch.stack(outputs)

    def loss_and_gradient(
        self,
        flat: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        slots: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Each sequence's cost [S, B] in nats, and the gradient [S, P] of each seed's mean over its B sequences.

        And the gradient's sums of squares part by part, where they cost nothing: the update's contract says what for.
        """
        steps = int(lengths.max())
        inputs, targets, mask = inputs[:, :steps], targets[:, :steps], mask[:, :steps]
        flat = flat.detach().requires_grad_()
        logits = self.population(flat, inputs, lengths, slots)
        costs = sequence_cost(logits, targets, mask)
        (gradient,) = torch.autograd.grad(costs.mean(dim=-1).sum(), flat)
        return costs.detach(), gradient, None


def check_counts(name: str, counts: Tensor, batch: int) -> None:
    """Refuse what is not one whole number for each sequence."""
    if counts.shape != (batch,) or batch == 0:
        raise ValueError(f"{name} has shape {tuple(counts.shape)}, but there are {batch} sequences.")
    if counts.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
        raise ValueError(f"{name} is {counts.dtype}, but it must hold whole numbers: use torch.int64.")


def sequence_cost(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy in nats of logits and targets [..., T, B, O] summed over scored steps and channels: [..., B]."""
    scored = mask.unsqueeze(-1) > 0
    each = F.binary_cross_entropy_with_logits(torch.where(scored, logits, 0.0), targets, reduction="none")
    return torch.where(scored, each, 0.0).sum(dim=(-3, -1))
