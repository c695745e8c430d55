"""A recovery plan as HTML: what is proposed, what was left out, what the contract says."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Change, Proposal
from watcherml.report import markup, palette, terms
from watcherml.report.glossary import label, meaning
from watcherml.report.markup import Html
from watcherml.report.palette import Tone
from watcherml.report.safe import compact

_STATE_TONES: dict[terms.State, Tone] = {
    "automatic": "good", "approved": "good", "rejected": "quiet", "waiting": "warn",
}  # fmt: skip
_RISK_TONES: dict[str, Tone] = {"low": "quiet", "medium": "warn", "high": "bad"}


def html_plan(plan: RecoveryPlan, authorized: Collection[str] = (), rejected: Collection[str] = ()) -> str:
    """Return a plan as HTML. ``authorized`` and ``rejected`` hold the ids of proposals a person decided on."""
    return markup.root(
        _head(plan, authorized, rejected),
        *[_proposal(plan, proposal, terms.state_of(proposal, authorized, rejected)) for proposal in plan.proposals],
        _skipped(plan),
        _contract(plan),
    )


def html_proposal(plan: RecoveryPlan, proposal: Proposal, state: terms.State, decided: str = "") -> Html:
    """Return one proposal without a frame; ``decided`` says who decided on it, and why.

    What is expected of an automatic one is folded: of several, the list would be longer than a screen.
    """
    expected = _expectation(proposal)
    if proposal.authority == "automatic":
        expected = markup.fold(markup.escape("What to expect of it"), expected)
    said = markup.paragraph(markup.quiet(markup.shown(decided, markup.SENTENCE_LIMIT))) if decided else markup.EMPTY
    parts = _title(proposal, state), _changes(proposal), _key_facts(plan, proposal), expected, said
    return markup.root(*parts)


def html_contract(plan: RecoveryPlan) -> str:
    """Return what was left out and why, and what the contract says, without the proposals."""
    return markup.root(_skipped(plan), _contract(plan))


def _head(plan: RecoveryPlan, authorized: Collection[str], rejected: Collection[str]) -> Html:
    kicker = markup.join(
        [
            markup.escape("Recovery plan"),
            Html(f"for run {markup.mono(plan.source.run_id)}"),
            markup.shown(label(plan.source.failure_class)),
            markup.shown(plan.source.project),
        ],
        " · ",
    )
    notes = [terms.SIMULATED_NOTE] if plan.contract.device.kind == "simulated" else []
    notes += filter(None, (*plan.notes, terms.batch_note(plan)))
    below = [markup.quiet(markup.shown(note, markup.SENTENCE_LIMIT)) for note in notes]
    return markup.banner("calm", kicker, markup.escape(terms.plan_headline(plan, authorized, rejected)), *below)


def _proposal(plan: RecoveryPlan, proposal: Proposal, state: terms.State) -> Html:
    faded = ";opacity:.55" if state == "rejected" else ""
    box = f"border:{palette.RULE};border-radius:6px;padding:8px 12px;margin:8px 0{faded}"
    return Html(
        f'<div style="{box}">{_title(proposal, state)}{_changes(proposal)}{_key_facts(plan, proposal)}'
        f"{_expectation(proposal)}</div>"
    )


def _title(proposal: Proposal, state: terms.State) -> Html:
    authority = meaning("word", proposal.authority)
    chips = [markup.chip(terms.STATE_WORDS[state], _STATE_TONES[state], authority)]
    if proposal.semantic:
        chips.append(markup.chip("changes what is computed", "warn"))
    name = markup.strong(markup.shown(proposal.title, 200))
    return Html(
        f'<div style="margin:0 0 4px 0">{markup.mono(proposal.proposal_id)} {name} {markup.join(chips, " ")}</div>'
    )


def _changes(proposal: Proposal) -> Html:
    lines = [_change(change) for change in proposal.changes]
    lines += [
        Html(f"environment {markup.mono(key)} = {markup.strong(markup.mono(value))}")
        for key, value in terms.environment(proposal)
    ]
    return markup.join(Html(f'<div style="margin:1px 0">{line}</div>') for line in lines)


def _change(change: Change) -> Html:
    path = markup.mono(".".join(change.path))
    before, after = markup.mono(compact(change.before, 2_000)), markup.mono(compact(change.after, 2_000))
    return Html(f"{path}: {before} → {markup.strong(after)}")


def _key_facts(plan: RecoveryPlan, proposal: Proposal) -> Html:
    device = plan.contract.device
    peak = markup.escape(terms.predicted(proposal, device))
    bar = markup.gauge(proposal.predicted_peak_bytes, device.budget_bytes, "predicted peak in the budget")
    risk = markup.chip(proposal.risk, _RISK_TONES[proposal.risk], meaning("word", proposal.risk))
    batch = markup.hint(markup.escape(label(proposal.effective_batch)), meaning("word", proposal.effective_batch))
    evidence = markup.join([markup.shown(one, 40) for one in proposal.evidence_ids], ", ")
    facts = [
        _fact("Predicted peak", Html(f"{peak}{bar}"), meaning("term", "predicted peak"), 170),
        _fact("Risk", risk, "", 80),
        _fact("Effective batch", batch, meaning("term", "effective batch"), 110),
        _fact("Evidence", evidence or markup.escape("none"), "", 110),
    ]
    return Html(f'<div style="margin:6px 0 2px 0">{markup.join(facts)}</div>')


def _fact(name: str, value: Html, title: str, width: int) -> Html:
    # Inline blocks of one width line up between cards, and wrap where the page is narrow.
    box = f"display:inline-block;vertical-align:top;width:{width}px;max-width:100%;margin:0 16px 4px 0"
    head = f'<div style="font-size:12px;opacity:.72">{markup.hint(markup.escape(name), title)}</div>'
    return Html(f'<div style="{box}">{head}<div>{value}</div></div>')


def _expectation(proposal: Proposal) -> Html:
    lines = [markup.paragraph(markup.shown(proposal.expected_effect, markup.SENTENCE_LIMIT))]
    lines.extend(
        markup.paragraph(
            Html(f"{markup.strong(markup.escape('Caution:'))} {markup.shown(caution, markup.SENTENCE_LIMIT)}")
        )
        for caution in proposal.cautions
    )
    return markup.join(lines)


def _skipped(plan: RecoveryPlan) -> Html:
    if not plan.skipped:
        return markup.EMPTY
    lines = []
    for names, reason in terms.left_out(plan):
        hinted = [markup.hint(markup.shown(label(name)), meaning("capability", name)) for name in names]
        lines.append(Html(f"{markup.strong(Html(', '.join(hinted)))}: {markup.shown(reason, 400)}"))
    return markup.section("Considered and left out", markup.bullets(lines))


def _contract(plan: RecoveryPlan) -> Html:
    contract = plan.contract
    rows = [
        ("Success", _lines(terms.success_sentences(contract))),
        ("Spending", _lines([*terms.spending_sentences(plan), f"Divided as {terms.budget_sentence(plan)}."])),
        ("Control", markup.escape(terms.control_sentence(plan))),
        ("Permissions", markup.escape(terms.permission_sentence(contract))),
        ("Device", markup.shown(terms.device_sentence(contract.device))),
        ("Runs", markup.mono(terms.entrypoint_sentence(contract), 200)),
        ("Writes", markup.escape(terms.WRITES_SENTENCE)),
        ("Plan digest", markup.mono(plan.digest)),
    ]
    return markup.section("The contract", markup.pairs(rows))


def _lines(sentences: Iterable[str]) -> Html:
    return markup.join(Html(f"<div>{markup.shown(sentence, 400)}</div>") for sentence in sentences)
