"""What a deletion would take, and what it took. Documents are those of ``watcherml.api.removal``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.report import plain
from watcherml.report.units import format_bytes, plural

_SHOWN_IDS = 10


def text_planned(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return exactly what would go, before anybody is asked."""
    if not _counts(document):
        return plain.finish(["Nothing would be deleted.", *_kept(document)])
    lines = [plain.paint(line, "warn", color) for line in plain.wrap(f"To be deleted: {document['what']}.", "  ", "")]
    return plain.finish([*lines, *_parts(document), *_kept(document)])


def text_removed(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return what went and how much smaller the store is."""
    counts = _counts(document)
    head = f"Deleted {document['what']}: {', '.join(counts)}." if counts else "Nothing was deleted."
    lines = plain.wrap(head, "  ", "")
    if counts or document["given_back_bytes"]:
        lines += plain.pair("Given back", format_bytes(document["given_back_bytes"]))
    if document["deletion"]:
        lines += plain.pair("On record", f"that it was deleted, by whom and when: {document['deletion']}")
    for problem in document["problems"]:
        lines += [plain.paint(line, "warn", color) for line in plain.pair("Not done", problem)]
    return plain.finish([*lines, *_kept(document)])


def text_prunable(choices: Sequence[Mapping[str, Any]]) -> str:
    """Return what could be pruned and how; entries as ``watcherml.api.prunable.prunable`` makes them."""
    if not choices:
        return plain.finish(["There is nothing to prune."])
    lines = ["No flag says what should go. What could go:"]
    for one in choices:
        counts = [plural(one["runs"], "run of trials" if one["what"] == "trials" else "ended run",
                         "runs of trials" if one["what"] == "trials" else "")] if one["runs"] else []  # fmt: skip
        counts += [plural(one["points"], "metric point")] if one["points"] else []
        size = format_bytes(one["database_bytes"] + one["file_bytes"])
        name = "Trials' data" if one["what"] == "trials" else "Runs"
        lines += plain.pair(name, f"{', '.join([*counts, f'about {size}'])}: {' or '.join(one['flags'])}")
        lines += [line for sentence in one["kept"] for line in plain.pair(" ", sentence)]
    return plain.finish(lines)


def question(document: Mapping[str, Any]) -> str:
    """Return the question that a person answers."""
    return f"Delete {', '.join(_counts(document))}? This cannot be undone."


def _counts(document: Mapping[str, Any]) -> list[str]:
    pairs = (
        (document["runs"], "run"),
        (document["campaigns"], "campaign"),
        (document["trials"], "trial"),
        (document["points"], "metric point"),
        (document["records"], "document on record"),
        (document["imported_results"], "imported result"),
        (document["leftovers"], "leftover"),
    )
    many = {"document on record": "documents on record"}
    found = [plural(count, noun, many.get(noun, "")) for count, noun in pairs if count]
    return found if found or not document["file_bytes"] else [f"{format_bytes(document['file_bytes'])} of files"]


def _parts(document: Mapping[str, Any]) -> list[str]:
    lines = plain.pair("Rows", ", ".join(_counts(document)))
    lines += plain.pair("Size", f"about {format_bytes(document['database_bytes'])} in the database,"
                        f" {format_bytes(document['file_bytes'])} in files")  # fmt: skip
    for name, key in (("Runs", "run_ids"), ("Campaigns", "campaign_ids")):
        ids = document[key]
        more = f" and {len(ids) - _SHOWN_IDS:,} more" if len(ids) > _SHOWN_IDS else ""
        lines += plain.pair(name, ", ".join(ids[:_SHOWN_IDS]) + more, 2_000)
    if document["records"] or document["campaigns"]:
        lines += plain.pair("On record", "the digests of what goes stay, with your name and the time")
    return lines


def _kept(document: Mapping[str, Any]) -> list[str]:
    return [line for sentence in document["kept"] for line in plain.wrap(sentence, "  ", "  ")]
