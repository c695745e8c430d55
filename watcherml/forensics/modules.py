"""Which kinds of layers the failed code was running, seen in its traceback's frames. Names only; nothing is kept."""

from __future__ import annotations

import sys
from typing import Any

from watcherml.forensics.origin import frames, globals_of, names_of

_MAX_ROOTS = 64
_MAX_MODULES = 20_000


def batch_norm_modules(error: BaseException) -> list[str] | None:
    """Return the class names of BatchNorm layers of every model that the failing frames hold, in training mode.

    The models are modules in locals or globals of the traceback's frames (a module's own ``self`` among them). None
    without torch, or where no frame holds a module: then nothing was seen either way.
    """
    torch = sys.modules.get("torch")
    base = getattr(getattr(torch, "nn", None), "Module", None)
    norm = getattr(sys.modules.get("torch.nn.modules.batchnorm"), "_BatchNorm", None)
    if base is None or norm is None:
        return None
    roots = _roots(error, base)
    if not roots:
        return None
    found: set[str] = set()
    looked = 0
    for root in roots:
        for module in root.modules():
            looked += 1
            if looked > _MAX_MODULES:
                return sorted(found)
            if isinstance(module, norm) and module.training:
                found.add(type(module).__name__)
    return sorted(found)


def _roots(error: BaseException, base: Any) -> list[Any]:
    roots: dict[int, Any] = {}
    for frame, _ in frames(error):
        # Globals too: in a notebook the model is one, and backward has no module's frame below it.
        for names in (names_of(frame), globals_of(frame)):
            for value in list(names.values()):
                if isinstance(value, base):
                    roots[id(value)] = value
        if len(roots) >= _MAX_ROOTS:
            break
    return list(roots.values())
