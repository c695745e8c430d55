"""What a document or a campaign is worth in this store, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.report import plain
from watcherml.report.glossary import label
from watcherml.report.palette import Tone

_STANDINGS: dict[str, tuple[str, Tone]] = {
    "on_record": ("on record here, recomputed and equal", "good"),
    "unrecorded": ("not on record here", "warn"),
    "altered": ("altered, or not readable", "bad"),
}
_KINDS = {"recovery-result": "recovery result", "recovery-plan": "recovery plan", "archive": "archive",
          "exported-run": "exported run"}  # fmt: skip


def text_verification(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return what was examined: mappings as ``watcherml.api.verify.Examined.to_data`` makes them."""
    lines = _entry(document, color)
    for one in document["documents"]:
        lines += ["", *_entry(one, color)]
    return plain.finish(lines)


def _entry(entry: Mapping[str, Any], color: bool) -> list[str]:
    words, tone = _STANDINGS[entry["standing"]]
    kind = _KINDS.get(entry["kind"] or "", "file")
    lines = [plain.paint(line, tone, color) for line in plain.wrap(f"{entry['target']} ({kind}): {words}", "  ", "")]
    lines += plain.wrap(entry["sentence"], "  ", "  ")
    lines += plain.pair("Campaign", entry["campaign_id"] or "")
    if entry["status"] is not None:
        lines += plain.pair(_verdict(entry), f"{label(entry['status'])} ({entry['reason_code']})")
        lines += plain.pair("Checks", f"{entry['checks_passed']:,} of {entry['checks_total']:,} passed")
    for problem in entry["problems"]:
        told = f"{problem['path']}: expected {problem['expected']}, got {problem['got']}"
        lines += plain.wrap(told, "      ", "    ", 800)
    return lines


def _verdict(entry: Mapping[str, Any]) -> str:
    return "Verdict" if entry["standing"] == "on_record" else "Claim"
