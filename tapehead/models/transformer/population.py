"""Populations of Transformers in batched products: several seeds in the operations of one.

What `model.py` computes for one seed, for G seeds at once, from the start of their sequences. Every product is one of
[G, ...] matrices, attention one over all seeds, rows and heads. Two things are folded into the matrices that follow, of
all layers at once: the gains and biases of the norms, and the scale of the queries. G is constant (side_by_side.py).
Nothing here waits for the device or makes tensors on the host, so that a CUDA graph can hold it with its backward pass.

Legend: G seeds, B batch, T time, N = B T tokens, L layers, W hidden size, H heads, D = W / H, I inputs, O outputs.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tapehead.kernels import memory
from tapehead.losses import Loss
from tapehead.models.side_by_side import filled, groups
from tapehead.models.transformer.attention import Positions, TransformerState, make_scene
from tapehead.streams import Stream

if TYPE_CHECKING:
    from tapehead.models.transformer.model import Transformer

MOST_SEEDS = 10
"""Seeds of a group at most: a usual population, which is then one group."""

MOST_PARAMETERS = 10_000_000
"""Parameters of a group at most. A single large model is not to be computed ten times."""

ALIGNED = 4
"""Values of 16 bytes. The parameters of every seed begin at a multiple: products take them four at a time."""

TILE, ENOUGH_TILES, FEWEST_TOKENS = 64, 264, 256
"""Values that a block of a product computes in each direction, blocks for two rounds of 132 multiprocessors, and tokens
that are not taken apart."""

Drop = Callable[[Tensor], Tensor]


class Tables(NamedTuple):
    """What depends on the number of steps alone."""

    mask: Tensor  # what is added to the scores, [H or 1, T, T]
    scale: Tensor  # of the rows that make queries, keys and values, [3 W]: 1 / sqrt(D) for queries
    turns: tuple[Tensor, Tensor] | None  # cosines and signed sines of rotary positions, [T, D]


class _Product(torch.autograd.Function):
    """x [G, N, in] by weight [G, out, in] on top of a bias [G, out] and, if given, `onto` [G, N, out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, onto: Tensor | None, batch: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.batch, ctx.onto = batch, onto is not None
        if onto is None:
            return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
        return (onto + bias.unsqueeze(1)).baddbmm_(x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        d_y = given[0].contiguous()
        d_x = d_y @ weight if ctx.needs_input_grad[0] else None
        # a sum over all tokens has few values to compute: in pieces it keeps all of a GPU busy
        seeds, out, into = weight.shape
        pieces = _pieces(seeds, out, into, x.shape[1], ctx.batch)
        rows = seeds * pieces, x.shape[1] // pieces
        by_piece = d_y.view(*rows, -1).transpose(1, 2) @ x.reshape(*rows, -1)
        d_weight = by_piece.view(seeds, pieces, out, into).sum(dim=1) if pieces > 1 else by_piece
        return d_x, d_weight, d_y.sum(dim=1), d_y if ctx.onto else None, None


def _pieces(seeds: int, out: int, into: int, tokens: int, batch: int) -> int:
    """Into how many pieces the N tokens of a batch are taken apart, the same for every population."""
    tiles, pieces = seeds * -(-out // TILE) * -(-into // TILE), 1
    while pieces * tiles < ENOUGH_TILES and batch % (2 * pieces) == 0 and tokens // (2 * pieces) >= FEWEST_TOKENS:
        pieces *= 2
    return pieces


class Linear(NamedTuple):
    weight: Tensor  # [G, out, in]
    bias: Tensor  # [G, out]

    def __call__(self, x: Tensor, batch: int, onto: Tensor | None = None) -> Tensor:
        """x [G, N, in] -> [G, N, out], added to `onto`."""
        y: Tensor = _Product.apply(x, self.weight, self.bias, onto, batch)  # type: ignore[no-untyped-call]
        return y


class Layer(NamedTuple):
    """The products of one layer, with what precedes them folded in."""

    attention_in: Linear
    attention_out: Linear
    mlp_in: Linear
    mlp_out: Linear


def make_tables(
    steps: int, size: int, heads: int, positions: Positions, device: torch.device, dtype: torch.dtype
) -> Tables:
    none = torch.zeros(1, 1, heads, 0, size // heads, device=device, dtype=dtype)
    start = TransformerState(none, none, torch.zeros(1, dtype=torch.int64, device=device))
    scene = make_scene(start, steps, positions, even=True)
    mask = scene.mask
    if mask is None:
        hidden = torch.ones(steps, steps, dtype=torch.bool, device=device).triu(1)
        mask = torch.zeros(1, 1, steps, steps, device=device, dtype=dtype).masked_fill(hidden, -torch.inf)
    scale = torch.ones(3 * size, device=device, dtype=dtype)
    scale[:size] = math.sqrt(heads / size)
    turns = None
    if scene.angles is not None:
        cos, sin = scene.angles.cos().to(dtype)[0, 0], scene.angles.sin().to(dtype)[0, 0]  # [T, D / 2]
        turns = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
    return Tables(mask[0], scale, turns)


def seeds_of_a_group(parameters: int) -> int:
    """How many models of so many parameters are computed together, whatever the population."""
    return max(1, min(MOST_SEEDS, MOST_PARAMETERS // parameters))


def loss_and_gradient(
    model: "Transformer",
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    loss: Loss,
    draws: Sequence[Stream] | None,
) -> tuple[Tensor, Tensor]:
    """Costs [S, B] and gradient [S, P] of a population flat [S, P] on inputs [S, T, B, I], as the contract has them.

    All seeds are as long as the data: the caller's padding must not depend on who is in the population.
    """
    all_costs, gradients = [], []
    count = flat.shape[1]
    each = seeds_of_a_group(count)
    for some in groups(len(flat), each):
        own = filled(F.pad(flat[some].detach(), (0, -count % ALIGNED)), each).requires_grad_()
        x, y, m = (filled(part[some], each) for part in (inputs, targets, mask))
        drawn = None if draws is None else [draws[min(s, len(flat) - 1)] for s in range(some.start, some.start + each)]
        costs = loss.nats(logits(model, own[:, :count], x, drawn), y, m)
        (gradient,) = torch.autograd.grad(costs.mean(dim=1).sum(), own)
        real = some.stop - some.start
        all_costs.append(costs[:real].detach())
        gradients.append(gradient[:real, :count])
    return torch.cat(all_costs), torch.cat(gradients)


def logits(model: "Transformer", flat: Tensor, inputs: Tensor, draws: Sequence[Stream] | None = None) -> Tensor:
    """Logits [G, T, B, O] of G models flat [G, P] on inputs [G, T, B, I], also where these are padding."""
    seeds, steps, batch, _ = inputs.shape
    tables = model.tables(steps, flat)
    outer, inner = _shapes(model)
    ends = memory.split(flat, outer)
    by_layer = _layers(memory.split(ends["layers"], inner), tables.scale)
    drop = None if draws is None else _dropper(model, draws, batch)

    def with_added(h: Tensor, x: Tensor, out: Linear) -> Tensor:
        return out(x, batch, h) if drop is None else h + drop(out(x, batch))

    x = inputs.transpose(1, 2).reshape(seeds, batch * steps, -1).to(flat.dtype)  # [G, N, I], row by row
    h = Linear(ends["embed.weight"], ends["embed.bias"])(x, batch)
    h = h if drop is None else drop(h)
    for i, layer in enumerate(by_layer):
        if i not in model.skip.attention:
            found = _attention(model, layer.attention_in(_normed(h), batch), tables, steps)
            h = with_added(h, found, layer.attention_out)
        if i not in model.skip.mlp:
            h = with_added(h, F.gelu(layer.mlp_in(_normed(h), batch)), layer.mlp_out)
    weight, gain, shift = ends["output.weight"], ends["norm.weight"], ends["norm.bias"]
    output = Linear(weight * gain.unsqueeze(-2), ends["output.bias"] + _by_matrix(weight, shift))
    y: Tensor = output(_normed(h), batch).unflatten(1, (batch, steps)).transpose(1, 2)
    return y


def _shapes(model: "Transformer") -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The parts of a model's flat parameters: with all layers as one part [L, each], and those of a layer."""
    every = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    first = "layers.0."
    inner = {name.removeprefix(first): shape for name, shape in every.items() if name.startswith(first)}
    each = sum(math.prod(shape) for shape in inner.values())
    outer: dict[str, tuple[int, ...]] = {}
    for name, shape in every.items():
        here = name.startswith("layers.")
        outer["layers" if here else name] = (model.num_layers, each) if here else shape
    return outer, inner


def _layers(of: dict[str, Tensor], scale: Tensor) -> list[Layer]:
    """of: the parameters of all layers, each [G, L, ...]."""
    queries, shift = of["attention_in.weight"], of["attention_norm.bias"]
    parts = (
        queries * of["attention_norm.weight"].unsqueeze(-2) * scale.unsqueeze(-1),
        (of["attention_in.bias"] + _by_matrix(queries, shift)) * scale,
        of["attention_out.weight"],
        of["attention_out.bias"],
        of["mlp_in.weight"] * of["mlp_norm.weight"].unsqueeze(-2),
        of["mlp_in.bias"] + _by_matrix(of["mlp_in.weight"], of["mlp_norm.bias"]),
        of["mlp_out.weight"],
        of["mlp_out.bias"],
    )
    by_layer = zip(*(part.unbind(1) for part in parts), strict=True)
    return [Layer(*(Linear(*own[i : i + 2]) for i in (0, 2, 4, 6))) for own in by_layer]


def _by_matrix(matrix: Tensor, vector: Tensor) -> Tensor:
    """[..., out, in] and [..., in] -> [..., out]"""
    return (matrix * vector.unsqueeze(-2)).sum(dim=-1)


def _normed(h: Tensor) -> Tensor:
    return F.layer_norm(h, h.shape[-1:])


def _attention(model: "Transformer", made: Tensor, tables: Tables, steps: int) -> Tensor:
    """What the heads read, [G, N, W], from queries, keys and values [G, N, 3 W]."""
    heads, seeds = model.num_heads, len(made)
    # [3, G B, H, T, D] in one piece, for products of all seeds, rows and heads at once
    parts = made.view(-1, steps, 3, heads, made.shape[-1] // (3 * heads)).permute(2, 0, 3, 1, 4).contiguous()
    asked, values = parts.split([2, 1])
    if tables.turns is not None:
        cos, sin = tables.turns
        turned = asked.unflatten(-1, (2, -1)).flip(-2).flatten(-2)  # the other of each pair
        asked = torch.addcmul(asked * cos, turned, sin)
    queries, keys = asked.unbind(0)
    scores = (queries @ keys.transpose(-1, -2)).add_(tables.mask)
    found: Tensor = scores.softmax(dim=-1) @ values.squeeze(0)  # [G B, H, T, D]
    return found.transpose(1, 2).reshape(seeds, -1, made.shape[-1] // 3)


def _dropper(model: "Transformer", draws: Sequence[Stream], batch: int) -> Drop:
    """What drops values [G, N, W], the same ones as `Transformer._dropped` for each seed."""
    sources = [source.rewind() for source in draws]

    def drop(values: Tensor) -> Tensor:
        count = values[0].numel() // batch
        words = torch.stack([source.words(batch, count).view(values.shape[1:]) for source in sources])
        kept = (words >= round(model.dropout * 2**32)).to(values.dtype)
        return values * kept / (1 - model.dropout)

    return drop
