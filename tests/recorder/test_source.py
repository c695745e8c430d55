"""The recorded patch takes a clean checkout to the very tree, and looking changes nothing."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from watcherml.recorder import changes, source

USER = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
CLEAN = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    **USER,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder, *arguments, check=True, **options):
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments], cwd=folder, env=CLEAN, capture_output=True, **options
    )
    assert not check or done.returncode == 0, (arguments, done.stderr.decode("utf-8", "replace"))
    return done.stdout


def write(path, data, mode=None):
    path = Path(os.fsdecode(path)) if isinstance(path, bytes) else path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    if mode is not None:
        path.chmod(mode)


def snapshot(root):
    """Every path but git's own, with kind, executable bit and content."""
    found = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        if b".git" in folders:
            folders.remove(b".git")
        for name in [*files, *(one for one in folders if os.path.islink(os.path.join(folder, one)))]:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, os.fsencode(root))
            if name == b".git":
                continue
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                found[relative] = ("link", os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:
                    found[relative] = ("x" if status.st_mode & 0o100 else "-", stream.read())
    return found


def frozen(root):
    """What must not change: the index and the objects byte for byte, and each file with its time."""
    own = {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted((root / ".git").rglob("*"))
        if path.is_file()
    }
    times = {
        os.path.join(folder, name): os.lstat(os.path.join(folder, name)).st_mtime_ns
        for folder, _, files in os.walk(root)
        for name in files
    }
    return own, times, snapshot(root)


@pytest.fixture
def repo(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    lines = "".join(f"line {number}\n" for number in range(40))
    write(root / "train.py", lines)
    write(root / "pkg" / "model.py", lines.upper())
    write(root / "weights.bin", bytes(range(256)) * 20)
    write(root / "run.sh", "#!/bin/sh\n", 0o755)
    write(root / "dos.txt", "one\r\ntwo\r\nthree\r\n")
    write(root / "latin.txt", "caf\xe9\n".encode("latin-1") * 3)
    write(root / "no-end.txt", "no newline at the end")
    write(root / "empty.txt", "")
    (root / "link").symlink_to("train.py")
    write(root / ".gitignore", "ignored/\n*.log\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def replay(root, state, target, *clone):
    """Apply the recorded patch to a clean checkout of the recorded commit."""
    if state.facts["commit"] is None:
        target.mkdir()
        git(target, "init", "-q")
    else:
        git(root.parent, "clone", "-q", *clone, str(root), str(target))
        git(target, "checkout", "-q", state.facts["commit"])
    if state.patch:
        git(target, "apply", "--whitespace=nowarn", "-", input=state.patch)
    return target


def staged(root):
    write(root / "train.py", "staged\n")
    git(root, "add", "train.py")


def unstaged(root):
    write(root / "train.py", "unstaged\n")


def staged_then_changed(root):
    staged(root)
    write(root / "train.py", "staged, then changed\n")


def staged_then_back(root):
    before = (root / "train.py").read_bytes()
    staged(root)
    write(root / "train.py", before)


def untracked(root):
    write(root / "new" / "deep" / "a.py", "new\n")
    write(root / "new" / "tool", "#!/bin/sh\n", 0o755)
    write(root / "new" / "empty", "")
    write(root / "new" / "blob.bin", bytes(range(255, -1, -1)))


def binary(root):
    write(root / "weights.bin", bytes(reversed(range(256))) * 21)


def renamed(root):
    git(root, "mv", "pkg/model.py", "pkg/net.py")
    write(root / "pkg" / "net.py", (root / "pkg" / "net.py").read_text() + "more\n")


def renamed_without_git(root):
    (root / "weights.bin").rename(root / "renamed.bin")


def deleted(root):
    (root / "train.py").unlink()
    (root / "weights.bin").unlink()
    git(root, "rm", "-q", "dos.txt")


def modes(root):
    (root / "run.sh").chmod(0o644)
    (root / "train.py").chmod(0o755)
    git(root, "add", "train.py")


def line_ends(root):
    write(root / "dos.txt", "one\r\ntwo changed\r\nthree\nfour\r")
    write(root / "no-end.txt", "other, still no newline")
    write(root / "latin.txt", "caf\xe9\nth\xe9\n".encode("latin-1"))


def odd_names(root):
    write(os.fsencode(root) + b"/caf\xe9 \xff.txt", "no UTF-8 in the name\n")
    write(root / 'quo"te\tand\nnewline.txt', "x\n")
    write(root / " b/ leading.txt", "x\n")
    write(root / ":(top)glob*[a].py", "a pathspec\n")
    write(root / "é.txt", "x\n")
    git(root, "add", "é.txt")


def links(root):
    (root / "link").unlink()
    (root / "link").symlink_to("pkg")
    (root / "nowhere").symlink_to("does/not/exist")
    (root / "train.py").unlink()
    (root / "train.py").symlink_to("pkg/model.py")


def file_becomes_folder(root):
    (root / "train.py").unlink()
    write(root / "train.py" / "__init__.py", "package\n")


def folder_becomes_link(root):
    (root / "pkg").rename(root / "lib")
    (root / "pkg").symlink_to("lib")


def out_of_the_index(root):
    git(root, "rm", "-q", "--cached", "train.py", "weights.bin")
    write(root / ".git" / "info" / "exclude", "weights.bin\n")


def link_instead_of_a_folder_out_of_the_index(root):
    git(root, "rm", "-q", "-r", "--cached", "pkg")
    folder_becomes_link(root)


def assumed_unchanged(root):
    git(root, "update-index", "--assume-unchanged", "train.py")
    git(root, "update-index", "--skip-worktree", "run.sh")
    unstaged(root)
    write(root / "run.sh", "#!/bin/bash\n", 0o755)


def intended(root):
    write(root / "intended.py", "x\n")
    git(root, "add", "-N", "intended.py")


def conflict(root):
    git(root, "checkout", "-qb", "other")
    write(root / "train.py", "theirs\n")
    git(root, "commit", "-qam", "theirs")
    git(root, "checkout", "-q", "main")
    write(root / "train.py", "ours\n")
    git(root, "commit", "-qam", "ours")
    git(root, "merge", "-q", "other", check=False)
    assert b"<<<<<<<" in (root / "train.py").read_bytes()


def conflict_with_a_deletion(root):
    conflict(root)
    (root / "train.py").unlink()


def auto_crlf(root):
    git(root, "config", "core.autocrlf", "true")
    git(root, "config", "core.safecrlf", "true")
    git(root, "rm", "-q", "-r", "--cached", "."), git(root, "reset", "-q", "--hard")
    assert b"\r\n" in (root / "train.py").read_bytes()
    write(root / "train.py", (root / "train.py").read_bytes() + b"more\r\n")
    write(root / "new.txt", "a\r\nb\r\n")


def attributes(root):
    write(root / ".gitattributes", "*.bin diff=hex\n*.py diff=python -text\nrun.sh binary\nlatin.txt diff=hex\n")
    git(root, "config", "diff.hex.textconv", "xxd")
    git(root, "config", "diff.hex.command", "false")
    binary(root)
    line_ends(root)
    write(root / "run.sh", "#!/bin/dash\n", 0o755)


def contrary_settings(root):
    write(root / "empty-order", "*.sh\n")
    for name, value in {
        "diff.external": "false", "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "core.quotePath": "false",
        "color.ui": "always", "color.diff": "always", "diff.context": "0", "diff.interHunkContext": "9",
        "diff.orderFile": str(root / "empty-order"), "diff.renames": "copies", "diff.algorithm": "patience",
        "diff.suppressBlankEmpty": "true", "diff.submodule": "log", "diff.relative": "true", "diff.wordRegex": ".",
        "core.fsmonitor": "false; exit 9", "core.pager": "false", "core.splitIndex": "true", "diff.srcPrefix": "x/",
        "diff.ignoreSubmodules": "all", "core.preloadIndex": "false", "index.version": "4", "core.untrackedCache": "1",
    }.items():  # fmt: skip
        git(root, "config", name, value)
    staged(root), binary(root), renamed(root), odd_names(root)


def hooks(root):
    for name in ("post-index-change", "pre-auto-gc", "reference-transaction"):
        write(root / ".git" / "hooks" / name, f"#!/bin/sh\ntouch {root}/hook-ran\n", 0o755)
    staged_then_changed(root), untracked(root)
    write(root / ".git" / "monitor", f"#!/bin/sh\ntouch {root}/monitor-ran\n", 0o755)
    git(root, "config", "core.fsmonitor", str(root / ".git" / "monitor"))


def everything(root):
    for change in (staged_then_changed, untracked, binary, renamed, modes, line_ends, odd_names):
        change(root)
    (root / "empty.txt").unlink()


def nothing(root):
    os.utime(root / "train.py", (1, 1))


SITUATIONS = [
    nothing, staged, unstaged, staged_then_changed, staged_then_back, untracked, binary, renamed, renamed_without_git,
    deleted, modes, line_ends, odd_names, links, file_becomes_folder, folder_becomes_link, out_of_the_index,
    link_instead_of_a_folder_out_of_the_index,
    assumed_unchanged, intended, conflict, conflict_with_a_deletion, auto_crlf, attributes, contrary_settings, hooks,
    everything,
]  # fmt: skip


@pytest.mark.parametrize("change", SITUATIONS, ids=lambda change: change.__name__)
def test_the_patch_makes_the_same_tree_and_nothing_is_touched(change, repo, tmp_path):
    change(repo)
    before = frozen(repo)
    state = source.collect(repo / "pkg" if (repo / "pkg").is_dir() else repo)
    assert frozen(repo) == before
    assert "patch_omitted" not in state.facts and "left_out" not in state.facts, state.facts
    assert state.facts["dirty"] is (change not in (nothing, staged_then_back, out_of_the_index))
    target = replay(
        repo, state, tmp_path / "clean", "-c", f"core.autocrlf={'true' if change is auto_crlf else 'false'}"
    )
    here, there = snapshot(repo), snapshot(target)
    assert there == here


def test_a_repository_without_a_commit_is_all_patch(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root / "staged.py", "a\n")
    git(root, "add", "staged.py")
    write(root / "staged.py", "b\n")
    untracked(root)
    state = source.collect(root)
    assert state.facts["commit"] is None and state.facts["branch"] == "main" and state.facts["dirty"]
    assert snapshot(replay(root, state, tmp_path / "clean")) == snapshot(root)


def test_a_repository_with_nothing_at_all(tmp_path):
    git(tmp_path, "init", "-q")
    state = source.collect(tmp_path)
    assert state.facts["dirty"] is False and state.patch == b""


def test_a_repository_with_sha256_names(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "--object-format=sha256")
    untracked(root)
    target = tmp_path / "clean"
    target.mkdir()
    git(target, "init", "-q", "--object-format=sha256")
    git(target, "apply", "-", input=source.collect(root).patch)
    assert snapshot(target) == snapshot(root)


def test_a_linked_worktree_has_a_patch_of_its_own(repo, tmp_path):
    git(repo, "worktree", "add", "-q", str(tmp_path / "second"), "-b", "second")
    second = tmp_path / "second"
    staged_then_changed(second), untracked(second), unstaged(repo)
    state = source.collect(second)
    assert state.facts["branch"] == "second"
    assert snapshot(replay(repo, state, tmp_path / "clean")) == snapshot(second)


def test_an_edit_as_young_as_the_index_is_seen(repo):
    """Same size, same time of change: only the index' own time tells that the entry may be stale."""
    git(repo, "config", "core.trustctime", "false")
    path, index = repo / "train.py", repo / ".git" / "index"
    old = 1_600_000_000
    path.write_bytes(b"one\n")
    os.utime(path, (old, old))
    git(repo, "commit", "-qam", "two")
    path.write_bytes(b"two\n")
    for one in (path, index):
        os.utime(one, (old, old))
    assert b"+two" in source.collect(repo).patch


def test_a_detached_head_and_a_subfolder(repo):
    git(repo, "checkout", "-q", "--detach")
    facts = source.collect(repo / "pkg").facts
    assert facts["branch"] is None and facts["commit"] and facts["subfolder"] == "pkg"
    assert source.head_commit(repo / "pkg") == facts["commit"] == git(repo, "rev-parse", "HEAD").decode().strip()


def test_large_secret_and_unreadable_files_are_named_and_left_out(repo, tmp_path):
    write(repo / "big.bin", b"\0" * (changes.MAX_UNTRACKED_FILE_BYTES + 1))
    write(repo / ".env", "TOKEN=abc")
    write(repo / "keys" / "id_ed25519", "private")
    write(repo / "small.py", "x\n")
    git(repo, "init", "-q", "vendored")
    write(repo / "vendored" / "a.py", "x")
    state = source.collect(repo)
    left = {one["path"]: one for one in state.facts["left_out"]}
    assert set(left) == {"big.bin", ".env", "keys/id_ed25519", "vendored/"} and state.facts["left_out_files"] == 4
    assert left["big.bin"]["sha256"] == hashlib.sha256((repo / "big.bin").read_bytes()).hexdigest()
    assert left["big.bin"]["bytes"] == changes.MAX_UNTRACKED_FILE_BYTES + 1
    assert "sha256" not in left[".env"] and "secrets" in left[".env"]["reason"]
    assert b"small.py" in state.patch and b"TOKEN" not in state.patch and b"private" not in state.patch
    assert state.facts["dirty"] and state.facts["untracked_files"] == 1


def test_untracked_files_together_stay_under_the_limit(repo, monkeypatch):
    monkeypatch.setattr(changes, "MAX_UNTRACKED_BYTES", 1_000)
    for number in range(5):
        write(repo / f"{number}.txt", b"x" * 300)
    state = source.collect(repo)
    assert state.facts["untracked_files"] == 3 and state.facts["left_out_files"] == 2
    assert state.facts["left_out_bytes"] == 600


def test_a_large_tracked_file_stays_out_and_the_rest_comes_in(repo, monkeypatch):
    monkeypatch.setattr(changes, "MAX_TRACKED_FILE_BYTES", 10_000)
    write(repo / "weights.bin", os.urandom(20_000))
    unstaged(repo)
    facts = (state := source.collect(repo)).facts
    assert [one["path"] for one in facts["left_out"]] == ["weights.bin"] and len(facts["left_out"][0]["sha256"]) == 64
    assert b"+unstaged" in state.patch and b"weights.bin" not in state.patch


def test_a_patch_over_the_limit_is_left_out_whole_with_the_reason(repo, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.git.MAX_OUTPUT_BYTES", 5_000)
    write(repo / "train.py", os.urandom(6_000))
    state = source.collect(repo)
    assert state.patch == b"" and state.facts["dirty"] and "larger than 5000 bytes" in state.facts["patch_omitted"]


def test_the_store_and_notebooks_stay_outside(repo):
    for place in (".watcherml", "deep/er/.watcherml"):
        write(repo / place / "watcherml.db", "x")
    write(repo / "deep" / "note.ipynb", "{}")
    state = source.collect(repo)
    assert state.patch == b"" and not state.facts["dirty"] and state.facts["notebooks"] == ["deep/note.ipynb"]
    git(repo, "add", "-f", ".")
    git(repo, "commit", "-qm", "two")
    write(repo / ".watcherml" / "watcherml.db", "y")
    assert "notebooks" not in source.collect(repo).facts
    os.utime(repo / "deep" / "note.ipynb", (1, 1))
    assert "notebooks" not in source.collect(repo).facts
    write(repo / "deep" / "note.ipynb", "{ }")
    state = source.collect(repo)
    assert state.patch == b"" and not state.facts["dirty"] and state.facts["notebooks"] == ["deep/note.ipynb"]


def test_a_home_folder_under_git_gives_away_nothing_untracked(repo):
    git(repo, "config", "status.showUntrackedFiles", "no")
    untracked(repo), unstaged(repo)
    state = source.collect(repo)
    assert b"+unstaged" in state.patch and b"blob.bin" not in state.patch
    assert "showUntrackedFiles" in state.facts["untracked_omitted"]


def test_submodules_are_named_with_commit_and_state(repo, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    write(inner / "lib.py", "one\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "one")
    git(repo, "submodule", "add", "-q", str(inner), "sub")
    git(repo, "submodule", "add", "-q", str(inner), "gone")
    git(repo, "commit", "-qm", "subs")
    git(repo, "submodule", "deinit", "-q", "-f", "gone")
    first = git(inner, "rev-parse", "HEAD").decode().strip()
    quiet = source.collect(repo)
    assert quiet.facts["submodules"] == [
        {"path": "gone", "recorded": first, "commit": None, "dirty": None},
        {"path": "sub", "recorded": first, "commit": first, "dirty": False},
    ]
    assert not quiet.facts["dirty"] and quiet.patch == b""
    write(repo / "sub" / "lib.py", "changed\n")
    dirty = source.collect(repo)
    assert dirty.facts["submodules"][1]["dirty"] is True and dirty.facts["dirty"] and dirty.patch == b""
    git(repo / "sub", "commit", "-qam", "two")
    unstaged(repo)
    moved = source.collect(repo)
    assert moved.facts["submodules"][1]["commit"] != first and b"Subproject commit" in moved.patch
    target = replay(repo, moved, tmp_path / "clean")
    assert (target / "train.py").read_text() == "unstaged\n"


def test_a_submodule_that_was_just_added_does_not_break_the_patch(repo, tmp_path):
    git(repo, "clone", "-q", str(repo), str(tmp_path / "inner"))
    git(repo, "submodule", "add", "-q", str(tmp_path / "inner"), "sub")
    unstaged(repo)
    target = replay(repo, source.collect(repo), tmp_path / "clean")
    assert (target / "train.py").read_text() == "unstaged\n" and (target / ".gitmodules").is_file()


def test_headers_are_ascii_whatever_the_names_are(repo):
    odd_names(repo)
    git(repo, "config", "core.quotePath", "false")
    assert source.collect(repo).patch.isascii()


def test_git_variables_of_a_hook_do_not_lead_elsewhere(repo, tmp_path, monkeypatch):
    git(tmp_path, "init", "-q", "elsewhere")
    unstaged(repo)
    for name, value in {
        "GIT_DIR": str(tmp_path / "elsewhere" / ".git"), "GIT_WORK_TREE": str(tmp_path / "elsewhere"),
        "GIT_INDEX_FILE": str(tmp_path / "index"), "GIT_EXTERNAL_DIFF": "false", "GIT_LITERAL_PATHSPECS": "1",
        "GIT_OBJECT_DIRECTORY": str(tmp_path), "GIT_DIFF_OPTS": "-u0", "GIT_PREFIX": "x/",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    state = source.collect(repo)
    assert state.facts["branch"] == "main" and b"+unstaged" in state.patch
    assert not (tmp_path / "index").exists()


def program(folder, text):
    folder.mkdir()
    write(folder / "git", f"#!/bin/sh\n{text}\n", 0o755)
    return folder


def test_where_there_is_no_repository_the_facts_say_why(repo, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def reason(folder):
        state = source.collect(folder)
        assert state.facts["status"] == "unavailable" and state.patch == b"" and source.head_commit(folder) is None
        return state.facts["reason"]

    assert reason(tmp_path) == "not inside a git repository"
    assert "cannot change to" in reason(tmp_path / "nothing")
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    assert "no working tree" in reason(tmp_path / "bare.git")
    monkeypatch.setenv("PATH", str(program(tmp_path / "broken", "echo 'fatal: disk on fire' >&2; exit 3")))
    assert reason(repo) == "git rev-parse ended with code 3: fatal: disk on fire"
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert reason(repo) == "git is not installed"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_repository_of_another_user_is_refused_with_the_remedy(repo):
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    facts = source.collect(repo).facts
    assert facts["status"] == "unavailable" and "safe.directory" in facts["reason"]


def test_a_git_that_hangs_is_ended_with_its_children(repo, tmp_path, monkeypatch):
    marker = tmp_path / "child"
    program(tmp_path / "slow", f"sleep 300 & echo $! > {marker}; wait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slow'}:{os.environ['PATH']}")
    began = time.monotonic()
    facts = source.collect(repo, timeout_seconds=1.0).facts
    assert "in time" in facts["reason"] and time.monotonic() - began < 10
    child = int(marker.read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    pytest.fail("the child of git lives on")


def test_a_filter_that_hangs_costs_the_patch_only(repo):
    write(repo / ".git" / "info" / "attributes", "train.py filter=slow\n")
    git(repo, "config", "filter.slow.clean", "sleep 300")
    unstaged(repo)
    facts = source.collect(repo, timeout_seconds=3.0).facts
    assert facts["commit"] and facts["dirty"] is not False and "in time" in facts["patch_omitted"]


def test_temporary_files_inside_the_repository_are_no_code(repo, monkeypatch):
    (repo / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(repo / "tmp"))
    state = source.collect(repo)
    assert state.patch == b"" and not state.facts["dirty"] and not list((repo / "tmp").iterdir())


def test_a_run_keeps_the_patch_byte_for_byte(repo, monkeypatch):
    import watcherml

    everything(repo)
    expected = source.collect(repo).patch
    monkeypatch.chdir(repo)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    with watcherml.Run("demo", {}, repo / ".watcherml", quiet=True) as run:
        pass
    facts = run.storage.runs.get(run.run_id)["facts"]["git"]
    assert facts["patch_is"] == "exact" and run.storage.evidence.blob(facts["patch"]) == expected


if sys.platform == "win32" or not shutil.which("git"):
    pytestmark = pytest.mark.skip("needs git and POSIX modes")
