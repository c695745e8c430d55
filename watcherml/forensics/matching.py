"""How one classification rule reads one exception: its type first, then its words outside quotations."""

from __future__ import annotations

import builtins
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

FailureClass = Literal[
    "cuda_out_of_memory",
    "nan_or_exploding_loss",
    "tensor_shape_mismatch",
    "missing_file_or_dataset_path",
    "dataloader_worker_failure",
    "device_mismatch",
    "dependency_or_cuda_compatibility",
    "unclassified",
    "simulated_out_of_memory",
]
ANY_TYPE = "*"
FIRST_LINE = r"\A\s{0,20}[^\n]{0,200}"  # the pattern of a rule that needs nothing but the type
TEXT_LIMIT = 20_000  # characters read at each end of a message; longer ones are logs

_NEUTRAL = frozenset({"Exception", "BaseException", "RuntimeError"})
_BUILTINS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
) | {"ExceptionGroup", "BaseExceptionGroup"}  # a newer worker may send what Python 3.10 does not have
_TELLING_ENDINGS = (
    "KeyError", "ValueError", "TypeError", "IndexError", "AttributeError", "FileNotFoundError",
    # Not built in, but they quote what they could not read: a log, a message.
    "DecodeError", "ParserError", "ParseError", "ValidationError", "UsageError", "BadParameter", "IntegrityError",
    "CalledProcessError", "HTTPError",
)  # fmt: skip
_WRAPPED = re.compile(r"\w{1,80}\((\w{1,80})\)")
# An opening mark follows no letter and a closing one precedes none, so that "can't" quotes nothing.
_QUOTED = re.compile(r"(?<!\w)(['\"`])(?:(?!\1)[^\n]){1,500}\1(?!\w)")


@dataclass(frozen=True)
class Rule:
    """One row of the table: which exceptions it reads, what must stand in their text, and why that decides.

    ``types`` holds names as ``type_names`` gives them, or ``*``. ``quoted`` lets the pattern look into quotation
    marks; ``frames`` must be found in the traceback as well; ``weak`` marks a rule that yields to any other one in
    the same chain of exceptions.
    """

    id: str
    failure_class: FailureClass
    subkind: str
    types: frozenset[str]
    pattern: re.Pattern[str]
    why: str
    quoted: bool = False
    frames: re.Pattern[str] | None = None
    weak: bool = False


@dataclass(frozen=True)
class Match:
    """A rule that matched, the words it matched (at most 200 characters), and the type that carried them."""

    rule: Rule
    words: str
    type_name: str

    @property
    def is_device_oom(self) -> bool:
        """Whether the match says that a device's memory, real or simulated, ran out."""
        return self.rule.failure_class in ("cuda_out_of_memory", "simulated_out_of_memory")


_CLASSES: dict[str, FailureClass] = {
    "simulated": "simulated_out_of_memory",
    "cuda": "cuda_out_of_memory",
    "nan": "nan_or_exploding_loss",
    "shape": "tensor_shape_mismatch",
    "file": "missing_file_or_dataset_path",
    "worker": "dataloader_worker_failure",
    "device": "device_mismatch",
    "build": "dependency_or_cuda_compatibility",
    "none": "unclassified",
}


def rule(
    outcome: str,
    types: str,
    why: str,
    *patterns: str,
    frames: str = "",
    quoted: bool = False,
    weak: bool = False,
    any_case: bool = False,
    variant: str = "",
) -> Rule:
    """Return a row: ``outcome`` is ``class/subkind`` in short words, any one of ``patterns`` suffices.

    The id is the outcome and the ``variant``, so that two rows of one outcome differ in it.
    """
    kind, _, subkind = outcome.partition("/")
    rule_id = outcome.replace("/", "-").replace("_", "-") + (f"-{variant}" if variant else "")
    return Rule(
        rule_id,
        _CLASSES[kind],
        subkind,
        frozenset(types.split()),
        re.compile("|".join(patterns), re.IGNORECASE if any_case else 0),
        why,
        quoted=quoted,
        frames=re.compile(frames) if frames else None,
        weak=weak,
    )


def type_names(names: Iterable[str]) -> frozenset[str]:
    """Return what rules may ask about an exception whose type (and bases, where known) have these dotted names.

    The result holds each bare name, each ``package.Name``, the built-in that a name ends in, and ``runtime``
    unless a built-in that never reports a device's state (``KeyError``, ``ValueError`` ...) is among them:
    frameworks raise ``RuntimeError``, plain ``Exception`` and types of their own, and trainers wrap those in more.
    """
    found: set[str] = set()
    runtime = True
    for name in names:
        module, _, last = name.rpartition(".")
        wrapped = _WRAPPED.fullmatch(last)
        if wrapped:  # ray.exceptions.RayTaskError(OutOfMemoryError)
            module, last = "", wrapped[1]
        root = module.partition(".")[0]
        builtin = _as_builtin(last)
        found.update((last, builtin or last, f"{root}.{last}"))
        if last == "OutOfMemoryError" and not root:  # written down without its module
            found.add("torch.OutOfMemoryError")
        runtime = runtime and builtin is None
    return frozenset(found | {"runtime"} if runtime else found)


@functools.lru_cache(maxsize=1_000)
def _as_builtin(last: str) -> str | None:
    if last in _NEUTRAL:
        return None
    if last in _BUILTINS:
        return last
    return next((ending for ending in _TELLING_ENDINGS if last.endswith(ending)), None)


def first_match(
    rules: Iterable[Rule], types: frozenset[str], type_name: str, message: str, frames: str = ""
) -> Match | None:
    """Return the first rule that reads these types and finds its pattern, or ``None``.

    ``frames`` is the text of this exception's own traceback, empty if unknown. Takes time linear in the text.
    """
    if len(message) > 2 * TEXT_LIMIT:
        message = message[:TEXT_LIMIT] + "\n" + message[-TEXT_LIMIT:]
    plain = _QUOTED.sub(lambda quotation: " " * len(quotation[0]), message)
    for rule in rules:
        if ANY_TYPE not in rule.types and types.isdisjoint(rule.types):
            continue
        found = rule.pattern.search(message if rule.quoted else plain)
        if found and (rule.frames is None or rule.frames.search(frames[-TEXT_LIMIT:])):
            return Match(rule, clean(message[found.start() : found.end()].strip(), 200), type_name)
    return None


def clean(text: str, limit: int) -> str:
    """Return the text cut to ``limit`` characters, with what UTF-8 cannot say replaced."""
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


def ask(owner: object, name: str) -> Any:
    """Return an attribute of an object that is not ours, or ``None``; a property of its own may do anything."""
    try:
        return getattr(owner, name, None)
    except BaseException:  # noqa: BLE001 - whatever a foreign property raises, an exit included, it has no answer
        return None


def real(error: BaseException, name: str) -> Any:
    """Return what every exception has, such as ``__cause__``; a class of its own may answer for it with anything."""
    return BaseException.__dict__[name].__get__(error)
