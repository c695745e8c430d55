"""The program in this process, and on a real terminal."""

import os
import pty
import subprocess
import sys
import time

import pytest

from watcherml.cli.main import main


@pytest.fixture
def on_a_terminal():
    """Return a call that runs the program with a terminal as its three streams.

    ``answers`` are (question's words, what is typed) in the order in which they are asked; ``during`` is called once
    with the process and what has been shown, as soon as its words appear.
    """

    def run(*words, answers=(), during=None, seconds=90, **environment):
        outer, inner = pty.openpty()
        env = {**os.environ, "TERM": "xterm", **environment}
        command = [sys.executable, "-m", "watcherml", *words]
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
                    during[1](process)
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
