"""The line between a guard and its worker: the nonce that names the report goes one way, the report's digest the other.

The nonce waits in the kernel while training runs, so that no frame, object, argument, variable or file of the process
shows it; the worker takes it afterwards. The digest is sent when the report is written, so that what a thread, an exit
handler or a child does to the file later makes it invalid.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess

# Above what a training script closes when it detaches itself the old way.
_HIGH = 500
_LONGEST = 4_096


class GuardEnd:
    """The guard's end of the line; ``stdin`` is what the worker gets as its standard input."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._theirs: socket.socket | None = None
        if os.name != "nt":
            self._socket, self._theirs = socket.socketpair()

    @property
    def stdin(self) -> int:
        """What to give ``Popen``; a pipe where a socket cannot be inherited, and then no digest comes back."""
        return subprocess.PIPE if self._theirs is None else self._theirs.fileno()

    def give(self, worker: subprocess.Popen[bytes], nonce: str) -> None:
        """Leave the nonce for a worker that has just been started."""
        word = nonce.encode() + b"\n"
        try:
            if self._socket is not None and self._theirs is not None:
                self._theirs.close()
                self._socket.sendall(word)
            elif worker.stdin is not None:
                worker.stdin.write(word)
                worker.stdin.close()
        except OSError:
            pass  # it died at once; its exit says why

    def digest(self) -> str | None:
        """Return the SHA-256 that an ended worker sent of its report; None if it sent none."""
        if self._socket is None:
            return None
        self._socket.setblocking(False)
        try:
            return self._socket.recv(_LONGEST).decode("ascii", "replace") or None
        except OSError:
            return None
        finally:
            self._socket.close()

    @property
    def brings_digests(self) -> bool:
        """Whether a report without a digest is none."""
        return self._socket is not None


class WorkerEnd:
    """The worker's end. Made first of all: afterwards standard input is empty, as it is for any batch job."""

    def __init__(self) -> None:
        self._file = _moved(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def take(self) -> str:
        """Return the nonce; raises ``OSError`` if it is not there any more."""
        word = b""
        while not word.endswith(b"\n") and len(word) < _LONGEST:
            piece = os.read(self._file, 1)
            if not piece:
                break
            word += piece
        if not word.strip():
            raise OSError("the line to the guard was used by somebody else")
        return word.decode("ascii").strip()

    def seal(self, report: bytes) -> None:
        """Tell the guard what the report is."""
        if os.name != "nt":
            os.write(self._file, hashlib.sha256(report).hexdigest().encode())


def _moved(descriptor: int) -> int:
    try:
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except (ImportError, OSError):  # Windows, or fewer descriptors than that
        return os.dup(descriptor)
