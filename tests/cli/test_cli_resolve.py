"""``watcher resolve``: the mark on a failure, what it says, and what it never changes."""

import json
import sqlite3
import threading

import pytest

import watcherml
from watcherml.api.resolve import resolve
from watcherml.errors import InvalidValue

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


@pytest.fixture
def failed(failed_run):
    return failed_run()


def document(watcher, *words):
    code, out, err = watcher(*words, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_resolved_failure_leaves_the_list_of_unresolved_ones(failed, watcher):
    code, out, _ = watcher("resolve", failed, "--by", "ann", "--note", "smaller batch")
    assert code == 0 and out.startswith("Marked the failure") and "by ann: smaller batch" in out
    assert document(watcher, "failures", "--unresolved")["failures"] == []
    (row,) = document(watcher, "failures")["failures"]
    assert (row["resolved_by"], row["resolved_note"]) == ("ann", "smaller batch") and row["resolved_at"] > 1e9
    assert "resolved" in watcher("failures")[1] and "No failures" in watcher("failures", "--unresolved")[1]
    assert "by ann: smaller batch" in watcher("inspect", failed)[1]
    assert document(watcher, "inspect", failed)["resolution"]["resolved_by"] == "ann"


def test_a_mark_stays_until_it_is_taken_away(failed, watcher):
    first = document(watcher, "resolve", failed, "--by", "ann", "--note", "one")
    again = document(watcher, "resolve", failed, "--by", "bob", "--note", "two")
    assert (first["changed"], again["changed"]) == (True, False)
    assert {**again, "changed": True} == first
    code, out, _ = watcher("resolve", failed, "--note", "three")
    assert code == 0 and "marked already" in out and "--reopen" in out and "by ann: one" in out
    opened = document(watcher, "resolve", failed, "--reopen")
    assert opened["resolved"] is False and opened["resolved_at"] is None and opened["before"]["resolved_by"] == "ann"
    assert document(watcher, "resolve", failed, "--reopen")["changed"] is False
    assert len(document(watcher, "failures", "--unresolved")["failures"]) == 1
    assert document(watcher, "inspect", failed)["resolution"] == {
        "resolved_at": None, "resolved_by": None, "resolved_note": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nobody"], 3, "no run 'nobody'"),
        (["GOOD"], 3, "has no capsule"),
        (["BAD", "--reopen", "--note", "x"], 2, "--reopen"),
        (["BAD", "--reopen", "--by", "x"], 2, "--reopen"),
        (["BAD", "--note", "x" * 2_001], 1, "--note"),
        (["BAD", "--by", "x" * 401], 1, "--by"),
        ([], 2, "RUN_ID"),
    ],
    ids=["unknown", "no failure", "reopen and note", "reopen and by", "long note", "long name", "no id"],
)
def test_what_cannot_be_marked_is_refused_and_nothing_changes(words, code, told, failed, storage, watcher):
    with watcherml.Run("demo", {}, storage, quiet=True) as good:
        pass
    names = {"GOOD": good.run_id, "BAD": failed}
    got, out, err = watcher("resolve", *(names.get(word, word) for word in words))
    assert (got, out) == (code, "") and told in err
    assert len(document(watcher, "failures", "--unresolved")["failures"]) == 1


def test_without_a_store_nothing_is_created(storage, watcher):
    code, _, err = watcher("resolve", "some-run")
    assert code == 3 and "there is no store" in err and not storage.path.exists()


def test_a_secret_in_the_note_never_reaches_the_store(failed, storage, watcher):
    out = watcher("resolve", failed, "--note", f"it was token={SECRET} all along")[1]
    assert "all along" in out and SECRET not in out
    held = b"".join(path.read_bytes() for path in storage.path.rglob("*") if path.is_file())
    assert SECRET.encode() not in held and b"all along" in held


def test_the_mark_changes_neither_capsule_nor_plan_nor_what_an_export_says(failed, storage, watcher, tmp_path):
    prepare = ("prepare-recovery", failed, "--entrypoint", "ent:train", "--minimum-progress-steps", "5")
    assert watcher(*prepare, "--out", "plan.json")[0] == 0
    assert watcher("export", failed, "--out", "before.zip")[0] == 0
    before = storage.evidence.capsule(failed)["document"]
    assert watcher("resolve", failed, "--note", "done")[0] == 0
    assert storage.evidence.capsule(failed)["document"] == before
    assert watcher("verify", "plan.json")[0] == 0 and watcher("verify", "before.zip")[0] == 0
    assert watcher("export", failed, "--out", "after.zip")[0] == 0
    assert (tmp_path / "before.zip").read_bytes() == (tmp_path / "after.zip").read_bytes()


def test_a_run_that_fails_again_after_it_was_resolved_is_open_again(failed, storage, watcher):
    watcher("resolve", failed, "--note", "first time")
    row = storage.evidence.capsule(failed)
    storage.evidence.add_capsule(
        failed, digest=row["digest"], failure_class=row["failure_class"], subkind=row["subkind"],
        sentence="Again.", document=row["document"], at=row["created_at"] + 1,
    )  # fmt: skip
    assert [one["sentence"] for one in document(watcher, "failures", "--unresolved")["failures"]] == ["Again."]
    watcher("resolve", failed, "--note", "second time")
    notes = {one["sentence"]: one["resolved_note"] for one in document(watcher, "failures")["failures"]}
    assert notes["Again."] == "second time" and sorted(notes.values()) == ["first time", "second time"]


def test_of_two_people_who_mark_at_once_one_is_first_and_both_are_told_the_same(failed, storage):
    barrier, answers = threading.Barrier(4), []

    def mark(name):
        barrier.wait()
        answers.append(resolve(failed, by=name, storage=storage))

    threads = [threading.Thread(target=mark, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 4 and sum(one.changed for one in answers) == 1
    assert len({(one.resolved_by, one.resolved_at) for one in answers}) == 1


def test_a_name_of_blanks_is_no_name(failed, storage):
    with pytest.raises(InvalidValue, match="--by"):
        resolve(failed, by="   ", storage=storage)
    connection = sqlite3.connect(storage.database.path)
    assert connection.execute("SELECT resolved_at FROM capsules").fetchall() == [(None,)]
    connection.close()
