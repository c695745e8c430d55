"""``SimulatedOutOfMemoryError``: what the simulated device raises, and the text that it says.

It is a ``torch.OutOfMemoryError`` so that training code meets it exactly as it would meet the real one.
Its text starts with a label, so that no truncated log line can pass for a CUDA failure, and goes on in
the grammar of the CUDA caching allocator (torch 2.2 and later), with every number from the ledger.
"""

from __future__ import annotations

import os
from typing import Any

from watcherml.simulated.active import format_bytes
from watcherml.simulated.framework import torch

LABEL = "[SIMULATED memory-budgeted CPU device (no GPU)"


class SimulatedOutOfMemoryError(torch.OutOfMemoryError):
    """An operator's result would have exceeded the declared budget of the simulated device.

    ``requested_bytes`` is what the operator would have added, ``allocated_bytes`` what was alive before
    it (both in whole granules of 512 bytes), ``budget_bytes`` the declared limit, ``op`` the operator
    (``aten.mm.default``) or ``adopt``, ``pid`` the process, ``grad_enabled`` torch's gradient mode there, None where
    nobody looked. ``simulated`` is always True.
    """

    simulated = True

    def __init__(
        self,
        requested_bytes: int,
        allocated_bytes: int,
        budget_bytes: int,
        op: str,
        pid: int | None = None,
        grad_enabled: bool | None = None,
    ) -> None:
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocated_bytes
        self.budget_bytes = budget_bytes
        self.op = op
        self.grad_enabled = grad_enabled
        self.pid = os.getpid() if pid is None else pid
        allocated = format_bytes(allocated_bytes)
        free = format_bytes(max(budget_bytes - allocated_bytes, 0))
        # "0 bytes reserved" holds by construction: the ledger has no segments. It is no evidence against fragmentation.
        super().__init__(
            f"{LABEL}; op={op}] CUDA out of memory. Tried to allocate {format_bytes(requested_bytes)}. "
            f"GPU 0 has a total capacity of {format_bytes(budget_bytes)} of which {free} is free. "
            f"Process {self.pid} has {allocated} memory in use. "
            f"Of the allocated memory {allocated} is allocated by PyTorch, "
            "and 0 bytes is reserved by PyTorch but unallocated."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions unpickle by calling the class with `args`, which is the text; a worker's failure must survive that.
        stated = (self.requested_bytes, self.allocated_bytes, self.budget_bytes, self.op, self.pid, self.grad_enabled)
        return type(self), stated
