"""``phase("evaluation")``: names a part of training, so that a failure inside it can say where it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from watcherml.errors import InvalidValue

PHASES = ("load", "data", "forward", "backward", "recompute", "optimizer", "evaluation", "checkpoint")
_ATTRIBUTE = "_watcherml_phase"


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Run a block as a named phase: load, data, forward, backward, recompute, optimizer, evaluation, checkpoint.

    Raises ``InvalidValue`` for another name. An exception that leaves the block is not changed except for a mark
    that the failure capsule reads; the innermost phase wins.
    """
    if name not in PHASES:
        raise InvalidValue("phase", expected="one of " + ", ".join(PHASES), got=repr(name)[:80])
    try:
        yield
    except BaseException as error:
        mark(error, name)
        raise


def mark(error: BaseException, name: str) -> None:
    """Note one of ``PHASES`` on an exception that has none yet, for a failure that is only met after its block."""
    if phase_of(error) is None:
        try:
            setattr(error, _ATTRIBUTE, name)
        except (AttributeError, TypeError):
            pass  # an exception with slots keeps no mark; its traceback still tells


def phase_of(error: BaseException) -> str | None:
    """Return the phase in which an exception left its block, if any was named."""
    try:
        found = getattr(error, _ATTRIBUTE, None)
    except BaseException:  # noqa: BLE001 - a class that answers for its attributes with code of its own
        return None
    return found if isinstance(found, str) else None
