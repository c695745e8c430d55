"""Ten real trainings on the simulated device: the predicted largest micro-batch beside the truth, and what it saves.

The truth is found by training: with the predicted batch, and with one sample more. Run the long form with
``pytest -m long -s tests/campaign/test_ten_workloads.py``; it prints both tables.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import watcherml
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.planning.predict import largest_fitting
from watcherml.trials.dry_run import DryRun

pytest.importorskip("torch")
HERE = Path(__file__).resolve().parent
MODULE = "ten_workloads"
TARGET = TrainingEntrypoint(f"{MODULE}:train")
# The batch that fails; the budget is two thirds of what it is predicted to need.
FAILING = {
    "gpt-adamw": 96, "gpt-adamw-checkpointed": 160, "gpt-sgd": 64, "conv-sgd": 192, "conv-bn-adam": 128,
    "conv-bn-sgd-checkpointed": 160, "mlp-adam": 3_000, "mlp-sgd": 2_500, "encoder-dropout-adamw": 72,
    "encoder-dropout-adam-checkpointed": 100,
}  # fmt: skip
SHORT = ("gpt-sgd", "conv-bn-adam")
# Trains with a batch and with one sample more, for longer than the prediction looked.
TRUTH = """
import json, sys
import torch
from ten_workloads import train
from watcherml.simulated.device import simulated_device

def fits(name, size, budget):
    try:
        with simulated_device(budget):
            train({"workload": name, "batch_size": size}, max_steps=4)
    except torch.OutOfMemoryError:
        return False
    return True

asked = json.loads(sys.argv[1])
print(json.dumps([[fits(name, size + more, budget) for more in (0, 1)] for name, size, budget in asked]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("workloads")
    (root / f"{MODULE}.py").write_bytes((HERE / f"{MODULE}.py").read_bytes())
    (root / "truth.py").write_text(TRUTH)
    return root


def predict(project, names):
    """Return (name, budget, largest micro-batch, evaluations, seconds) of each, from one child process."""
    found = []
    with DryRun(timeout_seconds=1_800) as dry:
        assert dry.open(TARGET, project) == ""
        for name in names:
            began = time.monotonic()

            def peak(size, name=name):
                answer = dry.ask({"workload": name, "batch_size": size})
                assert answer.peak_bytes is not None, answer.reason
                return answer.peak_bytes

            budget = peak(FAILING[name]) * 2 // 3
            fitting = largest_fitting(range(1, FAILING[name] + 1), peak, budget)
            assert fitting.complete and fitting.monotone
            found.append((name, budget, fitting.value, len(fitting.peaks), time.monotonic() - began))
    return found


def truth(project, predictions):
    """Return for each prediction whether its batch trains within the budget, and whether one sample more does."""
    asked = json.dumps([(name, size, budget) for name, budget, size, *_ in predictions])
    done = subprocess.run(
        [sys.executable, "truth.py", asked], cwd=project, capture_output=True, text=True, timeout=900, check=True
    )
    return json.loads(done.stdout)


def compared(project, names):
    predictions = predict(project, names)
    real = truth(project, predictions)
    print(f"\n{'workload':36} {'budget MiB':>10} {'predicted':>9} {'B fits':>6} {'B+1 fits':>8} {'asked':>6} {'s':>6}")
    for (name, budget, size, asked, seconds), (fits, more) in zip(predictions, real, strict=True):
        print(f"{name:36} {budget / 2**20:10.1f} {size:9} {fits!s:>6} {more!s:>8} {asked:6} {seconds:6.1f}")
    return [(fits, more) == (True, False) for fits, more in real]


def test_the_predicted_largest_micro_batch_is_the_true_one(project):
    assert compared(project, SHORT) == [True, True]


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_of_ten_workloads_at_least_nine_are_predicted_exactly(project):
    assert len(FAILING) == 10
    assert sum(compared(project, FAILING)) >= 9


CAMPAIGNS = {"gpt-adamw": 96, "encoder-dropout-adamw": 96, "conv-sgd": 192}


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_predicted_ladder_needs_fewer_trials_than_halving(name, project, tmp_path, monkeypatch):
    """An eighth of the batch fits: halving probes three rungs, a plan with predictions one."""
    monkeypatch.chdir(project)
    told = {}
    for predicted in (False, True):
        storage = watcherml.Storage(tmp_path / f"store-{predicted}")
        run_id, began = fail(storage, project, name), time.monotonic()
        result = watcherml.recover_from_oom(
            run_id, TARGET, watcherml.VerificationRequirements(4, confirmation_runs=1),
            watcherml.RecoveryBudget(max_trials=10, max_probe_trials=6, max_full_trials=1),
            storage=storage, project_root=project, predict=predicted,
        )  # fmt: skip
        roles = [row["role"] for row in storage.audit.trials(result.campaign_id)]
        told[predicted] = (result.verified, result.verified_candidate_id, roles, time.monotonic() - began)
        peaks = {one.proposal_id: one.predicted_peak_bytes for one in result.chain.plan.proposals}
        assert (peaks[result.verified_candidate_id] is not None) == predicted
    for predicted, (verified, candidate, roles, seconds) in told.items():
        way = "predicted" if predicted else "halving"
        print(
            f"\n{name:24} {way:10} {candidate:14} trials {len(roles)} ({roles.count('probe')} probes) {seconds:6.1f} s"
        )
        assert verified
    assert told[True][1] == told[False][1]
    assert told[False][2].count("probe") == 3 and told[True][2].count("probe") == 1


def fail(storage, project, name):
    """Record the run that dies with the whole batch where only an eighth of it fits; returns its id."""
    sys.path.insert(0, str(project))
    from ten_workloads import train

    from watcherml.simulated.device import simulated_device

    batch = CAMPAIGNS[name]
    config = {"workload": name, "batch_size": batch, "gradient_accumulation_steps": 1, "training_steps": 4, "seed": 0}
    with simulated_device(None) as device:
        train({**config, "batch_size": batch // 8, "gradient_accumulation_steps": 8}, max_steps=2)
    run = watcherml.Run("ten", config, storage, quiet=True)
    with pytest.raises(RuntimeError, match="SIMULATED"):
        with simulated_device(device.peak_bytes + 2**14), run:
            train(config)
    sys.path.remove(str(project))
    return run.run_id
