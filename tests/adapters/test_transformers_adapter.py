"""The Hugging Face callback and context, with the real Trainer on a model that is built here."""

import dataclasses
import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

import watcherml
from watcherml.planning.discover import discover
from watcherml.planning.spelling import value_of

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tiny_trainer import CONFIG, Text, build, make_trainer, train
from transformers import TrainerCallback, TrainingArguments

from watcherml.adapters.transformers import (
    WatcherCallback,
    configuration,
    returned_metrics,
    training_arguments,
    watch,
)
from watcherml.simulated.error import SimulatedOutOfMemoryError

HERE = Path(__file__).resolve().parent
# Measured in this module: batch 32 needs 13 MiB, batch 8 with four steps of accumulation 4 MiB.
BUDGET = "8 MiB"


def points(storage, run_id, name):
    return [(one["step"], one["value"]) for one in storage.get_metrics(run_id, [name])]


def test_a_training_is_recorded_with_its_configuration_metrics_and_steps(storage, tmp_path):
    callback = WatcherCallback("tiny", {"note": "mine"}, storage)
    trainer = make_trainer(CONFIG, tmp_path / "out", callbacks=[callback], eval_strategy="steps", eval_steps=3)
    trainer.train()
    (row,) = storage.list_runs("tiny")
    run = storage.get_run(row["run_id"])
    assert (run["status"], run["last_step"], run["lossy_paths"]) == ("success", 6, [])
    wanted = {"per_device_train_batch_size": 32, "max_steps": 6, "seed": 7, "note": "mine", "model": "gpt2"}
    assert wanted.items() <= run["config"].items()
    assert not {"output_dir", "hub_token", "report_to", "logging_dir"} & set(run["config"])
    assert [step for step, _ in points(storage, row["run_id"], "loss")] == [2, 4, 6]
    assert [step for step, _ in points(storage, row["run_id"], "eval_loss")] == [3, 6]
    assert [step for step, _ in points(storage, row["run_id"], "epoch")] == [1, 2, 3, 4, 5, 6]
    assert returned_metrics(trainer)["steps_completed"] == 6.0


def test_an_open_run_is_used_and_left_open(storage, tmp_path):
    with watcherml.init("mine", configuration(TrainingArguments(str(tmp_path))), storage) as run:
        make_trainer(CONFIG, tmp_path / "out", 2, [WatcherCallback("other", storage=storage)]).train()
        assert run.status == "running" and run.last_step == 2
    assert [one["run_id"] for one in storage.list_runs()] == [run.run_id]


class Growing(Text):
    """Rows of 8 tokens until three batches of 32 have been fetched, whole ones from then on."""

    fetched = 0

    def __getitem__(self, index):
        self.fetched += 1
        return {name: row[: 8 if self.fetched <= 96 else None] for name, row in super().__getitem__(index).items()}


def test_an_out_of_memory_in_a_watched_trainer_ends_in_a_capsule_with_phase_and_step(storage, tmp_path):
    with watcherml.simulated_device(BUDGET):
        trainer = make_trainer(CONFIG, tmp_path / "out", logging_steps=500)
        trainer.train_dataset = Growing(256)
        with pytest.raises(SimulatedOutOfMemoryError) as caught:
            with watch(trainer, "tiny", storage=storage) as run:
                assert "evaluate" in vars(trainer)
                trainer.train()
    assert (storage.get_run(run.run_id)["status"], run.last_step) == ("failed", 3)
    failure = storage.get_capsule(run.run_id)["failure"]
    assert (failure["class"], failure["phase"], failure["step"]) == ("simulated_out_of_memory", "forward", 3)
    assert run.run_id and type(caught.value) is SimulatedOutOfMemoryError
    assert "evaluate" not in vars(trainer)
    assert not [one for one in trainer.callback_handler.callbacks if isinstance(one, WatcherCallback)]


def test_a_failure_while_predictions_are_gathered_is_told_as_evaluation(storage, tmp_path):
    """The Trainer gathers predictions outside the model and with gradients on, where a traceback tells no phase."""

    def hungry(_):
        import torch

        return {"size": float(torch.zeros(4 * 2**20).sum())}

    with watcherml.simulated_device(BUDGET):
        trainer = make_trainer({**CONFIG, "per_device_train_batch_size": 4}, tmp_path / "out")
        trainer.compute_metrics = hungry
        with pytest.raises(SimulatedOutOfMemoryError), watch(trainer, "tiny", storage=storage) as run:
            trainer.evaluate()
    assert storage.get_capsule(run.run_id)["failure"]["phase"] == "evaluation"


def test_the_callback_as_a_context_fails_its_run_with_what_leaves_it(storage, tmp_path):
    trainer = make_trainer(CONFIG, tmp_path / "out")
    with pytest.raises(SimulatedOutOfMemoryError), watcherml.simulated_device(BUDGET):
        with WatcherCallback("tiny", storage=storage) as callback:
            trainer.add_callback(callback)
            trainer.train()
    run = storage.get_run(callback.run.run_id)
    assert (run["status"], storage.get_capsule(run["run_id"])["failure"]["phase"]) == ("failed", "forward")


def test_a_training_that_was_left_by_a_caught_exception_does_not_stay_open(storage, tmp_path):
    callback = WatcherCallback("tiny", storage=storage)
    with watcherml.simulated_device(BUDGET), pytest.raises(SimulatedOutOfMemoryError):
        make_trainer(CONFIG, tmp_path / "out", callbacks=[callback]).train()
    first = callback.run
    assert first.status == "running"  # nobody has told the callback
    make_trainer(CONFIG, tmp_path / "out", 1, [callback]).train()
    assert storage.get_run(first.run_id)["end_reason"] == "the training before this one did not come to its end"
    assert [one["status"] for one in storage.list_runs()] == ["success", "interrupted"]


def test_a_training_whose_failure_is_on_record_ends_as_failed_when_the_next_begins(storage, tmp_path):
    callback = WatcherCallback("tiny", storage=storage)
    callback.open(TrainingArguments(str(tmp_path)), None)
    first = callback.run
    first.record_failure(RuntimeError("CUDA out of memory."))  # as a hook does that does not end the run
    make_trainer(CONFIG, tmp_path / "out", 1, [callback]).train()
    assert [one["status"] for one in storage.list_runs()] == ["success", "failed"]
    assert storage.list_runs()[1]["run_id"] == first.run_id


def test_a_new_callback_after_a_caught_exception_uses_no_run_that_died(storage, tmp_path):
    with watcherml.simulated_device(BUDGET):
        try:
            make_trainer(CONFIG, tmp_path / "out", callbacks=[WatcherCallback("tiny", storage=storage)]).train()
        except SimulatedOutOfMemoryError:
            pass
    gc.collect()  # the first callback is gone
    make_trainer(CONFIG, tmp_path / "out", 1, [WatcherCallback("tiny", storage=storage)]).train()
    assert [one["status"] for one in storage.list_runs()] == ["success", "interrupted"]


def test_a_training_inside_another_is_a_run_of_its_own_and_ends_nobody_elses(storage, tmp_path):
    inner = make_trainer(CONFIG, tmp_path / "inner", 1, [WatcherCallback("inner", storage=storage)])

    class Nested(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            inner.train()

    make_trainer(CONFIG, tmp_path / "out", 1, [WatcherCallback("outer", storage=storage), Nested()]).train()
    assert {one["project"]: one["status"] for one in storage.list_runs()} == {"outer": "success", "inner": "success"}


def test_two_callbacks_of_one_trainer_record_into_one_run_where_a_context_is_around(storage, tmp_path):
    trainer = make_trainer(CONFIG, tmp_path / "out", 1, [WatcherCallback("tiny", storage=storage)])
    with watch(trainer, "tiny", storage=storage):
        trainer.train()
    assert [one["status"] for one in storage.list_runs()] == ["success"]


def test_in_a_notebook_a_failing_cell_has_a_capsule_and_the_next_training_a_run_of_its_own(storage, tmp_path):
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    try:
        shell.run_cell("%load_ext watcherml")
        shell.user_ns.update(
            make_trainer=make_trainer, CONFIG=CONFIG, WatcherCallback=WatcherCallback, out=str(tmp_path)
        )
        shell.run_cell(
            f"import watcherml\nwith watcherml.simulated_device({BUDGET!r}):\n"
            "    make_trainer(CONFIG, out, callbacks=[WatcherCallback('cell')]).train()"
        )
        shell.run_cell("make_trainer(CONFIG, out, 1, [WatcherCallback('cell')]).train()")
    finally:
        shell.run_line_magic("unload_ext", "watcherml")
        InteractiveShell.clear_instance()
    later, failed = storage.list_runs("cell")
    assert (later["status"], failed["status"]) == ("success", "failed")
    assert storage.get_capsule(failed["run_id"])["failure"]["phase"] == "forward"


@pytest.mark.long
def test_a_script_that_dies_in_train_leaves_a_failed_run_with_a_capsule(storage, tmp_path):
    script = (
        "import watcherml\n"
        "from tiny_trainer import CONFIG, make_trainer\n"
        "from watcherml.adapters.transformers import WatcherCallback\n"
        f"with watcherml.simulated_device({BUDGET!r}):\n"
        "    make_trainer(CONFIG, 'out', callbacks=[WatcherCallback('script')]).train()\n"
    )
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "tiny_trainer.py").write_bytes((HERE / "tiny_trainer.py").read_bytes())
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "SimulatedOutOfMemoryError" in done.stderr
    (row,) = storage.list_runs("script")
    assert row["status"] == "failed"
    assert storage.get_capsule(row["run_id"])["failure"]["phase"] == "forward"


def test_an_error_of_the_recording_never_reaches_training(storage, tmp_path, monkeypatch):
    callback = WatcherCallback("tiny", storage=storage)

    def broken(*_):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(callback.recording, "step", broken)
    with pytest.warns(RuntimeWarning, match="broken on purpose") as told:
        make_trainer(CONFIG, tmp_path / "out", 3, [callback]).train()
    assert len(told) == 1
    assert storage.list_runs("tiny")[0]["status"] == "success"


def test_a_retry_with_a_smaller_batch_is_a_run_with_the_batch_it_trains_with(tmp_path):
    args = TrainingArguments(str(tmp_path), per_device_train_batch_size=32, auto_find_batch_size=True)
    assert configuration(args, None, 16)["per_device_train_batch_size"] == 16
    args.auto_find_batch_size = False
    assert configuration(args, None, 16)["per_device_train_batch_size"] == 32


# The control, where it is found, and what was read there.
FOUND = [
    ("micro_batch_size", ("per_device_train_batch_size",), 4),
    ("gradient_accumulation_steps", ("gradient_accumulation_steps",), 2),
    ("gradient_checkpointing", ("activation_checkpointing",), False),
    ("precision", ("bf16",), "fp32"),
    ("attention_backend", ("attn_implementation",), "sdpa"),
    ("model_cache", ("use_cache",), False),
    ("sequence_length", ("block_size",), 128),
    ("memory_efficient_attention", ("use_xformers",), False),
    ("activation_offload", ("deepspeed", "activation_checkpointing", "cpu_checkpointing"), False),
    ("optimizer_state_offload", ("deepspeed", "zero_optimization", "offload_optimizer", "device"), False),
    ("parameter_offload", ("deepspeed", "zero_optimization", "offload_param", "device"), False),
    ("optimizer_bits", ("optim_bits",), 32),
    ("allocator_configuration", ("PYTORCH_CUDA_ALLOC_CONF",), "max_split_size_mb:64"),
]
OWN = {"block_size": 128, "use_xformers": False, "optim_bits": 32, "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
DEEPSPEED = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}},
    "activation_checkpointing": {"cpu_checkpointing": False},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}


def test_all_controls_are_found_in_what_is_recorded(storage, tmp_path):
    args = TrainingArguments(str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=2)
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(DEEPSPEED))
    args.deepspeed = str(file)  # set afterwards: DeepSpeed itself is not needed to read its configuration
    with WatcherCallback("tiny", OWN, storage) as callback:
        callback.open(args, build({}))
    found, skipped = discover(storage.get_run(callback.run.run_id)["config"])
    told = [(one.name, one.path, value_of(one)) for one in found]
    assert sorted(told) == sorted(as_here(*one) for one in FOUND), skipped


def as_here(name, path, value):
    """Return a row of FOUND as an older Transformers has it: no such arguments, so that the model's word counts."""
    fields = {field.name for field in dataclasses.fields(TrainingArguments)}
    if name == "gradient_checkpointing" and "activation_checkpointing" not in fields:
        return name, ("gradient_checkpointing",), value
    return (name, path, True) if name == "model_cache" and "use_cache" not in fields else (name, path, value)


@pytest.mark.parametrize(
    ("own", "control", "path"),
    [
        ({"batch_size": 8}, "micro_batch_size", ("batch_size",)),
        ({"train": {"micro_batch_size": 8}}, "micro_batch_size", ("train", "micro_batch_size")),
        ({"gradient_checkpointing": True}, "gradient_checkpointing", ("gradient_checkpointing",)),
        ({"mixed_precision": "no"}, "precision", ("mixed_precision",)),
        ({"attn_impl": "eager"}, "attention_backend", ("attn_impl",)),
    ],
)
def test_a_control_that_the_person_names_is_not_named_again(storage, tmp_path, own, control, path):
    with WatcherCallback("tiny", own, storage) as callback:
        callback.open(TrainingArguments(str(tmp_path)), build({}))
    found, _ = discover(storage.get_run(callback.run.run_id)["config"])
    assert [one.path for one in found if one.name == control] == [path]


@pytest.mark.parametrize(
    ("config", "limit", "steps"),
    [
        ({}, 5, 5), ({"max_steps": -1}, 5, 5), ({"max_steps": 3}, 5, 3), ({"max_steps": 9}, 5, 5),
        ({"max_steps": 9}, None, 9),
    ],
)  # fmt: skip
def test_max_steps_limits_the_arguments_and_raises_no_limit(config, limit, steps):
    assert training_arguments({**config, "layers": 2}, limit) == {"max_steps": steps}


@pytest.mark.parametrize("limit", [0, -1, 2.0, True, "3"])
def test_a_limit_that_is_no_number_of_steps_is_refused(limit):
    with pytest.raises(watcherml.errors.InvalidValue, match=r"max_steps: expected a whole number of at least 1"):
        training_arguments({}, limit)


def test_the_old_name_of_checkpointing_reaches_the_arguments_of_this_version(tmp_path):
    args = TrainingArguments(str(tmp_path), **training_arguments({"gradient_checkpointing": True}))
    assert args.gradient_checkpointing is True
    both = {"gradient_checkpointing": True, "activation_checkpointing": False}
    assert TrainingArguments(str(tmp_path), **training_arguments(both)).gradient_checkpointing is True


def test_what_a_trainer_logged_becomes_finite_metrics_without_timings(tmp_path):
    trainer = make_trainer(CONFIG, tmp_path / "out", 2)
    trainer.train()
    trainer.state.log_history.append({"eval_loss": float("nan"), "eval_runtime": 1.0, "eval_acc": 0.5, "step": 2})
    wanted = {"loss", "grad_norm", "learning_rate", "train_loss", "eval_acc", "steps_completed"}
    assert set(returned_metrics(trainer)) == wanted


def test_in_a_trial_the_callback_adds_to_the_trials_run_and_leaves_its_end_to_it(storage):
    trial = watcherml.Run("tiny", CONFIG, storage, role="trial", quiet=True).start()
    train(CONFIG, 1)
    assert trial.status == "running"
    trial.finish()
    assert [one["run_id"] for one in storage.list_runs(trials=True)] == [trial.run_id]
    assert points(storage, trial.run_id, "eval_loss")[0][0] == 1


def test_the_simulated_device_holds_a_trainer_to_its_budget_and_a_smaller_batch_fits(storage):
    with pytest.raises(SimulatedOutOfMemoryError), watcherml.simulated_device(BUDGET):
        train(CONFIG, 1)
    smaller = {**CONFIG, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    with watcherml.simulated_device(BUDGET) as device:
        metrics = train(smaller, 1)
    assert metrics["steps_completed"] == 1.0 and metrics["eval_loss"] > 0
    assert 0 < device.peak_bytes <= device.budget_bytes
    assert len(Text(16)) == 16


@pytest.mark.long
def test_a_failed_trainer_is_recovered_through_its_training_function(storage, tmp_path):
    (tmp_path / "tiny_trainer.py").write_bytes((HERE / "tiny_trainer.py").read_bytes())
    with watcherml.simulated_device(BUDGET):
        trainer = make_trainer(CONFIG, tmp_path / "out")
        with pytest.raises(SimulatedOutOfMemoryError), watch(trainer, "tiny", CONFIG, storage) as run:
            trainer.train()
    result = watcherml.recover_from_oom(
        failed_run_id=run.run_id,
        entrypoint="tiny_trainer:train",
        project_root=tmp_path,
        storage=storage,
        verification=watcherml.VerificationRequirements(
            minimum_progress_steps=6,
            metric_guards=(watcherml.MetricGuard("eval_loss", "minimize", baseline_value=5.0, max_regression=0.5),),
            confirmation_runs=1,
        ),
        budget=watcherml.RecoveryBudget(max_trials=4, max_probe_trials=2, max_full_trials=1, probe_steps=2),
    )
    assert result.verified, result.sentence
    assert [one["run_id"] for one in storage.list_runs()] == [run.run_id]  # no trial opened a run of its own
    full = next(one for one in result.trials if one.request.role == "full")
    assert len(points(storage, full.request.run_id, "eval_loss")) >= 1
    assert (
        result.verified_config["per_device_train_batch_size"] < 32 or result.verified_config["gradient_checkpointing"]
    )
