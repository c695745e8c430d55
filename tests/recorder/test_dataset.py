"""A dataset's fingerprint: what it covers, what it leaves out, and when a remembered hash counts."""

import hashlib
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from watcherml.errors import InvalidValue
from watcherml.recorder import dataset, file_cache, file_tree

OLD = 1_600_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return file_cache.cache_file()


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "data"
    for name, text in {"a.txt": "a", "sub/b.txt": "b", "sub/deep/c.bin": "c" * 300_000, ".hidden": "h"}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def value(path, **options):
    return dataset.fingerprint(path, **options)["fingerprint"]


def test_the_fingerprint_of_a_file_is_its_sha256(tmp_path):
    path = tmp_path / "a.bin"
    for size in (0, 1, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3_000_000):
        path.write_bytes(os.urandom(size))
        expected = hashlib.sha256(path.read_bytes()).hexdigest()
        assert dataset.fingerprint(path) == {"fingerprint": f"sha256:{expected}", "files": 1, "bytes": size}
        assert dataset.hash_file(path) == (size, expected)


def test_the_definition_of_a_folders_fingerprint_is_fixed(data):
    """Fingerprints are compared between versions: sorted by path bytes, `path NUL size NUL hex LF`."""
    for name in ("sub-1", "sub.txt", "Z", "é", *"zyxwvuts"):
        (data / name).write_text(name)
    names = sorted(path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file())
    text = "".join(
        f"{name}\0{(data / name).stat().st_size}\0{hashlib.sha256((data / name).read_bytes()).hexdigest()}\n"
        for name in names
    )
    assert value(data) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert dataset.fingerprint(data) == {"fingerprint": value(data), "files": 16, "bytes": 300_026}


def moved(data):
    shutil.move(data, data.with_name("elsewhere"))
    return data.with_name("elsewhere")


def copied(data):
    shutil.copytree(data, data.with_name("copy"))
    return data.with_name("copy")


def behind_a_link(data):
    data.with_name("link").symlink_to(data)
    return data.with_name("link")


def read_only(data):
    (data / "a.txt").chmod(0o400)


def with_our_own_and_gits_files(data):
    for name in (".git", ".watcherml", "sub/.git", "sub/.watcherml"):
        (data / name).mkdir()
        (data / name / "x").write_text("x")
    (data / "sub" / "deep" / ".git").write_text("gitdir: elsewhere")


def with_an_empty_folder(data):
    (data / "empty").mkdir()


UNCHANGED = {
    "moved": moved,
    "copied": copied,
    "touched": lambda data: [os.utime(path, (1, 1)) for path in data.rglob("*")] and None,
    "through a link": behind_a_link,
    "other permissions": read_only,
    "our own and git's files": with_our_own_and_gits_files,
    "an empty folder": with_an_empty_folder,
    "a relative path": lambda data: os.chdir(data.parent) or Path("data/../data/"),
}


@pytest.mark.parametrize("change", UNCHANGED)
def test_what_is_no_content_changes_nothing(change, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = value(data)
    assert value(UNCHANGED[change](data) or data) == before


CHANGED = {
    "edited": lambda data: (data / "a.txt").write_text("A"),
    "renamed": lambda data: (data / "a.txt").rename(data / "A.txt"),
    "moved within": lambda data: (data / "a.txt").rename(data / "sub" / "a.txt"),
    "added": lambda data: (data / "new").write_text(""),
    "deleted": lambda data: (data / "a.txt").unlink(),
    "a hidden file": lambda data: (data / ".hidden").write_text("H"),
    "two contents swapped": lambda data: ((data / "a.txt").write_text("b"), (data / "sub" / "b.txt").write_text("a")),
    "other normal form": lambda data: (data / "e\u0301").write_text("") and (data / "é").write_text(""),
}


@pytest.mark.parametrize("change", CHANGED)
def test_what_is_content_changes_it(change, data):
    before = value(data)
    CHANGED[change](data)
    assert value(data) != before


def test_names_count_as_bytes(data):
    (data / "\u00e9").write_text("x")
    composed = value(data)
    (data / "\u00e9").rename(data / "e\u0301")
    assert value(data) != composed
    with open(os.fsencode(data) + b"/\xff\xfe\n", "wb") as stream:
        stream.write(b"x")
    assert dataset.fingerprint(data)["files"] == 6


# -- links --------------------------------------------------------------------------------------------------


def test_links_inside_count_as_what_they_lead_to(data):
    (data / "file-link").symlink_to("sub/b.txt")
    (data / "folder-link").symlink_to(data / "sub")
    linked = value(data)
    for name in ("file-link", "folder-link"):
        (data / name).unlink()
    shutil.copy(data / "sub" / "b.txt", data / "file-link")
    shutil.copytree(data / "sub", data / "folder-link")
    assert value(data) == linked


def test_links_by_full_path_may_be_moved_along(data):
    (data / "link").symlink_to(data / "a.txt")
    (data / "broken").symlink_to(data / "nothing")
    before = dataset.fingerprint(data)
    assert before["links_broken"] == ["broken"] and before["links_broken_count"] == 1
    new = data.with_name("new")
    data.rename(new)
    for name, target in (("link", "a.txt"), ("broken", "nothing")):
        (new / name).unlink()
        (new / name).symlink_to(new / target)
    assert dataset.fingerprint(new) == before


def test_a_link_that_leaves_the_folder_counts_by_its_text_and_is_named(data, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("x")
    (data / "out").symlink_to("../outside/x")
    (data / "out-folder").symlink_to(tmp_path / "outside")
    facts = dataset.fingerprint(data)
    assert facts["links_outside"] == ["out", "out-folder"] and facts["files"] == 6
    (tmp_path / "outside" / "x").write_text("changed")
    assert dataset.fingerprint(data) == facts
    (data / "out").unlink()
    (data / "out").symlink_to("../outside/y")
    assert value(data) != facts["fingerprint"]


def test_a_folder_beside_with_a_longer_name_is_outside(data, tmp_path):
    (tmp_path / "data-2").mkdir()
    (data / "out").symlink_to(tmp_path / "data-2")
    assert dataset.fingerprint(data)["links_outside"] == ["out"]


def test_circles_of_links_end(data):
    before = value(data)
    (data / "loop").symlink_to(".")
    (data / "sub" / "deep" / "up").symlink_to("..")
    facts = dataset.fingerprint(data)
    assert facts["fingerprint"] == before and facts["links_circular"] == ["loop", "sub/deep/up"]
    (data / "x").symlink_to("y")
    (data / "y").symlink_to("x")
    facts = dataset.fingerprint(data)
    assert facts["links_broken"] == ["x", "y"] and facts["fingerprint"] != before
    (data / "shortcut").symlink_to("sub/deep")
    assert "shortcut/up/deep" in dataset.fingerprint(data)["links_circular"]


def test_links_that_multiply_the_tree_are_refused(data, monkeypatch):
    monkeypatch.setattr(file_tree, "MAX_FOLLOWED_FOLDERS", 500)
    for one in range(8):
        (data / f"d{one}").mkdir()
        for other in range(8):
            (data / f"d{one}" / f"to{other}").symlink_to(f"../d{other}")
    with pytest.raises(InvalidValue, match="at most 500 folders reached through symbolic links"):
        value(data)


# -- what cannot be read --------------------------------------------------------------------------------------


def test_special_files_are_skipped_and_named(data):
    before = value(data)
    os.mkfifo(data / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(data)
        server.bind("sock")
        facts = dataset.fingerprint(data)
    assert facts["special"] == ["pipe", "sock"] and facts["fingerprint"] == before


BAD = {
    "missing": (lambda folder: folder / "nothing", "an existing file or folder; got .*nothing"),
    "under a file": (lambda folder: (folder / "f").write_text("") or folder / "f" / "x", "an existing file or folder"),
    "empty": (lambda folder: folder, "at least one file"),
    "only folders": (lambda folder: (folder / "a" / "b").mkdir(parents=True) or folder, "at least one file"),
    "a pipe": (lambda folder: os.mkfifo(folder / "p") or folder / "p", "a device, pipe or socket"),
    "a device": (lambda folder: Path("/dev/null"), "a device, pipe or socket"),
    "no text": (lambda folder: "", "existing file or folder; got an empty text"),
    "with a NUL": (lambda folder: "a\0b", "an existing file or folder"),
    "too long": (lambda folder: "x" * 5000, "name too long|existing file"),
    "links in a circle": (lambda folder: (folder / "l").symlink_to("l") or folder / "l", "existing file|symbolic"),
    "no path": (lambda folder: None, "a path; got NoneType"),
    "an unknown home": (lambda folder: "~no-such-user-here/x", "existing file"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_path_that_holds_no_data_is_refused(case, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    make, message = BAD[case]
    with pytest.raises(InvalidValue, match=f"(?i)dataset path.*({message})"):
        dataset.fingerprint(make(tmp_path / "here"))


UNREADABLE = """
import os, sys
from watcherml.errors import InvalidValue
from watcherml.recorder import dataset
dataset.fingerprint(os.__file__)  # all imports are done before it becomes somebody else
os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        print(dataset.fingerprint(path))
    except InvalidValue as error:
        print(error)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_unreadable_file_or_folder_is_named(data):
    public = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp") / f"unreadable-{os.getpid()}"
    try:
        for name in ("file", "folder"):
            shutil.copytree(data, public / name)
        (public / "file" / "sub" / "b.txt").chmod(0)
        (public / "folder" / "sub").chmod(0)
        (public / "top").mkdir(mode=0)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, *(str(public / name) for name in ("file", "folder", "top/x"))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(public)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all("Permission denied" in line for line in lines), done
    assert "sub/b.txt" in lines[0] and "folder/sub" in lines[1] and "permissions" in lines[0]


def test_a_file_that_is_written_to_meanwhile_is_named_and_not_remembered(data, monkeypatch):
    real = file_tree.walk

    def walk_and_write(root):
        tree = real(root)
        (data / "a.txt").write_text("longer")
        return tree

    monkeypatch.setattr(dataset, "walk", walk_and_write)
    facts = dataset.fingerprint(data)
    assert facts["changing"] == ["a.txt"] and facts["changing_count"] == 1
    monkeypatch.undo()
    assert "changing" not in dataset.fingerprint(data)


# -- the cache ------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Names of the files whose content is read."""
    names = []
    real = file_tree.hash_entry

    def noted(entry, *rest):
        names.append(entry.name)
        return real(entry, *rest)

    monkeypatch.setattr(file_tree, "hash_entry", noted)
    return names


@pytest.fixture
def settled(data, monkeypatch):
    """Data of some time ago: the clock that the cache compares with goes ahead by a minute."""
    real = time.time_ns
    monkeypatch.setattr(dataset.time, "time_ns", lambda: real() + 60_000_000_000)
    return data


def test_an_unchanged_file_is_read_once(settled, reads, cache):
    first = dataset.fingerprint(settled)
    assert len(reads) == 4
    reads.clear()
    assert dataset.fingerprint(settled) == first and reads == []
    (settled / "a.txt").write_text("z")
    assert value(settled) != first["fingerprint"] and reads == ["a.txt"]
    reads.clear()
    dataset.fingerprint(settled / "a.txt")
    assert reads == []
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600 and stat.S_IMODE(cache.parent.stat().st_mode) == 0o700


def test_a_file_that_took_anothers_place_is_read_again(settled, reads):
    before = value(settled)
    path = settled / "a.txt"
    status = path.stat()
    (settled.parent / "other").write_text("z")
    os.utime(settled.parent / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
    (settled.parent / "other").replace(path)
    reads.clear()
    assert value(settled) != before and reads == ["a.txt"]


def test_an_edit_that_restores_size_and_time_is_seen(settled):
    path = settled / "a.txt"
    os.utime(path, (OLD, OLD))
    before = value(settled)
    for _ in range(3):
        time.sleep(0.01)
        path.write_text("z")
        os.utime(path, (OLD, OLD))
        assert value(settled) != before
        time.sleep(0.01)
        path.write_text("a")
        os.utime(path, (OLD, OLD))
        assert value(settled) == before


def test_a_young_file_is_never_remembered(data, reads):
    dataset.fingerprint(data)
    reads.clear()
    dataset.fingerprint(data)
    assert len(reads) == 4


def test_verify_reads_everything_and_mends_the_cache(settled, reads, cache):
    honest = value(settled)
    with sqlite3.connect(cache) as connection:
        connection.execute("UPDATE files SET sha256 = zeroblob(32) WHERE name = ?", (b"a.txt",))
    connection.close()
    assert value(settled) != honest
    reads.clear()
    assert value(settled, verify=True) == honest and len(reads) == 4
    assert value(settled) == honest


def broken(cache):
    cache.write_bytes(b"this is no database" * 100)


def torn(cache):
    data = bytearray(cache.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    cache.write_bytes(data)


def newer(cache):
    connection = sqlite3.connect(cache)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def of_everybody(cache):
    cache.chmod(0o666)


def a_folder(cache):
    cache.unlink()
    cache.mkdir()


def a_link(cache):
    cache.rename(cache.with_name("real"))
    cache.symlink_to("real")


def without_tables(cache):
    connection = sqlite3.connect(cache)
    connection.executescript("DROP TABLE files; DROP TABLE folders;")
    connection.close()


def emptied(cache):
    cache.write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [broken, torn, newer, of_everybody, a_folder, a_link, without_tables, emptied], ids=lambda d: d.__name__
)
def test_a_cache_in_any_state_is_no_error(damage, settled, cache, reads):
    honest = value(settled)
    damage(cache)
    reads.clear()
    assert value(settled) == honest and value(settled) == honest
    assert len(reads) >= 4
    if damage in (broken, emptied):
        reads.clear()
        assert value(settled) == honest and reads == []


def test_a_locked_cache_is_no_error(settled, cache):
    honest = value(settled)
    holder = sqlite3.connect(cache, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    (settled / "new").write_text("new")
    began = time.monotonic()
    assert value(settled) != honest and time.monotonic() - began < 5
    holder.close()


def test_no_place_for_a_cache_is_no_error(settled, monkeypatch, tmp_path):
    honest = value(settled)
    (tmp_path / "file").write_text("")
    for place in (str(tmp_path / "file"), "/proc/nowhere", "/dev/null"):
        monkeypatch.setenv("XDG_CACHE_HOME", place)
        assert value(settled) == honest


def test_the_cache_never_lies_in_the_data(data, monkeypatch):
    before = value(data)
    monkeypatch.setenv("XDG_CACHE_HOME", str(data))
    assert value(data) == before and not (data / "watcherml").exists()


def test_a_relative_cache_folder_is_not_used(data, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert file_cache.cache_file().is_relative_to(tmp_path / "home")


def test_many_processes_share_a_cache(settled, cache):
    code = "import sys; from watcherml.recorder import dataset; print(dataset.fingerprint(sys.argv[1])['fingerprint'])"
    for path in settled.rglob("*"):
        os.utime(path, (OLD, OLD))
    time.sleep(2.1)
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(settled)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]  # fmt: skip
    assert {worker.communicate(timeout=60)[0].strip() for worker in workers} == {value(settled)}
    with sqlite3.connect(cache) as connection:
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (4,)
    connection.close()


def test_an_interrupt_ends_the_work_and_keeps_what_was_read(settled, monkeypatch, cache):
    def interrupted(self):
        raise KeyboardInterrupt

    (settled / "large").write_bytes(os.urandom(40_000_000))
    monkeypatch.setattr("watcherml.recorder.progress.Progress.show", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dataset.fingerprint(settled)
    monkeypatch.undo()
    assert value(settled) == value(settled, verify=True)
