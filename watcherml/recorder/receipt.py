"""What a run prints when it ends well, and how completely it could be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PARTS = ("config", "code", "environment", "dataset", "metrics")


def make(row: Mapping[str, Any], last_metrics: Mapping[str, float], peak_device_bytes: int | None) -> dict[str, Any]:
    """Return the receipt as plain data; ``completeness`` names each part that is there and each that is not."""
    facts = row["facts"]
    have = {
        "config": not row["lossy_paths"] and not row["redacted_paths"],
        "code": facts.get("git", {}).get("status") == "available" and "patch_omitted" not in facts.get("git", {}),
        "environment": "environment" in facts,
        "dataset": "dataset" in facts,
        "metrics": bool(last_metrics),
    }
    git = facts.get("git", {})
    return {
        "run_id": row["run_id"],
        "project": row["project"],
        "duration_seconds": round((row["ended_at"] or row["heartbeat_at"]) - row["started_at"], 3),
        "metrics": {name: repr(value) for name, value in sorted(last_metrics.items())},
        "peak_device_bytes": peak_device_bytes,
        "device_kind": (row["device"] or {}).get("kind", "none"),
        "git": {key: git.get(key) for key in ("commit", "branch", "dirty")} if git.get("commit") else None,
        "dataset_fingerprint": facts.get("dataset", {}).get("fingerprint"),
        "completeness": {part: have[part] for part in _PARTS},
    }


def text(receipt: Mapping[str, Any]) -> str:
    """Return the receipt as a few aligned lines."""
    lines = [("run", receipt["run_id"]), ("took", f"{receipt['duration_seconds']:.1f} s")]
    if receipt["metrics"]:
        shown = list(receipt["metrics"].items())[:8]
        lines.append(("metrics", "  ".join(f"{name} {_short(value)}" for name, value in shown)))
    if receipt["peak_device_bytes"] is not None:
        label = "simulated peak" if receipt["device_kind"] == "simulated" else "device peak"
        lines.append((label, f"{receipt['peak_device_bytes'] / 2**20:.1f} MiB"))
    git = receipt["git"]
    if git:
        lines.append(("git", f"{git['commit'][:12]} {git['branch'] or ''}{' + local changes' if git['dirty'] else ''}"))
    if receipt["dataset_fingerprint"]:
        lines.append(("dataset", receipt["dataset_fingerprint"][:19]))
    absent = [part for part, there in receipt["completeness"].items() if not there]
    have = len(_PARTS) - len(absent)
    lines.append(
        ("repeatable", f"{have} of {len(_PARTS)} parts" + (f"; missing: {', '.join(absent)}" if absent else ""))
    )
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"  {label:<{width}}  {value}" for label, value in lines)


def _short(value: str) -> str:
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return value
