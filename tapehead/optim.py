"""`RMSpropGraves` as a `torch.optim.Optimizer`, for models of your own; on the update kernel that runs have, too."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.optim.optimizer as hooks
from torch import Tensor
from torch.autograd.graph import increment_version

from tapehead import checks
from tapehead.kernels import dispatch
from tapehead.kernels.memory import PlainTensors, all_plain, in_one_piece, is_plain
from tapehead.kernels.update.contract import Update, UpdateRule, UpdateState
from tapehead.kernels.update.optimisers import Graves

GRAVES = Graves()
HYPER = ("decay", "momentum", "epsilon")
"""Hyper-parameters of a group beside `lr` and `clip`."""
FUSED = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float32,)}
"""Types of numbers that the fused updates know, by device."""
_LAYOUT, _ALL_STRIDED = operator.attrgetter("layout"), itertools.repeat(torch.strided)
ALIGNED = 16
"""Bytes: what the GPU's update needs its parameters to begin at."""


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a group with `lr` and `clip`, where it has them, as floats."""
    options = dict(options)
    if "lr" in options:
        options["lr"] = checks.real("lr", options["lr"])
        if options["lr"] < 0:
            raise ValueError(f"lr is {options['lr']}, but a learning rate cannot be negative.")
    if options.get("clip") is not None:
        options["clip"] = checks.real("clip", options["clip"])
        if options["clip"] <= 0:
            raise ValueError(f"clip is {options['clip']}, but it must be positive, or None for no clipping.")
    given = {name: options[name] for name in HYPER if name in options}
    rule = Graves(**given)  # which refuses what does not fit
    return options | {name: getattr(rule, name) for name in given}


class RMSpropGraves(torch.optim.Optimizer):
    """RMSProp in the form of Graves (2013), with momentum: the optimiser of the paper (section 4.6).

    `clip` clips every gradient component to +- its value first, as the paper does with 10; None does not clip.

        n = decay n + (1 - decay) g^2         mean of squares
        m = decay m + (1 - decay) g           mean
        d = momentum d - lr g / sqrt(n - m^2 + epsilon)
        w = w + d
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        *,
        clip: float | None = 10.0,
        decay: float = GRAVES.decay,
        momentum: float = GRAVES.momentum,
        epsilon: float = GRAVES.epsilon,
    ) -> None:
        if not isinstance(params, Iterable) or isinstance(params, Tensor | range):
            raise TypeError(f"params is of type {type(params).__name__}, but it must be an iterable of tensors.")
        options = {"lr": lr, "clip": clip, "decay": decay, "momentum": momentum, "epsilon": epsilon}
        super().__init__(params, _checked(options))
        self._joint: dict[tuple[int, torch.device, torch.dtype], JointState] = {}
        self._whole: dict[int, JointState] = {}  # by group, where all its parameters have one

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Every group may have hyper-parameters of its own; the constructor comes here, too."""
        if "params" not in param_group:
            raise ValueError(f"params has a group with {list(param_group)} alone, but it needs 'params'.")
        super().add_param_group(_checked(param_group))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As every optimiser's; the profiler's mark around it, which takes longer, is left out if there is none."""
        if not set_to_none or torch._C._autograd._profiler_enabled():
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update. `closure`, if given, computes the gradients anew and returns the loss."""
        return self._watched_step(closure) if self._is_watched() else self._step(closure)

    step.hooked = True  # type: ignore[attr-defined]  # or torch would put `profile_hook_step` around it

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            whole = self._whole.get(index)
            if whole is None or not whole.update_again(group, self.state):
                self._step_group(index, group)
        return loss

    def _is_watched(self) -> bool:
        """Whether a step has hooks, or a profiler that wants to know when it begins and ends."""
        return bool(
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or hooks._global_optimizer_pre_hooks
            or hooks._global_optimizer_post_hooks
            or torch._C._autograd._profiler_enabled()
        )

    _watched_step = torch.optim.Optimizer.profile_hook_step(_step)

    @torch.no_grad()
    def _step_group(self, index: int, group: dict[str, Any]) -> None:
        lr, rule = group["lr"], _rule_of(group)
        self._whole.pop(index, None)
        together: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if isinstance(lr, float) and _is_usual(parameter):
                together.setdefault((parameter.device, parameter.dtype), []).append(parameter)
            else:
                self._step_one(parameter, lr, rule)
        for (device, dtype), parameters in together.items():
            joint = self._joint_state(index, parameters, device, dtype)
            if not joint.update(lr, rule):
                for parameter in parameters:
                    self._step_one(parameter, lr, rule)
            elif len(parameters) == len(group["params"]):
                self._whole[index] = joint

    def _joint_state(
        self, group: int, parameters: list[Tensor], device: torch.device, dtype: torch.dtype
    ) -> "JointState":
        joint = self._joint.get((group, device, dtype))
        if joint is None or not joint.is_of(parameters, self.state):
            joint = JointState(parameters, self.state, dispatch.update_kernel("auto", device, GRAVES))
            self._joint[group, device, dtype] = joint
        return joint

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Comes after loading, copying and unpickling, which all make new tensors."""
        super().__setstate__(state)
        for group in self.param_groups:  # a state of a version that had no names for them
            for name in HYPER:
                group.setdefault(name, getattr(GRAVES, name))
        self._joint, self._whole = {}, {}

    def _step_one(self, parameter: Tensor, lr: float, rule: UpdateRule) -> None:
        """The formulas in torch, for one parameter of any kind."""
        state = self.state[parameter]
        if not state:
            for name in GRAVES.moments:
                state[name] = torch.zeros_like(parameter)
        g = parameter.grad
        assert g is not None
        if rule.clip != "none":
            g = g.clamp(-rule.clip_at, rule.clip_at)
        w, moments = rule.optimiser.step(parameter, g, [state[name] for name in GRAVES.moments], lr, torch.zeros(()))
        parameter.copy_(w)
        state.update(zip(GRAVES.moments, moments, strict=True))


def _is_usual(parameter: Tensor) -> bool:
    """Whether the fused update takes a parameter and its gradient: dense, of a type and on a device that it knows."""
    gradient = parameter.grad
    return (
        gradient is not None
        and parameter.dtype in FUSED.get(parameter.device.type, ())
        and gradient.dtype == parameter.dtype
        and parameter.is_contiguous()
        and gradient.layout == torch.strided
        and is_plain(parameter)
        and is_plain(gradient)
    )


class JointState:
    """Moments of several parameters in one tensor each, so that one launch updates all of them.

    The optimiser's state of each parameter holds views of them. Parameters and gradients that are neighbours in memory,
    as those of an `NTM` are, are taken where they are; others are gathered, and the parameters written back.
    """

    def __init__(self, parameters: list[Tensor], state: Any, update: Update) -> None:
        self._parameters, self._update = parameters, update
        self._look_at_memory()
        like = parameters[0]
        self._sizes = [parameter.numel() for parameter in parameters]
        self._state = UpdateState(UpdateRule(GRAVES), like.new_empty(1, sum(self._sizes)))
        all_views: list[dict[str, Tensor]] = [{} for _ in parameters]
        for name, moment in zip(GRAVES.moments, self._state.moments, strict=True):
            for views, parameter, part in zip(all_views, parameters, moment[0].split(self._sizes), strict=True):
                views[name] = part.view(parameter.shape)
        for views, parameter in zip(all_views, parameters, strict=True):
            for name, old in state[parameter].items():
                views[name].copy_(old)
            state[parameter].update(views)
        self._own = [state[parameter] for parameter in parameters]
        self._entries = self._current_entries()
        self._lr, self._rates = 0.0, like.new_zeros(1)
        self._costs = like.new_zeros(1, 1)
        self._squares = like.new_zeros(1, 1)  # "finite": the gradient need not be looked at, see `update`

    def _look_at_memory(self) -> None:
        self._known = PlainTensors(self._parameters)
        flat = self._known.flat
        self._weights = None if flat is None or flat.data_ptr() % ALIGNED else flat

    def is_of(self, parameters: list[Tensor], state: Any) -> bool:
        """Whether it still is the state of these parameters: others may have gradients, or the state been replaced."""
        if len(parameters) != len(self._parameters) or any(map(operator.is_not, parameters, self._parameters)):
            return False
        if any(map(operator.is_not, map(state.get, parameters), self._own)):
            return False
        entries = self._current_entries()
        return len(entries) == len(self._entries) and all(map(operator.is_, entries, self._entries))

    def _current_entries(self) -> list[Any]:
        return list(itertools.chain.from_iterable(map(dict.values, self._own)))

    def update_again(self, group: dict[str, Any], state: Any) -> bool:
        """One update of a whole group where it is; False, and nothing done, if something is not as it was before."""
        parameters, lr = group["params"], group["lr"]
        if self._weights is None or not isinstance(lr, float):
            return False
        if not self._known.are(parameters) or not self.is_of(parameters, state):
            return False
        gradients = [parameter.grad for parameter in parameters]
        if not all_plain(gradients) or any(map(operator.is_not, map(_LAYOUT, gradients), _ALL_STRIDED)):
            return False
        return self._apply(gradients, lr, _rule_of(group))

    def update(self, lr: float, rule: UpdateRule) -> bool:
        """One update; False, and nothing done, if a gradient is not finite and the kernel refuses it.

        Runs skip such an update, but an optimiser of torch carries a NaN on into the parameters.
        """
        if not self._known.are(self._parameters):
            self._look_at_memory()
        return self._apply([parameter.grad for parameter in self._parameters if parameter.grad is not None], lr, rule)

    def _apply(self, gradients: list[Tensor], lr: float, rule: UpdateRule) -> bool:
        if lr != self._lr:
            self._lr = lr
            self._rates.fill_(lr)
        weights = self._weights
        self._state.parameters = _gathered(self._parameters) if weights is None else weights
        gradient = in_one_piece(gradients)
        gradient = _gathered(gradients) if gradient is None else gradient
        skipped = self._update(rule, self._state, gradient, self._costs, self._rates, self._squares)
        if skipped.device.type == "cpu" and bool(skipped):
            return False
        if weights is not None:
            increment_version(self._parameters)  # the kernel wrote to them, and autograd must know
            return True
        for parameter, part in zip(self._parameters, self._state.parameters[0].split(self._sizes), strict=True):
            parameter.copy_(part.view(parameter.shape))
        return True


def _rule_of(group: dict[str, Any]) -> UpdateRule:
    return _rule(group["clip"], group["decay"], group["momentum"], group["epsilon"])


@functools.lru_cache(maxsize=8)
def _rule(clip: float | None, decay: float, momentum: float, epsilon: float) -> UpdateRule:
    graves = Graves(decay=decay, momentum=momentum, epsilon=epsilon)
    return UpdateRule(graves, "none") if clip is None else UpdateRule(graves, "elementwise", clip)


def _gathered(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).unsqueeze(0)
