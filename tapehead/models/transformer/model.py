"""A decoder-only Transformer (not in the paper): the parallel attention that the paper's sequential access is compared
with.

    h = embed(x)                              [B, T, W]
    h = h + attention_i(norm(h))              sub-layer 2i + 1
    h = h + mlp_i(norm(h))                    sub-layer 2i + 2, for every layer i
    y = output(norm(h))

Pre-norm (LayerNorm), a GELU MLP, one bias per row of every matrix. Positions are rotary, a linear bias on the scores
(ALiBi), or none: then only the causal mask tells one step from another.

Legend: S seeds, T time, B batch, I inputs, O outputs, L layers, W hidden size, H heads, D = W / H.
"""

import copy
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tapehead import checks
from tapehead.kernels.ntm_scan.contract import check_tensor
from tapehead.losses import BINARY, Loss
from tapehead.models.sequence import SequenceModel, named_state
from tapehead.models.transformer import population
from tapehead.models.transformer.attention import (
    Positions,
    Scene,
    TransformerState,
    attend,
    check_steps,
    extend,
    is_even,
    make_scene,
    rotate,
    weightings,
)
from tapehead.models.transformer.skips import NOTHING, SkipSet
from tapehead.streams import Stream

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MOST_TABLES = 8
"""Numbers of steps for which a model keeps masks and angles ready: a population has one, in a curriculum two."""

EMBED_BIAS = 1e-2
"""The largest value of the embedding's bias at first: not zero, or zeros would stay zeros (`reset_parameters`)."""

MOST_DROPPED_LAYERS = 127
"""Layers of a model with dropout: an address has 256 draws, and every sub-layer and the embedding take one."""


class TransformerTrace(NamedTuple):
    attention: Tensor  # weightings over cached and new steps, [T, B, L, H, N + T]; zero where attention is skipped


class Block(nn.Module):
    """The parameters of one layer."""

    def __init__(self, size: int, mlp_size: int, **place: Any) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size, **place)
        self.attention_in = nn.Linear(size, 3 * size, **place)  # queries, keys, values
        self.attention_out = nn.Linear(size, size, **place)
        self.mlp_norm = nn.LayerNorm(size, **place)
        self.mlp_in = nn.Linear(size, mlp_size, **place)
        self.mlp_out = nn.Linear(mlp_size, size, **place)

    def mlp(self, h: Tensor) -> Tensor:
        made: Tensor = self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(h))))
        return made


class Transformer(SequenceModel):
    """Layers of causal attention and MLPs on vectors, with a key-value cache as state.

    positions: "rotary", "alibi" or "none". mlp_ratio: hidden units of an MLP by hidden size. dropout: probability with
    which values of the embedding and of every sub-layer's output are dropped in training; attention weights are not
    dropped. What is dropped is addressed (`dropping`), so that a resumed run drops the same.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        hidden_size: int = 128,
        num_layers: int = 4,
        *,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        positions: Positions = "rotary",
        dropout: float = 0.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = dict(input_size=input_size, output_size=output_size, hidden_size=hidden_size, num_layers=num_layers)
        sizes |= dict(num_heads=num_heads, mlp_ratio=mlp_ratio)
        for name, value in sizes.items():
            setattr(self, name, checks.whole(name, value, 1))
        self.positions = checks.one_of("positions", positions, ("rotary", "alibi", "none"))
        self.dropout = checks.real("dropout", dropout)
        self.batch_first = checks.flag("batch_first", batch_first)
        self._check_options()
        self.skip = NOTHING
        self._draws: Stream | None = None
        self._tables: dict[tuple[Any, ...], population.Tables] = {}
        place: dict[str, Any] = {"device": checks.device(device), "dtype": checks.floating(dtype, FLOATS)}
        self.embed = nn.Linear(self.input_size, self.hidden_size, **place)
        self.layers = nn.ModuleList(
            Block(self.hidden_size, self.mlp_ratio * self.hidden_size, **place) for _ in range(self.num_layers)
        )
        self.norm = nn.LayerNorm(self.hidden_size, **place)
        self.output = nn.Linear(self.hidden_size, self.output_size, **place)
        self.reset_parameters()

    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_ratio: int

    def _check_options(self) -> None:
        size, heads = self.hidden_size, self.num_heads
        if size % heads:
            raise ValueError(f"hidden_size is {size}, but {heads} heads share it: give a multiple of {heads}.")
        if self.positions == "rotary" and size // heads % 2:
            raise ValueError(
                f"a head has {size // heads} values, but rotary positions turn pairs: give an even number to each head."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, but it is a probability: at least 0 and under 1.")
        if self.dropout and self.num_layers > MOST_DROPPED_LAYERS:
            raise ValueError(
                f"num_layers is {self.num_layers}, but with dropout it must be at most {MOST_DROPPED_LAYERS}."
            )
        each = (4 + 2 * self.mlp_ratio) * size**2
        checks.affordable("parameters", self.num_layers * each + size * (self.input_size + self.output_size))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Uniform in +- 1 / sqrt(fan-in) for weights, zero for biases, one for the gains of norms.

        The embedding is uniform in +- 1, so that one-hot inputs and vectors of bits both begin at a scale of one; what
        sub-layers add is 1 / sqrt(2 L) as large, so that the residual stream does not grow with the depth. The bias of
        the embedding is uniform in +- 0.01: with a bias of zero, a first input of zeros (text, a silent step) would
        stay zero through all layers, and there each norm multiplies the gradient by 1 / sqrt(eps) = 316. Its mean
        square is three times eps, so norms are what they are elsewhere; beside inputs it is nothing.
        """
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.ndim == 2:
                    bound = 1.0 if name.startswith("embed") else parameter.shape[1] ** -0.5
                    if name.endswith("_out.weight"):
                        bound *= (2 * self.num_layers) ** -0.5
                    drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
                    parameter.copy_(drawn.uniform_(-bound, bound, generator=generator))
                else:
                    parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
            drawn = torch.empty(self.hidden_size, dtype=self.embed.bias.dtype)  # last, after all weights
            self.embed.bias.copy_(drawn.uniform_(-EMBED_BIAS, EMBED_BIAS, generator=generator))

    # --- the same parameters, used otherwise -------------------------------------------------------------------------

    def skipping(self, skip: SkipSet) -> Self:
        """The same model without some of its sub-layers; its parameters are this model's own, not copies. It is in
        training or evaluation mode as this model is now, and stays so."""
        skip.check_layers(self.num_layers)
        twin = copy.copy(self)
        twin.skip = skip
        return twin

    def dropping(self, draws: Stream) -> Self:
        """The same model, whose calls in training mode drop what the stream says; its parameters are this model's own.
        It is in training or evaluation mode as this model is now, and stays so."""
        twin = copy.copy(self)
        twin._draws = draws
        return twin

    def steps_first(self) -> Self:
        """The same model for inputs [T, B, I]; its parameters are this model's own."""
        twin = copy.copy(self)
        twin.batch_first = False
        return twin

    # --- populations: one seed after the other on a CPU, groups of them on a GPU -------------------------------------

    @property
    def draws_in_training(self) -> bool:
        return self.dropout > 0

    @property
    def seeds_together(self) -> int:
        return population.seeds_of_a_group(sum(parameter.numel() for parameter in self.parameters()))

    def capturable(self, loss: Loss) -> bool:
        built_in = type(loss).__dict__.get("kernel") is not None  # another may wait for the device
        return _side_by_side(self.output.weight) and built_in and not self.draws_in_training

    def constants(self) -> list[Tensor]:
        every = [(tables.mask, tables.scale, *(tables.turns or ())) for tables in self._tables.values()]
        return [tensor for each in every for tensor in each]

    def tables(self, steps: int, like: Tensor) -> population.Tables:
        """Of a population, for so many steps; kept, because it is the same in every update."""
        key = (steps, like.dtype, like.device)
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            made = (steps, self.hidden_size, self.num_heads, self.positions, like.device, like.dtype)
            with torch.inference_mode(False), torch.no_grad():
                found = self._tables[key] = population.make_tables(*made)  # type: ignore[arg-type]
        return found

    def loss_and_gradient(
        self,
        flat: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        *,
        slots: Tensor | None = None,
        loss: Loss = BINARY,
        checked: bool = False,
        draws: Sequence[Stream] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """draws: of each seed, what says which values are dropped; needed with dropout."""
        if _side_by_side(flat) and slots is None and (draws is not None or not self.draws_in_training):
            dropping = draws if self.training and self.dropout else None
            return (*population.loss_and_gradient(self, flat, inputs, targets, mask, loss, dropping), None)
        if draws is None:
            return super().loss_and_gradient(flat, inputs, targets, mask, lengths, slots=slots, loss=loss)
        costs, gradients = [], []
        for s, source in enumerate(draws):
            one = slice(s, s + 1)
            given = (flat[one], inputs[one], targets[one], mask[one], lengths[one])
            cost, gradient, _ = SequenceModel.loss_and_gradient(self.dropping(source), *given, slots=slots, loss=loss)
            costs.append(cost)
            gradients.append(gradient)
        return torch.cat(costs), torch.cat(gradients), None

    # --- as a layer --------------------------------------------------------------------------------------------------

    def initial_state(self, batch_size: int) -> TransformerState:
        batch_size = checks.whole("batch_size", batch_size, 0)
        weight = self.output.weight
        empty = weight.new_zeros(batch_size, self.num_layers, self.num_heads, 0, self.hidden_size // self.num_heads)
        return TransformerState(empty, empty, torch.zeros(batch_size, dtype=torch.int64, device=weight.device))

    def _as_state(self, state: Any) -> TransformerState:
        named: TransformerState = named_state(TransformerState, state)
        return named

    def _run(
        self,
        x: Tensor,
        state: TransformerState | None,
        lengths: Tensor | None,
        slots: Tensor | None,
        return_trace: bool,
    ) -> tuple[Tensor, TransformerState, TransformerTrace | None]:
        if slots is not None:
            raise ValueError("slots were given, but Transformer has no memory: leave them out.")
        if x.device != self.output.weight.device:
            raise ValueError(
                f"input is on {x.device}, but the parameters are on {self.output.weight.device}: move one."
            )
        past = self.initial_state(x.shape[1]) if state is None else state
        self._check_state(past, x.shape[1])
        even = state is None or is_even(past)
        if not even:
            check_steps(past)
        if lengths is not None:  # what is not a number there would reach all steps, as 0 x NaN in a product
            inside = torch.arange(x.shape[0], device=x.device).unsqueeze(-1) < lengths
            x = torch.where(inside.unsqueeze(-1), x, 0.0)
        scene = make_scene(past, x.shape[0], self.positions, even)  # type: ignore[arg-type]
        dropped = functools.partial(self._dropped, draws=self._dropping_now(), past=past, even=even)
        h = dropped(self.embed(x.to(self.output.weight.dtype).transpose(0, 1)))  # [B, T, W]
        made: list[tuple[Tensor, Tensor]] = []
        looked: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            if i in self.skip.attention:
                nothing = h.new_zeros(h.shape[0], self.num_heads, h.shape[1], h.shape[2] // self.num_heads)
                made.append((nothing, nothing))
            else:
                added, new = self._attention(layer, h, past, i, scene, looked if return_trace else None)
                h = h + dropped(added)
                made.append(new)
            if i not in self.skip.mlp:
                h = h + dropped(layer.mlp(h))  # type: ignore[operator]
        logits = self.output(self.norm(h)).transpose(0, 1)  # [T, B, O]
        keys, values = (torch.stack(parts, dim=1) for parts in zip(*made, strict=True))
        final = extend(past, keys, values, lengths, even)
        trace = self._trace(looked, lengths, past.keys.shape[3] + x.shape[0], h) if return_trace else None
        if lengths is not None:
            logits = torch.where(inside.unsqueeze(-1), logits, 0.0)
        return logits, final, trace

    def _attention(
        self, layer: Any, h: Tensor, past: TransformerState, i: int, scene: Scene, looked: list[Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """What the attention of layer i adds to h [B, T, W], and its new keys and values [B, H, T, D]."""
        parts = layer.attention_in(layer.attention_norm(h)).unflatten(-1, (3, self.num_heads, -1))  # [B, T, 3, H, D]
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        queries, keys = rotate(queries, scene.angles), rotate(keys, scene.angles)
        all_keys, all_values = keys, values
        if past.keys.shape[3]:
            all_keys = torch.cat([past.keys[:, i], keys], dim=2)
            all_values = torch.cat([past.values[:, i], values], dim=2)
        found = attend(queries, all_keys, all_values, scene)
        if looked is not None:
            looked.append(weightings(queries, all_keys, scene).detach())
        added: Tensor = layer.attention_out(found.transpose(1, 2).flatten(2))
        return added, (keys, values)

    def _trace(self, looked: list[Tensor], lengths: Tensor | None, columns: int, h: Tensor) -> TransformerTrace:
        there = iter(looked)
        nothing = h.detach().new_zeros(h.shape[0], self.num_heads, h.shape[1], columns)
        each = [nothing if i in self.skip.attention else next(there) for i in range(self.num_layers)]
        attention = torch.stack(each, dim=1).permute(3, 0, 1, 2, 4)  # [T, B, L, H, N + T]
        if lengths is not None:
            inside = torch.arange(len(attention), device=attention.device).unsqueeze(-1) < lengths
            attention = torch.where(inside[:, :, None, None, None], attention, 0.0)
        return TransformerTrace(attention)

    def _check_state(self, state: TransformerState, batch: int) -> None:
        weight = self.output.weight
        shape = (batch, self.num_layers, self.num_heads, state.keys.shape[-2], self.hidden_size // self.num_heads)
        check_tensor("state.keys", state.keys, shape, weight.dtype, weight.device)
        check_tensor("state.values", state.values, shape, weight.dtype, weight.device)
        check_tensor("state.steps", state.steps, (batch,), torch.int64, weight.device)

    def _dropping_now(self) -> Stream | None:
        """What says which values are dropped in this call, from its first draw; None if nothing is dropped."""
        if not (self.training and self.dropout):
            return None
        if self._draws is None:
            raise ValueError(
                f"dropout is {self.dropout}, and what is dropped in training needs an address: call "
                "model.dropping(tapehead.stream(seed, name, step)), or model.eval() for no dropout."
            )
        return self._draws.rewind()

    def _dropped(self, values: Tensor, draws: Stream | None, past: TransformerState, even: bool) -> Tensor:
        """Values [B, T, W] of which some are zero and the others larger; what is dropped of a row depends neither on
        the other rows nor on later steps, and is the same at a step whether or not the sequence came in pieces."""
        if draws is None:
            return values
        rows, steps, width = values.shape
        cached = past.keys.shape[3]
        words = draws.words(rows, (cached + steps) * width).view(rows, cached + steps, width)
        if even:
            words = words[:, cached:]
        else:
            own = past.steps.unsqueeze(-1) + torch.arange(steps, device=words.device)  # [B, T]
            words = words.gather(1, own.unsqueeze(-1).expand(-1, -1, width))
        kept = (words >= round(self.dropout * 2**32)).to(values.dtype)
        return values * kept / (1 - self.dropout)


def _side_by_side(flat: Tensor) -> bool:
    """Whether seeds are computed in groups. On a CPU that is no faster (docs/sublayers.md)."""
    return flat.is_cuda
