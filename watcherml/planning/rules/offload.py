"""Moving activations, optimizer state or parameters to host memory. Never on the simulated device: it has no host."""

from __future__ import annotations

from dataclasses import dataclass

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.rules.optimizer import not_the_optimizer
from watcherml.planning.spelling import value_of

_SIMULATED = "The simulated device has no host memory to offload to."
_CAUTION = "Takes host memory and transfers on every step."


@dataclass(frozen=True)
class _Kind:
    name: str
    slug: str
    what: str
    effect: str
    tier: float


_KINDS = (
    _Kind("activation_offload", "activation-offload", "activations",
          "What backward needs waits in host memory.", 40),
    _Kind("optimizer_state_offload", "optimizer-offload", "optimizer state",
          "The optimizer's state (for Adam twice the parameters) leaves the device.", 41),
    _Kind("parameter_offload", "parameter-offload", "parameters",
          "Parameters are on the device only while they are used.", 51),
)  # fmt: skip


def drafts(situation: Situation) -> Drafts:
    """Return the offloads whose switch is off."""
    made: list[Draft] = []
    reasons = []
    for kind in _KINDS:
        more, other = _one(situation, kind)
        made += more
        reasons += other
    return made, reasons


def _one(situation: Situation, kind: _Kind) -> Drafts:
    control = situation.found.get(kind.name)
    if control is None:
        return [], []
    if situation.device_kind == "simulated":
        return left_out(kind.name, _SIMULATED)
    if value_of(control):
        return left_out(kind.name, "It is on already.")
    reason = not_the_optimizer(situation, kind.name) if kind.name == "optimizer_state_offload" else ""
    if reason:
        return left_out(kind.name, reason)
    draft = Draft(
        kind.slug, f"Offload {kind.what} to host memory", (change(control, True),), (control,), "untouched",
        "offload", ("EV-1", "EV-3", "EV-6"), kind.effect, (_CAUTION,), kind.tier,
    )  # fmt: skip
    return [draft], []
