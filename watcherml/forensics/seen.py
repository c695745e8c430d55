"""What the failing frames held: models, optimizers and tensors, as sizes only. No value and no object is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import PurePath
from types import FrameType, GetSetDescriptorType, ModuleType
from typing import Any

from watcherml.forensics.causes.vector import Static
from watcherml.forensics.origin import globals_of, names_of

MOST_ROOTS = 64
MOST_OWNERS = 2_000  # objects whose attributes are looked at
MOST_TENSORS = 200_000  # of all models together
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

    @classmethod
    def look(cls, found: list[tuple[FrameType, int]], optimizers: Iterable[Any] = ()) -> Live:
        """Find the modules and optimizers among the names of the frames, globals of the user's code included.

        A trainer that holds both is as common as two names, so attributes of other objects are looked at, one level.
        """
        torch = sys.modules.get("torch")
        module = getattr(getattr(torch, "nn", None), "Module", None)
        optimizer = getattr(getattr(torch, "optim", None), "Optimizer", None)
        if module is None or optimizer is None:
            return cls()
        kept: tuple[dict[int, Any], dict[int, Any]] = ({}, {one_id: one for one in optimizers for one_id in [id(one)]})
        searched: set[int] = set()
        owners: set[int] = set()
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
                # The type is asked, not the value: a proxy answers isinstance() by running code of its own.
                for value, (kind, into) in product(values, zip((module, optimizer), kept, strict=True)):
                    if issubclass(type(value), kind) and len(into) < MOST_ROOTS:
                        into[id(value)] = value
        return cls(list(kept[0].values()), list(kept[1].values()))

    def outermost(self) -> list[Any]:
        """Return the modules that are part of no other one found."""
        inner = {id(part) for one in self.modules for part in one.modules() if part is not one}
        return [one for one in self.modules if id(one) not in inner]


def static_bytes(live: Live, device: str) -> Static:
    """Return what models and optimizers hold on a device (``cuda:0``, or ``cpu`` for the simulated one)."""
    if not live.modules and not live.optimizers:
        return Static()
    parameters = list(_unique(_parameters(live)))
    here = [one for one in parameters if _place(one) == device]
    gradients = [one.grad for one in here if one.grad is not None]
    buffers = _unique(buffer for module in live.modules for buffer in module.buffers())
    states = _unique(value for one in live.optimizers for value in _state_tensors(one))
    return Static(
        parameters=sum(map(_bytes, here)) if parameters else None,
        gradients=sum(_bytes(one) for one in gradients if _place(one) == device) if parameters else None,
        optimizer=sum(_bytes(one) for one in states if _place(one) == device) if live.optimizers else None,
        buffers=sum(_bytes(one) for one in buffers if _place(one) == device) if live.modules else None,
        optimizer_expected=_expected(live.optimizers, device),
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
            "parameters": sum(parameter.numel() for parameter in one.parameters()),
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
    tensor = sys.modules["torch"].Tensor
    for state in list(optimizer.state.values()):
        if isinstance(state, dict):
            yield from (value for value in list(state.values()) if isinstance(value, tensor))


def _expected(optimizers: list[Any], device: str) -> int | None:
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
            wanted = sum(_bytes(p) for p in group["params"] if p.requires_grad and _place(p) == device)
            total += wanted * (_STATES[name] + len(options))
    return total if optimizers else None


def _place(tensor: Any) -> str:
    device = tensor.device
    return f"{device.type}:{device.index or 0}" if device.type == "cuda" else str(device.type)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
