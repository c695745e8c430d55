"""A machine that is shared: folders of other people lie above and beside one's own, and may not be looked into."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import steady_store

# Every command in one process that file permissions bind; each answer is a line.
CHILD = """
import contextlib, io, json, sys
from watcherml.cli.main import main
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    sys.stdout.write(json.dumps([code, out.getvalue(), err.getvalue()]) + "\\n")
"""
PLAN = ["prepare-recovery", steady_store.FAILED, "--entrypoint", "a:b", "--minimum-progress-steps", "3"]
# Words, exit code, and what is said; {private} is somebody else's folder, {store} one's own.
CASES = [
    (["runs"], 0, "there is no store"),
    (["failures"], 0, "there is no store"),
    (["inspect", "x"], 3, "there is no store"),
    (["runs", "--data-dir", "{private}"], 1, "may not look into"),
    (["runs", "--data-dir", "{private}/deeper"], 1, "may not look into"),
    (["import", "{private}/run.zip"], 1, "Permission denied"),
    ([*PLAN, "--data-dir", "{store}", "--project-root", "{private}/code"], 1, "project_root"),
    (
        [*PLAN, "--data-dir", "{store}", "--out", "{private}/plan.json", "--project-root", "{private}/code"],
        1,
        "project",
    ),
    (["inspect", steady_store.FAILED, "--data-dir", "{store}", "--output", "{private}/page"], 1, "--output"),
    (["export", steady_store.FAILED, "--data-dir", "{store}", "--out", "{private}/run.zip"], 1, "--out"),
]


def bound():
    """Return the words before a command that may not look into what permissions close."""
    if os.geteuid() != 0:
        return []
    rights = "-dac_override,-dac_read_search"
    words = ["setpriv", "--inh-caps", rights, "--bounding-set", rights]
    if shutil.which("setpriv") is None or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("we are root, and setpriv cannot take its right to look everywhere away")
    return words


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_a_folder_of_somebody_else_is_named_and_one_above_is_passed_over(tmp_path):
    store = str(steady_store.make(tmp_path / "own").path)
    private, mine = tmp_path / ".watcherml", tmp_path / "mine"
    private.mkdir()
    (private / "watcherml.db").touch()
    mine.mkdir()
    lines = [[word.format(private=private, store=store) for word in words] for words, _, _ in CASES]
    command = [*bound(), sys.executable, "-c", CHILD, json.dumps(lines)]
    private.chmod(0)
    try:
        done = subprocess.run(command, cwd=mine, capture_output=True, text=True, timeout=100, check=False)
    finally:
        private.chmod(0o700)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(CASES), done.stderr
    for (words, code, said), (ended, out, err) in zip(CASES, told, strict=True):
        assert (ended, "unexpected" in err) == (code, False), (words, err)
        assert said in out + err, (words, out, err)
        assert "There is one in" not in out + err, "a folder that nobody may look into is no remedy"
