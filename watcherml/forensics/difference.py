"""What differs between two runs: configuration, code, cells, data, packages, hardware, metrics. Takes records."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watcherml.errors import InvalidValue
from watcherml.forensics.neighbours import Change, Difference
from watcherml.forensics.suspicion import RULES_VERSION, judge, kind_of
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.paths import ABSENT, differing
from watcherml.sealed.record import thaw

AREAS = ("config", "code", "cells", "data", "packages", "hardware", "metrics")
MOST_VALUE = 300  # characters of one value as JSON; longer ones are described
MOST_PATH = 400
MOST_CELLS = 60  # cells of each run that are looked at
_BEGINS_RUN = re.compile(r"\b(watcherml|watcher)\.(init|Run)\(|^.\s*import watcherml\b")
_ALIKE = 0.6  # share of common text from which one cell is another one's later version

Point = tuple[str, "int | None", Any]
Found = tuple[str, str, Any, Any]  # area, path, before, after


@dataclass(frozen=True)
class Side:
    """One run as it was recorded. ``cells`` are (cell id, source) in order, ``patch`` its uncommitted changes."""

    config: Any
    facts: Mapping[str, Any]
    device: Mapping[str, Any] | None = None
    last_step: int | None = None
    points: Sequence[Point] = ()
    cells: Sequence[tuple[str, str]] = ()
    patch: str | None = None

    def part(self, name: str) -> Mapping[str, Any]:
        """Return one of the collected facts, empty where it is not there or was not available."""
        found = self.facts.get(name)
        known = isinstance(found, Mapping) and found.get("status", "available") == "available"
        return found if known and isinstance(found, Mapping) else {}


@dataclass
class _Walk:
    found: list[Found] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def both(self, area: str, what: str, before: object, after: object) -> bool:
        """Tell whether both sides have something to compare, and note it if only one or none has."""
        if before and after:
            return True
        if before or after:
            self.unknown.append(f"{area}: only the {'first' if before else 'second'} run has {what}")
        else:
            self.unknown.append(f"{area}: neither run has {what}")
        return False


def difference(
    before: Side,
    after: Side,
    failure_class: str = "",
    *,
    subkind: str = "",
    phase: str = "",
    backwards: bool = False,
    most: int | None = None,
) -> Difference:
    """Return what changed from one run to the other, most suspicious first for a failure of that class and phase.

    It is the second run that failed, or with ``backwards`` the first. At most ``most`` changes are listed; the others
    are counted.
    """
    walk = _Walk()
    whole = "" if not (isinstance(before.config, Mapping) and isinstance(after.config, Mapping)) else '""'
    for path, old, new in differing(thaw(before.config), thaw(after.config)):
        walk.found.append(("config", path or whole, old, new))  # a key may be the empty text
    for compare in (_code, _cells, _data, _packages, _hardware, _metrics):
        compare(walk, before, after)
    kind = kind_of(failure_class, subkind)
    made = [_change(one, kind, phase, backwards) for one in walk.found]
    made.sort(key=lambda one: (-one.suspicion, AREAS.index(one.area), one.path))
    kept = made if most is None else made[:most]
    return Difference(tuple(kept), len(made) - len(kept), tuple(walk.unknown), RULES_VERSION)


def _change(found: Found, kind: Any, phase: str, backwards: bool) -> Change:
    area, path, before, after = found
    old, new = (None if value is ABSENT else value for value in (before, after))
    points, rule = judge(area, path, *((new, old) if backwards else (old, new)), kind, phase)
    word = "added" if before is ABSENT else "removed" if after is ABSENT else "changed"
    shown = path[:MOST_PATH].encode("utf-8", "backslashreplace").decode() or "(all)"
    return Change(area, shown, word, _short(old), _short(new), points, rule)  # type: ignore[arg-type]


def _short(value: Any) -> Any:
    """Return a value as it is, or what it is where it is too long to be read beside another one."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    try:
        text = canonical_bytes(value).decode("utf-8")
    except (InvalidValue, RecursionError):  # version 0.1 stored what JSON has no word for
        return repr(value)[:MOST_VALUE].encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= MOST_VALUE:
        return value
    if isinstance(value, str):
        return f"{value[:200]}… ({len(value):,} characters)"
    return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value):,} entries"


def _code(walk: _Walk, before: Side, after: Side) -> None:
    old, new = before.part("git"), after.part("git")
    if walk.both("code", "a git commit", old.get("commit"), new.get("commit")):
        for key in ("commit", "branch"):
            if old.get(key) != new.get(key):
                walk.found.append(("code", key, old.get(key), new.get(key)))
    _patches(walk, before, after)
    commands = [_command(one.facts.get("argv")) for one in (before, after)]
    if all(isinstance(one, (list, tuple)) and one for one in commands) and commands[0] != commands[1]:
        old_line, new_line = (shlex.join(map(str, one or ())) for one in commands)
        walk.found.append(("code", "argv", old_line, new_line))


def _command(argv: Any) -> Any:
    """Return a command line; None for a kernel's, which only names its connection file, another one at every start."""
    known = isinstance(argv, (list, tuple)) and argv
    return None if known and str(argv[0]).endswith("kernel_launcher.py") else argv


def _patches(walk: _Walk, before: Side, after: Side) -> None:
    """Compare uncommitted changes file by file; a side without git facts has none to compare."""
    old, new = before.part("git"), after.part("git")
    if not old or not new:
        return
    for side, name in ((before, "first"), (after, "second")):
        if side.part("git").get("patch") and side.patch is None:
            walk.unknown.append(f"code: the {name} run's uncommitted changes are too large to compare")
            return
    first, second = _files(before.patch or ""), _files(after.patch or "")
    for file in [*first, *(one for one in second if one not in first)]:
        if first.get(file) != second.get(file):
            walk.found.append(("code", file, *(_lines(one.get(file)) for one in (first, second))))


def _files(patch: str) -> dict[str, str]:
    """Return the sections of a git patch by file name."""
    found: dict[str, str] = {}
    for section in re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE):
        name = re.match(r'diff --git (?:"?a/.*?"? )"?b/(.*?)"?$', section, re.MULTILINE)
        if name:
            # The index line holds hashes of the whole files, which say nothing beyond the lines below it.
            found[name[1]] = re.sub(r"^index .*\n", "", section, flags=re.MULTILINE)
    return found


def _lines(section: str | None) -> Any:
    if section is None:
        return "as committed"
    rows = section.split("\n")
    added = sum(row.startswith("+") and not row.startswith("+++") for row in rows)
    removed = sum(row.startswith("-") and not row.startswith("---") for row in rows)
    return f"+{added:,} -{removed:,} lines, not committed"


def _cells(walk: _Walk, before: Side, after: Side) -> None:
    if not before.cells and not after.cells:
        return  # scripts have no cells
    if not walk.both("cells", "recorded cells", before.cells, after.cells):
        return
    known = {source.strip() for _, source in before.cells}
    now = {source.strip() for _, source in after.cells}
    gone = [(name, source) for name, source in before.cells[-MOST_CELLS:] if source.strip() not in now]
    seen: set[str] = set()
    for name, source in after.cells[-MOST_CELLS:]:
        text = source.strip()
        if not text or text in known or text in seen or re.fullmatch(r"%%?watcher\b.*", text):
            continue
        seen.add(text)
        earlier = _earlier_version(name, source, gone)
        lines = ("", "") if earlier is None else _parted(earlier, source)
        if any(lines):
            walk.found.append(("cells", _title(source), *lines))


def _earlier_version(name: str, source: str, gone: Sequence[tuple[str, str]]) -> str | None:
    for other, text in reversed(gone):
        # The names that we make for cells without an id hold a hash of their source.
        if other == name and not name.startswith("in-"):
            return text
    best, found = _ALIKE, None
    for _, text in gone:
        matcher = difflib.SequenceMatcher(None, text[:4_000], source[:4_000], autojunk=False)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (share := matcher.ratio()) > best:
            best, found = share, text
    return found


def _title(source: str) -> str:
    line = next((line.strip() for line in source.splitlines() if line.strip()), "")
    return f"cell {line[:80]!r}"


def _parted(before: str, after: str) -> tuple[str, str]:
    """Return the lines in which two versions of a cell differ."""
    old, new = before.splitlines(), after.splitlines()
    rows = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
    # What begins the run holds its configuration, which is compared apart.
    rows = [row for row in rows if not _BEGINS_RUN.search(row)]
    lost = [row[1:].strip() for row in rows if row.startswith("-")]
    won = [row[1:].strip() for row in rows if row.startswith("+")]
    return "; ".join(filter(None, lost)), "; ".join(filter(None, won))


def _data(walk: _Walk, before: Side, after: Side) -> None:
    old, new = before.part("dataset"), after.part("dataset")
    if not walk.both("data", "a dataset fingerprint", old.get("fingerprint"), new.get("fingerprint")):
        return
    for key in ("fingerprint", "files", "bytes", "path"):
        if old.get(key) != new.get(key) and key in old and key in new:
            walk.found.append(("data", key, old[key], new[key]))


def _packages(walk: _Walk, before: Side, after: Side) -> None:
    old, new = before.part("environment"), after.part("environment")
    if not walk.both("packages", "a list of packages", old.get("packages"), new.get("packages")):
        return
    for key in ("python", "implementation", "system", "machine"):
        if old.get(key) != new.get(key):
            walk.found.append(("packages", key, old.get(key), new.get(key)))
    walk.found += [("packages", path, a, b) for path, a, b in _flat(_versions(old), _versions(new))]


def _versions(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return versions by package; what came from a repository or archive says so."""
    sources = facts.get("sources") if isinstance(facts.get("sources"), Mapping) else {}
    packages = facts["packages"]
    return {
        str(name): f"{version} ({sources[name]})" if sources and name in sources else version
        for name, version in (packages.items() if isinstance(packages, Mapping) else ())
    }


def _flat(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs by name; a dot in a name means nothing."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if old != new:
            yield name, old, new


def _hardware(walk: _Walk, before: Side, after: Side) -> None:
    old, new = before.part("machine"), after.part("machine")
    if walk.both("hardware", "facts about its machine", old, new):
        left_out = ("nvml", "python", "in_notebook_kernel")
        plain = [{key: value for key, value in one.items() if key not in left_out} for one in (old, new)]
        walk.found += [("hardware", *one) for one in differing(plain[0], plain[1])]
        gpus = [_gpus(one.get("nvml")) for one in (old, new)]
        if gpus[0] or gpus[1]:
            walk.found += [("hardware", *one) for one in _flat(gpus[0], gpus[1])]
    devices = [{f"device.{key}": value for key, value in (one.device or {}).items()} for one in (before, after)]
    # A script that succeeded may never have said which device it used.
    if devices[0] and devices[1]:
        walk.found += [("hardware", *one) for one in _flat(devices[0], devices[1])]


def _gpus(nvml: Any) -> dict[str, Any]:
    """Return the driver and each GPU's name and size; which single card it was means nothing."""
    if not isinstance(nvml, Mapping) or nvml.get("status") != "available":
        return {}
    found: dict[str, Any] = {"driver": nvml.get("driver")}
    for index, gpu in enumerate(nvml.get("gpus") or ()):
        if isinstance(gpu, Mapping):
            found.update({f"gpu {index} {key}": gpu.get(key) for key in ("name", "total_bytes")})
    return found


def _metrics(walk: _Walk, before: Side, after: Side) -> None:
    if before.last_step != after.last_step and None not in (before.last_step, after.last_step):
        walk.found.append(("metrics", "last step", before.last_step, after.last_step))
    old, new = _series(before.points), _series(after.points)
    if (old or new) and not walk.both("metrics", "logged metrics", old, new):
        return
    for name in [name for name in old if name in new]:
        _metric(walk, name, old[name], new[name])


def _metric(walk: _Walk, name: str, old: list[Point], new: list[Point]) -> None:
    bad = [_not_finite(points) for points in (old, new)]
    if bad[0] != bad[1]:
        walk.found.append(("metrics", f"{name}, values not finite", bad[0], bad[1]))
    steps = [{step: value for _, step, value in points if step is not None} for points in (old, new)]
    common = steps[0].keys() & steps[1].keys()
    if common:
        last = max(common)
        a, b = steps[0][last], steps[1][last]
        if not _same(a, b):
            walk.found.append(("metrics", f"{name} at step {last:,}", _word(a), _word(b)))
    if old[-1][1] != new[-1][1] or not common:
        a, b = old[-1][2], new[-1][2]
        if not _same(a, b):
            walk.found.append(("metrics", f"{name}, last value", _word(a), _word(b)))


def _not_finite(points: Sequence[Point]) -> str:
    """Return how many of a metric's values are NaN or infinite, and since when."""
    steps = [step for _, step, value in points if not _finite(value)]
    if not steps:
        return "none"
    first = min((step for step in steps if step is not None), default=None)
    since = "" if first is None else f", the first at step {first:,}"
    return f"{len(steps):,} of {len(points):,}{since}"


def _series(points: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point[0], []).append(point)
    return found


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _same(a: Any, b: Any) -> bool:
    return bool(_word(a) == _word(b))


def _word(value: Any) -> Any:
    # A NaN is stored as NULL, and JSON has none.
    return value if _finite(value) else "nan" if value is None or value != value else repr(value)
