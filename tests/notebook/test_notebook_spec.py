"""``RecoverySpec``: what a recovery was asked for, and preparing it again with other values."""

import math

import pytest
from notebook_shell import INIT, OOM, TRAIN

from watcherml.errors import UsageError, WatcherError
from watcherml.notebook.spec import guard


@pytest.fixture
def spec(notebook):
    """What a plan was prepared from, for a run that logged a loss and an accuracy."""
    notebook.run(INIT)
    logged = "{'loss': 0.5, 'val/accuracy': 0.75, 'steps_completed': 3, 'broken': float('nan')}"
    notebook.run(f"for step in range(30):\n    run.log({logged}, step)\nraise RuntimeError({OOM!r})")
    return notebook.run(f"%%watcher recover --max-trials 8\n{TRAIN}").value.spec


def test_a_plan_is_prepared_again_with_other_values_and_the_spec_stays(spec):
    assert spec.values == {"metrics": (), "minimum_progress_steps": 6, "max_trials": 8, "confirmation_runs": 2,
                           "max_peak_vram_gib": None}  # fmt: skip
    assert spec.suggested_metrics() == ("loss:minimize:0.5:0.05", "val/accuracy:maximize:0.75:0.075")
    changes = {"metrics": spec.suggested_metrics(), "minimum_progress_steps": 4, "max_trials": 6,
               "confirmation_runs": 1, "max_peak_vram_gib": 1.5}  # fmt: skip
    contract = spec.prepare(**changes).plan.contract
    assert [one.name for one in contract.verification.metric_guards] == ["loss", "val/accuracy"]
    assert contract.verification.minimum_progress_steps == 4 and contract.verification.confirmation_runs == 1
    assert contract.budget.max_trials == 6 and contract.verification.max_peak_vram_bytes == 3 * 2**29
    assert spec.changed(**changes).values == changes
    assert spec.values["metrics"] == () and spec.changed(**changes).changed(max_peak_vram_gib=None).flags is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_trails": 3}, "max_trails"),
        ({"metrics": ("loss",)}, "--metric"),
        ({"metrics": ("loss:minimize:x:1",)}, "BASELINE"),
        ({"minimum_progress_steps": 0}, "minimum_progress_steps"),
        ({"confirmation_runs": 4}, "confirmation_runs"),
        ({"max_peak_vram_gib": -1.0}, "--max-peak-vram-gib"),
        ({"max_trials": 11}, "max_trials"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(changes, words):
    from argparse import Namespace

    from watcherml.contract.entrypoint import TrainingEntrypoint
    from watcherml.notebook.recover import parsed
    from watcherml.notebook.spec import RecoverySpec

    flags = Namespace(**vars(parsed("--minimum-progress-steps 5")))

    class Known(RecoverySpec):
        def _config(self):
            return {"training_steps": 5}

    with pytest.raises((UsageError, WatcherError), match=words):
        Known("run", None, TrainingEntrypoint("a:b"), flags).check(**changes)


@pytest.mark.parametrize(
    ("name", "direction"),
    [("loss", "minimize"), ("val_accuracy", "maximize"), ("acc", "maximize"), ("train/f1", "maximize"),
     ("mape", "minimize"), ("account", "minimize"), ("mAP", "maximize")],
)  # fmt: skip
def test_the_direction_of_a_suggested_guard_is_guessed_by_whole_words(name, direction):
    assert guard(name, 2.0) == f"{name}:{direction}:2:0.2"
    assert math.isfinite(float(guard(name, 1e-9).rpartition(":")[2]))
