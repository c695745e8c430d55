"""The simulated device: real CPU training under a declared memory limit.

::

    with simulated_device("96 MiB") as device:
        train(config)                   # raises SimulatedOutOfMemoryError where 96 MiB do not suffice
    print(device.peak_bytes)

It stands on a dispatch mode, which sees every operator of the thread that entered it. After each operator
the storages of its arguments and results are counted; if they exceed the budget the result is dropped and
the operator raises. The definition of its memory is therefore: tensors that the dispatcher can see. Work
buffers inside a kernel are not seen (oneDNN convolutions: a ResNet-like net counts 12 % less than it uses),
and ``torch.compile`` has no effect on memory here (what insists on compiling, as ``flex_attention`` does,
fails with torch's own error). The refused operator has run before it is refused, so the host needs room
for the budget and one more result.

Other Python threads: a dispatch mode belongs to one thread. What another thread computes is counted when
the entering thread first touches it. Backward passes count in full. Counters may be read from any thread.

Forked children (data loader workers) inherit the mode and pass through it uncounted. A torch DataLoader reads
and collates in host memory in this process too; its batch counts when training first uses it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from watcherml.errors import DeviceError
from watcherml.simulated import active
from watcherml.simulated.contents import copied, tensors_of
from watcherml.simulated.error import SimulatedOutOfMemoryError
from watcherml.simulated.framework import (
    TorchDispatchMode,
    in_fake_mode,
    is_composite,
    loader_kinds,
    run_parts,
    torch,
)
from watcherml.simulated.ledger import Ledger, Shortage
from watcherml.simulated.probe import check_counting

MECHANISM = "torch dispatch mode over tensor storages"
_END = object()


def simulated_device(budget: int | str | None) -> AbstractContextManager[SimulatedDevice]:
    """Return a context in which this thread's CPU tensors are held to ``budget``; it yields the device.

    ``budget`` is bytes, a size such as ``"96 MiB"``, or None for no limit (to measure a peak). Enter it
    before the model is built, or hand what exists to ``adopt``. Inside, an operator that would exceed the
    budget raises ``SimulatedOutOfMemoryError``. Raises ``InvalidValue`` for a bad budget, and on entering
    ``DeviceError`` if another device is active in this process or this torch cannot be counted.
    """
    return _entered(active.parse_budget(budget))


class SimulatedDevice:
    """A memory-budgeted CPU device. Made by ``simulated_device``; stays readable after its context.

    All sizes are bytes in whole granules of 512 per tensor storage. After the context, operators are no
    longer counted or refused, but ``current_bytes`` keeps falling as tensors die.
    """

    kind: ClassVar[str] = "simulated"
    device_id: ClassVar[str] = "simulated-cpu-budget"

    def __init__(self, budget_bytes: int | None) -> None:
        self.serial = next(active.serials)
        self._ledger = Ledger(budget_bytes)
        self._watch = _Watch(self._ledger)
        self._predicted = in_fake_mode()

    @property
    def budget_bytes(self) -> int | None:
        """The declared limit in bytes; None if the device only measures."""
        return self._ledger.limit_bytes

    @property
    def current_bytes(self) -> int:
        """Bytes of the counted tensor storages that are alive now."""
        return self._ledger.current_bytes

    @property
    def peak_bytes(self) -> int:
        """The largest ``current_bytes`` since the start or ``reset_peak``; refused requests do not enter it."""
        return self._ledger.peak_bytes

    def holds(self, tensor: Any) -> bool:
        """Tell whether a tensor's memory is counted here; that of ``host()`` is not."""
        return self._ledger.holds(tensor)

    def reset_peak(self) -> None:
        """Let ``peak_bytes`` start again from what is alive now."""
        self._ledger.reset_peak()

    @contextmanager
    def host(self) -> Iterator[None]:
        """Treat tensors made in this block as host memory: not counted until an operator outside uses them.

        A view counts its whole base, so slices that leave the block should be clones. In a thread other than
        the one that entered the device nothing is counted anyway, and the block changes nothing.
        """
        here = int(threading.get_ident() == self._watch.thread)
        self._watch.host_depth += here
        try:
            yield
        finally:
            self._watch.host_depth -= here

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Iterate over a data loader: it works in host memory, and each batch is copied to the device.

        Tensors inside mappings, lists and tuples are copied, as ``batch.to(device)`` would; other values
        pass as they are. Raises ``DeviceError`` outside the context, and ``SimulatedOutOfMemoryError`` if
        the copy does not fit.
        """
        self._require_active("batches")
        return self._batches(loader)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        with self.host():
            iterator = iter(loader)
        while True:
            with self.host():
                active.taking += 1
                try:
                    batch = next(iterator, _END)
                finally:
                    active.taking -= 1
            if batch is _END:
                return
            yield self._taken_in(batch, loader)

    def _taken_in(self, batch: Any, loader: object) -> Any:
        copies: list[torch.Tensor] = []
        with self.host():  # or cloning would count the host tensor that it reads
            batch = copied(batch, copies)
        active.batch_taken(loader, sum(tensor.numel() for tensor in copies))
        shortage = self._ledger.charge(copies)
        if shortage is not None:
            del batch, copies  # a kept traceback keeps this frame
            raise _refusal(shortage, "batches")
        return batch

    def adopt(self, *objects: Any) -> None:
        """Count what was made before the context: modules, optimizers, tensors, and containers of them.

        Gradients count too, and so does whatever offers ``state_dict()``. Raises ``InvalidValue`` for an
        object whose tensors cannot be found (nothing is skipped in silence), ``DeviceError`` outside the
        context, and ``SimulatedOutOfMemoryError`` if it does not fit; then nothing of it is counted.
        """
        self._require_active("adopt")
        found = [tensor for index, item in enumerate(objects) for tensor in tensors_of(item, f"adopt[{index}]")]
        shortage = self._ledger.charge(found)
        if shortage is not None:
            del found, objects  # a kept traceback keeps this frame
            raise _refusal(shortage, "adopt")

    def report(self) -> dict[str, Any]:
        """Return the device and its counters (bytes) as plain values under stable keys.

        ``predicted`` is True if the tensors were fake: such numbers order candidates and prove nothing.
        """
        return {
            "kind": self.kind,
            "device_id": self.device_id,
            "simulated": True,
            "predicted": self._predicted,
            "budget_bytes": self.budget_bytes,
            "sim_allocated_bytes": self.current_bytes,
            "sim_peak_bytes": self.peak_bytes,
            "mechanism": MECHANISM,
            "granularity_bytes": active.GRANULARITY_BYTES,
            "torch_version": str(torch.__version__),
            "threads": torch.get_num_threads(),
        }

    def _require_active(self, what: str) -> None:
        if active.current() is not self:
            raise DeviceError(
                f"SimulatedDevice.{what}",
                expected="a device that is active in this process",
                got="one whose context is not entered here",
                remedy="Call it inside `with simulated_device(budget) as device:`.",
            )


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts every operator of the entering thread into a ledger, and refuses what does not fit."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger = ledger
        self.host_depth = 0
        self.thread = threading.get_ident()
        self._pid = os.getpid()

    # Without this torch refuses its higher-order operators under a mode; here they run like any other.
    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = None
        try:
            if self.host_depth or os.getpid() != self._pid:
                return func(*args, **kwargs)
            if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                return NotImplemented  # a wrapper subclass unwraps itself, and its inner operators come here
            result = self._run(func, args, kwargs)
            shortage = self.ledger.charge(args, kwargs, result)
            if shortage is None:
                return result
        except SimulatedOutOfMemoryError as refused:  # by an inner operator of a composite one
            raise refused.with_traceback(None)  # noqa: B904  it is the same exception, less its inner frames
        finally:
            # A kept traceback keeps this frame: it must not keep the refused result or a temporary argument.
            del args, kwargs, result
        raise _refusal(shortage, str(func))

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        # In inference mode composite operators arrive whole, and what their parts allocate would go unseen.
        if torch.is_inference_mode_enabled() and is_composite(func):
            with self:
                return run_parts(func, args, kwargs)
        return func(*args, **kwargs)


def _refusal(shortage: Shortage, op: str) -> SimulatedOutOfMemoryError:
    active.refusals += 1
    return SimulatedOutOfMemoryError(*shortage, op=op, grad_enabled=torch.is_grad_enabled())


_counting_checked = False


@contextmanager
def _entered(budget_bytes: int | None) -> Iterator[SimulatedDevice]:
    global _counting_checked
    device = SimulatedDevice(budget_bytes)  # made here: it belongs to the process that enters it
    if not _counting_checked:  # once a process: the answer depends on torch alone
        check_counting(_Watch)
        _counting_checked = True
    active.activate(device)
    try:
        with _loading_on_the_host(device), device._watch:
            yield device
    finally:
        active.deactivate(device)


@contextmanager
def _loading_on_the_host(device: SimulatedDevice) -> Iterator[None]:
    """Have torch's DataLoaders read and collate in host memory, as they do beside a GPU."""
    own = {(kind, name): getattr(kind, name) for kind in loader_kinds() for name in ("__init__", "_next_data")}

    def on_the_host(call: Any) -> Any:
        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with device.host():
                return call(*args, **kwargs)

        return wrapped

    ours = {place: on_the_host(call) for place, call in own.items()}
    for place, call in ours.items():
        setattr(*place, call)
    try:
        yield
    finally:
        for (kind, name), call in ours.items():
            if kind.__dict__.get(name) is call:  # somebody else may have wrapped it meanwhile
                setattr(kind, name, own[kind, name])
