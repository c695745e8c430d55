"""What a capsule says of earlier runs, from real runs in a real store and a real repository."""

from __future__ import annotations

import json
import subprocess

import pytest

import watcherml
from watcherml.api.compare import compare
from watcherml.errors import InvalidValue, NotFound
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.earlier import MOST_FAILURES, find
from watcherml.store import related

OOM = (
    "CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free."
    " Of the allocated memory 70.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)
SHAPES = "mat1 and mat2 shapes cannot be multiplied (8x128 and 256x64)"
CONFIG = {"model": "gpt", "batch_size": 8, "optimizer": {"lr": 0.1}}


@pytest.fixture
def go(storage):
    """Record a run of ten steps that succeeds, or ends with the words of a failure; return its id."""

    def go(config=CONFIG, words=None, project="demo", role="user"):
        run = watcherml.Run(project, config, storage, quiet=True)
        try:
            with run:
                for step in range(10):
                    run.log({"loss": config.get("batch_size", 1) / (step + 1)}, step=step)
                if words:
                    raise RuntimeError(words)
        except RuntimeError:
            pass
        if role != "user":
            with storage.database.writing() as connection:
                connection.execute("UPDATE runs SET role = ? WHERE run_id = ?", (role, run.run_id))
        return run.run_id

    return go


def neighbours(storage, run_id):
    return Capsule.from_json(storage.evidence.capsule(run_id)["document"]).neighbours


def change(storage, sql, *values):
    with storage.database.writing() as connection:
        connection.execute(sql, values)


def test_the_first_failure_of_a_store_has_no_neighbours(storage, go):
    found = neighbours(storage, go(words=SHAPES))
    assert found.similar == () and found.nearest is None and found.problem == ""
    assert (found.failures_looked_at, found.successes_looked_at) == (0, 0)


def test_the_nearest_success_is_the_one_with_the_fewest_differences(storage, go):
    near = go({**CONFIG, "batch_size": 16})
    go({**CONFIG, "model": "bert", "batch_size": 1, "optimizer": {"lr": 5}})
    failed = go({**CONFIG, "batch_size": 64}, OOM.format(2))
    found = neighbours(storage, failed).nearest
    assert found.run_id == near and found.last_step == 9
    first = found.difference.changes[0]
    assert (first.area, first.path, first.before, first.after) == ("config", "batch_size", 16, 64)
    assert ("metrics", "loss at step 9") in {(one.area, one.path) for one in found.difference.changes}
    assert sum(part.points for part in found.parts) == found.score


def test_of_equal_successes_the_latest_is_named(storage, go):
    go()
    later = go()
    assert neighbours(storage, go(words=SHAPES)).nearest.run_id == later


def test_what_is_no_success_of_this_store_and_project_is_not_the_nearest(storage, go):
    imported, trial = go(), go(role="trial")
    change(storage, "UPDATE runs SET origin = 'imported' WHERE run_id = ?", imported)
    change(storage, "UPDATE runs SET campaign_id = 'c' WHERE run_id = ?", trial)
    go(project="other")
    go(words="an earlier failure")
    found = neighbours(storage, go(words=SHAPES))
    assert found.nearest is None and found.successes_looked_at == 0


def test_a_success_that_began_later_is_not_the_nearest(storage, go):
    failed = go(words=SHAPES)
    go()
    capsule = Capsule.from_json(storage.evidence.capsule(failed)["document"])
    assert find(capsule, storage.get_run(failed), storage).nearest is None


def test_a_success_with_nothing_in_common_is_not_named(storage, go, monkeypatch):
    go({"other": 1})
    monkeypatch.setattr("sys.argv", ["another.py"])
    change(storage, "UPDATE runs SET facts = '{}'")
    found = neighbours(storage, go(words=SHAPES))
    assert found.successes_looked_at == 1 and found.nearest is None


def test_similar_failures_are_of_the_same_class_and_the_most_alike_comes_first(storage, go):
    far = go({**CONFIG, "model": "bert"}, OOM.format(64), project="other")
    near = go({**CONFIG, "batch_size": 128}, OOM.format("2.01"))
    go(words=SHAPES)
    found = neighbours(storage, go({**CONFIG, "batch_size": 64}, OOM.format(2)))
    assert found.failures_looked_at == 2
    assert [one.run_id for one in found.similar] == [near, far][: len(found.similar)]
    first = found.similar[0]
    assert first.score == sum(part.points for part in first.parts) >= 50
    assert all(one.score <= first.score for one in found.similar)
    assert {part.name for part in first.parts if part.points == part.possible} >= {
        "where",
        "message",
        "model",
        "project",
    }


def test_what_became_of_a_similar_failure_stands_with_it(storage, go):
    earlier = go(words=SHAPES)
    change(storage, "UPDATE capsules SET resolved_at = 1, resolved_note = 'width was wrong' WHERE run_id = ?", earlier)
    found = neighbours(storage, go(words=SHAPES)).similar[0]
    assert (found.run_id, found.resolution, found.campaign_id) == (earlier, "width was wrong", "")
    change(storage, "UPDATE capsules SET resolved_at = 1, resolved_note = NULL")
    assert "without a note" in neighbours(storage, go(words=SHAPES)).similar[0].resolution


def test_somebody_elses_failure_says_so(storage, go):
    earlier = go(words=SHAPES)
    change(storage, "UPDATE runs SET origin = 'imported' WHERE run_id = ?", earlier)
    assert neighbours(storage, go(words=SHAPES)).similar[0].origin == "imported"


def test_several_capsules_of_one_run_are_one_failure_and_its_own_are_none(storage):
    def fail_twice():
        run = watcherml.Run("demo", CONFIG, storage, quiet=True).start()
        for _ in range(2):
            run.record_failure(RuntimeError(SHAPES))
        run.finish()
        return run.run_id

    first, second = fail_twice(), fail_twice()
    assert [one.run_id for one in neighbours(storage, second).similar] == [first]
    assert neighbours(storage, first).similar == ()


def test_a_trial_has_no_neighbours_of_its_own(storage, go):
    go()
    run = watcherml.Run("demo", CONFIG, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        change(storage, "UPDATE runs SET role = 'trial' WHERE run_id = ?", run.run_id)
        raise RuntimeError(SHAPES)
    assert neighbours(storage, run.run_id) is None
    assert neighbours(storage, go(words=SHAPES)).failures_looked_at == 0, "nor is it anybody's neighbour"


def test_a_search_that_fails_costs_the_capsule_nothing_else(storage, go):
    earlier = go(words=SHAPES)
    change(storage, "UPDATE capsules SET document = '{damaged' WHERE run_id = ?", earlier)
    found = neighbours(storage, go(words=SHAPES))
    assert "could not be searched" in found.problem and found.similar == ()


def test_only_so_many_failures_are_looked_at(storage, go):
    earlier = go(words=SHAPES)
    for number in range(MOST_FAILURES + 5):
        name = f"{earlier}-{number}"
        with storage.database.writing() as connection:
            columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")][1:]
            listed = ", ".join(columns)
            connection.execute(
                f"INSERT INTO runs (run_id, {listed}) SELECT ?, {listed} FROM runs WHERE run_id = ?", (name, earlier)
            )
            connection.execute(
                "INSERT INTO capsules (run_id, digest, failure_class, subkind, sentence, created_at, document)"
                " SELECT ?, digest, failure_class, subkind, sentence, created_at, document FROM capsules"
                " WHERE run_id = ?",
                (name, earlier),
            )
    found = neighbours(storage, go(words=SHAPES))
    assert found.failures_looked_at == MOST_FAILURES and len(found.similar) == 5


def test_a_capsule_sealed_before_there_were_neighbours_is_read_as_it_was(storage, go):
    run_id = go(words=SHAPES)
    capsule = Capsule.from_json(storage.evidence.capsule(run_id)["document"])
    old = capsule.replace(neighbours=None)
    assert "neighbours" not in json.loads(old.to_json())["value"] and old.digest != capsule.digest
    assert Capsule.from_json(old.to_json()) == old
    assert Capsule.from_json(capsule.to_json()) == capsule


def test_last_points_are_the_last_of_all_processes_in_order(storage, go):
    run_id = go()
    assert related.last_points(storage.database, run_id, 3) == [("loss", step, 8 / (step + 1)) for step in (7, 8, 9)]
    assert len(related.last_points(storage.database, run_id, 10_000)) == 10
    assert related.last_points(storage.database, "nobody", 5) == []


def test_uncommitted_changes_and_commits_of_a_real_repository_are_compared(storage, go, tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, cwd=tmp_path)

    git("init", "-q")
    (tmp_path / "train.py").write_text("x = 1\n")
    (tmp_path / "odd name é.py").write_text("x = 1\n")
    git("add", "train.py", "odd name é.py")
    git("commit", "-qm", "one")
    first = go()
    (tmp_path / "train.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "odd name é.py").write_text("x = 3\n")
    failed = go(words=SHAPES)
    near = neighbours(storage, failed).nearest
    changed = {one.path: one.after for one in near.difference.changes if one.area == "code"}
    assert near.run_id == first and changed["train.py"] == "+1 -0 lines, not committed"
    assert len(changed) == 2 and any(path.startswith("odd name") for path in changed)
    git("commit", "-qam", "two")
    paths = {one.path for one in compare(storage, failed, go()).difference.changes if one.area == "code"}
    assert "commit" in paths and "train.py" in paths


def test_comparing_names_what_changed_and_whose_failure_it_is_judged_by(storage, go):
    good, bad = go(), go({**CONFIG, "batch_size": 64}, OOM.format(2))
    found = compare(storage, good, bad)
    assert (found.first.status, found.second.status, found.judged_by) == ("success", "failed", bad)
    assert found.difference.changes[0].path == "batch_size" and found.difference.changes[0].suspicion == 90
    back = compare(storage, bad, good)
    assert back.judged_by == bad
    first = back.difference.changes[0]
    assert (first.before, first.after, first.suspicion) == (64, 8, 90), "what rose towards the failure"
    other = go({**CONFIG, "batch_size": 9})
    assert compare(storage, good, other).judged_by == ""


def test_comparing_refuses_what_is_no_pair_of_runs(storage, go):
    run_id = go()
    with pytest.raises(InvalidValue, match="RUN_B"):
        compare(storage, run_id, run_id)
    with pytest.raises(NotFound, match="nobody"):
        compare(storage, run_id, "nobody")
