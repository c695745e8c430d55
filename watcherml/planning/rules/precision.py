"""Half precision, in the form that the device computes natively."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import spelled, value_of
from watcherml.planning.wording import shown
from watcherml.protocol.proposal import Capability

NAME = "precision"
_FULL = ("fp64", "fp32")
_UNKNOWN = "Which half precision the device computes natively was not recorded; a trial shows whether it runs."
_CAUTIONS = {
    "bf16": "Fewer digits in every product: losses differ in the later digits.",
    "fp16": "Small gradients vanish and large ones overflow without a loss scaler.",
    "fp32": "Half the digits of the present precision.",
}


def drafts(situation: Situation) -> Drafts:
    """Return the step to half precision, after the step from double to single where that comes first."""
    control = situation.found.get(NAME)
    if control is None:
        return [], []
    present = str(value_of(control))
    if present not in _FULL:
        return left_out(NAME, f"Training computes in {present} already.")
    steps = ["fp32"] if present == "fp64" else []
    known = situation.source.half_precision
    half = next((one for one in (("bf16", "fp16") if known is None else known) if _can_say(control, one)), None)
    if half is not None:
        steps.append(half)
    made = [
        _draft(control, present, step, tier=24 + index, unknown=known is None and step != "fp32")
        for index, step in enumerate(steps)
        if _can_say(control, step)
    ]
    if made:
        return made, []
    if known is not None and not known:
        return left_out(NAME, "The device computes no half precision natively.")
    wanted = "bf16 or fp16" if known is None else " or ".join(known)
    return left_out(NAME, f"{shown(control.path)} cannot say {wanted}; declare the control that can.")


def _can_say(control: Capability, value: str) -> bool:
    return spelled(control, value) is not None


def _draft(control: Capability, present: str, step: str, tier: float, unknown: bool) -> Draft:
    return Draft(
        f"precision-{step}", f"Compute in {step} instead of {present}", (change(control, step),), (control,),
        "untouched", "precision_step", ("EV-1", "EV-5", "EV-6"),
        "Activations take about half the bytes where autocast applies.",
        (_CAUTIONS[step], *([_UNKNOWN] if unknown else [])), tier,
    )  # fmt: skip
