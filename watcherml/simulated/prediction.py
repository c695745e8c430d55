"""The peak that training would have, without its arithmetic and without its memory.

Under fake tensors every operator computes shapes only, and the same ledger counts the storages that it
would have made. The result equals the peak measured on the simulated device for training whose memory
does not depend on values, in a fraction of the time and at no cost in memory. It is a prediction: it
orders candidates and is never evidence. Let at least two optimizer steps pass, or the optimizer's state
is missing from the peak. Run it in a process of its own, with a timeout, on the CPU only: values are made
up, and fake CUDA tensors abort a process whose torch has no CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from watcherml.simulated.device import SimulatedDevice, simulated_device
from watcherml.simulated.framework import TorchDispatchMode, fake_tensors, torch

fake = fake_tensors()


@contextmanager
def predicted_device(budget: int | str | None = None) -> Iterator[SimulatedDevice]:
    """Enter a simulated device whose tensors have no data; read ``peak_bytes`` (bytes) when the steps are done.

    Reading a value back (``loss.item()``, ``if found_inf:``) gives 0.0 or False. What shapes depend on
    cannot be made up: an integer read back, ``nonzero`` or a boolean index raise the error of the fake
    tensors, and then only a trial can tell. ``budget`` and errors are those of ``simulated_device``.
    """
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    with _replaced(torch.utils, "swap_tensors", _swap), _replaced(fake.FakeTensor, "__deepcopy__", _deepcopy):
        with mode, simulated_device(budget) as device, _MadeUpScalars():  # type: ignore[no-untyped-call]
            yield device


class _MadeUpScalars(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers 0.0 or False where training code reads a value that fake tensors do not have."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except fake.DataDependentOutputException:
            # An integer may become a shape, and a made-up shape would make a wrong peak without a sign.
            if func is torch.ops.aten._local_scalar_dense.default:
                if args[0].dtype is torch.bool:
                    return False
                if args[0].dtype.is_floating_point:
                    return 0.0
            raise
        finally:
            del args, kwargs


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
