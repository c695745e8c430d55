"""The peak that training would have, without its arithmetic and without its memory.

Under fake tensors every operator computes shapes only, and the same ledger counts the storages that it
would have made. The result equals the peak measured on the simulated device for training whose memory
does not depend on values, in a fraction of the time and at no cost in memory. It is a prediction: it
orders candidates and is never evidence. Let at least two optimizer steps pass, or the optimizer's state
is missing from the peak. Run it in a process of its own, with a timeout, on the CPU only: values are made
up, and fake CUDA tensors abort a process whose torch has no CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from watcherml.simulated.device import SimulatedDevice, simulated_device
from watcherml.simulated.framework import TorchDispatchMode, fake_tensors, torch

fake = fake_tensors()


# Whole numbers are worked out for real up to so many elements of a tensor (32 MiB of int64), as a sampler's order is.
_KNOWN_ELEMENTS = 2**22


@contextmanager
def predicted_device(
    budget: int | str | None = None,
    *,
    integer: int | None = None,
    each_operator: Callable[[], None] | None = None,
) -> Iterator[SimulatedDevice]:
    """Enter a simulated device whose tensors have no data; read ``peak_bytes`` (bytes) when the steps are done.

    Whole numbers that come from whole numbers alone (an order of samples, the places of a batch, token ids) are
    worked out for real; drawn ones are drawn, not the same as in training. Reading another value back
    (``loss.item()``, ``if found_inf:``) gives 0.0 or False. What shapes depend on cannot be made up: an integer that
    is computed from data, ``nonzero`` or a boolean index raise the error of the fake tensors, and then only a trial
    can tell. ``integer`` is given for such an integer instead of the error: a peak that is the same for two very
    different ones does not depend on it. ``each_operator`` is called before each operator, and what it raises ends the
    training. ``budget`` and errors are those of ``simulated_device``.
    """
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    with _replaced(torch.utils, "swap_tensors", _swap), _replaced(fake.FakeTensor, "__deepcopy__", _deepcopy):
        with mode, simulated_device(budget) as device, _MadeUpScalars(device, integer, each_operator):  # type: ignore[no-untyped-call]
            yield device


class _MadeUpScalars(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers 0.0 or False where training code reads a value that fake tensors do not have."""

    def __init__(self, device: SimulatedDevice, integer: int | None, each_operator: Callable[[], None] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device, self._integer, self._each_operator = device, integer, each_operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._each_operator is not None:
            self._each_operator()
        try:
            if _of_whole_numbers(func, args, kwargs) and self._is_small(func, args, kwargs):
                with fake.unset_fake_temporarily():
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        except fake.DataDependentOutputException:
            # An integer may become a shape, and a made-up shape would make a wrong peak without a sign.
            if func is torch.ops.aten._local_scalar_dense.default:
                if args[0].dtype is torch.bool:
                    return False
                if args[0].dtype.is_floating_point:
                    return 0.0
                if self._integer is not None:
                    return self._integer
            raise
        finally:
            del args, kwargs

    def _is_small(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Tell whether the result may be worked out for real, by its shape."""
        if torch.Tag.inplace_view in func.tags:
            return True  # ``squeeze_``, or ``set_`` of a copy: only the known tensor itself can be changed
        try:
            with self._device.host():  # this shape is not the training's memory
                shapes = func(*args, **kwargs)
        except (fake.DataDependentOutputException, fake.DynamicOutputShapeException):
            return True  # a value read back, or places of what is small
        return all(not _has_fractions(one) and one.numel() <= _KNOWN_ELEMENTS for one in _tensors(shapes))


_DRAWN = frozenset(("randint", "randperm", "arange"))


def _of_whole_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether an operator has nothing to work with but whole numbers that are known."""
    tensors = False
    for one in _tensors((args, kwargs) if kwargs else args):
        if isinstance(one, fake.FakeTensor) or _has_fractions(one):
            return False  # nearly always the first one that is looked at
        tensors = True
    if tensors:
        return True
    dtype = kwargs.get("dtype")
    return func._opname in _DRAWN if dtype is None else not (dtype.is_floating_point or dtype.is_complex)


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


_swap_real_tensors = torch.utils.swap_tensors


def _swap(first: torch.Tensor, second: torch.Tensor) -> None:
    # Module.to() swaps fake parameters, and torch refuses: its own fake mode holds weak references to them.
    if isinstance(first, fake.FakeTensor):
        first.data = second.data
    else:
        _swap_real_tensors(first, second)  # type: ignore[no-untyped-call]


def _deepcopy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    # torch would copy the tensor's fake mode with it, and two fake modes do not mix.
    if id(tensor) not in memo:
        clone = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = torch.nn.Parameter(clone, tensor.requires_grad) if is_parameter else clone
    copy: torch.Tensor = memo[id(tensor)]
    return copy


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
