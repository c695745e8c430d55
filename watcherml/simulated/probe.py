"""The check at start-up: does the ledger count right with the torch that is installed?

The ledger relies on behaviour that torch does not promise: a weak reference to a storage lives exactly as
long as the storage, also when only a view or the autograd graph holds it. Where that fails, bytes would go
missing from the count without a sign, so the device refuses to start instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from watcherml.errors import DeviceError
from watcherml.simulated.active import GRANULARITY_BYTES
from watcherml.simulated.framework import torch
from watcherml.simulated.ledger import Ledger

_FLOATS = 1024
_BYTES = 4 * _FLOATS


def check_counting(watch: Callable[[Ledger], AbstractContextManager[object]]) -> None:
    """Count a few tensors of known size and lifetime under ``watch``; raise ``DeviceError`` if a count is off.

    ``watch`` starts the counting of every operator into the given ledger for the length of a ``with`` block.
    """
    ledger = Ledger(None)
    with torch.inference_mode(False), torch.enable_grad(), watch(ledger):
        _check_views(ledger)
        _check_graph(ledger)
    _expect(ledger, 0, "after every tensor died")


def _check_views(ledger: Ledger) -> None:
    tensor = torch.zeros(_FLOATS, dtype=torch.float32, device="cpu")
    _expect(ledger, _BYTES, "for one new tensor")
    view = tensor.view(-1, 2)[1:]
    view.add_(1.0)
    _expect(ledger, _BYTES, "for a tensor and a changed view of it")
    del tensor
    _expect(ledger, _BYTES, "for a view whose base is gone")
    del view
    _expect(ledger, 0, "after the last view died")


def _check_graph(ledger: Ledger) -> None:
    weight = torch.zeros(_FLOATS, dtype=torch.float32, device="cpu", requires_grad=True)
    result = weight.exp()
    loss = result.sum()
    counted = 2 * _BYTES + GRANULARITY_BYTES  # the loss is one number
    del result
    _expect(ledger, counted, "for a tensor that only the autograd graph holds")
    torch.autograd.backward(loss)
    _expect(ledger, counted, "after backward freed the graph and made a gradient")


def _expect(ledger: Ledger, wanted: int, when: str) -> None:
    if ledger.current_bytes != wanted:
        raise DeviceError(
            f"torch {torch.__version__} cannot carry the simulated device",
            expected=f"{wanted} bytes counted {when}",
            got=f"{ledger.current_bytes} bytes",
            remedy="The device would count wrongly, so it does not start; it was tested with torch 2.4, 2.13 and 2.14.",
        )
