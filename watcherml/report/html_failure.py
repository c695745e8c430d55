"""A failure capsule as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.forensics.capsule import Capsule, Cause, Diagnosis
from watcherml.report import markup, palette, timeline
from watcherml.report.advice import next_step, without_next
from watcherml.report.before import memory_before, metrics_before
from watcherml.report.glossary import label, meaning
from watcherml.report.html_compare import earlier_runs
from watcherml.report.html_evidence import evidence_tree
from watcherml.report.html_live import MOST_ROWS, small_table
from watcherml.report.markup import Html
from watcherml.report.memory import Picture, picture
from watcherml.report.safe import json_text
from watcherml.report.terms import SIMULATED_NOTE, device_sentence
from watcherml.report.units import format_bytes, format_time
from watcherml.report.words import CAUSE_LISTS, class_words, config_of, is_about_memory, release_words, when_words


def html_failure(capsule: Capsule, release: Mapping[str, Any] | None = None) -> str:
    """Return a capsule as HTML: what happened and what to do, memory to scale, causes, facts, evidence, traceback.

    ``release`` tells what was given back after the failure: ``forensics.release.Release.to_data()``.
    """
    facts = [_facts(capsule)]
    if is_about_memory(capsule):
        said = bool(_why(capsule))
        facts = [_memory(capsule), _diagnosis(capsule.diagnosis, said), markup.section("Where and when", *facts)]
    return markup.root(
        _head(capsule),
        *facts,
        _before(capsule),
        earlier_runs(capsule.neighbours),
        _release(release),
        _evidence(capsule),
        _details(capsule),
    )


def _head(capsule: Capsule) -> Html:
    kicker = markup.join(
        [
            markup.escape("Failure capsule"),
            markup.hint(markup.shown(class_words(capsule)), meaning("failure_class", capsule.failure.class_)),
            Html(f"run {markup.mono(capsule.run_id)}"),
            markup.shown(capsule.project),
        ],
        " · ",
    )
    note = markup.quiet(markup.escape(SIMULATED_NOTE)) if capsule.device.kind == "simulated" else markup.EMPTY
    step = (
        markup.strong(markup.shown(next_step(capsule), markup.SENTENCE_LIMIT)) if next_step(capsule) else markup.EMPTY
    )
    why = _why(capsule)
    what = markup.shown(capsule.headline.removesuffix(why).strip() or capsule.headline, markup.SENTENCE_LIMIT)
    return markup.banner(
        "bad", kicker, what, markup.shown(without_next(why, capsule), markup.SENTENCE_LIMIT), step, note
    )


def _why(capsule: Capsule) -> str:
    """Return the end of the headline that is the diagnosis: what happened is said in large, why it did below."""
    why = capsule.diagnosis.sentence
    return why if why and capsule.headline != why and capsule.headline.endswith(why) else ""


def _facts(capsule: Capsule) -> Html:
    failure = capsule.failure
    error = Html(f"{markup.mono(failure.exception_type)}: {markup.shown(failure.message, markup.SENTENCE_LIMIT)}")
    rule = markup.mono(failure.rule) if failure.rule else markup.EMPTY
    return markup.pairs(
        [
            ("Where", markup.mono(failure.where, 200) if failure.where else markup.escape("not known")),
            ("When", markup.shown(when_words(capsule))),
            ("Device", markup.shown(device_sentence(capsule.device) if is_about_memory(capsule) else "")),
            ("Error", error),
            ("Classified by", rule),
            ("Captured", markup.escape(format_time(capsule.created_at))),
        ]
    )


def _memory(capsule: Capsule) -> Html:
    drawn = picture(capsule)
    if drawn is None:
        return markup.section("Memory", _stated(capsule))
    body = [
        markup.paragraph(markup.escape(drawn.sentence)),
        markup.picture(timeline.memory_bar(drawn), drawn.sentence, 46),
        _legend(drawn),
    ]
    if capsule.memory.source:
        body.append(markup.paragraph(markup.quiet(Html(f"Source: {markup.shown(capsule.memory.source)}."))))
    return markup.section("Memory", *body)


def _before(capsule: Capsule) -> Html:
    """What was measured and logged up to the failure, in small curves."""
    parts = [small_table("Memory", memory_before(capsule)), small_table("Metric", metrics_before(capsule)[:MOST_ROWS])]
    return markup.section("Up to the failure", *parts) if any(parts) else markup.EMPTY


def _legend(drawn: Picture) -> Html:
    entries = [(part.key, part.name, part.bytes) for part in drawn.parts]
    if drawn.requested_bytes is not None:
        entries.append(("requested", "requested", drawn.requested_bytes))
    if drawn.shortfall_bytes is not None and drawn.shortfall_bytes > 0:
        entries.append(("shortfall", "missing", drawn.shortfall_bytes))
    items = [_legend_item(palette.memory_colour(key), name, format_bytes(size)) for key, name, size in entries]
    limit = "allowed, a cap below the device's total" if drawn.capped else "limit"
    items.append(_legend_item("", f"dashed line: {limit}", format_bytes(drawn.limit_bytes)))
    return Html(f'<div style="margin:6px 0 2px 0">{markup.join(items)}</div>')


def _legend_item(colour: str, name: str, size: str) -> Html:
    swatch = ""
    if colour:
        box = f"display:inline-block;width:10px;height:10px;border-radius:2px;border:{palette.RULE};background:{colour}"
        swatch = f'<span style="{box};margin:0 5px 0 0"></span>'
    text = f"{markup.escape(name)} {markup.strong(markup.escape(size))}"
    return Html(f'<span style="display:inline-block;margin:0 18px 2px 0">{swatch}{text}</span>')


def _stated(capsule: Capsule) -> Html:
    """Figures without a bar: no limit was stated that they could be drawn against."""
    rows = [
        (label(key).replace(" bytes", ""), markup.escape(format_bytes(value)))
        for key, value in capsule.memory.to_data().items()
        if key.endswith("_bytes") and value is not None
    ]
    if rows:
        return markup.pairs(rows)
    return markup.paragraph(markup.quiet(markup.escape("The failure states no memory figures.")))


def _diagnosis(diagnosis: Diagnosis, said: bool) -> Html:
    """The causes; without the sentence where the head has ``said`` it."""
    status = markup.chip(label(diagnosis.status), "calm", meaning("diagnosis", diagnosis.status))
    sentence = markup.EMPTY if said else markup.shown(diagnosis.sentence, markup.SENTENCE_LIMIT)
    body = [markup.paragraph(Html(f"{status} {sentence}"))]
    for key, title in CAUSE_LISTS:
        causes: tuple[Cause, ...] = getattr(diagnosis, key)
        if not causes:
            continue
        head = markup.hint(markup.escape(title), meaning("diagnosis", key))
        lines = markup.bullets(_cause(cause) for cause in causes)
        if key in ("sufficient", "contributing"):
            body.append(Html(f'<div style="margin:6px 0 0 0">{markup.strong(head)}{lines}</div>'))
        else:
            body.append(markup.fold(Html(f"{head} ({len(causes)})"), lines))
    return markup.section("Diagnosis", *body)


def _cause(cause: Cause) -> Html:
    parts = [markup.mono(cause.id, 40), markup.strong(markup.shown(cause.name))]
    if cause.bytes is not None:
        parts.append(markup.escape(f"{format_bytes(cause.bytes)}."))
    parts.append(markup.shown(cause.sentence, markup.SENTENCE_LIMIT))
    if cause.evidence_ids:
        cited = markup.join([markup.shown(one, 40) for one in cause.evidence_ids], ", ")
        parts.append(markup.quiet(Html(f"({cited})")))
    return markup.join(parts, " ")


def _release(release: Mapping[str, Any] | None) -> Html:
    sentence, kept = release_words(release)
    if not sentence and not kept:
        return markup.EMPTY
    body = [markup.paragraph(markup.shown(sentence, 1_200))]
    if kept:
        holders = markup.bullets(markup.shown(line, markup.SENTENCE_LIMIT) for line in kept)
        body.append(markup.fold(markup.escape(f"What still holds memory ({len(kept)})"), holders))
    return markup.section("Memory given back", *body)


def _evidence(capsule: Capsule) -> Html:
    counted = capsule.completeness
    summary = markup.escape(f"Evidence: {counted.present} of {counted.total} captured")
    return Html(
        f'<div style="margin:14px 0 0 0">{markup.fold(markup.strong(summary), evidence_tree(capsule.evidence))}</div>'
    )


def _details(capsule: Capsule) -> Html:
    parts = []
    if capsule.failure.traceback:
        trace = markup.block(markup.escape_lines(capsule.failure.traceback, markup.BLOCK_LIMIT))
        parts.append(markup.fold(markup.strong(markup.escape("Traceback")), trace))
    config = config_of(capsule)
    if config is not None:
        text = markup.block(markup.escape_lines(json_text(config), markup.BLOCK_LIMIT))
        parts.append(markup.fold(markup.strong(markup.escape("Configuration")), text))
    return markup.join(parts)
