"""What a run prints when it ends well, and which parts of it are there to repeat it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watcherml.recorder.artifacts import REASONS
from watcherml.recorder.progress import is_watched
from watcherml.simulated.active import format_bytes

_SEED = re.compile(r"(?i)(?:.*[_.\- ])?(?:seed|random_state)")
_MOST_METRICS = 8
_DEEPEST = 32


@dataclass(frozen=True)
class Part:
    """One part of repeating a run: whether it is on record, what it is, and how to add it where it is missing."""

    name: str
    there: bool
    says: str
    remedy: str = ""

    def to_data(self) -> dict[str, Any]:
        """Return the part as plain data."""
        return {"part": self.name, "there": self.there, "says": self.says, "remedy": self.remedy}


def make(
    row: Mapping[str, Any],
    last_metrics: Mapping[str, float],
    peak: Mapping[str, Any] | None = None,
    artifacts: int = 0,
    problems: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the receipt as plain data.

    ``row`` is the run's row; ``peak`` has bytes and source; ``problems`` says how much could not be recorded
    (``count``) and the ``first`` reason. ``completeness`` lists config, code, environment, dataset, device and seed.
    """
    facts = row["facts"]
    git = facts.get("git", {})
    return {
        "run_id": row["run_id"],
        "project": row["project"],
        "duration_seconds": round((row["ended_at"] or row["heartbeat_at"]) - row["started_at"], 3),
        "metrics": {name: repr(value) for name, value in sorted(last_metrics.items())},
        "peak_device_bytes": None if peak is None else peak["bytes"],
        "peak_source": None if peak is None else peak["source"],
        "device_kind": (row["device"] or {}).get("kind", "none"),
        "git": {key: git.get(key) for key in ("commit", "branch", "dirty")} if git.get("commit") else None,
        "dataset_fingerprint": facts.get("dataset", {}).get("fingerprint"),
        "artifacts": artifacts,
        "artifacts_without_checksum": len(facts.get(REASONS) or {}),
        "problems": dict(problems or {"count": 0, "first": ""}),
        "completeness": [part.to_data() for part in parts(row)],
    }


def parts(row: Mapping[str, Any]) -> list[Part]:
    """Return the parts of repeating a run, in a fixed order."""
    facts = row["facts"]
    packages = facts.get("environment", {}).get("packages")
    dataset = facts.get("dataset", {})
    return [
        _config(row),
        _code(facts.get("git", {})),
        Part("environment", True, f"{len(packages)} packages")
        if packages is not None
        else Part("environment", False, "packages were not collected", "see the problems of this run"),
        Part("dataset", True, str(dataset["fingerprint"]))
        if dataset.get("fingerprint")
        else Part("dataset", False, "no fingerprint", "call run.set_dataset(path)"),
        _device(row["device"] or {}, facts.get("machine")),
        _seed(row["config"]),
    ]


def _config(row: Mapping[str, Any]) -> Part:
    lossy, redacted = row["lossy_paths"], row["redacted_paths"]
    if not lossy and not redacted:
        return Part("config", True, "exact")
    says, remedies = [], []
    if lossy:
        says.append(f"kept as text: {_some(lossy)}")
        remedies.append("pass plain numbers, texts, lists and mappings")
    if redacted:
        says.append(f"secrets taken out: {_some(redacted)}")
        remedies.append("give them again from the environment")
    return Part("config", False, "; ".join(says), "; ".join(remedies))


def _code(git: Mapping[str, Any]) -> Part:
    if git.get("status") != "available":
        reason = str(git.get("reason", "no repository"))
        remedy = "find out why git is slow here" if reason.startswith("cut short") else "run it from a git repository"
        return Part("code", False, reason, remedy)
    commit = bool(git.get("commit"))
    if git.get("patch_omitted"):
        return Part("code", False, f"no patch: {git['patch_omitted']}", "commit the changes")
    if git.get("untracked_omitted"):
        return Part("code", False, f"no untracked files: {git['untracked_omitted']}", "add them to the repository")
    if git.get("left_out_files"):
        says = f"{git['left_out_files']} files are not in the patch"
        return Part("code", False, says, "commit them, or let .gitignore name them")
    if not git.get("dirty"):
        return Part("code", True, "commit") if commit else Part("code", False, "no commit", "commit once")
    if git.get("patch_is") == "exact":
        return Part("code", True, "commit and exact patch" if commit else "exact patch, no commit yet")
    says = f"patch with {git['patch_is']}" if git.get("patch_is") else "changes without content"
    return Part("code", False, says, "take secrets out of the code, or commit the changes")


def _device(device: Mapping[str, Any], machine: Mapping[str, Any] | None) -> Part:
    if device.get("kind", "none") != "none":
        name = "simulated device" if device["kind"] == "simulated" else str(device.get("name") or "CUDA device")
        return Part("device", True, name)
    if machine is not None:
        return Part("device", True, f"CPU, {machine.get('machine', 'unknown')}")
    return Part("device", False, "nothing is known of the machine", "see the problems of this run")


def _seed(config: Mapping[str, Any]) -> Part:
    found = next(_seeds(config, "", 0), None)
    if found is not None:
        return Part("seed", True, found)
    return Part("seed", False, "config names none", 'put it into config, as {"seed": 1}')


def _seeds(value: Any, path: str, depth: int) -> Iterator[str]:
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return
    for key, item in value.items():
        where = f"{path}.{key}" if path else str(key)
        if _SEED.fullmatch(str(key)) and isinstance(item, (int, str)) and not isinstance(item, bool):
            yield f"{where} = {str(item)[:40]}"
        yield from _seeds(item, where, depth + 1)


def text(receipt: Mapping[str, Any]) -> str:
    """Return the receipt as a few aligned lines without colours."""
    lines = [("run", receipt["run_id"]), ("took", _duration(receipt["duration_seconds"]))]
    lines += _metric_lines(receipt["metrics"])
    if receipt["peak_device_bytes"] is not None:
        lines.append(("peak VRAM", f"{format_bytes(receipt['peak_device_bytes'])} ({receipt['peak_source']})"))
    git = receipt["git"]
    if git:
        branch = f" on {git['branch']}" if git["branch"] else ""
        lines.append(("git", f"{git['commit'][:12]}{branch}{', with local changes' if git['dirty'] else ''}"))
    if receipt["dataset_fingerprint"]:
        lines.append(("dataset", receipt["dataset_fingerprint"][:19]))
    if receipt["artifacts"]:
        unread = receipt["artifacts_without_checksum"]
        lines.append(("artifacts", f"{receipt['artifacts']}{f', {unread} without checksum' if unread else ''}"))
    if receipt["problems"]["count"]:
        lines.append(("unrecorded", f"{receipt['problems']['count']}, the first: {receipt['problems']['first'][:200]}"))
    lines += _completeness_lines(receipt["completeness"])
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"  {label:<{width}}  {_printable(value)}".rstrip() for label, value in lines)


def show(receipt: Mapping[str, Any]) -> None:
    """Print the receipt; where the stream cannot spell a character, its escape."""
    _print("stdout", f"WatcherML recorded this run.\n{text(receipt)}\n")


def show_failure(run_id: str, folder: Path, usual: Path) -> None:
    """Say on a terminal that a failure is on record, and the command that shows it.

    ``folder`` is the store's, ``usual`` the one that a command finds here by itself. A notebook has its panel, and what
    a program writes into a file or a pipe stays its own.
    """
    if "ipykernel" in sys.modules or not is_watched(sys.stderr):
        return
    where = "" if folder.resolve() == usual.resolve() else f" --data-dir {shlex.quote(str(folder))}"
    _print("stderr", f"WatcherML recorded this failure. What was missing and why: watcher{where} inspect {run_id}\n")


def _print(name: str, words: str) -> None:
    # Scripts put objects of their own here, often with nothing but write and flush; pythonw has None.
    stream = getattr(sys, name, None)
    try:
        if stream is None or getattr(stream, "closed", False):
            return
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(words.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except Exception:  # noqa: BLE001 - a pipe that nobody reads any more, or anything; the receipt is in the store
        return


def _metric_lines(metrics: Mapping[str, str]) -> list[tuple[str, str]]:
    shown = [f"{name} {_short(value)}" for name, value in list(metrics.items())[:_MOST_METRICS]]
    if len(metrics) > _MOST_METRICS:
        shown.append(f"and {len(metrics) - _MOST_METRICS} more")
    return [("metrics", "  ".join(shown))] if shown else []


def _completeness_lines(completeness: list[Mapping[str, Any]]) -> list[tuple[str, str]]:
    there = [part["part"] for part in completeness if part["there"]]
    words = f"{len(there)} of {len(completeness)} parts" + (f": {', '.join(there)}" if there else "")
    missing = [part for part in completeness if not part["there"]]
    return [
        ("repeatable", words),
        *(("", f"{part['part']} is missing ({part['says']}): {part['remedy']}") for part in missing),
    ]


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min {rest:02d} s" if hours else f"{minutes} min {rest:02d} s"


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _short(value: str) -> str:
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return value


def _printable(value: str) -> str:
    # A name with control characters must not move the cursor or start a line of its own.
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(value))
