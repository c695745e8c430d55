"""Readings that no device can give are none: below zero, beyond what a number can hold, or against each other.

They come from drivers that print 2**64 for "not available", from counters that wrapped, and from figures of two
devices in one message. A rule that met one would compare with it and be sure.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from watcherml.forensics.causes.vector import History, Sizes, Static, Vector
from watcherml.forensics.shortfall import shortfall
from watcherml.sealed.canonical import MAX_SAFE_INTEGER

_SHORTFALL = ("requested", "free", "allowed", "reserved")


def plausible(vector: Vector) -> Vector:
    """Return the vector with None for every figure that cannot be, and the shortfall without what rested on it."""
    wrong: dict[str, Any] = {
        one.name: None
        for one in fields(vector)
        if type(value := getattr(vector, one.name)) is int and not _is_count(value)
    }
    if vector.capacity == 0:
        wrong["capacity"] = None
    if vector.free is not None and vector.capacity and vector.free > vector.capacity:
        wrong["free"] = None  # one of the two is another device's
    made = replace(vector, **wrong) if wrong else vector
    if wrong.keys() & set(_SHORTFALL) or not _fits(vector.missing):
        half = 0 if vector.missing is None else (vector.missing.high - vector.missing.low) // 2
        short = shortfall(made.requested, made.free, allowed=made.allowed, reserved=made.reserved, rounding=half)
        made = replace(made, missing=short if _fits(short) else None)
    return replace(
        made,
        static=_counts(made.static, Static, least=0),
        sizes=_counts(made.sizes, Sizes, least=1),
        history=_history(made.history),
    )


def _is_count(value: int, least: int = 0) -> bool:
    return least <= value <= MAX_SAFE_INTEGER


def _fits(short: Any) -> bool:
    return short is None or max(abs(short.low), abs(short.high)) <= MAX_SAFE_INTEGER


def _counts(held: Any, kind: type, *, least: int) -> Any:
    wrong = {
        one.name: None
        for one in fields(kind)
        if type(value := getattr(held, one.name)) is int and not _is_count(value, least)
    }
    return replace(held, **wrong) if wrong else held


def _history(held: History) -> History:
    pairs = list(zip(held.steps, held.allocated, strict=False))
    points = [(step, value) for step, value in pairs if _is_count(step) and _is_count(value)]
    peak = held.in_step_peak
    return History(
        steps=tuple(step for step, _ in points),
        allocated=tuple(value for _, value in points),
        in_step_peak=peak if peak is None or _is_count(peak) else None,
        batch_elements=held.batch_elements if all(map(_is_count, held.batch_elements)) else (),
        evaluation=held.evaluation if all(map(_is_count, held.evaluation)) else (),
        since_step=held.since_step if all(map(_is_count, held.since_step)) else (),
        batch_numbers=held.batch_numbers if all(map(_is_count, held.batch_numbers)) else (),
    )
