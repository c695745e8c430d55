"""What a step cannot free: models, gradients, state, and what lies on the device from one step to the next."""

from __future__ import annotations

from watcherml.forensics.causes.history import between_steps
from watcherml.forensics.causes.vector import Vector


def lasting(vector: Vector) -> int | None:
    """Return the bytes that were there without this step, as far as they were seen; None where no model was.

    A reading right after a step holds its gradients too: those that are gone again are taken off.
    """
    own = vector.static.everything
    if own is None or not vector.history.allocated:
        return own
    gone = vector.static.returning
    return own if gone is None else max(own, (between_steps(vector) or 0) - gone)


def unowned(vector: Vector) -> int | None:
    """Return the bytes that lay there after the last step too and belong to nothing that was found to last.

    None where no reading after a step, no model, or no optimizer's state was found: then they may be its state.
    """
    stays, own = lasting(vector), vector.static.everything
    if own is None or stays is None or vector.static.optimizer is None or not vector.history.allocated:
        return None
    return max(0, stays - own)


def least(vector: Vector) -> int | None:
    """Return the bytes that training takes with no step at all: what is there, and what the first step still makes."""
    own, more = vector.static.all_models, vector.static.to_come
    return None if own is None else own + (more or 0)


def never_fits(vector: Vector) -> bool:
    """Tell whether model, gradients and state alone need more than torch could have: then no smaller step helps."""
    needed, room = least(vector), vector.own_limit
    return (vector.at_work or vector.phase == "optimizer") and None not in (needed, room) and needed > room  # type: ignore[operator]


def frees_too_little(vector: Vector) -> bool:
    """Tell whether all tensors of the step, gone, would not leave room: then no smaller step helps."""
    stays, held, short = lasting(vector), vector.allocated, vector.missing
    if not (vector.at_work or vector.phase == "optimizer") or stays is None or held is None or short is None:
        return False
    # A request that follows the micro-batch becomes smaller with it.
    return not vector.request_scales and max(0, held - stays) < short.low
