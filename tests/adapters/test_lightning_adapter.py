"""The Lightning callback with real Trainers of both package names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import watcherml
from watcherml.planning.discover import discover
from watcherml.planning.spelling import value_of

pytest.importorskip("torch")
pytest.importorskip("lightning")

from tiny_lightning import ADVICE, QUIET, Tiny, loader, pl, train

from watcherml.adapters.lightning import WatcherCallback, configuration, trainer_options
from watcherml.simulated.error import SimulatedOutOfMemoryError

pytestmark = ADVICE
HERE = Path(__file__).resolve().parent
BUDGET = "6 MiB"


def trainer_with(callback, **changes):
    return pl.Trainer(callbacks=[callback], **{**QUIET, "max_steps": 6, **changes})


def steps(storage, run_id, name):
    return [one["step"] for one in storage.get_metrics(run_id, [name])]


def test_a_fit_is_recorded_with_its_configuration_metrics_and_steps(storage):
    callback = WatcherCallback("tiny", {"note": "mine"}, storage)
    trainer = trainer_with(callback, val_check_interval=3, accumulate_grad_batches=1)
    trainer.fit(Tiny({"lr": 1e-3}), loader(64), loader(64, 128))
    (row,) = storage.list_runs("tiny")
    run = storage.get_run(row["run_id"])
    assert (run["status"], run["last_step"], run["lossy_paths"]) == ("success", 6, [])
    wanted = {"batch_size": 64, "precision": "32-true", "max_steps": 6, "lr": 1e-3, "model": "Tiny", "note": "mine"}
    assert wanted.items() <= run["config"].items()
    assert steps(storage, row["run_id"], "epoch") == [1, 2, 3, 4, 5, 6]
    assert {2, 4, 6} <= set(steps(storage, row["run_id"], "train_loss"))
    assert {3, 6} <= set(steps(storage, row["run_id"], "val_loss"))


def test_accumulated_batches_are_one_step(storage):
    callback = WatcherCallback("tiny", storage=storage)
    trainer_with(callback, max_steps=2, accumulate_grad_batches=4).fit(Tiny({"batch_size": 64}), loader(64))
    assert steps(storage, callback.run.run_id, "epoch") == [1, 2]


@pytest.mark.parametrize(
    ("greedy", "size", "phase"),
    [("", 2048, "forward"), ("validation_step", 64, "evaluation"), ("on_save_checkpoint", 64, "checkpoint")],
)
def test_an_out_of_memory_ends_in_a_capsule_with_phase_and_step(storage, tmp_path, greedy, size, phase):
    callback = WatcherCallback("tiny", storage=storage)
    with watcherml.simulated_device(BUDGET), pytest.raises(SimulatedOutOfMemoryError):
        trainer = trainer_with(callback, val_check_interval=2, limit_val_batches=1)
        module = Tiny({"batch_size": size}, greedy)
        if greedy == "on_save_checkpoint":
            module.on_validation_end = lambda: trainer.save_checkpoint(tmp_path / "saved.ckpt")
        trainer.fit(module, loader(size), loader(64, 128))
    failure = storage.get_capsule(callback.run.run_id)["failure"]
    assert (failure["phase"], failure["step"]) == (phase, 2 if greedy else None)
    assert storage.get_run(callback.run.run_id)["status"] == "failed"


def test_an_open_run_is_used_and_left_to_its_owner(storage):
    with pytest.raises(SimulatedOutOfMemoryError), watcherml.init("mine", {"batch_size": 2048}, storage) as run:
        with watcherml.simulated_device(BUDGET):
            trainer_with(WatcherCallback("other", storage=storage)).fit(Tiny({}), loader(2048))
    assert [(one["run_id"], one["status"]) for one in storage.list_runs()] == [(run.run_id, "failed")]


@pytest.mark.parametrize(
    ("hparams", "options", "control", "path", "value"),
    [
        ({}, {}, "micro_batch_size", ("batch_size",), 32),
        ({"batch_size_per_gpu": 16}, {}, "micro_batch_size", ("batch_size_per_gpu",), 16),
        ({}, {"accumulate_grad_batches": 2}, "gradient_accumulation_steps", ("accumulate_grad_batches",), 2),
        ({}, {"precision": "bf16-mixed"}, "precision", ("precision",), "bf16"),
        ({"mixed_precision": "no"}, {}, "precision", ("mixed_precision",), "fp32"),
        ({"use_gradient_checkpointing": False}, {}, "gradient_checkpointing", ("use_gradient_checkpointing",), False),
        ({"block_size": 256}, {}, "sequence_length", ("block_size",), 256),
        ({"attn_impl": "eager"}, {}, "attention_backend", ("attn_impl",), "eager"),
    ],
)
def test_controls_are_found_in_what_is_recorded(storage, hparams, options, control, path, value):
    callback = WatcherCallback("tiny", storage=storage)
    trainer = trainer_with(callback, max_steps=0, **options)
    trainer.fit(Tiny(hparams), loader(32))
    found, _ = discover(storage.get_run(callback.run.run_id)["config"])
    assert [(one.path, value_of(one)) for one in found if one.name == control] == [(path, value)]


def test_a_batch_size_of_the_module_or_its_data_counts_before_the_loaders(storage):
    trainer = trainer_with(WatcherCallback("tiny", storage=storage))
    module = Tiny({})
    module.batch_size = 24
    assert configuration(trainer, module)["batch_size"] == 24


def test_an_error_of_the_recording_never_reaches_training(storage, monkeypatch):
    callback = WatcherCallback("tiny", storage=storage)

    def broken(*_):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(callback.recording, "step", broken)
    with pytest.warns(RuntimeWarning, match="broken on purpose") as told:
        trainer_with(callback, max_steps=3).fit(Tiny({}), loader(64))
    assert len([one for one in told if "broken" in str(one.message)]) == 1


@pytest.mark.parametrize(
    ("config", "limit", "steps"),
    [({}, 5, 5), ({"max_steps": -1}, 5, 5), ({"max_steps": 3}, 5, 3), ({"max_steps": 9}, 5, 5),
     ({"trainer": {"max_steps": 3}}, 5, 3), ({"trainer": {"max_steps": 3}}, None, 3), ({"trainer": "gpu"}, 5, 5)],
)  # fmt: skip
def test_max_steps_limits_the_trainer_and_raises_no_limit(config, limit, steps):
    assert trainer_options(config, limit) == {"max_steps": steps}


def test_the_training_function_returns_its_steps_and_metrics():
    metrics = train({"batch_size": 64, "max_steps": 4, "precision": "32-true"}, 2)
    assert metrics["steps_completed"] == 2.0 and {"train_loss", "val_loss"} <= set(metrics)


def test_a_script_with_the_other_package_name_is_recorded_too(storage, tmp_path):
    pytest.importorskip("pytorch_lightning")
    environment = {**os.environ, "TINY_LIGHTNING": "pytorch_lightning"}
    done = subprocess.run(
        [sys.executable, str(HERE / "tiny_lightning.py"), "script"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1 and "SimulatedOutOfMemoryError" in done.stderr, done.stderr
    assert "lightning/pytorch" not in done.stderr
    (row,) = storage.list_runs("script")
    assert (row["status"], storage.get_capsule(row["run_id"])["failure"]["phase"]) == ("failed", "forward")
