"""The progress line is for people: late, short, gone at the end, and never in a file."""

import io
import os
import pty
import subprocess
import sys

from watcherml.recorder.progress import Progress, is_watched


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream, seconds):
    now = [0.0]
    with Progress("hashing", 10, 1000, stream, lambda: now[0]) as progress:
        for _ in range(10):
            progress.add(1, 100)
            now[0] += seconds / 10
            progress.show()
    return stream.getvalue()


def test_work_of_less_than_two_seconds_says_nothing():
    assert run(Terminal(), 1.9) == ""


def test_longer_work_shows_files_bytes_and_percent_and_clears_the_line():
    text = run(Terminal(), 10)
    assert "\rWatcherML: hashing 5 of 10 files, 500 B of 1000 B, 50 %" in text and "\n" not in text
    assert text.endswith("\r") and text.split("\r")[-2].strip() == ""


def test_nothing_is_written_where_nobody_looks():
    assert run(io.StringIO(), 100) == ""


def test_a_closed_stream_does_not_end_the_work():
    stream = Terminal()
    now = [0.0]
    with Progress("hashing", 1, 1, stream, lambda: now[0]) as progress:
        now[0] = 5
        progress.show()
        stream.close()
        now[0] = 9
        progress.show()
    assert not is_watched(None)


class Tee:
    """What scripts put in the place of a stream: write and flush, and no more."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


class Broken(Tee):
    def isatty(self):
        return True

    def write(self, text):
        raise AttributeError("no file")


def test_any_object_may_stand_in_for_a_stream(monkeypatch):
    for stream in (Tee(), Broken(), object(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        now = [0.0]
        with Progress("hashing", 1, 1, clock=lambda now=now: now[0]) as progress:
            for now[0] in (5, 9):
                progress.show()
        assert is_watched(stream) is isinstance(stream, Broken)
    assert is_watched(None) is False


def test_empty_work_and_more_than_announced_have_a_percentage():
    progress = Progress("hashing", 0, 0)
    assert progress.line().endswith("0 %")
    progress.add(5, 10)
    assert progress.line().endswith("100 %")


CODE = """
import sys
from watcherml.recorder.progress import Progress
now = 0.0
def clock():
    return now
with Progress("hashing", 1, 1, clock=clock) as progress:
    now = 5.0
    progress.show()
"""


def test_a_real_terminal_and_a_real_pipe():
    parent, child = pty.openpty()
    subprocess.run([sys.executable, "-c", CODE], stderr=child, check=True)
    assert b"hashing 0 of 1" in os.read(parent, 4096)
    os.close(parent), os.close(child)
    assert subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stderr == b""
