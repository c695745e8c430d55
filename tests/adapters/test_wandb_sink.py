"""Mirroring to real offline runs of W&B, read back by its own record format."""

import json
import math
import socket
import struct
import subprocess
import sys

import pytest

import watcherml

pytest.importorskip("wandb")

from builders import FAILED_CONFIG, good_trials, trial
from stored import record, recorded_plan, rename

from watcherml.adapters.wandb import WandbSink

SECRET = "sk-proj-9f3aQ7xLmZp2vB8nR4tY6wK1sD5gH0jC"
OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 19.06 MiB is"
    " free."
)
# The log format of LevelDB: blocks of 32 KiB after a header of 7 bytes, each piece with checksum, length and kind.
_BLOCK, _PIECE, _WHOLE_OR_LAST = 32_768, struct.Struct("<IHB"), (1, 4)


def records(file):
    """Yield the records of a .wandb file."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = file.read_bytes(), 7, b""
    while at + _PIECE.size <= len(data):
        if _BLOCK - at % _BLOCK < _PIECE.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _PIECE.unpack_from(data, at)
        at += _PIECE.size
        whole, at = whole + data[at : at + length], at + length
        if kind in _WHOLE_OR_LAST:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def name_of(item):
    return item.key or ".".join(item.nested_key)


class Written:
    """What one offline folder says."""

    def __init__(self, folder):
        (file,) = folder.glob("*.wandb")
        self.config, self.summary, self.history, self.files, self.exit = {}, {}, [], [], None
        for one in records(file):
            kind = one.WhichOneof("record_type")
            if kind == "run":
                self.run = one.run
                self.config.update({name_of(item): json.loads(item.value_json) for item in one.run.config.update})
            elif kind == "summary":
                self.summary.update({name_of(item): json.loads(item.value_json) for item in one.summary.update})
            elif kind == "history":
                row = {name_of(item): json.loads(item.value_json) for item in one.history.item}
                self.history.append({name: value for name, value in row.items() if not name.startswith("_")})
            elif kind == "files":
                self.files += [one.path for one in one.files.files]
            elif kind == "exit":
                self.exit = one.exit.exit_code


def folders(place):
    return sorted((place / "wandb").glob("offline-run-*"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    return tmp_path / "tracker"


def failed(storage, **config):
    with pytest.raises(RuntimeError), watcherml.Run("mirror", config, storage, quiet=True) as run:
        for step in range(3):
            run.log({"loss": 1.0 / (step + 1), "acc@1": step}, step=step)
        run.log_metric("late", float("nan"), step=1)  # an evaluation that comes after its step
        raise RuntimeError(f"{OOM} (with {SECRET})")
    return run


def test_a_failed_run_arrives_with_configuration_metrics_status_and_failure(storage, place, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", SECRET)
    run = failed(storage, batch_size=64, optimizer={"lr": 0.1}, api_key=SECRET)
    assert WandbSink(storage, folder=place).mirror(run.run_id) == run.run_id
    (folder,) = folders(place)
    there = Written(folder)
    assert (there.run.project, there.run.run_id, there.exit) == ("mirror", run.run_id, 1)
    assert (there.config["batch_size"], there.config["optimizer"]) == (64, {"lr": 0.1})
    assert there.history[:3] == [{"step": n, "loss": 1 / (n + 1), "acc@1": n} for n in range(3)]
    assert there.history[3]["step"] == 1 and math.isnan(float(there.history[3]["late"]))
    capsule = storage.get_capsule(run.run_id)
    assert there.summary["watcherml.failure.sentence"] == there.run.notes == capsule["headline"]
    assert there.summary["watcherml.status"] == "failed"
    assert set(there.run.tags) == {"watcherml", "failed", "cuda_out_of_memory"}


def test_nothing_of_the_process_is_told(storage, place, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", SECRET)
    run = failed(storage, api_key=SECRET)
    WandbSink(storage, folder=place).mirror(run.run_id)
    told = b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())
    assert SECRET.encode() not in told
    (file,) = place.rglob("*.wandb")
    host = (
        socket.gethostname().encode()
    )  # a text in that file has its length before it; two bytes alone occur by chance
    assert bytes([len(host)]) + host not in file.read_bytes()
    names = {one.name for one in place.rglob("files/**/*")}
    assert not names & {"requirements.txt", "wandb-metadata.json", "output.log", "diff.patch"}


def test_mirroring_again_writes_nothing_until_there_is_news_and_then_one_folder_replaces_the_other(storage, place):
    sink = WandbSink(storage, folder=place)
    with watcherml.Run("team/vision: 50%?#\\x", {"lr": 1}, storage, quiet=True) as run:
        run.log_metric("loss", 1.0, step=0)
        assert sink.mirror(run.run_id) == run.run_id
        first = folders(place)
        assert WandbSink(storage, folder=place).mirror(run.run_id) == run.run_id
        assert folders(place) == first
        run.log_metric("loss", 0.5, step=1)
    sink.mirror(run.run_id)
    (folder,) = folders(place)
    there = Written(folder)
    assert [row["loss"] for row in there.history] == [1.0, 0.5] and there.summary["watcherml.status"] == "success"
    assert there.run.run_id == run.run_id and there.exit == 0
    assert there.run.project == "team-vision- 50----x"  # W&B refuses the whole run for one of /\#?%:


def test_a_verdict_arrives_with_the_sealed_result(storage, place):
    plan = recorded_plan(storage, FAILED_CONFIG)
    trials = (*good_trials(plan), trial(plan, "control", 6, outcome="oom"))
    record(storage, "recovery-1", plan, rename(trials, "recovery-1"))
    source = plan.source.run_id
    WandbSink(storage, folder=place).mirror(source)
    (folder,) = folders(place)
    there = Written(folder)
    assert there.summary["watcherml.recovery.status"] == "verified"
    assert there.summary["watcherml.recovery.standing"] == "on_record"
    kept = "watcherml/recovery-1/recovery-result.json"
    assert kept in there.files
    sealed = watcherml.RecoveryResult.from_json((folder / "files" / kept).read_bytes(), storage=storage)
    assert (sealed.standing, sealed.status) == ("on_record", "verified")


def test_a_run_is_followed_until_it_has_ended_beside_a_run_of_the_persons_own(storage, place):
    import wandb

    mine = wandb.init(project="own", mode="offline", dir=str(place.parent))
    try:
        with watcherml.Run("mirror", {}, storage, quiet=True) as run:
            following = WandbSink(storage, folder=place).follow(run)
            run.log_metric("loss", 1.0, step=0)
        assert following.wait(300)
        assert wandb.run is mine
        mine.log({"still": 1})
    finally:
        mine.finish()
    (folder,) = folders(place)
    assert Written(folder).history == [{"step": 0, "loss": 1.0}]


SCRIPT = """
import watcherml
from watcherml.adapters.wandb import WandbSink

with watcherml.init("mirror", {}) as run:
    WandbSink(folder="tracker").follow(run, exit_seconds=300)
    run.log_metric("loss", 1.0, step=1)
"""


def test_a_script_that_ends_at_once_waits_for_its_mirror(storage, tmp_path, place):
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    (folder,) = folders(place)
    assert (Written(folder).exit, Written(folder).history) == (0, [{"step": 1, "loss": 1.0}])


def test_a_folder_that_cannot_be_written_is_one_warning(storage, place):
    run = failed(storage)
    place.write_text("a file where the folder should be")
    sink = WandbSink(storage, folder=place)
    with pytest.warns(RuntimeWarning, match="WandbSink could not mirror run") as told:
        assert sink.mirror(run.run_id) is None and sink.mirror(run.run_id) is None
    assert len(told) == 1 and storage.get_run(run.run_id)["status"] == "failed"
