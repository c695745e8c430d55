"""Single facts in words, shared by every face."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watcherml.report.glossary import label
from watcherml.report.palette import Tone
from watcherml.report.safe import compact, one_line
from watcherml.report.units import format_bytes, format_number, format_seconds, format_time, plural

if TYPE_CHECKING:
    from watcherml.forensics.capsule import Capsule, Cause
    from watcherml.protocol.verdict import Verdict

RUN_TONES: dict[str, Tone] = {
    "running": "calm", "success": "good", "failed": "bad", "interrupted": "warn", "killed": "bad",
}  # fmt: skip
VERDICT_TONES: dict[str, Tone] = {
    "verified": "good", "not_recovered": "bad", "stopped": "warn", "integration_error": "bad",
}  # fmt: skip
CHECK_TONES: dict[str, Tone] = {"pass": "good", "fail": "bad", "missing": "warn"}
CAUSE_LISTS = (
    ("sufficient", "Enough alone"),
    ("contributing", "Contributing"),
    ("excluded", "Excluded"),
    ("unknown", "Not measured"),
)
_ABOUT_A_CONFIG = {"config", "lossy", "redacted"}
_NOT_ON_RECORD = {
    "unrecorded": "elsewhere, not by this store",
    "imported": "elsewhere, not by this store",
    "claimed_by_0.1": "as claimed by version 0.1",
}


def value_words(key: str, value: Any) -> str:
    """Return a JSON value with the unit that its key names: ``free_bytes`` -> ``64,172,851 (61.2 MiB)``."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number_words(key, value)
    if isinstance(value, str):
        return value
    return compact(value, 2_000)


def _number_words(key: str, value: float) -> str:
    if key.endswith("_bytes") and math.isfinite(value):
        return f"{value:,} ({format_bytes(value)})" if abs(value) >= 1024 else format_bytes(value)
    if key.endswith(("_seconds", "_s")) and math.isfinite(value):
        return format_seconds(value)
    if key in ("at", "created_at", "started_at", "ended_at") and value > 1e8:
        return format_time(value)
    return str(value) if isinstance(value, int) else format_number(value)


def class_words(capsule: Capsule) -> str:
    """Return the failure class, with its sub-kind where there is one."""
    failure = capsule.failure
    kind = one_line(failure.subkind, 80)
    return label(failure.class_) + (f" ({label(kind)})" if kind and kind != failure.class_ else "")


def when_words(capsule: Capsule) -> str:
    """Return the phase and the last step seen before the failure."""
    failure = capsule.failure
    phase = "phase not known" if failure.phase in ("", "unknown") else one_line(failure.phase, 80)
    if failure.step is not None:
        return f"{phase}, after step {failure.step:,}"
    counted = _evidence(capsule, "EV-2").get("optimizer_steps")
    if type(counted) is not int or counted < 1:
        return f"{phase}, no step was seen"
    return f"{phase}, after {plural(counted, 'optimizer step')}"


def is_about_memory(capsule: Capsule) -> bool:
    """Tell whether device memory has anything to do with it: its class, a figure, or a cause that was weighed."""
    found = capsule.diagnosis
    weighed = found.sufficient or found.contributing or found.excluded or found.unknown
    stated = any(value is not None for key, value in capsule.memory.to_data().items() if key.endswith("_bytes"))
    return capsule.failure.class_.endswith("_out_of_memory") or bool(weighed) or stated


def cause_words(cause: Cause) -> str:
    """Return a cause as ``C21 activations, 21.3 MiB``."""
    size = f", {format_bytes(cause.bytes)}" if cause.bytes is not None else ""
    return f"{one_line(cause.id, 40)} {one_line(cause.name, 120)}{size}"


def verdict_words(verdict: Verdict, standing: str) -> str:
    """Return the status as it may be said: only a verdict on record here is simply verified."""
    word, verified = label(verdict.status), verdict.status == "verified"
    device = "on the simulated device" if verified and verdict.device_kind == "simulated" else ""
    if standing == "on_record":
        return f"{word} {device}".strip()
    where = _NOT_ON_RECORD.get(standing) or f"({one_line(label(standing), 60)})"
    return f"{word} {where}" + (f", {device}" if device else "")


def verdict_headline(verdict: Verdict, standing: str) -> str:
    """Return the verdict as one sentence that says its status once: a verified sentence says it itself."""
    word = verdict_words(verdict, standing)
    shown = f"{word[:1].upper()}{word[1:]}"
    return verdict.sentence if verdict.sentence.startswith(shown) else f"{shown}: {verdict.sentence}"


def verdict_tone(verdict: Verdict, standing: str) -> Tone:
    """Return the colour of a verdict; green only for one that this store stands for."""
    tone = VERDICT_TONES[verdict.status]
    return "warn" if tone == "good" and standing != "on_record" else tone


def release_words(release: Mapping[str, Any] | None) -> tuple[str, list[str]]:
    """Return what was given back after the failure as one sentence, and what still holds memory, one line each.

    ``release`` is ``forensics.release.Release.to_data()``: of its keys ``sentence`` and ``kept`` (a list of
    mappings with ``name``, ``bytes``, ``what``) are read.
    """
    if not release:
        return "", []
    lines = []
    for holder in release.get("kept") or ():
        what = one_line(holder.get("what") or "", 200)
        size = format_bytes(holder.get("bytes"))
        lines.append(f"{one_line(holder.get('name') or '?', 200)}: {size}{', ' + what if what else ''}")
    return one_line(release.get("sentence") or "", 2_000), lines


def _evidence(capsule: Capsule, piece_id: str) -> Mapping[str, Any]:
    data = next((piece.data for piece in capsule.evidence if piece.id == piece_id), None)
    return data if isinstance(data, Mapping) else {}


def config_of(capsule: Capsule) -> Any:
    """Return the configuration that the capsule holds (evidence EV-1), or None."""
    data = next((piece.data for piece in capsule.evidence if piece.id == "EV-1"), None)
    # What a person copies is the configuration, without what the recorder says of it.
    return data["config"] if isinstance(data, Mapping) and set(data) == _ABOUT_A_CONFIG else data


def device_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run's device as plain values (``kind``, ``name``, ``budget_bytes``), empty if none is recorded."""
    device = row.get("device")
    return device if isinstance(device, Mapping) else {}


def exactness_words(row: Mapping[str, Any]) -> str:
    """Return which configuration values are not as they were given: redacted, or simplified to fit JSON."""
    parts = []
    for key, word in (("redacted_paths", "redacted"), ("lossy_paths", "simplified")):
        paths = row.get(key)
        if isinstance(paths, (list, tuple)) and paths:
            parts.append(f"{word}: {one_line(', '.join(map(str, paths)), 300)}")
    return "; ".join(parts)


def run_headline(row: Mapping[str, Any]) -> str:
    """Return what became of a run and what to look at next. Times are seconds since 1970."""
    name = one_line(row.get("run_id") or "?", 96)
    status, started, ended = str(row.get("status") or "?"), row.get("started_at"), row.get("ended_at")
    took = f" after {format_seconds(ended - started)}" if started is not None and ended is not None else ""
    at = f" at step {row['last_step']:,}" if row.get("last_step") is not None else ""
    text = {
        "running": f"Run {name} is going on{at}.",
        "success": f"Run {name} finished{took}{at}.",
        "failed": f"Run {name} failed{took}{at}. Next: read its failure capsule.",
        "interrupted": f"Run {name} was interrupted{took}{at}.",
        "killed": f"Run {name} was killed{took}{at}; the last points it wrote are kept.",
    }
    return text.get(status, f"Run {name} is {one_line(status, 40)}{took}{at}.")
