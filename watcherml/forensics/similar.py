"""How alike two failures are, and how near a success is to a failed run: points out of 100, part by part.

A part earns its points only if both sides state it: what is not known on either side earns nothing, so that little
evidence never looks like a close match. All parts stand beside the total, so that a person can disagree.

Failures of one class (another class is never called similar):

    subkind 15      the same, and not empty
    exception 5     the same type
    message 20      for memory: 20 if the requests differ by less than a tenth, 12 within a factor of two, 5 within 4;
                    for the rest: the same words with numbers and quotations taken out
    where 25        the same file and function; 8 for the same file
    phase 15        the same, and known
    device 10       the same kind and capacity; 5 for the same kind
    model 5         the configuration names the same model
    project 5       the same

A success beside a failed run, of the same project:

    config 50       the share of values that are equal
    code 15         the same commit and uncommitted changes; 8 for the same commit
    data 10         the same dataset fingerprint
    packages 10     the share of packages with the same version
    device 10       the same kind and name; 5 for the same kind
    command 5       the same script and arguments
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from watcherml.errors import InvalidValue
from watcherml.forensics.difference import Side
from watcherml.forensics.neighbours import Part
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.paths import leaves

SCORE_VERSION = 1
LEAST_ALIKE = 50  # points from which an earlier failure is worth a line
LEAST_NEAR = 25  # points from which a success says anything about this run
MOST_SIMILAR = 5

_MODEL_KEYS = ("model", "model.name", "model_name", "model_name_or_path", "model.type", "architecture", "arch")


class Earned(NamedTuple):
    """One part of a score before it is put on record: its points of ``possible``, and both sides in words."""

    name: str
    points: int
    possible: int
    says: str


@dataclass(frozen=True)
class Failure:
    """What the score reads of one failure. ``where`` is ``file:line in function``; None and "" are not known."""

    failure_class: str
    subkind: str
    exception_type: str
    message: str
    where: str
    phase: str
    device_kind: str
    capacity_bytes: int | None
    requested_bytes: int | None
    project: str
    config: Any = None


def score_failures(now: Failure, earlier: Failure) -> tuple[Earned, ...]:
    """Return the parts of the score of an earlier failure of the same class; their points add up to it."""
    return (
        _equal("subkind", 15, now.subkind, earlier.subkind),
        _equal("exception", 5, now.exception_type, earlier.exception_type),
        _message(now, earlier),
        _where(now.where, earlier.where),
        _equal("phase", 15, _known(now.phase), _known(earlier.phase)),
        _device(
            (_known(now.device_kind), now.capacity_bytes),
            (_known(earlier.device_kind), earlier.capacity_bytes),
            "bytes",
        ),
        _equal("model", 5, model_of(now.config), model_of(earlier.config)),
        _equal("project", 5, now.project, earlier.project),
    )


def score_success(failed: Side, success: Side) -> tuple[Earned, ...]:
    """Return the parts of the score of a success beside a failed run; their points add up to it."""
    data = [one.part("dataset").get("fingerprint") for one in (failed, success)]
    packages = [_mapping(one.part("environment").get("packages")) for one in (failed, success)]
    commands = [_text(one.facts.get("argv")) for one in (failed, success)]
    devices = [
        (_known(str(one.get("kind", ""))), one.get("name")) for one in (failed.device or {}, success.device or {})
    ]
    return (
        _share("config", 50, leaves(failed.config), leaves(success.config), "values"),
        _code(failed, success),
        _equal("data", 10, data[0], data[1]),
        _share("packages", 10, packages[0], packages[1], "versions"),
        _device(devices[0], devices[1], "name"),
        _equal("command", 5, commands[0], commands[1]),
    )


def total(parts: Sequence[Earned]) -> int:
    """Return the score of 0 to 100."""
    return sum(part.points for part in parts)


def parts_of(parts: Sequence[Earned]) -> tuple[Part, ...]:
    """Return a score's parts as they are put on record."""
    return tuple(Part(*part) for part in parts)


def model_of(config: Any) -> str:
    """Return the model that a configuration names, empty if none."""
    for path in _MODEL_KEYS:
        value = config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            return value
    return ""


def shape_of(message: str) -> str:
    """Return a message with numbers, addresses and quotations taken out: what two failures of one kind share."""
    text = re.sub(r"(['\"`])(?:(?!\1)[^\n]){1,200}\1", "'_'", message[:4_000])
    text = re.sub(r"0x[0-9a-f]+|\d[\d.,]*", "#", text)
    # Shapes of another rank are still the same words.
    return " ".join(re.sub(r"#(?:\s*[x,]\s*#)+", "#", text).split())


def _message(now: Failure, earlier: Failure) -> Earned:
    if now.requested_bytes and earlier.requested_bytes:
        low, high = sorted((now.requested_bytes, earlier.requested_bytes))
        points = 20 if high < 1.1 * low else 12 if high <= 2 * low else 5 if high <= 4 * low else 0
        return Earned(
            "message", points, 20, f"requests of {earlier.requested_bytes:,} and {now.requested_bytes:,} bytes"
        )
    words = [shape_of(one.message) for one in (earlier, now)]
    same = bool(words[0]) and words[0] == words[1]
    return Earned("message", 20 if same else 0, 20, "the same words" if same else "other words")


def _where(now: str, earlier: str) -> Earned:
    places = [_place(one) for one in (earlier, now)]
    if not all(places):
        return Earned("where", 0, 25, "not known on both sides")
    same_file, same = places[0][0] == places[1][0], places[0] == places[1]
    return Earned("where", 25 if same else 8 if same_file else 0, 25, _both(earlier, now))


def _place(where: str) -> tuple[str, ...]:
    found = re.fullmatch(r"(.+?)(?::\d+)?(?: in (.+))?", where)
    return (found[1], found[2] or "") if found else ()


def _code(failed: Side, success: Side) -> Earned:
    old, new = success.part("git"), failed.part("git")
    if not old.get("commit") or not new.get("commit"):
        return Earned("code", 0, 15, "not known on both sides")
    if old["commit"] != new["commit"]:
        return Earned("code", 0, 15, _both(old["commit"][:12], new["commit"][:12]))
    same = old.get("patch") == new.get("patch") and old.get("dirty") == new.get("dirty")
    return Earned("code", 15 if same else 8, 15, "the same" if same else "the same commit, other uncommitted changes")


def _device(now: tuple[str, Any], earlier: tuple[str, Any], what: str) -> Earned:
    if not now[0] or not earlier[0]:
        return Earned("device", 0, 10, "not known on both sides")
    if now[0] != earlier[0]:
        return Earned("device", 0, 10, _both(earlier[0], now[0]))
    same = now[1] is not None and now[1] == earlier[1]
    return Earned("device", 10 if same else 5, 10, f"both {now[0]}, {'the same' if same else 'another'} {what}")


def _equal(name: str, possible: int, now: Any, earlier: Any) -> Earned:
    if not now or not earlier:
        return Earned(name, 0, possible, "not known on both sides")
    if now == earlier:
        return Earned(name, possible, possible, f"both {str(now)[:200]}")
    return Earned(name, 0, possible, _both(earlier, now))


def _share(name: str, possible: int, now: Mapping[str, Any], earlier: Mapping[str, Any], what: str) -> Earned:
    keys = now.keys() | earlier.keys()
    if not now or not earlier:
        return Earned(name, 0, possible, "not known on both sides")
    equal = sum(key in now and key in earlier and _same(now[key], earlier[key]) for key in keys)
    # Rounded down: the full points are for no difference at all.
    return Earned(name, possible * equal // len(keys), possible, f"{equal:,} of {len(keys):,} {what} are the same")


def _same(a: Any, b: Any) -> bool:
    # A list holds what == does not tell apart: True and 1.
    if type(a) is not type(b) or a != b or not isinstance(a, (list, tuple)):
        return type(a) is type(b) and a == b
    try:
        return canonical_bytes(a) == canonical_bytes(b)
    except (InvalidValue, RecursionError):  # what no record could hold
        return True


def _both(earlier: object, now: object) -> str:
    return f"{str(earlier)[:200]} then, {str(now)[:200]} now"


def _known(word: str) -> str:
    return "" if word in ("unknown", "none") else word


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else ""
