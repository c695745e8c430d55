"""An ending that lies in the store's folder is believed as far as it fits, and harms nothing else."""

import json
import os
import shutil
import sqlite3
import threading
import time

import pytest

import watcherml
from watcherml.recorder import artifacts
from watcherml.store import aside
from watcherml.store.kept import Kept
from watcherml.store.sound import hearing
from watcherml.store.storage import Storage

END = {"status": "success", "reason": "forged", "at": 1.0, "last_step": None}
CAPSULE = {"digest": "d", "failure_class": "oom", "subkind": "", "sentence": "forged", "created_at": 1.0,
           "document": "{}"}  # fmt: skip
ARTIFACT = {"path": "/p", "size_bytes": 1, "sha256": None, "at": 1.0}
NAME = "a.99999999-abcdef.ending"


def document(run_id, **more):
    return json.dumps({"format": 1, "run_id": run_id, "end": END, **more})


@pytest.fixture
def ended(storage):
    with watcherml.Run("demo", {}, storage, quiet=True, run_id="a") as run:
        run.log_metric("x", 1.0)
    return storage


def change(storage, text, *values):
    with storage.database.writing() as connection:
        connection.execute(text, values)


def test_a_forged_ending_removes_nothing_outside_the_folder(ended):
    spool, outside = ended.runs.spool_folder, ended.path.parent
    victims = [outside / "model.best-17.pt", outside / "thesis.1-a.points", ended.path / "x.1-a.points"]
    for one in victims:
        one.write_text("precious")
    forged = {"best-z.ending": "../../model", "*-z.ending": "../../*", "x.1-a.ending": "../x", "1-a.ending": "*"}
    for name, run_id in forged.items():
        (spool / name).write_text(document(run_id))
    ended.settle()
    assert [one.read_text() for one in victims] == ["precious"] * 3
    assert {one.name for one in spool.iterdir()} == set(forged)


@pytest.mark.parametrize("row", [{"status": "success"}, {"status": "failed"}, {"origin": "imported"},
                                 {"campaign_id": "c", "trial_id": "t", "status": "running"}])  # fmt: skip
def test_a_forged_ending_adds_nothing_to_a_run_that_is_not_its_own(ended, row):
    for name, value in row.items():
        change(ended, f"UPDATE runs SET {name} = ?, pid = 99999998", value)
    before = ended.runs.get("a")
    text = document("a", facts={"git": {"commit": "forged"}}, capsules=[CAPSULE], artifacts=[ARTIFACT])
    (ended.runs.spool_folder / NAME).write_text(text)
    ended.runs.take_endings()
    assert ended.runs.get("a") == before and ended.runs.artifacts("a") == []
    with ended.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM capsules").fetchone()[0] == 0


ODD = {
    "another name": document("b"), "row of another run": document("a", run={"run_id": "b"}),
    "row is text": document("a", run="abc"), "huge step": document("a", end={**END, "last_step": 2**70}),
    "huge time": document("a", end={**END, "at": 10**400}), "no time": document("a", end={**END, "at": float("nan")}),
    "running": document("a", end={**END, "status": "running"}), "more of an end": document("a", end={**END, "x": 1}),
    "capsules": document("a", capsules=[7]), "true": document("a", capsules=True), "facts": document("a", facts=[1]),
    "column": document("a", artifacts=[{**ARTIFACT, "artifact_id": 1}]), "blob": document("a", blobs=[["a", "b", 1]]),
    "another's artifact": document("a", artifacts=[{**ARTIFACT, "run_id": "b"}]), "deep": "[" * 200_000,
}  # fmt: skip


def make_odd(path, how):
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "link":
        path.symlink_to("/nowhere")
    else:
        path.write_text(ODD[how])


@pytest.mark.parametrize("how", [*ODD, "folder", "pipe", "link"])
def test_an_odd_ending_is_left_alone_and_hides_no_run(ended, how, monkeypatch):
    change(ended, "UPDATE runs SET status = 'killed'")
    make_odd(ended.runs.spool_folder / NAME, how)
    assert aside.read(ended.runs.spool_folder / NAME) is None
    assert ended.runs.take_endings() == [] and os.path.lexists(ended.runs.spool_folder / NAME)
    assert [row["status"] for row in ended.list_runs()] == ["killed"]
    monkeypatch.setattr("watcherml.store.database.Database._permitted", lambda self: False)
    assert [row["status"] for row in Storage(ended.path).list_runs()] == ["killed"]


@pytest.mark.parametrize("how", ["folder", "pipe", "link", "names", "deep names", "header"])
def test_an_odd_journal_is_left_alone_and_hides_no_other(ended, how, monkeypatch):
    change(ended, "UPDATE runs SET status = 'running', pid = 99999999")
    spool = ended.runs.spool_folder
    (spool / "a.99999999-ab.jsonl").write_text('["y", 1.0, null, 1.0]\n["y", 1%s, null, 1.0]\n' % ("0" * 400))
    odd = spool / "a.99999999-aa.000000.points"
    if how in ("folder", "pipe", "link"):
        make_odd(odd, how)
    else:
        from watcherml.store.spool import HEADER, RECORD

        header = b"not ours".ljust(RECORD.size) if how == "header" else HEADER
        odd.write_bytes(header + RECORD.pack(1.0, 1.0, 0, 0, 1))
        names = {"names": "[1]\n", "deep names": "[" * 200_000 + "\n", "header": '"x"\n'}
        (spool / "a.99999999-aa.names").write_text(names[how])
    with hearing() as heard:
        with monkeypatch.context() as patch:
            patch.setattr("watcherml.store.database.Database._permitted", lambda self: False)
            assert [one["name"] for one in Storage(ended.path).get_metrics("a")] == ["x", "y"]
        ended.settle()
        assert ended.runs.get("a")["status"] == "killed" and os.path.lexists(odd)
        assert [one["name"] for one in ended.get_metrics("a")] == ["x", "y"]
    assert any(odd.name in one for one in heard) == odd.is_file()


def test_what_is_refused_while_a_document_is_taken_is_still_kept():
    kept = Kept()
    kept.watch("a")
    held = kept.of("a")
    held.note({"git": 1}, None)
    held.facts_refused = True
    held.capsules.append({"digest": "1"})
    kept.refused_blob("1", "text", b"1")
    supplied = kept.to_data("a")
    held.note({"dataset": 1}, None)
    held.capsules.append({"digest": "2"})
    kept.refused_blob("2", "text", b"2")
    kept.settled("a", supplied)
    assert held.facts_refused and held.capsules == [{"digest": "2"}] and list(kept._blobs) == ["2"]
    kept.settled("a", kept.to_data("a"))
    assert not kept.owes("a")


def test_a_checksum_that_comes_after_the_store_was_removed_goes_to_its_own_file(storage, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "LARGE_BYTES", 1000)
    let, real = threading.Event(), artifacts._file_checksum

    def slow(found):
        if found.size_bytes > 1000:
            let.wait(20)
        return real(found)

    monkeypatch.setattr(artifacts, "_file_checksum", slow)
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.join_facts()
    (tmp_path / "big").write_bytes(b"B" * 5000)
    (tmp_path / "small").write_bytes(b"s")
    (tmp_path / "early").write_bytes(b"e")
    run.log_artifact(tmp_path / "early")
    run.log_artifact(tmp_path / "big")
    while storage.path.exists():  # another thread may close its connection, and its log's file goes meanwhile
        shutil.rmtree(storage.path, ignore_errors=True)
    run._sampler._deliver(*run._sampler.sample())
    run.log_artifact(tmp_path / "small")
    let.set()
    run.finish()
    found = {os.path.basename(one["path"]): one["sha256"] for one in storage.runs.artifacts(run.run_id)}
    expected = {name: real(artifacts.look(tmp_path / name)) for name in ("big", "small", "early")}
    assert found == expected and run.problems == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_does_not_wait_for_a_thread_that_waits_for_a_lock(storage):
    storage.create()
    holder = sqlite3.connect(storage.database.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    thread = threading.Thread(target=change, args=(storage, "UPDATE runs SET title = 'x'"))
    thread.start()
    time.sleep(0.5)
    codes = []
    for _ in range(4):
        began, child = time.monotonic(), os.fork()
        if not child:
            try:
                os._exit(len(Storage(storage.path).list_runs()))  # 0: it may use the store
            finally:
                os._exit(1)
        assert time.monotonic() - began < 1.5  # a fork gives up after 2 seconds
        codes.append(os.waitpid(child, 0)[1])
    holder.execute("ROLLBACK")
    holder.close()
    thread.join(30)
    assert codes == [0] * 4 and not thread.is_alive()


def test_prune_keeps_an_ending_of_a_later_version(ended):
    from watcherml.store import removal

    path = ended.runs.spool_folder / "later.99999999-abcdef.ending"
    path.write_text('{"format": 2}')
    os.utime(path, (1, 1))
    with ended.database.reading() as connection:
        assert removal.orphans(connection, ended.path, lambda pid: True) == []
