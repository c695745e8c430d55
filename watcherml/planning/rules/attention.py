"""Attention that does not keep a score for every pair of positions."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import spelled, value_of
from watcherml.planning.wording import shown
from watcherml.protocol.proposal import Capability

BACKEND = "attention_backend"
SWITCH = "memory_efficient_attention"
_EFFECT = "Attention scores are not kept for backward: memory grows with the length instead of its square."
_CAUTION = "Another kernel sums in another order, and attention weights cannot be returned."


def drafts(situation: Situation) -> Drafts:
    """Return the step from an eager backend to torch's fused one, and the switch where there is one."""
    made, reasons = _backend(situation.found.get(BACKEND))
    more, other = _switch(situation.found.get(SWITCH))
    return made + more, reasons + other


def _backend(control: Capability | None) -> Drafts:
    if control is None:
        return [], []
    present = str(value_of(control))
    if present != "eager":
        return left_out(BACKEND, f"The backend is {present}, which keeps no scores.")
    if spelled(control, "sdpa") is not None:
        return [_draft("attention-sdpa", "Use torch's fused attention (sdpa)", control, "sdpa", tier=20)], []
    if spelled(control, "flash_attention_2") is not None:
        title = "Use flash attention, if its package is installed"
        return [_draft("attention-flash", title, control, "flash_attention_2", tier=20)], []
    return left_out(BACKEND, f"{shown(control.path)} cannot say sdpa; declare the control that can.")


def _switch(control: Capability | None) -> Drafts:
    if control is None:
        return [], []
    if value_of(control):
        return left_out(SWITCH, "It is on already.")
    title = "Switch memory-efficient attention on"
    return [_draft("memory-efficient-attention", title, control, True, tier=21)], []


def _draft(slug: str, title: str, control: Capability, after: object, tier: float) -> Draft:
    return Draft(
        slug, title, (change(control, after),), (control,), "untouched", "attention_kernel", ("EV-1", "EV-6"),
        _EFFECT, (_CAUTION,), tier,
    )  # fmt: skip
