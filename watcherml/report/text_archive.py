"""What was exported, imported or packed, as text. Documents are those of ``watcherml.api.archive``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.report import plain
from watcherml.report.glossary import label
from watcherml.report.units import format_bytes, plural

ELSEWHERE = "recorded elsewhere, not by this store"


def text_export(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return where an export was written and what is in it."""
    lines = plain.wrap(f"Exported run {document['run_id']} to {document['path']}", "  ", "")
    members = document["members"]
    lines += plain.pair("Size", format_bytes(document["size_bytes"]))
    lines += plain.pair("Members", ", ".join(name for name in members if not name.startswith("campaigns/")))
    lines += plain.pair("Metric points", f"{document['points']:,}")
    lines += plain.pair("Campaigns", ", ".join(document["campaigns"]))
    missing = [
        words
        for name, words in (("capsule.json", "a failure capsule"), ("patch.diff", "a Git patch"))
        if name not in members
    ]
    lines += plain.pair("Not recorded", " and ".join(missing))
    lines += plain.pair("Left out", "the bytes of datasets, checkpoints and artifacts")
    lines += plain.wrap(
        "Configuration, source, paths and tracebacks are in it: look before you pass it on.", "  ", "  "
    )
    return plain.finish(lines)


def text_import(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return what an import brought, and as whose."""
    run_id, original = document["run_id"], document["original_run_id"]
    if document["already"]:
        told = f"{document['path']} was imported before, as run {run_id}. Nothing was changed."
        return plain.finish(plain.wrap(told, "  ", ""))
    lines = plain.wrap(f"Imported run {run_id}: {ELSEWHERE}.", "  ", "")
    lines += plain.pair("Recorded as", original if original != run_id else "")
    counts = [plural(document["points"], "metric point"), plural(document["capsules"], "failure capsule")]
    lines += plain.pair("Brought", ", ".join(counts))
    for campaign_id in document["campaigns"]:
        status = label(document["claims"].get(campaign_id, ""))
        lines += plain.pair("Campaign", f"{campaign_id}: {f'{status} elsewhere, not by this store'.lstrip()}")
    return plain.finish(lines)


def text_pack(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return where a store was packed to and how it is opened."""
    lines = plain.wrap(f"Packed the store to {document['path']}", "  ", "")
    lines += plain.pair("Size", f"{format_bytes(document['size_bytes'])}, {plural(document['files'], 'file')}")
    lines += plain.pair("To open", "unzip it into a folder, then `watcher --data-dir FOLDER runs`")
    return plain.finish(lines)


def imported_note(row: Mapping[str, Any]) -> str:
    """Return whose run this is, for one that was imported; empty for one that was recorded here."""
    if row.get("origin") != "imported":
        return ""
    facts = row.get("facts")
    origin = facts.get("imported") if isinstance(facts, Mapping) else None
    source = f" It came with {origin.get('file')}." if isinstance(origin, Mapping) else ""
    return plain.finish(plain.wrap(f"Imported: {ELSEWHERE}.{source}"))
