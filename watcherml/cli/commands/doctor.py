"""``watcher doctor``: check that recording and trials work here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watcherml.cli.console import Console
from watcherml.cli.shared import add_format, as_json, deliver, storage_of

if TYPE_CHECKING:
    from watcherml.api.finding import Finding

BROKEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Run every check; the exit code is 1 only if something that is needed is broken."""
    from watcherml import __version__
    from watcherml.api import doctor

    console.status("checking")
    findings = []
    for finding in doctor.examine(storage_of(values)):
        findings.append(finding)
        console.status(f"{finding.name} checked")
    healthy = doctor.healthy(findings)
    document = {
        "kind": "doctor",
        "version": __version__,
        "healthy": healthy,
        "findings": [finding.to_data() for finding in findings],
    }
    deliver(values, console, {"text": lambda color: _text(findings, healthy, color), "json": as_json(document)})
    return 0 if healthy else BROKEN


def _text(findings: list[Finding], healthy: bool, color: bool) -> str:
    from watcherml.report import plain
    from watcherml.report.palette import Tone

    tones: dict[str, Tone] = {"ok": "good", "warn": "warn", "fail": "bad"}
    lines = []
    for finding in findings:
        mark = plain.paint(f"{finding.status:<4}", tones[finding.status], color)
        first, *rest = plain.wrap(f"{finding.name}: {finding.sentence}", " " * 6, " " * 6)
        lines += [f"{mark}  {first[6:]}", *rest]
        if finding.remedy:
            lines += plain.wrap(finding.remedy, " " * 8, "      → ")
    broken = sum(finding.status == "fail" for finding in findings)
    ending = "Everything that is needed works." if healthy else f"{broken} of {len(findings)} checks failed."
    return plain.finish([*lines, "", plain.bold(ending, color)])
