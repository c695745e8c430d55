"""Where the tensors of ordinary training objects are: modules, optimizers, batches, nested containers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.simulated.framework import torch

_LEAVES = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device)


def tensors_of(value: Any, path: str) -> Iterator[torch.Tensor]:
    """Yield every tensor in a module, optimizer, tensor or nested container, gradients included.

    An object of another kind is read through its ``state_dict()``. Raises ``InvalidValue`` naming the path
    of an object that has none, so that nothing is skipped in silence.
    """
    yield from _walk(value, path, set())


def copied(batch: Any, copies: list[torch.Tensor]) -> Any:
    """Return a batch with the tensors in its mappings, lists and tuples cloned; other values as they are.

    Every clone is also appended to ``copies``.
    """
    if isinstance(batch, torch.Tensor):
        copies.append(batch.clone())
        return copies[-1]
    if isinstance(batch, MutableMapping):
        result = copy.copy(batch)  # keeps the type, such as the dict-like batches of tokenizers
        for key, item in batch.items():
            result[key] = copied(item, copies)
        return result
    if isinstance(batch, Mapping):
        return {key: copied(item, copies) for key, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [copied(item, copies) for item in batch]
        if isinstance(batch, list):
            return items
        return type(batch)(*items) if hasattr(batch, "_fields") else tuple(items)
    return batch


def _walk(value: Any, path: str, seen: set[int]) -> Iterator[torch.Tensor]:
    if isinstance(value, _LEAVES) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        if value.is_leaf and value.grad is not None:  # reading the gradient of a non-leaf warns
            yield value.grad
    elif isinstance(value, torch.nn.Module):
        yield from _walk(list(value.parameters()) + list(value.buffers()), path, seen)
    elif isinstance(value, torch.optim.Optimizer):
        yield from _walk([value.param_groups, list(value.state.values())], path, seen)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}[{key!r}]", seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]", seen)
    elif callable(getattr(value, "state_dict", None)):
        yield from _walk(value.state_dict(), f"{path}.state_dict()", seen)
    else:
        raise InvalidValue(
            path,
            expected="a module, an optimizer, a tensor, a container of them, or an object with state_dict()",
            got=f"{type(value).__name__}",
            remedy="Pass the tensors that it holds.",
        )
