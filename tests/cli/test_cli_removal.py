"""``watcher delete`` and ``watcher prune``: what is said, who is asked, and the exit codes."""

import json
from pathlib import Path

import archive_case
import pytest

from watcherml.cli.main import main
from watcherml.store.storage import Storage


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    made = Storage(tmp_path / "store")
    for number in range(3):
        archive_case.plain_run(made, f"run-{number}", points=50, started=1000.0 + number)
    return made


@pytest.fixture
def watcher(storage, capsys):
    def run(*words):
        capsys.readouterr()
        code = main(["--data-dir", str(storage.path), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def ids(storage):
    return sorted(row["run_id"] for row in storage.list_runs())


def test_without_a_terminal_nothing_goes_unless_yes_was_said(storage, watcher):
    for words in (("delete", "run-1"), ("prune", "--keep", "1"), ("delete", "run-1", "--quiet")):
        code, out, err = watcher(*words)
        assert code == 5 and out == "" and "To be deleted" in err and "metric points" in err and "--yes" in err
    code, out, err = watcher("delete", "run-1", "--format", "json")
    assert code == 5 and out == "" and json.loads(err)["error"]["code"] == "declined"
    assert ids(storage) == ["run-0", "run-1", "run-2"]


def test_delete_says_first_what_goes_and_then_what_went(storage, watcher):
    code, out, err = watcher("delete", "run-1", "--yes")
    assert code == 0 and "To be deleted: run run-1." in err and "1 run, 50 metric points" in err
    assert "about" in err and "in the database" in err
    assert "Deleted run run-1: 1 run, 50 metric points." in out and "Given back" in out
    assert ids(storage) == ["run-0", "run-2"]
    assert watcher("delete", "run-1", "--yes")[0] == 3


def test_the_document_of_a_deletion(storage, watcher):
    code, out, err = watcher("delete", "run-1", "--yes", "--format", "json")
    document = json.loads(out)
    assert code == 0 and err == "" and document["kind"] == "removal" and document["removed"] is True
    assert document["run_ids"] == ["run-1"] and document["points"] == 50 and document["deletion"] is None
    assert document["given_back_bytes"] >= 0 and document["problems"] == []


def test_a_person_is_asked_and_can_say_no(storage, on_a_terminal):
    for answer, expected in (("n", 5), ("", 5), ("yes please", 5), ("y", 0)):
        code, shown = on_a_terminal("--data-dir", str(storage.path), "delete", "run-0",
                                    answers=[("This cannot be undone. [y/N]", answer)])  # fmt: skip
        assert code == expected, shown
        assert "To be deleted: run run-0." in shown
        assert ("run-0" in ids(storage)) == (expected == 5)


def test_prune_takes_what_the_flags_say(storage, watcher):
    code, out, _ = watcher("prune", "--yes")
    assert code == 0 and out.startswith("Nothing was deleted.\n") and "3 ended runs" in out and len(ids(storage)) == 3
    code, out, _ = watcher("prune", "--keep", "1", "--yes")
    assert code == 0 and "Deleted old runs: 2 runs, 100 metric points." in out
    assert ids(storage) == ["run-2"]
    assert watcher("prune", "--older-than", "1", "--project", "other", "--yes")[0] == 0
    assert ids(storage) == ["run-2"]
    assert watcher("prune", "--older-than", "1", "--yes")[0] == 0
    assert ids(storage) == []


@pytest.mark.parametrize("words", [("--older-than", "-1"), ("--older-than", "soon"), ("--older-than", "nan"),
                                   ("--keep", "-1"), ("--keep", "1.5"), ("extra",)])  # fmt: skip
def test_flags_that_mean_nothing_are_wrong_usage(watcher, words):
    assert watcher("prune", *words)[0] == 2


def test_a_run_with_campaigns_and_who_deleted_it(storage, watcher, tmp_path):
    failed = archive_case.failed_run(storage)
    archive_case.recovered(storage, tmp_path, failed, "first")
    code, _, err = watcher("delete", failed, "--yes")
    assert code == 1 and "--campaigns" in err and "first" in err
    code, out, err = watcher("delete", failed, "--campaigns", "--yes", "--by", "Ada", "--reason", "done with it")
    assert code == 0 and "1 campaign" in out and "On record" in out and "first" in err
    with storage.database.reading() as connection:
        (row,) = connection.execute("SELECT document FROM records WHERE kind = 'deletion'").fetchall()
    value = json.loads(row[0])["value"]
    assert (value["deleted_by"], value["reason"], value["campaign_ids"]) == ("Ada", "done with it", ["first"])
    code, _, err = watcher("verify", "first")
    assert code == 3 and "Ada" in err and "deleted" in err


def test_where_there_is_no_store_there_is_nothing_to_delete(tmp_path, capsys):
    for words in (("delete", "x", "--yes"), ("prune", "--yes")):
        assert main(["--data-dir", str(tmp_path / "none"), *words]) == 1
        assert "no WatcherML store" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_store_of_01_is_not_touched(tmp_path, capsys):
    import shutil

    source = Path(__file__).resolve().parents[1] / "data" / "store-0.1"
    shutil.copytree(source, tmp_path / "old")
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    for words in (("delete", "x", "--yes"), ("prune", "--keep", "0", "--yes"), ("export", "x"), ("pack",)):
        assert main(["--data-dir", str(tmp_path / "old"), *words]) == 1
        assert "WatcherML 0.1" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()} == before
