"""A CPU device with a declared memory limit, on which real training runs out of memory for real.

The arithmetic and the tensor lifetimes are PyTorch's own; only the limit is declared. An operator whose
result would not fit is refused with ``SimulatedOutOfMemoryError``, which is a ``torch.OutOfMemoryError``,
so that a failure, its diagnosis and its recovery can be rehearsed where there is no GPU. Everything made
here says "simulated": it is never evidence about a CUDA device.

- ``active``: which device is active, and how sizes are written; never imports torch.
- ``error``: the exception and its message.
- ``ledger``: which storages are alive, and how many bytes they hold.
- ``device``: the device and ``simulated_device(budget)``, the way in.
- ``probe``: the check at start-up that the ledger counts right with this torch.

Importing this package costs nothing; ``active`` and its functions work where torch is not installed.
"""
