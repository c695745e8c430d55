"""Guide: what the words mean, in plain language. The meanings are those that every report shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from starlette.requests import Request

from watcherml.contract import limits
from watcherml.forensics.evidence import NAMES
from watcherml.report.glossary import GLOSSARY, label
from watcherml.report.units import format_seconds
from watcherml.ui.render import Page
from watcherml.ui.site import Site

_CHECKS = ("pass", "fail", "missing")


def show(site: Site, request: Request) -> Page:
    """Return the page; it needs no store."""
    values = {
        "evidence": [(one, name, GLOSSARY["evidence"].get(one, "")) for one, name in NAMES.items()],
        "terms": _words("term", as_they_are=True),
        "roles": _words("role"),
        "outcomes": _words("outcome"),
        "verdicts": _words("verdict"),
        "standings": _words("standing"),
        "reasons": _words("reason"),
        "lifecycle": _words("lifecycle"),
        "diagnosis": _words("diagnosis"),
        "classes": _words("failure_class"),
        "statuses": _words("run_status"),
        "check_words": _words("word", only=_CHECKS),
        "proposal_words": _words("word", leave_out=_CHECKS),
        "capabilities": _words("capability"),
        "steps": _words("step_source"),
        "limits": _limits(),
    }
    return Page("guide.html", "/guide", "Guide", values)


def _words(
    topic: str, *, as_they_are: bool = False, only: Collection[str] = (), leave_out: Collection[str] = ()
) -> list[tuple[str, str]]:
    found: Mapping[str, str] = GLOSSARY[topic]
    return [
        (word if as_they_are else label(word), meaning)
        for word, meaning in found.items()
        if word not in leave_out and (not only or word in only)
    ]


def _limits() -> dict[str, str]:
    return {
        "trials": str(limits.DEFAULT_TRIALS),
        "most": str(limits.MAX_TRIALS),
        "probe_steps": str(limits.DEFAULT_PROBE_STEPS),
        "confirmations": str(limits.DEFAULT_CONFIRMATIONS),
        "trial": format_seconds(limits.DEFAULT_TRIAL_SECONDS),
        "campaign": format_seconds(limits.DEFAULT_CAMPAIGN_SECONDS),
    }
