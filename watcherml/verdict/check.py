"""Making a ``Check``: a required and an observed fact, and whether they agree. Missing is never pass."""

from __future__ import annotations

from collections.abc import Mapping

from watcherml.protocol.verdict import Check
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.record import Record, thaw


def equal(name: str, required: object, observed: object) -> Check:
    """Compare two values for equality; an observed None is missing."""
    outcome = "missing" if observed is None else "pass" if observed == required else "fail"
    return Check(name, show(required), show(observed), outcome)  # type: ignore[arg-type]


def holds(name: str, required: str, observed: object, passed: bool) -> Check:
    """Record a condition that was decided by the caller; an observed None is missing whatever it says."""
    outcome = "missing" if observed is None else "pass" if passed else "fail"
    return Check(name, required, show(observed), outcome)  # type: ignore[arg-type]


def all_pass(checks: tuple[Check, ...]) -> bool:
    """Tell whether there are checks and each of them passes."""
    return bool(checks) and all(check.outcome == "pass" for check in checks)


def broken(checks: tuple[Check, ...]) -> tuple[str, ...]:
    """Return each check that does not pass in words."""
    return tuple(
        f"{check.name}: required {check.required}, observed {check.observed}"[:2000]
        for check in checks
        if check.outcome != "pass"
    )


def show(value: object) -> str:
    """Return a value as the text of a check."""
    if value is None:
        return "not measured"
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, (Record, Mapping)):
        return canonical_bytes(thaw(value)).decode()[:500]
    return str(value)[:500]
