"""Real file systems for tests: a small or read-only mount, and a process that permissions bind even if we are root."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def mounted(folder, size):
    """Mount a tmpfs of a size such as ``2m`` on a folder; skips the test where that is not permitted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True,
                          text=True, check=False) if shutil.which("mount") else None  # fmt: skip
    if done is None or done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip() if done else 'no mount command'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def read_only(folder):
    """Remount what lies at a folder read-only for the block."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)


def bound_by_permissions():
    """Return the words before a command that make file permissions count for it."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--inh-caps", "-dac_override", "--bounding-set", "-dac_override"]
    if shutil.which("setpriv") is None or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("we are root, and setpriv cannot take its right to write everywhere away")
    return words
