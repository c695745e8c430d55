"""What a process says when another rank of its job is gone: an echo of a failure, and never its cause.

Where one rank fails, the others learn of it at their next collective, by a connection that has closed or an answer that
never comes. The words are those of gloo, of NCCL and of the store of torch.distributed (torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from watcherml.errors import NotFound
from watcherml.forensics.capsule import Capsule
from watcherml.recorder import ranks
from watcherml.recorder.run import Run

_TYPES = re.compile(
    r"(?:.*\.)?(?:RuntimeError|Dist\w*Error|ConnectionError|ConnectionResetError|ConnectionAbortedError"
    r"|BrokenPipeError|TimeoutError)"
)
_WORDS = re.compile(
    r"gloo/[^\n]{0,200}\b(?:Connection (?:closed|reset) by peer|Broken pipe|Connection refused|Timed out waiting)\b"
    r"|\bConnection (?:closed|reset) by peer\b[^\n]{0,100}\bremote worker crashing\b"
    r"|\bNCCL communicator was aborted\b|\bnccl(?:Remote|System)Error\b"
    r"|\bremote process exited or there was a network error\b"
    r"|\bWatchdog caught collective operation timeout\b"
    r"|\bfailed to recv, got 0 bytes\b|\bDid the remote server shutdown or crash\b"
    r"|\bConnection reset by peer\b|\bBroken pipe\b"
)
_MOST_TEXT = 2_000


def is_echo(exception_type: str, message: str) -> bool:
    """Whether these are the words by which one rank learns that another one is gone."""
    return _TYPES.fullmatch(exception_type) is not None and _WORDS.search(message[:_MOST_TEXT]) is not None


def has_cause_on_record(run: Run, capsule: Capsule) -> bool:
    """Whether a capsule only echoes the failure of another rank whose own capsule is on record with the job's run.

    The last capsule of a run counts, and the echo comes last.
    """
    failure = capsule.failure
    if failure.class_ != "unclassified" or not is_echo(failure.exception_type, failure.message):
        return False
    if ranks.here() is None and "job" not in run.storage.runs.get(run.run_id)["facts"]:
        return False
    try:
        there: Mapping[str, Any] = run.storage.get_capsule(run.run_id)["failure"]
    except NotFound:
        return False
    return not is_echo(str(there["exception_type"]), str(there["message"]))


def note_echo(run: Run, capsule: Capsule) -> None:
    """Keep with the run what a rank was told, where that is no capsule of its own."""
    place = ranks.here()
    name = "another rank is gone" if place is None else f"another rank is gone, says rank {place.rank}"
    said = f"{capsule.failure.exception_type}: {capsule.failure.message}"[:_MOST_TEXT]
    run.storage.runs.note(run.run_id, {name: {"error": said, "at": capsule.created_at}})
