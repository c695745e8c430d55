"""Mirroring to a real MLflow store in SQLite: what arrives there, how often, and what a broken tracker costs."""

import math
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

import watcherml
from watcherml.errors import InvalidValue, NotFound

pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")  # mlflow-skinny leaves it to the person; a server needs none here

import mlflow
from builders import FAILED_CONFIG, good_trials, trial
from stored import record, recorded_plan, rename

from watcherml.adapters.mlflow import MLflowSink

# How MLflow asks its own database is its own affair.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

SECRET = "sk-proj-9f3aQ7xLmZp2vB8nR4tY6wK1sD5gH0jC"
OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 19.06 MiB is"
    " free."
)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """One tracking store of all tests: making its tables takes a second and more."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    for name in ("demo", "mirror"):
        mlflow.MlflowClient(uri).create_experiment(name, artifact_location=(folder / "artifacts" / name).as_uri())
    return uri


@pytest.fixture
def client(uri):
    return mlflow.MlflowClient(uri)


def failed(storage, **config):
    with pytest.raises(RuntimeError), watcherml.Run("mirror", config, storage, quiet=True) as run:
        for step in range(3):
            run.log_metric("loss", 1.0 / (step + 1), step=step)
        run.log_metric("acc@1", float("nan"), step=2)
        raise RuntimeError(f"{OOM} (with {SECRET})")
    return run


def recovered(storage):
    """Put one verified recovery on record; returns its source's id and its chain."""
    plan = recorded_plan(storage, FAILED_CONFIG)
    trials = (*good_trials(plan), trial(plan, "control", 6, outcome="oom"))
    return plan.source.run_id, record(storage, "recovery-1", plan, rename(trials, "recovery-1"))


def history(client, there, name):
    return [(one.step, one.value) for one in client.get_metric_history(there, name)]


def count(client, run_id):
    number = client.get_experiment_by_name("mirror").experiment_id
    return len(client.search_runs([number], f"tags.`watcherml.run_id` = '{run_id}'"))


def test_a_failed_run_arrives_with_parameters_metrics_status_and_failure(storage, uri, client):
    run = failed(storage, batch_size=64, optimizer={"lr": 0.1, "betas": [0.9, 0.95]}, api_key=SECRET)
    there = client.get_run(MLflowSink(storage, tracking_uri=uri).mirror(run.run_id))
    assert there.info.status == "FAILED" and there.info.run_name == run.run_id
    assert there.info.start_time == int(1000 * storage.get_run(run.run_id)["started_at"])
    params = there.data.params
    assert (params["batch_size"], params["optimizer.lr"], params["optimizer.betas"]) == ("64", "0.1", "[0.9, 0.95]")
    assert params["api_key"].startswith("[redacted")
    assert history(client, there.info.run_id, "loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    (odd,) = [name for name in there.data.metrics if name.startswith("acc_1_")]  # MLflow allows no @
    assert math.isnan(there.data.metrics[odd])
    tags = there.data.tags
    assert tags["watcherml.failure.class"] == "cuda_out_of_memory"
    capsule = storage.get_capsule(run.run_id)
    assert tags["watcherml.failure.sentence"] == tags["mlflow.note.content"] == capsule["headline"]
    assert tags["watcherml.failure.shortfall_bytes"] == str(capsule["diagnosis"]["shortfall_bytes"])
    assert tags["watcherml.failure.step"] == "2"
    assert SECRET not in repr(there)


def test_mirroring_again_repeats_nothing_and_adds_what_is_new(storage, uri, client):
    sink = MLflowSink(storage, tracking_uri=uri)
    with watcherml.Run("mirror", {"lr": 1}, storage, quiet=True) as run:
        run.log_metric("loss", 1.0, step=0)
        there = sink.mirror(run.run_id)
        assert client.get_run(there).info.status == "RUNNING"
        run.log_metric("loss", 0.5, step=1)
    for _ in range(2):
        assert MLflowSink(storage, tracking_uri=uri).mirror(run.run_id) == there
    assert history(client, there, "loss") == [(0, 1.0), (1, 0.5)]
    assert count(client, run.run_id) == 1 and client.get_run(there).info.status == "FINISHED"


def test_points_that_were_sent_before_a_break_are_not_doubled(storage, uri, client):
    run = failed(storage)
    sink = MLflowSink(storage, tracking_uri=uri)
    there = sink.mirror(run.run_id)
    client.set_tag(there, "watcherml.mirrored_point", "1")  # as if it had ended before the note of the page
    sink.mirror(run.run_id)
    assert history(client, there, "loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]


def test_a_verdict_arrives_with_the_sealed_result_and_a_tag_there_changes_nothing_here(storage, uri, client):
    source, verified = recovered(storage)
    sink = MLflowSink(storage, tracking_uri=uri)
    there = sink.mirror(source)
    tags = client.get_run(there).data.tags
    assert (tags["watcherml.recovery.status"], tags["watcherml.recovery.standing"]) == ("verified", "on_record")
    newest = storage.audit.campaign(tags["watcherml.recovery.campaign_id"])
    assert tags["watcherml.recovery.reason"] == newest["reason_code"]
    folder = f"watcherml/{newest['campaign_id']}"
    (kept,) = [one.path for one in client.list_artifacts(there, folder)]
    document = Path(client.download_artifacts(there, kept)).read_bytes()
    sealed = watcherml.RecoveryResult.from_json(document, storage=storage)
    assert (sealed.standing, sealed.status) == ("on_record", newest["status"])
    # Somebody edits the tracker: the store says what it said, and the next mirror puts the tag right.
    client.set_tag(there, "watcherml.recovery.status", "forged")
    before = watcherml.RecoveryResult.from_json(verified.to_json(), storage=storage).verified
    sink.mirror(source)
    assert client.get_run(there).data.tags["watcherml.recovery.status"] == newest["status"]
    assert watcherml.RecoveryResult.from_json(verified.to_json(), storage=storage).verified is before is True


def test_a_verdict_that_does_not_follow_from_its_trials_is_not_told_as_verified(storage, uri, client):
    source, _ = recovered(storage)
    sink = MLflowSink(storage, tracking_uri=uri)
    there = sink.mirror(source)
    assert client.get_run(there).data.tags["watcherml.recovery.status"] == "verified"
    with closing(sqlite3.connect(storage.database.path)) as connection, connection:
        connection.execute("DROP TRIGGER records_never_change")
        connection.execute(
            "UPDATE records SET document = replace(document, 'completed', 'complete_') WHERE kind <> 'recovery-verdict'"
        )
    assert storage.audit.campaign("recovery-1")["status"] == "verified"  # the row alone still says so
    sink.mirror(source)
    assert client.get_run(there).data.tags["watcherml.recovery.status"] == "unrecorded"
    with closing(sqlite3.connect(storage.database.path)) as connection, connection:
        connection.execute("UPDATE records SET document = replace(document, 'verified', 'Verified')")
    with pytest.warns(Warning, match="verdict on record"):
        sink.mirror(source)
    assert client.get_run(there).data.tags["watcherml.recovery.status"] == "unrecorded"


SCRIPT = """
import sys
import watcherml
from watcherml.adapters.mlflow import MLflowSink

with watcherml.init("mirror", {}) as run:
    MLflowSink(tracking_uri=sys.argv[1]).follow(run, exit_seconds=300)
    run.log_metric("loss", 1.0, step=1)
"""


@pytest.mark.long
def test_a_script_that_ends_at_once_waits_for_its_mirror(storage, tmp_path, uri, client):
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py", uri], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    (row,) = storage.list_runs()
    number = client.get_experiment_by_name("mirror").experiment_id
    (there,) = client.search_runs([number], f"tags.`watcherml.run_id` = '{row['run_id']}'")
    assert there.info.status == "FINISHED" and there.data.metrics == {"loss": 1.0}


def test_a_run_is_followed_until_it_has_ended(storage, uri, client):
    sink = MLflowSink(storage, tracking_uri=uri, every_seconds=0.1)
    with watcherml.Run("mirror", {}, storage, quiet=True) as run:
        following = sink.follow(run)
        run.log_metric("loss", 1.0, step=0)
    assert following.wait(300)
    number = client.get_experiment_by_name("mirror").experiment_id
    (there,) = client.search_runs([number], f"tags.`watcherml.run_id` = '{run.run_id}'")
    assert there.info.status == "FINISHED" and there.data.metrics == {"loss": 1.0}
    assert "watcherml-mirror" not in [one.name for one in threading.enumerate()]


def test_another_rank_follows_nothing(storage, uri, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    following = MLflowSink(storage, tracking_uri=uri).follow("demo-no-such-run")
    assert following.close() and following.wait()


def test_a_tracker_that_does_not_answer_until_the_end_is_a_warning_too(storage, uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = MLflowSink(storage, tracking_uri=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with watcherml.Run("mirror", {}, storage, quiet=True) as run:
            following = sink.follow(run)
        request, _ = silent.accept()
        with request, pytest.warns(RuntimeWarning, match="could not mirror run .* not done within"):
            assert not following.close(0.01)
    assert following.wait(300)


@pytest.mark.parametrize("broken", ["sqlite:///{}/file/nowhere.db", "http://127.0.0.1:9"])
def test_a_tracker_that_fails_is_one_warning_and_training_goes_on(storage, tmp_path, uri, monkeypatch, broken):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (tmp_path / "file").write_text("")
    sink = MLflowSink(storage, tracking_uri=broken.format(tmp_path), every_seconds=0.1)
    with pytest.warns(RuntimeWarning, match="could not mirror") as told:
        with watcherml.Run("mirror", {}, storage, quiet=True) as run:
            following = sink.follow(run)
            run.log_metric("loss", 1.0, step=0)
        assert following.wait(300)
        assert sink.mirror(run.run_id) is None
    assert len([one for one in told if "could not mirror" in str(one.message)]) == 1
    assert storage.get_run(run.run_id)["status"] == "success" and len(storage.get_metrics(run.run_id)) == 1
    assert MLflowSink(storage, tracking_uri=uri).mirror(run.run_id) is not None


def test_a_run_that_the_store_does_not_have_is_an_error(storage, uri):
    storage.create()
    with pytest.raises(NotFound, match="no run"):
        MLflowSink(storage, tracking_uri=uri).mirror("demo-no-such-run")


@pytest.mark.parametrize("every", [0, -1, True, "5", float("nan")])
def test_an_interval_that_is_none_is_refused(storage, every):
    with pytest.raises(InvalidValue, match="every_seconds: expected a number above 0"):
        MLflowSink(storage, every_seconds=every)


def test_names_that_mlflow_refuses_stay_apart(storage, uri, client):
    names = ["a", "a@1", "a#1", "a_1", "../up", "/top", "x" * 256, "loss/train", "ü"]
    with watcherml.Run("mirror", {}, storage, quiet=True) as run:
        for number, name in enumerate(names):
            run.log_metric(name, number, step=number)
    metrics = client.get_run(MLflowSink(storage, tracking_uri=uri).mirror(run.run_id)).data.metrics
    assert sorted(metrics.values()) == list(range(len(names)))
    assert {"a", "a_1", "loss/train"} <= set(metrics)
