"""A run from start to end: statuses, the exception that stays the same, and bad input that is named."""

import math
import subprocess
import sys
import traceback
import warnings

import pytest

import watcherml
from watcherml.errors import InvalidValue, RunError


def start(storage, config=None, **options):
    return watcherml.Run("demo", config, storage, quiet=True, **options).start()


def test_a_run_that_ends_well(storage, capsys, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hello")
    (tmp_path / "model.pt").write_bytes(b"weights")
    with watcherml.init("demo", {"lr": 0.1}, storage) as run:
        run.set_dataset("data")
        for step in range(3):
            run.log_metric("loss", 1 / (step + 1), step=step)
        run.log({"a": 1, "b": 2.5}, step=2)
        run.log_artifact("model.pt")
    row = storage.get_run(run.run_id)
    assert row["status"] == "success" and row["last_step"] == 2 and row["config"] == {"lr": 0.1}
    assert row["facts"]["environment"]["packages"]["psutil"]
    assert row["facts"]["dataset"]["files"] == 1
    assert storage.runs.artifacts(run.run_id)[0]["size_bytes"] == 7
    assert storage.runs.samples(run.run_id)[0]["rss_bytes"] > 1_000_000
    shown = capsys.readouterr().out
    assert run.run_id in shown and "loss 0.333333" in shown and "repeatable" in shown


def test_the_exception_is_the_same_object_with_its_own_traceback(storage):
    error = ValueError("size mismatch")

    def deep():
        raise error

    run = start(storage)
    with pytest.raises(ValueError) as caught:
        with run:
            deep()
    assert caught.value is error
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].name == "deep" and not any("watcherml/recorder" in frame.filename for frame in frames)
    assert storage.get_run(run.run_id)["status"] == "failed"
    assert storage.get_capsule(run.run_id)["failure"]["exception_type"] == "ValueError"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(0), "success"),
        (SystemExit(None), "success"),
        (SystemExit(2), "failed"),
        (MemoryError(), "failed"),
        (RuntimeError("x"), "failed"),
    ],
)
def test_statuses(storage, error, status):
    run = start(storage)
    with pytest.raises(type(error)):
        with run:
            raise error
    assert storage.get_run(run.run_id)["status"] == run.status == status


def test_ending_twice_keeps_the_first_ending(storage):
    run = start(storage)
    run.finish()
    run.fail(ValueError("late"))
    run.finish()
    assert storage.get_run(run.run_id)["status"] == "success"
    with pytest.raises(RunError, match="success"):
        run.start()


@pytest.mark.parametrize(
    ("name", "value", "step", "word"),
    [
        ("", 1.0, None, "metric name"),
        ("a\nb", 1.0, None, "metric name"),
        ("x" * 300, 1.0, None, "metric name"),
        (7, 1.0, None, "metric name"),
        ("loss", "0.5", None, "'loss'"),
        ("loss", True, None, "'loss'"),
        ("loss", None, None, "'loss'"),
        ("loss", [1.0], None, "'loss'"),
        ("loss", 1.0, -1, "step"),
        ("loss", 1.0, 1.5, "step"),
        ("loss", 1.0, "3", "step"),
        ("loss", 1.0, math.nan, "step"),
        ("loss", 1.0, math.inf, "step"),
        ("loss", 1.0, 2**63, "step"),
        ("lo\ud800ss", 1.0, None, "metric name"),
        (["a"], 1.0, None, "metric name"),
    ],
)
def test_bad_metrics_are_refused_by_name(storage, name, value, step, word):
    run = start(storage)
    with pytest.raises(InvalidValue, match=word):
        run.log_metric(name, value, step=step)
    run.finish()
    assert storage.get_metrics(run.run_id) == []


def test_numbers_of_other_libraries_are_metrics(storage):
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    run = start(storage)
    run.log({"n": numpy.float32(0.5), "i": numpy.int64(3), "t": torch.tensor(0.25), "nan": math.nan, "inf": -math.inf})
    with pytest.raises(InvalidValue):
        run.log_metric("vector", torch.ones(2))
    run.finish()
    found = {point["name"]: point["value"] for point in storage.get_metrics(run.run_id)}
    assert (found["n"], found["i"], found["t"], found["inf"]) == (0.5, 3.0, 0.25, -math.inf)
    assert math.isnan(found["nan"])


def test_a_store_that_cannot_be_written_costs_one_warning_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="could not record") as seen:
        with watcherml.Run("demo", {}, tmp_path / "file" / "store", quiet=True) as run:
            for step in range(100):
                run.log_metric("loss", 1.0, step=step)
    assert len(seen) == 1 and len(run.problems) > 100
    assert ".." not in str(seen[0].message) and ". Training goes on;" in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with watcherml.Run("demo", {}, tmp_path / "file" / "store", quiet=True) as run:
            run.log_metric("loss", 1.0)


def test_an_uncaught_exception_ends_a_script_style_run(storage):
    code = (
        "import watcherml, sys\n"
        "run = watcherml.init('p', {}, sys.argv[1])\n"
        "print(run.run_id, flush=True)\n"
        "raise ValueError('mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)')\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(storage.path)], capture_output=True, text=True)
    run_id = child.stdout.strip()
    assert child.returncode == 1 and "ValueError" in child.stderr and "watcherml" not in child.stderr.lower()
    assert storage.get_run(run_id)["status"] == "failed"
    assert storage.get_capsule(run_id)["failure"]["class"] == "tensor_shape_mismatch"


def test_a_device_entered_after_the_start_labels_the_run(storage, capsys):
    pytest.importorskip("torch")
    import torch

    run = watcherml.Run("demo", {}, storage).start()
    with watcherml.simulated_device("8 MiB"):
        torch.ones(1000)
    run.finish()
    assert storage.get_run(run.run_id)["device"]["kind"] == "simulated"
    assert storage.list_runs()[0]["device_kind"] == "simulated"
    later = start(storage)
    later.finish()
    assert storage.get_run(later.run_id)["device"] is None


def test_the_peak_of_a_run_holds_what_was_held_when_it_failed(storage):
    torch = pytest.importorskip("torch")

    def train():
        held = []
        for _ in range(9):  # 1 MiB each: over before the sampler looks again
            held.append(torch.ones(2**18))

    with pytest.raises(RuntimeError, match="out of memory"), start(storage), watcherml.simulated_device("8 MiB"):
        train()
    (row,) = storage.list_runs()
    assert row["peak_device_bytes"] >= 7 * 2**20
    # Of a device that another run has used nothing is said.
    with pytest.raises(ValueError, match="no"), start(storage) as run:
        raise ValueError("no")
    assert storage.get_run(run.run_id)["device"] is None
    assert next(one for one in storage.list_runs() if one["run_id"] == run.run_id)["peak_device_bytes"] is None


def test_a_project_must_be_a_name_and_is_stored_as_text(storage):
    with pytest.raises(InvalidValue, match="project"):
        watcherml.Run(5, {}, storage)
    run = watcherml.Run("a\udc80b", {}, storage, quiet=True).start()
    run.finish()
    assert not run.problems and storage.get_run(run.run_id)["project"] == "a?b"


def test_nested_runs_are_two_runs(storage):
    with watcherml.Run("outer", {}, storage, quiet=True) as outer:
        with watcherml.Run("inner", {}, storage, quiet=True) as inner:
            inner.log_metric("x", 1)
        outer.log_metric("x", 2)
    assert {row["project"]: row["status"] for row in storage.list_runs()} == {"inner": "success", "outer": "success"}
    assert storage.get_metrics(outer.run_id)[0]["value"] == 2


def test_logging_gap_and_last_step(storage):
    run = start(storage)
    for step in (0, 10, 15, 40):
        run.log_metric("loss", 1.0, step=step)
    assert (run.last_step, run.logging_gap) == (40, 25)
    run.finish()
