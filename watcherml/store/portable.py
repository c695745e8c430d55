"""``Portable``: one recorded run outside of any store, as values, and as the members of an archive.

``run.json`` holds the run: its row, artifact references, cells, samples and, in columns, its metric points. What stands
beside it for people and tools (``config.json``, ``environment.json``, ``requirements.txt``) is derived from it, and is
refused on reading where it says anything else. Numbers that JSON lacks are the texts ``nan``, ``inf`` and ``-inf``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.sealed.canonical import MAX_SAFE_INTEGER, parse_json
from watcherml.sealed.device import Device
from watcherml.sealed.fields import (
    Bound,
    ByteCount,
    CampaignId,
    Count,
    Digest,
    Json,
    Line,
    MetricName,
    Name,
    RunId,
    Text,
    Timestamp,
    TrialId,
)
from watcherml.sealed.record import Record, checked

RUN, CONFIG, ENVIRONMENT, REQUIREMENTS = "run.json", "config.json", "environment.json", "requirements.txt"
CAPSULE, PATCH = "capsule.json", "patch.diff"
KIND, VERSION = "watcherml.export", 1
MAX_POINTS = 4_000_000  # a run.json of about 200 MB, below the limit of a reader
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_MAX_DEPTH = 60
_SHAPES = ("git", "environment", "dataset", "machine", "receipt", "failure")
_Long = Annotated[str, Text(0, 10_000_000)]
_Path = Annotated[str, Text(0, 100_000)]
_Whole = Annotated[int, Bound(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)]


@dataclass(frozen=True, slots=True, eq=False)
class RunRow(Record):
    """What a run's row says, without what only its own machine knows (the process)."""

    run_id: RunId
    project: Name
    role: Literal["user", "trial"]
    campaign_id: CampaignId | None
    trial_id: TrialId | None
    status: Literal["running", "success", "failed", "interrupted", "killed"]
    end_reason: Line
    started_at: Timestamp
    ended_at: Timestamp | None
    heartbeat_at: Timestamp
    config: Json
    lossy_paths: tuple[_Path, ...]
    redacted_paths: tuple[_Path, ...]
    device: Device | None
    last_step: _Whole | None
    facts: Json
    receipt: Json
    title: _Path | None

    def check(self) -> None:
        """Configuration, facts and the facts that readers look into are objects; an ended run has an end."""
        for name, value in (("config", self.config), ("facts", self.facts)):
            if not isinstance(value, Mapping):
                raise InvalidValue(name, expected="an object", got=type(value).__name__)
        if self.receipt is not None and not isinstance(self.receipt, Mapping):
            raise InvalidValue("receipt", expected="an object or null", got=type(self.receipt).__name__)
        for name in _SHAPES:
            if name in self.facts and not isinstance(self.facts[name], Mapping):
                raise InvalidValue(f"facts.{name}", expected="an object", got=type(self.facts[name]).__name__)


@dataclass(frozen=True, slots=True, eq=False)
class SampleRow(Record):
    """One sample of the process; percent, bytes."""

    at: Timestamp
    cpu_percent: float | None
    rss_bytes: ByteCount | None
    host_used_bytes: ByteCount | None
    device_kind: Name
    device_allocated_bytes: ByteCount | None
    device_reserved_bytes: ByteCount | None
    tree_cpu_percent: float | None
    tree_rss_bytes: ByteCount | None


@dataclass(frozen=True, slots=True, eq=False)
class GpuSampleRow(Record):
    """One sample of a GPU; percent, bytes."""

    at: Timestamp
    gpu_index: Count
    uuid: Line
    utilization_percent: float | None
    used_bytes: ByteCount | None
    total_bytes: ByteCount | None
    own_bytes: ByteCount | None


@dataclass(frozen=True, slots=True, eq=False)
class ArtifactRow(Record):
    """A reference to a file: where it was, its size, its SHA-256 where it was hashed. Never its bytes."""

    path: _Path
    size_bytes: ByteCount
    sha256: Annotated[str, Text(0, 200)] | None
    at: Timestamp


@dataclass(frozen=True, slots=True, eq=False)
class CellRow(Record):
    """One executed notebook cell."""

    session_id: Annotated[str, Text(0, 1_000)]
    seq: Count
    execution_count: _Whole | None
    cell_id: Line | None
    source: _Long
    status: Literal["ok", "error", "interrupted"]
    error_type: Line | None
    error_message: _Long | None
    started_at: Timestamp
    seconds: Annotated[float, Bound(-(10**9), 10**9, "seconds")]


TABLES: dict[str, type[Record]] = {
    "samples": SampleRow, "gpu_samples": GpuSampleRow, "artifacts": ArtifactRow, "cells": CellRow,
}  # fmt: skip


@dataclass(frozen=True)
class Points:
    """Metric points in the order in which they were logged, as columns; ``keys`` are positions in ``names``.

    ``values`` holds numbers as JSON can say them: a NaN or infinity is its name.
    """

    names: list[str]
    keys: list[int]
    steps: list[int | None]
    values: list[float | str]
    ats: list[float]

    def __len__(self) -> int:
        return len(self.ats)

    def to_data(self) -> dict[str, Any]:
        """Return the columns as plain JSON."""
        return {"names": self.names, "name": self.keys, "step": self.steps, "value": self.values, "at": self.ats}


@dataclass(frozen=True)
class Portable:
    """A run with everything that belongs to it. ``capsules`` are documents, oldest first; ``blobs`` bytes by digest.

    ``original_run_id`` is the id under which it was recorded, if that is another one.
    """

    run: RunRow
    original_run_id: str
    points: Points
    tables: dict[str, tuple[Record, ...]]
    capsules: tuple[str, ...]
    blobs: dict[str, bytes]

    @property
    def patch(self) -> str | None:
        """The digest of the patch, None without one."""
        git = self.run.facts.get("git") or {}
        found = git.get("patch")
        return found if isinstance(found, str) and found in self.blobs else None

    def to_data(self) -> dict[str, Any]:
        """Return what ``run.json`` says."""
        return {
            "kind": KIND,
            "version": VERSION,
            "original_run_id": self.original_run_id,
            "run": self.run.to_data(),
            **{name: [row.to_data() for row in rows] for name, rows in self.tables.items()},
            "metrics": self.points.to_data(),
        }

    def members(self) -> dict[str, bytes]:
        """Return the archive's members by name."""
        found = {RUN: _compact(self.to_data()), **self._derived()}
        if self.capsules:
            found[CAPSULE] = self.capsules[-1].encode("utf-8")
        for number, document in enumerate(self.capsules[:-1], 1):
            found[f"capsules/{number:04d}.json"] = document.encode("utf-8")
        for digest, data in self.blobs.items():
            found[PATCH if digest == self.patch else f"blobs/{digest.partition(':')[2]}"] = data
        return found

    def _derived(self) -> dict[str, bytes]:
        row = self.run.to_data()
        environment = row["facts"].get("environment") or {}
        return {
            CONFIG: _indented(row["config"]),
            ENVIRONMENT: _indented(environment),
            REQUIREMENTS: requirements(environment).encode("utf-8"),
        }

    @classmethod
    def from_members(cls, names: Collection[str], read: Callable[[str], bytes]) -> Portable:
        """Decode the members of an archive; ``read`` gives the bytes of one of ``names``.

        Raises ``InvalidRecord`` naming the member and the place in it.
        """
        if RUN not in names:
            raise InvalidRecord(RUN, expected="a member of that name", got="none")
        document = _object(parse_json(read(RUN), RUN), RUN)
        wanted = {"kind", "version", "original_run_id", "run", "metrics", *TABLES}
        _same_keys(document, wanted, RUN)
        for key, value in (("kind", KIND), ("version", VERSION)):
            if document[key] != value or document[key] is True:
                raise InvalidRecord(f"{RUN}: $.{key}", expected=repr(value), got=f"{document[key]!r:.80}")
        made = cls(
            RunRow.from_data(document["run"], f"{RUN}: $.run"),
            checked(RunId, document["original_run_id"], f"{RUN}: $.original_run_id"),
            _points(document["metrics"], f"{RUN}: $.metrics"),
            {name: _rows(kind, document[name], f"{RUN}: $.{name}") for name, kind in TABLES.items()},
            _capsules(names, read),
            {},
        )
        _check_cells(made.tables["cells"])
        made = replace(made, blobs=_blobs(made.run, names, read))
        for name, data in made._derived().items():
            if name not in names or read(name) != data:
                raise InvalidRecord(name, expected=f"what follows from {RUN}", got="nothing" if name not in names
                                    else "something else")  # fmt: skip
        return made


def requirements(environment: Mapping[str, Any]) -> str:
    """Return an environment's packages as pip reads them, one a line; what pip could read otherwise is left out."""
    packages = environment.get("packages")
    pairs = packages.items() if isinstance(packages, Mapping) else ()
    lines = [
        f"{name}=={version}"
        for name, version in sorted((str(name), str(version)) for name, version in pairs)
        if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name)
        and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*", version)
    ]
    return "".join(f"{line}\n" for line in lines)


def plain(value: Any, depth: int = 0) -> Any:
    """Return stored JSON as every reader takes it: NaN, infinities and large integers as text, no lone surrogates."""
    if depth > _MAX_DEPTH:
        return "<too deep>"
    if isinstance(value, dict):
        return {plain(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else special(value)
    if type(value) is int and abs(value) > MAX_SAFE_INTEGER:
        return str(value)
    return value


def special(value: float) -> str:
    """Return the name of a number that JSON lacks."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def digests_in(text: str) -> list[str]:
    """Return the digests that stand in a JSON text, each once, in their order."""
    return list(dict.fromkeys(re.findall(r'"(sha256:[0-9a-f]{64})"', text)))


def _compact(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")


def _indented(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n").encode("ascii")


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRecord(path, expected="an object", got=f"{value!r:.60} ({type(value).__name__})")
    return value


def _same_keys(value: Mapping[str, Any], wanted: set[str], path: str) -> None:
    for key in sorted(wanted - value.keys()):
        raise InvalidRecord(f"{path}: $.{key}", expected="a value", got="no such key")
    for key in sorted(value.keys() - wanted):
        raise InvalidRecord(path, expected=f"only the keys {', '.join(sorted(wanted))}", got=f"the key {key!r:.80}")


def _rows(kind: type[Record], data: Any, path: str) -> tuple[Record, ...]:
    if not isinstance(data, list):
        raise InvalidRecord(path, expected="a list", got=type(data).__name__)
    return tuple(kind.from_data(one, f"{path}[{index}]") for index, one in enumerate(data))


def _check_cells(cells: tuple[Record, ...]) -> None:
    seen: set[tuple[str, int]] = set()
    for index, cell in enumerate(cells):
        one = cell.to_data()
        if (one["session_id"], one["seq"]) in seen:
            path = f"{RUN}: $.cells[{index}].seq"
            raise InvalidRecord(path, expected="each number once in a session", got=f"{one['seq']} again")
        seen.add((one["session_id"], one["seq"]))


def _points(data: Any, path: str) -> Points:
    columns = _object(data, path)
    _same_keys(columns, {"names", "name", "step", "value", "at"}, path)
    for key, column in columns.items():
        if not isinstance(column, list):
            raise InvalidRecord(f"{path}.{key}", expected="a list", got=type(column).__name__)
        if key != "names" and len(column) != len(columns["at"]):
            raise InvalidRecord(f"{path}.{key}", expected=f"{len(columns['at'])} entries", got=f"{len(column)}")
    names = [checked(MetricName, name, f"{path}.names[{index}]") for index, name in enumerate(columns["names"])]
    if len(set(names)) != len(names):
        raise InvalidRecord(f"{path}.names", expected="each name once", got="one repeated")
    rules: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
        ("name", f"a position below {len(names)}", lambda one: type(one) is int and 0 <= one < len(names)),
        ("step", "a whole number or null", lambda one: one is None or type(one) is int),
        ("value", "a number, 'nan', 'inf' or '-inf'", lambda one: type(one) in (int, float) or one in _SPECIAL_NAMES),
        ("at", "seconds since 1970", lambda one: type(one) in (int, float) and 0 <= one <= 1e11),
    )
    for key, words, holds in rules:
        for index, one in enumerate(columns[key]):
            if not holds(one):
                raise InvalidRecord(f"{path}.{key}[{index}]", expected=words, got=f"{one!r:.80}")
    return Points(names, columns["name"], columns["step"], columns["value"], columns["at"])


_SPECIAL_NAMES = tuple(SPECIAL)  # a tuple: a list or an object among the values is no name, and no error


def _capsules(names: Collection[str], read: Callable[[str], bytes]) -> tuple[str, ...]:
    earlier = sorted(name for name in names if re.fullmatch(r"capsules/[0-9]{4}\.json", name))
    found = [*earlier, *([CAPSULE] if CAPSULE in names else [])]
    if earlier and CAPSULE not in names:
        raise InvalidRecord(CAPSULE, expected="the last capsule of the run", got="no such member")
    documents = []
    for name in found:
        try:
            documents.append(read(name).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidRecord(name, expected="UTF-8 text", got=str(error)) from None
    return tuple(documents)


def _blobs(run: RunRow, names: Collection[str], read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Return the bytes that the run's facts refer to; bytes that nothing refers to are refused."""
    referred = set(digests_in(json.dumps(run.to_data()["facts"])))
    git = run.facts.get("git") or {}
    patch = git.get("patch")
    found: dict[str, bytes] = {}
    for name in sorted(name for name in names if name == PATCH or name.startswith("blobs/")):
        data = read(name)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        wanted = patch if name == PATCH else f"sha256:{name.removeprefix('blobs/')}"
        if digest != wanted or digest not in referred:
            raise InvalidRecord(name, expected=f"bytes with the SHA-256 {wanted!r:.80} in {RUN}", got=digest)
        found[checked(Digest, digest, name)] = data
    return found
