"""The data frames: the same columns and types empty and filled, filters, ids, and points still in a journal."""

import math
import os
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from big_store import NAMES, STARTED, fill

import watcherml
from watcherml import errors, frames
from watcherml.frames import build

pd = pytest.importorskip("pandas")

SMALL = watcherml.RecoveryBudget(max_trials=6, max_probe_trials=3, max_full_trials=1)
TEXT, INT, FLOAT, BOOL, TIME = "string", "Int64", "float64", "boolean", "datetime64[us, UTC]"
SAMPLE = {"run_id": TEXT, "project": TEXT, "at": TIME, "since_start_s": FLOAT}
# Every frame with every column and its type: what README and notebooks may rely on.
SHAPES = {
    "runs": (frames.runs, {
        "run_id": TEXT, "project": TEXT, "title": TEXT, "role": TEXT, "status": TEXT, "end_reason": TEXT,
        "started_at": TIME, "ended_at": TIME, "duration_s": FLOAT, "last_step": INT, "device_kind": TEXT,
        "failure_class": TEXT, "peak_rss_bytes": INT, "peak_device_bytes": INT, "campaign_id": TEXT, "trial_id": TEXT,
        "origin": TEXT,
    }),
    "metrics": (frames.metrics, {
        "run_id": TEXT, "project": TEXT, "name": TEXT, "step": INT, "value": FLOAT, "at": TIME,
    }),
    "wide metrics": (lambda **options: frames.metrics(wide=True, **options), {"run_id": TEXT, "step": INT}),
    "samples": (frames.samples, {
        **SAMPLE, "cpu_percent": FLOAT, "tree_cpu_percent": FLOAT, "rss_bytes": INT, "tree_rss_bytes": INT,
        "host_used_bytes": INT, "device_kind": TEXT, "device_allocated_bytes": INT, "device_reserved_bytes": INT,
    }),
    "samples of GPUs": (lambda **options: frames.samples(gpus=True, **options), {
        **SAMPLE, "gpu_index": INT, "uuid": TEXT, "utilization_percent": FLOAT, "used_bytes": INT, "total_bytes": INT,
        "own_bytes": INT,
    }),
    "cells": (frames.cells, {
        "session_id": TEXT, "seq": INT, "run_id": TEXT, "execution_count": INT, "cell_id": TEXT, "source": TEXT,
        "status": TEXT, "error_type": TEXT, "error_message": TEXT, "started_at": TIME, "seconds": FLOAT,
    }),
    "failures": (frames.failures, {
        "run_id": TEXT, "project": TEXT, "role": TEXT, "failure_class": TEXT, "subkind": TEXT, "sentence": TEXT,
        "created_at": TIME, "resolved_at": TIME, "resolved_by": TEXT, "resolved_note": TEXT, "device_kind": TEXT,
    }),
    "campaigns": (frames.campaigns, {
        "campaign_id": TEXT, "project": TEXT, "source_run_id": TEXT, "created_at": TIME, "last_change": TEXT,
        "status": TEXT, "reason_code": TEXT, "sentence": TEXT, "candidate_id": TEXT, "device_kind": TEXT,
        "ended_at": TIME, "trials": INT, "trial_wall_s": FLOAT,
    }),
    "trials": (frames.trials, {
        "trial_id": TEXT, "campaign_id": TEXT, "seq": INT, "role": TEXT, "proposal_id": TEXT, "run_id": TEXT,
        "started_at": TIME, "ended_at": TIME, "outcome": TEXT, "steps": INT, "peak_bytes": INT, "wall_s": FLOAT,
        "gpu_s": FLOAT, "sentence": TEXT,
    }),
    "proposals": (frames.proposals, {
        "campaign_id": TEXT, "project": TEXT, "source_run_id": TEXT, "seq": INT, "proposal_id": TEXT, "title": TEXT,
        "changes": TEXT, "authority": TEXT, "risk": TEXT, "semantic": BOOL, "effective_batch": TEXT,
        "predicted_peak_bytes": INT, "tried": BOOL, "trials": INT, "outcome": TEXT, "verified": BOOL,
        "created_at": TIME, "plan_digest": TEXT,
    }),
}  # fmt: skip


def shape(frame):
    return {name: str(kind) for name, kind in frame.dtypes.items()}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A store with a row of every kind: a verified recovery of a failed run, cells, GPU samples, and running points."""
    from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT

    folder = tmp_path_factory.mktemp("everything")
    (folder / "ent.py").write_text(TEXT_ENTRYPOINT)
    before = os.getcwd()
    os.chdir(folder)
    try:
        storage = watcherml.Storage(folder / ".watcherml")
        run = watcherml.Run("demo", FAILED_CONFIG, storage, quiet=True)
        with pytest.raises(RuntimeError), run:
            run.log_metric("loss", 2.5, step=0)
            run.log_metric("loss", float("nan"), step=1)
            run.log_metric("note", float("inf"))
            raise RuntimeError(OOM_TEXT)
        needed = watcherml.VerificationRequirements(
            minimum_progress_steps=50, metric_guards=(watcherml.MetricGuard("val_loss", "minimize", 0.42, 0.03),)
        )
        result = watcherml.recover_from_oom(run.run_id, "ent:train", needed, SMALL, storage=storage)
        assert result.verified, result.sentence
        storage.evidence.add_cell({
            "session_id": "s", "seq": 1, "run_id": run.run_id, "source": "x = 1", "status": "ok", "started_at": 10.0,
            "seconds": 0.5,
        })  # fmt: skip
        storage.evidence.add_capsule(
            result.verified_run_ids[0], digest="sha256:0", failure_class="unclassified", subkind="", sentence="",
            document="{}", at=20.0,
        )  # fmt: skip
        with storage.database.writing() as connection:
            connection.execute(
                "INSERT INTO gpu_samples VALUES (?, ?, 0, 'GPU-1', 50.0, 10, 20, 5)", (run.run_id, STARTED)
            )
    finally:
        os.chdir(before)
    return storage, run.run_id, result.campaign_id


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Forty runs of sixty points."""
    storage = watcherml.Storage(tmp_path_factory.mktemp("many") / "store")
    fill(storage, runs=40, points=60, samples=5)
    return storage


# -- shapes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_columns_and_types_are_the_same_without_a_store_in_an_empty_one_and_in_a_full_one(name, everything, tmp_path):
    make, expected = SHAPES[name]
    empty = watcherml.Storage(tmp_path / "empty")
    assert shape(make(storage=tmp_path / "nowhere")) == expected and not (tmp_path / "nowhere").exists()
    empty.create()
    assert shape(make(storage=empty)) == expected
    filled = make(storage=everything[0])
    assert len(filled) and list(filled.index) == list(range(len(filled)))
    fixed = {key: kind for key, kind in shape(filled).items() if key in expected}
    assert fixed == expected and list(fixed) == list(filled.columns)[: len(fixed)]


def test_every_public_frame_has_a_row_in_the_table_of_shapes():
    public = {name for name, one in vars(frames).items() if getattr(one, "__module__", "") == "watcherml.frames"}
    assert public == {name.split()[-1] if name.startswith("wide") else name.split()[0] for name in SHAPES}


def test_frames_show_every_column_of_their_view_but_internal_numbers(everything):
    storage = everything[0]
    hidden = {
        "metric_points": {"special", "point"},
        "failure_summary": {"capsule_id"},
        "proposal_summary": {"environment"},
    }
    with storage.database.reading() as connection:
        for view in build.COLUMNS:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({view})")}
            assert set(build.columns(view)) == there - hidden.get(view, set()), view


def test_the_known_words_are_those_of_the_records():
    from typing import get_args

    from watcherml.protocol import request, result, verdict

    assert get_args(verdict.Status) == frames._CAMPAIGN_STATUSES
    assert get_args(request.Role) == frames._TRIAL_ROLES
    assert ("running", *get_args(result.Outcome)) == frames._OUTCOMES


def test_without_pandas_the_error_gives_the_install_command(tmp_path):
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from watcherml import errors, frames\n"
        "try: frames.runs(sys.argv[1])\n"
        "except errors.MissingDependency as error: print(error.remedy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "pip install" in done.stdout


@pytest.mark.parametrize("name", SHAPES)
def test_a_store_of_version_0_1_has_the_same_columns(name):
    make, expected = SHAPES[name]
    frame = make(storage=Path(__file__).parents[1] / "data" / "store-0.1")
    assert {key: kind for key, kind in shape(frame).items() if key in expected} == expected
    assert len(frame) or name in ("cells", "proposals", "samples of GPUs")


# -- runs and metrics ------------------------------------------------------------------------------------------------


def test_runs_have_their_configuration_in_columns_and_utc_times(everything):
    storage, run_id, _ = everything
    (row,) = frames.runs(storage).to_dict("records")
    assert row["run_id"] == run_id and row["config.batch_size"] == 64 and row["failure_class"] == "cuda_out_of_memory"
    started = pd.Timestamp(storage.get_run(run_id)["started_at"], unit="s", tz="UTC")
    assert abs(row["started_at"] - started) <= pd.Timedelta(1, "us")
    assert set(frames.runs(storage, trials=True)["role"]) == {"user", "trial"}


def test_metrics_keep_nan_and_infinity_and_a_missing_step_is_na(everything):
    storage, run_id, _ = everything
    frame = frames.metrics(run_id, storage)
    assert list(frame["name"]) == ["loss", "loss", "note"]
    assert frame["value"][0] == 2.5 and math.isnan(frame["value"][1]) and frame["value"][2] == math.inf
    assert list(frame["step"][:2]) == [0, 1] and frame["step"][2] is pd.NA


def test_wide_metrics_have_one_row_a_step_and_the_last_of_several_points(storage):
    ids = []
    for shift in (0, 100):
        with watcherml.Run("demo", {}, storage, quiet=True) as run:
            for step, value in ((1, 1.0), (0, 0.5), (1, 2.0)):
                run.log_metric("loss", value + shift, step=step)
            run.log({"lr": float("nan"), "step": 7.0}, step=2)
            run.log_metric("lr", 3.0)
            run.log_metric("lr", 4.0)
        ids.append(run.run_id)
    frame = frames.metrics(ids, storage, wide=True)
    assert list(frame.columns) == ["run_id", "step", "loss", "lr", "metric.step"]
    first = frame[frame["run_id"] == ids[0]]
    assert list(first["step"][:3]) == [0, 1, 2] and first["step"].iloc[3] is pd.NA
    assert list(first["loss"][:2]) == [0.5, 2.0] and first["loss"][2:].isna().all()
    assert math.isnan(first["lr"].iloc[2]) and first["lr"].iloc[3] == 4.0 and first["metric.step"].iloc[2] == 7.0
    assert list(frame[frame["run_id"] == ids[1]]["loss"][:2]) == [100.5, 102.0]
    assert frame["loss"].dtype == "float64" and frame["step"].dtype == "Int64"


def test_a_page_of_points_continues_where_the_last_one_ended(many):
    whole = frames.metrics(storage=many)
    assert len(whole) == 40 * 60
    pages = [frames.metrics(storage=many, limit=700, offset=start) for start in range(0, 2_800, 700)]
    assert [len(page) for page in pages] == [700, 700, 700, 300]
    pd.testing.assert_frame_equal(pd.concat(pages, ignore_index=True), whole)


def test_points_that_are_still_in_a_journal_are_there(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run._sampler.stop()  # it folds too
    try:
        for chosen in (run.run_id, [run.run_id], None):
            run.log_metric("loss", 1.0)
            assert len(frames.metrics(chosen, storage)) == {str: 1, list: 2, type(None): 3}[type(chosen)]
        run.log_metric("loss", 1.0)
        assert len(storage.get_metrics(run.run_id, max_points=4)) == 4
    finally:
        run.interrupt("test over")


# -- filters -----------------------------------------------------------------------------------------------------


def at(index):
    return datetime.fromtimestamp(STARTED + 60 * index, timezone.utc)


ONE = "project-3-run-000003"
FILTERS = [
    (frames.runs, {}, 40),
    (frames.runs, {"project": "project-3"}, 6),
    (frames.runs, {"project": ["project-3", "project-4"]}, 12),
    (frames.runs, {"project": "project-3'; DROP TABLE runs"}, 0),
    (frames.runs, {"status": "killed"}, 4),
    (frames.runs, {"status": ("killed", "failed")}, 8),
    (frames.runs, {"run": ONE}, 1),
    (frames.runs, {"run": {ONE}}, 1),
    (frames.runs, {"run": []}, 0),
    (frames.runs, {"since": at(10)}, 30),
    (frames.runs, {"until": at(10)}, 10),
    (frames.runs, {"since": at(10), "until": at(12)}, 2),
    (frames.runs, {"since": at(10).isoformat()}, 30),
    (frames.runs, {"since": at(10).isoformat().replace("+00:00", "Z")}, 30),
    (frames.runs, {"since": at(10).replace(tzinfo=None).isoformat()}, 30),
    (frames.runs, {"since": at(10).astimezone(timezone(timedelta(hours=5)))}, 30),
    (frames.runs, {"since": at(10).timestamp()}, 30),
    (frames.runs, {"since": pd.Timestamp(at(10))}, 30),
    (frames.runs, {"since": date(2030, 1, 1)}, 0),
    (frames.runs, {"limit": 7}, 7),
    (frames.runs, {"limit": 7, "offset": 38}, 2),
    (frames.runs, {"offset": 38}, 2),
    (frames.metrics, {"run": ONE}, 60),
    (frames.metrics, {"run": [ONE, "project-4-run-000004"]}, 120),
    (frames.metrics, {"run": ONE, "names": "lr"}, 12),
    (frames.metrics, {"run": ONE, "names": ["lr", "val_loss", "never logged"]}, 24),
    (frames.metrics, {"names": []}, 0),
    (frames.metrics, {"project": "project-3", "names": "lr"}, 72),
    (frames.metrics, {"run": ONE, "until": at(3) + timedelta(seconds=1)}, 20),
    (frames.samples, {"run": ONE}, 5),
    (frames.samples, {"project": "project-3"}, 30),
    (frames.samples, {"run": ONE, "since": at(3) + timedelta(seconds=4)}, 3),
    (frames.failures, {}, 4),
    (frames.failures, {"project": "project-1"}, 1),
    (frames.failures, {"resolved": True}, 0),
    (frames.failures, {"resolved": False, "failure_class": "cuda_out_of_memory"}, 4),
    (frames.failures, {"run": "project-1-run-000001"}, 1),
]


@pytest.mark.parametrize(("make", "options", "expected"), FILTERS, ids=[f"{m.__name__} {o}" for m, o, _ in FILTERS])
def test_filters_keep_so_many_rows(make, options, expected, many):
    assert len(make(storage=many, **options)) == expected
    assert shape(make(storage=many, **options)).items() >= SHAPES[make.__name__][1].items()


def test_filters_of_a_campaign(everything):
    storage, run_id, campaign = everything
    counts = [
        (frames.campaigns(storage), 1),
        (frames.campaigns(storage, run=run_id, status="verified", project="demo"), 1),
        (frames.campaigns(storage, status=["stopped", "not_recovered"]), 0),
        (frames.trials(campaign, storage), 6),
        (frames.trials([campaign], storage, role="probe"), 2),
        (frames.trials(storage=storage, outcome=["oom"], project="demo"), 2),
        (frames.trials(storage=storage, project="another"), 0),
        (frames.cells(storage, run=run_id, session="s", status="ok", project="demo"), 1),
        (frames.cells(storage, project="another"), 0),
        (frames.failures(storage), 1),
        (frames.failures(storage, trials=True), 2),
    ]
    assert [len(frame) for frame, _ in counts] == [count for _, count in counts]


def test_proposals_say_what_was_tried_and_what_came_of_it(everything):
    storage, run_id, campaign = everything
    frame = frames.proposals(campaign, storage)
    pd.testing.assert_frame_equal(frame, frames.proposals(run_id, storage))
    pd.testing.assert_frame_equal(frame, frames.proposals([run_id, campaign], storage))
    row = frame[frame["proposal_id"] == "checkpointing"].iloc[0]
    assert row["changes"] == "gradient_checkpointing: false → true" and row["authority"] == "automatic"
    assert row["tried"] and row["verified"] and row["outcome"] == "completed" and row["trials"] == 4
    assert list(frame["verified"]).count(True) == 1
    untried = frames.proposals(campaign, storage, tried=False)
    assert len(untried) and untried["outcome"].isna().all() and not untried["tried"].any()
    assert len(untried) + len(frames.proposals(campaign, storage, tried=True)) == len(frame)


def test_a_plan_that_was_only_prepared_is_listed_too(storage, failed_run, requirements):
    preparation = watcherml.prepare_oom_recovery(failed_run(), "ent:train", requirements, storage=storage)
    frame = frames.proposals(storage=storage)
    assert list(frame["proposal_id"]) == [one.proposal_id for one in preparation.plan.proposals]
    assert list(frame["changes"]) == [one.words for one in preparation.plan.proposals]
    assert frame["campaign_id"].isna().all() and not frame["tried"].any()


WRONG = [
    (frames.runs, {"status": "sleeping"}, "status", "running, success"),
    (frames.runs, {"status": ["failed", "sleeping"]}, "status", "killed"),
    (frames.runs, {"project": 3}, "project", "text"),
    (frames.runs, {"project": [3]}, "project", "text"),
    (frames.runs, {"project": {"a": 1}}, "project", "text"),
    (frames.runs, {"project": b"demo"}, "project", "text"),
    (frames.runs, {"limit": -1}, "limit", "whole number"),
    (frames.runs, {"limit": True}, "limit", "whole number"),
    (frames.runs, {"offset": 1.5}, "offset", "whole number"),
    (frames.runs, {"since": datetime(2026, 1, 1)}, "since", "time zone"),
    (frames.runs, {"since": "yesterday"}, "since", "ISO 8601"),
    (frames.runs, {"until": math.nan}, "until", "seconds since 1970"),
    (frames.runs, {"until": pd.NaT}, "until", "seconds since 1970"),
    (frames.runs, {"until": True}, "until", "seconds since 1970"),
    (frames.metrics, {"names": [None]}, "names", "text"),
    (frames.metrics, {"wide": True, "limit": 5}, "limit", "no limit"),
    (frames.cells, {"status": "failed"}, "status", "ok, error"),
    (frames.campaigns, {"status": "won"}, "status", "verified"),
    (frames.trials, {"role": "user"}, "role", "control"),
    (frames.trials, {"outcome": "fine"}, "outcome", "completed"),
]


@pytest.mark.parametrize(
    ("make", "options", "field", "expected"), WRONG, ids=[f"{w[0].__name__} {w[1]}" for w in WRONG]
)
@pytest.mark.parametrize("there", [True, False], ids=["store", "no store"])
def test_what_cannot_be_right_is_refused_by_name(make, options, field, expected, there, many, tmp_path):
    with pytest.raises(errors.InvalidValue) as caught:
        make(storage=many if there else tmp_path / "nowhere", **options)
    assert caught.value.message == field and expected in caught.value.expected


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (frames.runs, {"run": "nobody"}),
        (frames.metrics, {"run": [ONE, "nobody"]}),
        (frames.samples, {"run": "nobody"}),
        (frames.cells, {"run": "nobody"}),
        (frames.failures, {"run": "nobody"}),
        (frames.campaigns, {"run": "nobody"}),
        (frames.campaigns, {"campaign": "nobody"}),
        (frames.trials, {"campaign": "nobody"}),
        (frames.proposals, {"of": "nobody"}),
    ],
)
def test_an_id_that_is_not_on_record_is_not_found_but_without_a_store_there_is_nothing(make, options, many, tmp_path):
    with pytest.raises(errors.NotFound, match="nobody"):
        make(storage=many, **options)
    assert len(make(storage=tmp_path / "nowhere", **options)) == 0


def test_a_time_beyond_the_calendar_is_missing(storage):
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        run.log_metric("loss", 1.0)
    with storage.database.writing() as connection:
        connection.execute("UPDATE metrics SET at = 1e300")
    assert frames.metrics(run.run_id, storage)["at"].isna().all()


def test_a_hundred_keys_of_configuration_are_a_hundred_columns(storage):
    with watcherml.Run("demo", {f"key {number}": number for number in range(150)}, storage, quiet=True):
        pass
    with watcherml.Run("demo", {"other": [1, 2]}, storage, quiet=True):
        pass
    frame = frames.runs(storage)
    assert frame["config.key 149"].iloc[1] == 149 and frame["config.other"].iloc[0] == [1, 2]
    assert pd.isna(frame["config.key 149"].iloc[0])


def test_every_name_of_a_big_store_is_there(many):
    assert set(frames.metrics(ONE, many)["name"]) == set(NAMES)


def test_the_peak_of_a_run_is_the_counter_s_and_not_the_largest_sample(tmp_path):
    storage = watcherml.Storage(tmp_path / "store")
    counted = {"peak_device_bytes": 97 * 2**20, "peak_source": "simulated device"}
    ids = []
    for receipt in (counted, {**counted, "peak_source": "torch"}, None):
        with watcherml.Run("p", {"lr": 0.1}, storage, quiet=True) as run:
            run.log_metric("loss", 1.0, 1)
        if receipt is not None:
            storage.runs.add_receipt(run.run_id, receipt)
        ids.append(run.run_id)
    shown, listed = frames.runs(storage).set_index("run_id"), {row["run_id"]: row for row in storage.list_runs()}
    assert shown["peak_device_bytes"][ids].tolist() == [97 * 2**20, 97 * 2**20, pd.NA]
    assert shown["device_kind"][ids].tolist() == ["simulated", "none", "none"]
    for column in ("peak_device_bytes", "device_kind"):
        assert [None if (one := shown[column][key]) is pd.NA else one for key in ids] == [
            listed[key][column] for key in ids
        ]
    assert shown["config.lr"].tolist() == [0.1] * 3
