"""Runs git so that nothing of the caller's shell or configuration bends its answers, and never waits for long."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from watcherml.platform import new_session_options

MAX_OUTPUT_BYTES = 64_000_000
STOPPED = "cut short: git had not answered when the run ended"

# A git hook starts its children with GIT_DIR and GIT_INDEX_FILE of another repository; pathspec variables change
# what our exclusions mean; an external diff replaces the patch.
_DROPPED = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_ATTR_SOURCE",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
)
_SET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",  # the reasons below are read from its messages
    "LANGUAGE": "",
}
_CONFIG = {
    "core.fsmonitor": "false",  # may name a program
    "core.hooksPath": os.devnull,  # writing an index, even a copy, calls a hook
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "core.quotePath": "true",  # headers stay ASCII, whatever the bytes of a name are
    "diff.suppressBlankEmpty": "false",
    "protocol.allow": "never",  # a partial clone would go to the network for a missing object
}
_POLL_SECONDS = 0.25
_REASONS = (
    (
        "dubious ownership",
        "git refuses the repository because its folder belongs to another user; "
        "`git config --global --add safe.directory FOLDER` allows it",
    ),
    ("not a git repository", "not inside a git repository"),
    ("must be run in a work tree", "the repository has no working tree here (bare, or inside .git)"),
)


class GitFailed(OSError):
    """Git gave no usable answer; the text is the reason for people. Never leaves this package."""


class Git:
    """Git in one folder, with one deadline for all calls together.

    ``extra`` is added to the environment of every call. Once ``stop`` is set, git is ended as at the deadline.
    """

    def __init__(
        self,
        folder: Path,
        deadline: float,
        extra: Mapping[str, str] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.folder = folder
        self.deadline = deadline
        self.stop = stop
        self._environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        self._environment.update(_SET, **(extra or {}))

    def within(self, folder: Path, extra: Mapping[str, str] | None = None) -> Git:
        """Return git in another folder under the same deadline."""
        return Git(folder, self.deadline, extra, self.stop)

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, negative when it has passed or nobody waits any more."""
        return -1.0 if self._stopped() else self.deadline - time.monotonic()

    def run(self, *arguments: str, stdin: bytes = b"", accept: tuple[int, ...] = (0,)) -> bytes:
        """Return what git writes to its output.

        Raises ``GitFailed`` where git is missing, ends with another code than ``accept`` allows, has not ended at the
        deadline, or writes more than ``MAX_OUTPUT_BYTES``.
        """
        import tempfile  # slow to import; this runs in the background, after gather.load

        settings = [part for name, value in _CONFIG.items() for part in ("-c", f"{name}={value}")]
        command = ["git", *settings, "-C", str(self.folder), *arguments]
        try:
            # Files instead of pipes: a grandchild that outlives git cannot keep us reading.
            with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as odd:
                given.write(stdin)
                given.seek(0)
                code = self._wait(command, given, said, odd)
                _check_size(said)
                said.seek(0)
                if code in accept:
                    return said.read()
                odd.seek(0)
                raise GitFailed(_reason(arguments[0], code, odd.read(4_000)))
        except FileNotFoundError as error:
            # Temporary files have no place either where no folder can be written.
            raise GitFailed("git is not installed" if error.filename == command[0] else str(error)) from error

    def text(self, *arguments: str) -> str:
        """Return one line of git's output as a file system string, without its end of line."""
        return os.fsdecode(self.run(*arguments).removesuffix(b"\n"))

    def maybe(self, *arguments: str) -> str | None:
        """Return one line of output, or None where git says no."""
        try:
            return self.text(*arguments)
        except GitFailed:
            return None

    def _stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def _late(self) -> GitFailed:
        return GitFailed(STOPPED if self._stopped() else "git did not answer in time")

    def _wait(self, command: list[str], given: IO[bytes], said: IO[bytes], odd: IO[bytes]) -> int:
        if self.seconds_left() <= 0:
            raise self._late()
        with _started(command, given, said, odd, self._environment) as process:
            while True:
                try:
                    return process.wait(max(0.001, min(_POLL_SECONDS, self.seconds_left())))
                except subprocess.TimeoutExpired:
                    if self.seconds_left() <= 0:
                        raise self._late() from None
                    _check_size(said)


@contextlib.contextmanager
def _started(
    command: list[str], given: IO[bytes], said: IO[bytes], odd: IO[bytes], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, stdin=given, stdout=said, stderr=odd, env=dict(environment), **new_session_options()
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill git with the filters and helpers that it started."""
    if os.name == "nt":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _check_size(said: IO[bytes]) -> None:
    if os.fstat(said.fileno()).st_size > MAX_OUTPUT_BYTES:
        raise GitFailed(f"git's answer is larger than {MAX_OUTPUT_BYTES} bytes")


def _reason(command: str, code: int, message: bytes) -> str:
    text = message.decode("utf-8", "replace")
    for mark, reason in _REASONS:
        if mark in text:
            return reason
    lines = [line for line in text.splitlines() if line.startswith(("fatal:", "error:"))] or text.splitlines()
    return f"git {command} ended with code {code}" + (f": {lines[0][:300]}" if lines else "")
