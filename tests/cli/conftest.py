"""The program in this process, and on a real terminal."""

import os
import pty
import subprocess
import sys
import time

import pytest

from watcherml.cli.main import main

# Ctrl-C is a signal to the processes of a terminal's own session: the program has to be in it.
TAKES_THE_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def on_a_terminal():
    """Return a call that runs the program with a terminal as its three streams, which is also its controlling one.

    ``answers`` are (question's words, what is typed) in the order in which they are asked; of ``during`` (words, keys)
    the keys are pressed as soon as the words appear.
    """

    def run(*words, answers=(), during=None, seconds=90, **environment):
        outer, inner = pty.openpty()
        env = {**os.environ, "TERM": "xterm", **environment}
        command = [sys.executable, "-c", TAKES_THE_TERMINAL, "-m", "watcherml", *words]
        with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=env) as process:
            os.close(inner)
            waiting, shown, asked_at = list(answers), "", 0
            deadline = time.monotonic() + seconds
            while True:
                try:
                    chunk = os.read(outer, 65_536)
                except OSError:  # the other end is closed: the program has ended
                    break
                assert time.monotonic() < deadline, shown
                if not chunk:
                    break
                shown += chunk.decode("utf-8", "replace")
                if waiting and waiting[0][0] in shown[asked_at:]:
                    asked_at = len(shown)
                    os.write(outer, waiting.pop(0)[1].encode() + b"\n")
                if during and during[0] in shown:
                    os.write(outer, during[1].encode())
                    during = None
            code = process.wait(60)
        os.close(outer)
        assert not waiting, f"never asked: {waiting}; shown: {shown}"
        return code, shown.replace("\r\n", "\n")

    return run


@pytest.fixture
def watcher(storage, capsys):
    """Return a call that runs a command on the store and returns exit code, output and errors."""

    def run(*words):
        capsys.readouterr()
        code = main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
