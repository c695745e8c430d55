"""The parts of PyTorch that the simulated device stands on, or the error that says how to get them.

Everything outside torch's documented interface that this package touches is imported here. The modules
beside this one take torch from here, so that its absence has one message.
"""

from __future__ import annotations

import functools
from typing import Any

from watcherml.errors import MissingDependency


def _missing(got: str) -> MissingDependency:
    return MissingDependency(
        "the simulated device",
        expected="torch 2.4 or later in this environment",
        got=got,
        remedy='Install it with: pip install "torch>=2.4"',
    )


try:
    import torch as torch
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_traceable_wrapper_subclass
except ModuleNotFoundError as error:
    raise _missing(str(error)) from error

if not hasattr(torch, "OutOfMemoryError"):  # 2.4.1 has it; before, it was known as torch.cuda.OutOfMemoryError only
    raise _missing(f"torch {torch.__version__}")


@functools.cache
def is_composite(func: Any) -> bool:
    """Tell whether an operator has no CPU kernel of its own, only one written in other operators."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    name: str = func.name()  # type: ignore[no-untyped-call]
    return has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "CPU")


def run_parts(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a composite operator through its own kernel, so that active modes see each of its parts."""
    # Not func.decompose(): it prefers Python rewrites, which allocate differently (dropout, matmul).
    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def in_fake_mode() -> bool:
    """Tell whether operators here compute shapes only (``FakeTensorMode`` is active)."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def loader_kinds() -> tuple[Any, ...]:
    """Return the classes whose ``__init__`` and ``_next_data`` get batches: read here, and from worker processes.

    Batches of workers arrive in any order, and those ahead of their turn wait in this process.
    """
    from torch.utils.data import dataloader

    return dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter


def fake_tensors() -> Any:
    """Return torch's module of tensors without data; it is imported on demand because it loads slowly."""
    from torch._subclasses import fake_tensor

    return fake_tensor
