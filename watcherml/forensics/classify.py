"""Which class a failure belongs to: a deterministic label, with the rule and the words that gave it.

An exception's type decides before its words (a ``KeyError`` that quotes an out-of-memory text is a ``KeyError``),
and the innermost cause decides before what wrapped it. Precisely, over one chain of exceptions:

* an explicit cause (``raise ... from``), a member of a group, or a traceback carried as text decides if a rule
  knows it, whatever its wrapper says;
* an exception that was merely being handled (``__context__``) decides if no rule knows the outer one, or if it
  was a device's memory that ran out: ``except KeyError: compute()`` must not turn an out-of-memory failure into
  a missing key, while a handler that fails after the memory ran out does not change what failed;
* notes are read last, and only where they hold a printed exception;
* Ctrl-C is no failure of the program, whatever it interrupted.

Nothing here imports a framework, and no text or exception, however broken, makes it raise.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, ClassVar

from watcherml.forensics.embedded import Link, Told, read_traceback, split_message
from watcherml.forensics.matching import FailureClass, Match, ask, clean, first_match, real, type_names
from watcherml.forensics.oom_message import SIMULATED_LABEL
from watcherml.forensics.rules import RULES, RULES_VERSION, SIMULATED
from watcherml.recorder.life import name_of
from watcherml.sealed.fields import Bound, Text
from watcherml.sealed.record import Record

NO_RULE = "none"
NO_LINK: Link = ""
MAX_CHAIN = 200  # exceptions followed in one chain
MAX_EXCEPTIONS = 1_000  # exceptions looked at in all, over groups and chains
MAX_DEPTH = 20  # groups within groups
MAX_FRAMES = 60  # innermost frames of a traceback that rules may read

Word = Annotated[str, Text(0, 100)]
TypeName = Annotated[str, Text(0, 400)]
Linked = tuple[Match | None, Link]  # a match, and how its exception relates to the next outer one


@dataclass(frozen=True, slots=True, eq=False)
class Classification(Record):
    """The class of one failure and how it was found.

    ``rule`` is the id of the deciding row of ``rules.RULES`` (``none`` if no row matched), ``matched`` the words it
    matched, and ``exception_type`` the type that carried them: the innermost one that decided, not its wrapper.
    ``subkind`` is finer than the class and may be empty; ``unclassified`` failures can have one (``host_oom``).
    """

    KIND: ClassVar[str] = "watcherml.classification"

    failure_class: FailureClass
    subkind: Word
    rule: Word
    rules_version: Annotated[int, Bound(1, 10**6)]
    matched: Annotated[str, Text(0, 200)]
    exception_type: TypeName


def classify_text(exception_type: str, message: str, traceback: str = "") -> Classification:
    """Classify a failure from what was written down: its qualified type, ``str(exception)``, its printed traceback.

    The traceback may hold a whole chain or group of exceptions; the last one in it is taken to be this one.
    """
    told = read_traceback(traceback) if traceback else []
    frames = told[-1].frames if told else traceback
    found = [*_told_matches(told[:-1]), (_judge((exception_type,), message, frames), NO_LINK)]
    return _result(_decide(found, exception_type), exception_type)


def classify_exception(exc: BaseException) -> Classification:
    """Classify an exception with its causes, contexts, group members and notes; changes nothing in it."""
    name = _type_name(type(exc))
    return _result(_decide(_links(exc, set(), 0), name), name)


def _result(match: Match | None, exception_type: str) -> Classification:
    if match is None:
        return Classification("unclassified", "", NO_RULE, RULES_VERSION, "", clean(exception_type, 400))
    rule = match.rule
    return Classification(
        rule.failure_class, rule.subkind, rule.id, RULES_VERSION, match.words, clean(match.type_name, 400)
    )


def _decide(found: Iterable[Linked], outermost: str) -> Match | None:
    """Fold a chain, innermost first, into the match that labels it; each link relates an entry to the next one."""
    if outermost.rpartition(".")[2] == "KeyboardInterrupt":
        return None
    best: Match | None = None
    explicit = True  # whether every step from ``best`` outwards is a cause
    for match, link in found:
        if match is not None and (best is None or _outranks(match, best, explicit)):
            best, explicit = match, True
        explicit = explicit and link in ("cause", "")
    return best


def _outranks(outer: Match, inner: Match, explicit: bool) -> bool:
    if inner.rule.weak and not outer.rule.weak:
        return True
    return not explicit and not inner.is_device_oom and not outer.rule.weak


def _judge(names: tuple[str, ...], message: str, frames: str) -> Match | None:
    """Return the match of one exception: of the traceback inside its message, else of its own words."""
    if SIMULATED_LABEL in message:
        return Match(SIMULATED, SIMULATED_LABEL, names[0])
    head, inner = split_message(message)
    own = first_match(RULES, type_names(names), names[0], head, frames)
    return _decide([*_told_matches(inner), (own, NO_LINK)], names[0])


def _told_matches(told: Iterable[Told]) -> list[Linked]:
    return [
        (first_match(RULES, type_names((one.type_name,)), one.type_name, one.message, one.frames), one.link)
        for one in told
    ]


def _links(exc: BaseException, seen: set[int], depth: int) -> Iterator[Linked]:
    """Yield the matches of a chain, innermost first."""
    chain: list[tuple[BaseException, Link]] = []
    current: BaseException | None = exc
    link = NO_LINK
    while current is not None and id(current) not in seen and len(chain) < MAX_CHAIN and len(seen) < MAX_EXCEPTIONS:
        seen.add(id(current))
        chain.append((current, link))
        if (cause := real(current, "__cause__")) is not None:
            current, link = cause, "cause"
        else:
            current, link = None if real(current, "__suppress_context__") else real(current, "__context__"), "context"
    for one, outward in reversed(chain):
        yield _judge_exception(one, seen, depth), outward


def _judge_exception(exc: BaseException, seen: set[int], depth: int) -> Match | None:
    name = _type_name(type(exc))
    message = _text(exc)
    if ask(exc, "simulated") is True:
        return Match(SIMULATED, clean(message, 200), name)
    members = list(_members(exc, seen, depth))
    if members:  # a device's memory speaks for the group, else its first member that a rule knows
        return min(members, key=lambda match: (match.rule.weak, not match.is_device_oom))
    bases = tuple(
        _type_name(base) for base in type.__dict__["__mro__"].__get__(type(exc)) if issubclass(base, BaseException)
    )
    own = _judge((name, *bases), message, _frames(real(exc, "__traceback__")))
    return own or _judge_notes(exc, name)


def _members(exc: BaseException, seen: set[int], depth: int) -> Iterator[Match]:
    members = ask(exc, "exceptions")
    if depth >= MAX_DEPTH or not isinstance(members, (list, tuple)):
        return
    for member in members[:MAX_CHAIN]:
        if isinstance(member, BaseException):
            match = _decide(_links(member, seen, depth + 1), _type_name(type(member)))
            if match is not None:
                yield match


def _judge_notes(exc: BaseException, name: str) -> Match | None:
    notes = ask(exc, "__notes__")
    for note in notes[:MAX_CHAIN] if isinstance(notes, (list, tuple)) else ():
        if not isinstance(note, str):
            continue
        if SIMULATED_LABEL in note:
            return Match(SIMULATED, SIMULATED_LABEL, name)
        match = _decide(_told_matches(read_traceback(note)), name)
        if match is not None:
            return match
    return None


def _frames(traceback: TracebackType | None) -> str:
    """Return the innermost frames as a traceback prints them, with the source line of the last one."""
    frames: list[TracebackType] = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    lines = [
        f'  File "{one.tb_frame.f_code.co_filename}", line {one.tb_lineno}, in {one.tb_frame.f_code.co_name}'
        for one in frames[-MAX_FRAMES:]
    ]
    if frames:
        last = frames[-1]
        lines.append("    " + linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno or 0).strip())
    return "\n".join(lines)


def _type_name(kind: type) -> str:
    module, name = ask(kind, "__module__"), ask(kind, "__qualname__") or name_of(kind)
    return name if module in ("builtins", None) or not isinstance(module, str) else f"{module}.{name}"


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except BaseException:  # noqa: BLE001 - an exception's own __str__ may do anything, and the type still tells something
        return ""
