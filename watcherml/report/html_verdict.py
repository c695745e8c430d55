"""A verdict as HTML: the word, every check behind it, the change it is about, the configuration to copy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Check, Verdict
from watcherml.report import markup, terms
from watcherml.report.after import next_step
from watcherml.report.changes import differences
from watcherml.report.checks import Group, grouped, observed_words
from watcherml.report.glossary import label, meaning
from watcherml.report.html_campaign import ladder_table, source_words
from watcherml.report.ladder import rungs
from watcherml.report.markup import Html
from watcherml.report.safe import json_text
from watcherml.report.words import CHECK_TONES, verdict_tone, verdict_words

# A confirmation's own checks stay in view; the digests of a large project's files do not.
_MAX_OPEN = 12


def html_verdict(
    verdict: Verdict, plan: RecoveryPlan, trials: Sequence[Mapping[str, Any]], standing: str = "on_record"
) -> str:
    """Return a verdict with every check behind it, the change it is about, and the configuration to copy.

    ``trials`` are rows of the view ``trial_summary``. ``standing`` is a key of the glossary's topic
    ``standing``: only ``on_record`` may be shown as verified without a reservation.
    """
    return markup.root(
        _head(verdict, plan, standing),
        _change(verdict, plan),
        _checks(verdict.checks),
        markup.section("Trials", ladder_table(plan, rungs(trials), [])) if trials else markup.EMPTY,
        _record(verdict),
    )


def _head(verdict: Verdict, plan: RecoveryPlan, standing: str) -> Html:
    kicker = markup.join(
        [markup.escape("Verdict"), Html(f"campaign {markup.mono(verdict.campaign_id)}"), source_words(plan)], " · "
    )
    word = verdict_words(verdict, standing)
    said = markup.hint(markup.escape(word[:1].upper() + word[1:]), meaning("verdict", verdict.status))
    big = Html(f'<span style="font-size:24px;line-height:1.3">{said}</span>')
    # The sentence begins with what stands above it in large.
    rest = re.sub(rf"^{re.escape(word)}[:.] ", "", verdict.sentence, flags=re.IGNORECASE)
    sentence = Html(f'<span style="font-size:14px">{markup.shown(rest, 2_000)}</span>')
    reserved = markup.EMPTY if standing == "on_record" else markup.escape(meaning("standing", standing))
    step = markup.escape(next_step(verdict, plan, standing))
    simulated = verdict.device_kind == "simulated"
    note = markup.quiet(markup.escape(terms.SIMULATED_NOTE)) if simulated else markup.EMPTY
    return markup.banner(verdict_tone(verdict, standing), kicker, big, sentence, step, reserved, note)


def _checks(checks: Sequence[Check]) -> Html:
    if not checks:
        return markup.EMPTY
    passed = sum(check.outcome == "pass" for check in checks)
    return markup.section(
        f"Checks: {passed:,} of {len(checks):,} passed", *[_group(group) for group in grouped(checks)]
    )


def _group(group: Group) -> Html:
    count = f"{group.passed:,} of {len(group.checks):,} passed"
    mark = markup.EMPTY if group.holds else markup.chip("not as required", "bad")
    title = markup.strong(markup.shown(group.title[:1].upper() + group.title[1:]))
    summary = Html(f"{title} {markup.quiet(markup.escape(count))} {mark}")
    rows = [
        (
            markup.chip(check.outcome, CHECK_TONES[check.outcome], meaning("word", check.outcome)),
            markup.shown(name, 120),
            _side(check, check.required),
            _side(check, check.observed),
        )
        for name, check in group.checks
    ]
    is_short = len(rows) <= _MAX_OPEN and group.title.startswith("confirmation")
    if group.holds or len(rows) <= _MAX_OPEN:
        return markup.fold(summary, _check_table(rows), opened=not group.holds or is_short)
    # What did not pass stands first, and must not drown in what did.
    others = len(rows) - group.passed
    passed = markup.fold(markup.escape(f"{group.passed:,} that passed"), _check_table(rows[others:]))
    return markup.fold(summary, _check_table(rows[:others]), passed, opened=True)


def _check_table(rows: Sequence[Sequence[Html]]) -> Html:
    return markup.grid(("Outcome", "Check", "Required", "Observed"), rows, wrapped=(1, 2, 3))


def _side(check: Check, text: str) -> Html:
    words = observed_words(check.name, text)
    return markup.hint(markup.escape(words, 160), text) if words != text else markup.shown(text, 160)


def _change(verdict: Verdict, plan: RecoveryPlan) -> Html:
    if verdict.config is None:
        return markup.EMPTY
    rows = [
        (markup.mono(one.path, 160), markup.mono(one.before), markup.strong(markup.mono(one.after)))
        for one in differences(plan.source.config, verdict.config)
    ]
    chosen = next((one for one in plan.proposals if one.proposal_id == verdict.candidate_id), None)
    rows += [
        (Html(f"environment {markup.mono(key)}"), markup.quiet(markup.escape("(as it was)")), markup.mono(value, 200))
        for key, value in (terms.environment(chosen) if chosen else ())
    ]
    nothing = markup.paragraph(markup.escape("Nothing."))
    diff = markup.grid(("Setting", "Before", "After"), rows, wrapped=(0, 1, 2)) if rows else nothing
    # Never cut: half a configuration must not be copied.
    text = markup.block(markup.escape_lines(json_text(verdict.config)))
    whole = markup.fold(markup.strong(markup.escape("The whole configuration, to copy")), text, opened=True)
    return markup.section("What changes", diff, whole)


def _record(verdict: Verdict) -> Html:
    runs = markup.join(Html(f"<div>{markup.mono(run)}</div>") for run in verdict.confirmation_run_ids)
    reason = markup.hint(markup.mono(verdict.reason_code), meaning("reason", verdict.reason_code))
    rows = [
        ("Candidate", markup.mono(verdict.candidate_id) if verdict.candidate_id else markup.EMPTY),
        ("Confirmed by", runs),
        ("Acts on the cause", markup.escape(verdict.cause_addressed)),
        ("Reason code", reason),
        ("Device", markup.escape(label(verdict.device_kind))),
        ("Digest", markup.mono(verdict.digest)),
    ]
    return markup.section("On record", markup.pairs(rows))
