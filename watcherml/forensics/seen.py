"""What the failing frames held: models, optimizers and tensors, as sizes only. No value and no object is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import PurePath
from types import FrameType, GetSetDescriptorType, ModuleType
from typing import Any

from watcherml.forensics.causes.vector import Static
from watcherml.forensics.contained import Contained, contained
from watcherml.forensics.origin import globals_of, names_of

MOST_ROOTS = 64
MOST_OWNERS = 2_000  # objects whose attributes are looked at
MOST_TENSORS = 200_000  # of all models together
MOST_SIZES = 1_000
FRAMES_SHOWN = 40
TENSORS_SHOWN = 20  # of one frame
# How many tensors of a parameter's size each of torch's optimizers keeps for it; options that add one each.
_STATES: dict[str, int] = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "SparseAdam": 2, "Adadelta": 2, "Adagrad": 1,
    "RMSprop": 1, "ASGD": 1, "Rprop": 2, "SGD": 0,
}  # fmt: skip
_MORE_STATES = ("amsgrad", "momentum", "centered")
_MOMENTUM_IS_STATE = {"SGD", "RMSprop"}
_MRO, _SPACE = type.__dict__["__mro__"], type.__dict__["__dict__"]


@dataclass
class Live:
    """Objects found in the frames. They are the user's: use it inside one call and let it go."""

    modules: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    stepped: list[Any] = field(default_factory=list)  # optimizers that made a step in this run
    kept: Contained = field(default_factory=Contained)  # in lists, dicts and what they hold
    working: list[Any] = field(default_factory=list)  # what the optimizer's own frames name
    stepping: Any = None  # the optimizer whose step the innermost such frame is

    @classmethod
    def look(cls, found: Iterable[tuple[FrameType, int]], optimizers: Iterable[Any] = ()) -> Live:
        """Find the modules and optimizers among the names of the frames, globals of the user's code included.

        A trainer that holds both is as common as two names, so attributes of other objects are looked at, one level.
        """
        torch = sys.modules.get("torch")
        module = getattr(getattr(torch, "nn", None), "Module", None)
        optimizer = getattr(getattr(torch, "optim", None), "Optimizer", None)
        if module is None or optimizer is None:
            return cls()
        found, stepped = list(found), list(optimizers)
        kept: tuple[dict[int, Any], dict[int, Any]] = ({}, {id(one): one for one in stepped})
        searched: set[int] = set()
        owners: set[int] = set()
        roots: list[Any] = []
        for frame, _ in found:
            places = [names_of(frame)]
            # Globals too: in a notebook the model is one, and backward has no module's frame below it.
            shared = globals_of(frame)
            if id(shared) not in searched:
                searched.add(id(shared))
                places.append(dict(shared))
            for named in (one for place in places for one in place.values()):
                values = [named]
                if id(named) not in owners and len(owners) < MOST_OWNERS and not issubclass(type(named), module):
                    owners.add(id(named))
                    values += _attributes(named)
                roots += values
                # The type is asked, not the value: a proxy answers isinstance() by running code of its own.
                for value, (kind, into) in product(values, zip((module, optimizer), kept, strict=True)):
                    if issubclass(type(value), kind) and len(into) < MOST_ROOTS:
                        into[id(value)] = value
        assert torch is not None
        below = contained(roots, (module, optimizer, torch.Tensor), _attributes)
        working, stepping = _working(found, torch.Tensor), _stepping(found, optimizer)
        return cls(list(kept[0].values()), list(kept[1].values()), stepped, below, working, stepping)

    def outermost(self) -> list[Any]:
        """Return the modules that are part of no other one found."""
        inner = {id(part) for one in self.modules for part in one.modules() if part is not one}
        return [one for one in self.modules if id(one) not in inner]


def static_bytes(live: Live, device: str, holds: Callable[[Any], bool] | None = None) -> Static:
    """Return what models and optimizers hold on a device (``cuda:0``, or ``cpu`` for the simulated one).

    ``holds`` tells of a tensor there whether the device counts it: a simulated one shares its place with the host.
    """
    if not live.modules and not live.optimizers and live.kept == Contained():
        return Static()
    here = _on(device, holds)
    parameters = list(_unique(_parameters(live)))
    placed = [one for one in parameters if here(one)]
    gradients = [one.grad for one in placed if one.grad is not None]
    buffers = list(_unique(buffer for module in live.modules for buffer in module.buffers()))
    states = list(_unique(value for one in live.optimizers for value in _state_tensors(one)))
    contained_bytes, kept, working = _beside(live, [*parameters, *gradients, *buffers, *states], here)
    to_come, returning = _to_come(live, here)
    return Static(
        parameters=sum(map(_bytes, placed)) if parameters else None,
        gradients=sum(map(_bytes, filter(here, gradients))) if parameters else None,
        optimizer=sum(map(_bytes, filter(here, states))) if live.optimizers else None,
        buffers=sum(map(_bytes, filter(here, buffers))) if live.modules else None,
        optimizer_expected=_expected(live.optimizers if live.stepping is None else [live.stepping], here),
        to_come=to_come,
        returning=returning,
        working=working,
        contained=contained_bytes,
        kept=kept,
        models=_models(live, here),
    )


def frame_tensors(found: list[tuple[FrameType, int]]) -> list[dict[str, Any]]:
    """Return the tensors and arrays of the failing frames: name, shape, dtype, device and ``bytes``, innermost last."""
    shown = []
    for frame, line in found:
        rows: list[dict[str, Any]] = []
        for name, value in names_of(frame).items() if frame.f_code.co_name != "<module>" else ():
            row = _described(name, value)
            if row is not None and len(rows) < TENSORS_SHOWN:
                rows.append(row)
        if rows:
            file = PurePath(frame.f_code.co_filename).name[:200]
            shown.append({"function": frame.f_code.co_name[:200], "file": file, "line": line, "tensors": rows})
    return shown[-FRAMES_SHOWN:]


def led_by(micro_batch: int | None, found: list[tuple[FrameType, int]]) -> bool | None:
    """Tell whether a tensor of the innermost frame that has any begins with the micro-batch; None where not known.

    What is made of such a tensor grows and shrinks with the batch.
    """
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None or micro_batch is None or micro_batch < 2:
        return None
    for frame, _ in reversed(found):
        held = [value for value in names_of(frame).values() if issubclass(type(value), tensor)]
        if held:
            return True if any(one.dim() and int(one.shape[0]) == micro_batch for one in held) else None
    return None


def models(live: Live) -> list[dict[str, Any]]:
    """Return the outermost models: class, number of parameters, whether in training mode."""
    return [
        {
            "class": type(one).__name__[:200],
            "training": bool(one.training),
            "parameters": sum(map(_numel, one.parameters())),
        }
        for one in live.outermost()[:20]
    ]


def _attributes(owner: Any) -> list[Any]:
    """Return what an object holds in its own dict, without running any of its code."""
    kind = type(owner)
    if issubclass(kind, (type, ModuleType, dict)):
        return []
    # A proxy's class has a descriptor of its own under this name, which is the user's code.
    spaces = map(_SPACE.__get__, _MRO.__get__(kind))  # past the metaclass, which may be anybody's too
    place = next((one["__dict__"] for one in spaces if "__dict__" in one), None)
    held = place.__get__(owner) if type(place) is GetSetDescriptorType else None
    return list(held.values()) if type(held) is dict else []


def _described(name: str, value: Any) -> dict[str, Any] | None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kind = type(value)
    if torch is not None and issubclass(kind, torch.Tensor):
        return {
            "name": name[:80], "shape": [int(size) for size in value.shape],
            "dtype": str(value.dtype).removeprefix("torch."), "device": str(value.device), "bytes": _bytes(value),
        }  # fmt: skip
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return {
            "name": name[:80], "shape": [int(size) for size in value.shape], "dtype": str(value.dtype),
            "device": "host", "bytes": int(value.nbytes),
        }  # fmt: skip
    return None


def _parameters(live: Live) -> Iterator[Any]:
    for module in live.modules:
        yield from module.parameters()
    for one in live.optimizers:
        for group in one.param_groups:
            yield from group["params"]


def _unique(tensors: Iterable[Any]) -> Iterator[Any]:
    seen: set[int] = set()
    for tensor in tensors:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor
        if len(seen) >= MOST_TENSORS:
            return


def _state_tensors(optimizer: Any) -> Iterator[Any]:
    """Yield the tensors of an optimizer's state; L-BFGS and others keep theirs in lists."""
    tensor = sys.modules["torch"].Tensor
    waiting, left = list(optimizer.state.values()), MOST_TENSORS
    while waiting and left > 0:
        value = waiting.pop()
        left -= 1
        if isinstance(value, tensor):
            yield value
        elif isinstance(value, dict):
            waiting += list(value.values())
        elif isinstance(value, (list, tuple)):
            waiting += value


def _to_come(live: Live, here: Callable[[Any], bool]) -> tuple[int | None, int | None]:
    """Return what the first step of one optimizer still makes, and the gradients that come again with every step.

    Of several that have not stepped the one that makes the most counts: of an earlier training's, none steps again.
    None where a hook may let go of each gradient at once.
    """
    first, again = 0, 0
    stepped = {id(one) for one in live.stepped}
    optimizers = live.optimizers or list(live.kept.optimizers.values())
    for one in optimizers:
        wanted = [p for group in one.param_groups for p in group["params"] if p.requires_grad and here(p)]
        if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in wanted):
            return None, None
        gradients = sum(_bytes(p) for p in wanted if p.grad is None)
        if id(one) in stepped:
            again += gradients
        elif not one.state:
            first = max(first, gradients + (_expected([one], here) or 0))
    return (first, again) if optimizers else (None, None)


def _working(found: list[tuple[FrameType, int]], tensor: type) -> list[Any]:
    """Return the tensors that the optimizer's own frames name, directly or in lists."""
    held: list[Any] = []
    for frame, _ in found:
        if "/torch/optim/" in frame.f_code.co_filename.replace("\\", "/"):
            for value in names_of(frame).values():
                held += [one for one in (value if type(value) is list else [value]) if issubclass(type(one), tensor)]
    return held


def _beside(live: Live, own: list[Any], here: Callable[[Any], bool]) -> tuple[int, int, int]:
    """Return the bytes of models and optimizers that only containers hold, of their other tensors, of temporaries."""
    inside = Live(list(live.kept.modules.values()), list(live.kept.optimizers.values()))
    parts = [*_parameters(inside), *(one for module in inside.modules for one in module.buffers())]
    parts += [value for one in inside.optimizers for value in _state_tensors(one)]
    parts += [one.grad for one in parts if one.is_leaf and one.grad is not None]
    counted = {_storage(one) for one in own}
    sizes = []
    for tensors in (parts, [one for one in live.kept.tensors.values() if one.grad_fn is None], live.working):
        places = ((_storage(one), one) for one in tensors)
        new = {place: one for place, one in places if place and place not in counted and here(one)}
        counted |= set(new)
        sizes.append(sum(_bytes(one) for one in new.values()))
    return sizes[0], sizes[1], sizes[2]


def _storage(tensor: Any) -> int:
    """Return where a tensor's memory lies; 0 where it has none of its own to tell it by."""
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, ValueError):  # of torch.func, which wraps others and looks like any tensor
        return 0


def _stepping(found: list[tuple[FrameType, int]], kind: type) -> Any:
    """Return the optimizer whose ``step`` is the innermost on the way to the failure, or None."""
    for frame, _ in reversed(found):
        code = frame.f_code
        owner = names_of(frame).get(code.co_varnames[0]) if code.co_name == "step" and code.co_argcount else None
        if issubclass(type(owner), kind):
            return owner
    return None


def had_stepped(live: Live) -> bool | None:
    """Tell whether the optimizer of the failing frames made a step before; None where no optimizer was at work.

    One that took its state from a checkpoint did so elsewhere: the count in that state says it.
    """
    one = live.stepping
    if one is None:
        return None
    counts = [held.get("step") for held in list(one.state.values()) if isinstance(held, dict)]
    return any(one is other for other in live.stepped) or any(_beyond_one(count) for count in counts)


def _beyond_one(count: Any) -> bool:
    """Tell whether a count of steps in host memory, a number or a tensor of one, says more than one."""
    if type(count) is sys.modules["torch"].Tensor:
        return bool(count.device.type == "cpu" and count.numel() == 1 and float(count) > 1)
    return type(count) in (int, float) and count > 1


def gradient_sizes(live: Live, device: str, holds: Callable[[Any], bool] | None = None) -> tuple[int, ...]:
    """Return the bytes that gradients of the parameters on a device take, each size once, the largest first."""
    here = _on(device, holds)
    wanted = (one for one in _unique(_parameters(live)) if one.requires_grad and here(one))
    return tuple(sorted({_bytes(one) for one in wanted}, reverse=True)[:MOST_SIZES])


def _models(live: Live, here: Callable[[Any], bool]) -> int:
    """Return how many separate models of at least a tenth of the largest one lie on the device."""
    every = Live(list({id(one): one for one in (*live.modules, *live.kept.modules.values())}.values()))
    sizes = [sum(map(_bytes, filter(here, _unique(one.parameters())))) for one in every.outermost()]
    return sum(1 for size in sizes if size and 10 * size >= max(sizes))


def _expected(optimizers: list[Any], here: Callable[[Any], bool]) -> int | None:
    """Return the bytes of state that torch's own optimizers will keep; None if any of them is of another kind."""
    total = 0
    for one in optimizers:
        name = next((kind.__name__ for kind in type(one).__mro__ if str(kind.__module__).startswith("torch.optim")), "")
        if name not in _STATES:
            return None
        for group in one.param_groups:
            options = [
                key for key in _MORE_STATES if group.get(key) and (key != "momentum" or name in _MOMENTUM_IS_STATE)
            ]
            wanted = sum(_bytes(p) for p in group["params"] if p.requires_grad and here(p))
            total += wanted * (_STATES[name] + len(options))
    return total if optimizers else None


def _on(device: str, holds: Callable[[Any], bool] | None) -> Callable[[Any], bool]:
    """Return what tells whether a tensor lies on a device; see ``static_bytes``."""
    return lambda one: _place(one) == device and (holds is None or holds(one))


def _place(tensor: Any) -> str:
    device = tensor.device
    return f"{device.type}:{device.index or 0}" if device.type == "cuda" else str(device.type)


def _bytes(tensor: Any) -> int:
    return numel * int(tensor.element_size()) if (numel := _numel(tensor)) else 0


def _numel(tensor: Any) -> int:
    """Return how many elements a tensor has: none where a lazy module has not seen its first batch."""
    return 0 if sys.modules["torch"].nn.parameter.is_lazy(tensor) else int(tensor.numel())
