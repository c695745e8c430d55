"""A recovery plan as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.report import plain, terms
from watcherml.report.glossary import label
from watcherml.report.palette import Tone

_TONES: dict[terms.State, Tone] = {"automatic": "good", "approved": "good", "rejected": "quiet", "waiting": "warn"}


def text_plan(
    plan: RecoveryPlan, authorized: Collection[str] = (), rejected: Collection[str] = (), *, color: bool = False
) -> str:
    """Return a plan as text. ``authorized`` and ``rejected`` hold the ids of proposals a person decided on."""
    lines = [plain.bold(line, color) for line in plain.wrap(terms.plan_headline(plan, authorized, rejected))]
    if plan.contract.device.kind == "simulated":
        lines += plain.wrap(terms.SIMULATED_NOTE)
    for note in filter(None, (*plan.notes, terms.batch_note(plan))):
        lines += plain.wrap(note)
    lines += [
        "",
        *plain.pair("Run", f"{plan.source.run_id} ({label(plan.source.failure_class)})"),
        *plain.pair("Plan", plan.digest),
    ]
    for proposal in plan.proposals:
        lines += _proposal(plan, proposal, terms.state_of(proposal, authorized, rejected), color)
    left_out = (
        line
        for names, reason in terms.left_out(plan)
        for line in plain.wrap(f"{', '.join(map(label, names))}: {reason}", "    ", "  ")
    )
    lines += plain.section("Considered and left out", left_out, color)
    lines += plain.section("The contract", _contract(plan), color)
    return plain.finish(lines)


def _proposal(plan: RecoveryPlan, proposal: Proposal, state: terms.State, color: bool) -> list[str]:
    mark = plain.paint(terms.STATE_WORDS[state], _TONES[state], color)
    title = plain.wrap(f"{proposal.proposal_id}  {proposal.title}", "    ", "", 300)
    title = [plain.bold(line, color) for line in title]
    title[-1] += f"  [{mark}]"
    device = plan.contract.device
    bar = plain.bar(proposal.predicted_peak_bytes, device.budget_bytes)
    risk = f"{proposal.risk}, changes what is computed" if proposal.semantic else proposal.risk
    lines = ["", *title]
    for change in terms.change_lines(proposal):
        lines += plain.pair("Change", change)
    lines += plain.pair("Predicted peak", f"{terms.predicted(proposal, device)} {bar}".rstrip())
    lines += plain.pair("Risk", risk)
    lines += plain.pair("Effective batch", label(proposal.effective_batch))
    lines += plain.pair("Expected", proposal.expected_effect)
    for caution in proposal.cautions:
        lines += plain.pair("Caution", caution)
    return lines + plain.pair("Evidence", ", ".join(proposal.evidence_ids))


def _contract(plan: RecoveryPlan) -> list[str]:
    contract = plan.contract
    return [
        *_listed("Success", terms.success_sentences(contract)),
        *_listed("Spending", [*terms.spending_sentences(plan), f"Divided as {terms.budget_sentence(plan)}."]),
        *plain.pair("Control", terms.control_sentence(plan)),
        *plain.pair("Permissions", terms.permission_sentence(contract)),
        *plain.pair("Device", terms.device_sentence(contract.device)),
        *plain.pair("Runs", terms.entrypoint_sentence(contract)),
        *plain.pair("Writes", terms.WRITES_SENTENCE),
    ]


def _listed(name: str, sentences: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for index, sentence in enumerate(sentences):
        lines += plain.pair(name if index == 0 else "", sentence)
    return lines
