"""What an entrypoint tells its trial: the worst batch, which only a probe trains on, and the model's name."""

import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from builders import MIB
from builders import plan as make_plan
from builders import request as make_request

import watcherml
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import InvalidValue
from watcherml.protocol.proposal import config_digest
from watcherml.protocol.request import Launch
from watcherml.recorder import steps, told
from watcherml.sealed.device import Device
from watcherml.trials.runner import LocalExecutor


@pytest.fixture
def trial():
    """Be inside a trial: returns the call that says which, and leaves it afterwards."""
    undo = []

    def enter(probes=True, model=None):
        counter = steps.StepCounter()
        undo.extend((steps.count_here(counter), told.listen(one := told.Told(counter, probes=probes, model=model))))
        return one

    yield enter
    for call in reversed(undo):
        call()


def never():
    raise AssertionError("made for nothing")


def test_outside_a_trial_nothing_happens():
    assert list(watcherml.worst_batch([1, 2])) == [] and list(watcherml.worst_batch(never)) == []
    watcherml.identify(model="gpt")
    watcherml.identify(model=None)
    watcherml.step()
    assert watcherml.output_directory("a/b") == Path("a/b") and not Path("a").exists()
    with pytest.raises(TypeError):
        watcherml.identify("gpt")  # the keyword says what is identified


@pytest.mark.parametrize(
    ("accumulation", "marks", "batches"), [(1, True, 2), (4, True, 8), (1, False, 2), (4, False, 2)]
)
def test_a_probe_gets_the_worst_batch_until_two_steps_were_made_on_it(trial, accumulation, marks, batches):
    trial()
    if marks:
        watcherml.step(3)  # what came before does not count
    seen = []
    for batch in watcherml.worst_batch(lambda: "longest"):
        seen.append(batch)
        if marks and len(seen) % accumulation == 0:
            watcherml.step()
    assert seen == ["longest"] * batches


def test_optimizer_steps_count_for_the_worst_batch_and_a_loop_that_never_steps_ends(trial):
    counter = trial().counter
    counter.watches_optimizers = True
    optimizer, seen = object(), 0
    for seen, _ in enumerate(watcherml.worst_batch("longest"), start=1):
        if seen % 3 == 0:
            counter._called(optimizer)
    assert seen == 6
    assert sum(1 for _ in watcherml.worst_batch("longest")) == told._MOST_ROUNDS


def test_other_trials_train_on_what_they_would_train_on_anyway(trial):
    trial(probes=False)
    assert list(itertools.chain(watcherml.worst_batch(never), "abc")) == ["a", "b", "c"]


@pytest.mark.parametrize("model", [None, 7, "", "x" * 1025, ["gpt"], b"gpt"])
def test_a_model_is_named_by_text(trial, model):
    one = trial()
    with pytest.raises(InvalidValue, match=r"identify\.model: expected text of 1 to 1024 characters"):
        watcherml.identify(model=model)
    assert one.model is None


def test_two_names_for_one_model_are_refused_and_the_same_one_is_not(trial):
    one = trial()
    watcherml.identify(model="gpt2@607a30d")
    watcherml.identify(model="gpt2@607a30d")
    with pytest.raises(InvalidValue, match="expected 'gpt2@607a30d', as an earlier call has it; got 'bert'"):
        watcherml.identify(model="bert")
    assert one.model == "gpt2@607a30d"
    trial(model="gpt")
    with pytest.raises(InvalidValue, match="expected 'gpt', as the configuration has it; got 'bert'"):
        watcherml.identify(model="bert")


@pytest.mark.parametrize("bad", ["", None, 3, b"out", "a\0b"])
def test_a_folder_that_is_no_path_is_refused_in_and_outside_of_a_trial(monkeypatch, tmp_path, bad):
    with pytest.raises(InvalidValue, match=r"output_directory\.usual: expected the path of a folder"):
        watcherml.output_directory(bad)
    monkeypatch.setenv(told.OUTPUTS, str(tmp_path))
    with pytest.raises(InvalidValue, match=r"output_directory\.usual: expected the path of a folder"):
        watcherml.output_directory(bad)


SOURCE = """
import itertools
import watcherml

def train(config, max_steps=None):
    import torch
    device = torch.device("cpu")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    lengths = [64] * 45 + [4096] + [64] * 4  # the longest comes after what a probe would see
    loader = (torch.ones(config["batch_size"], length, 64) for length in lengths)
    longest = lambda: torch.ones(config["batch_size"], max(lengths), 64)
    done = 0
    for batch in itertools.chain(watcherml.worst_batch(longest), loader):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        done += 1
        if done == max_steps:
            break
    return {"steps_completed": done}

def names(config, max_steps=None):
    watcherml.identify(model="gpt2@607a30d")
    return {"steps_completed": 5}

def saves(config, max_steps=None):
    import os
    import subprocess
    import sys

    os.chdir(os.path.dirname(__file__))
    folder, other = watcherml.output_directory("checkpoints"), watcherml.output_directory("logs/checkpoints")
    resumed = (folder / "last.pt").exists()
    (folder / "last.pt").write_text("a trial's")
    code = "import watcherml; print(watcherml.output_directory('checkpoints'))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    own, same = folder != other and other.is_dir() and not list(other.iterdir()), child == str(folder)
    return {"steps_completed": 5, "resumed": int(resumed), "same_in_a_child": int(same), "own": int(own)}

def misnames(config, max_steps=None):
    watcherml.identify(model="another")
    return {"steps_completed": 5}
"""


@pytest.fixture
def run_trials(storage, tmp_path):
    """Run trials at the same time; each is (function, role, device, changes of the configuration)."""
    (tmp_path / "told_project").mkdir()
    (tmp_path / "told_project" / "told_train.py").write_text(SOURCE)
    storage.create()
    executor = LocalExecutor(storage.path)

    def run(*wanted):
        requests, results = [], {}
        for number, (function, role, device, config) in enumerate(wanted, start=1):
            plan = make_plan(device=device)
            whole = {**plan.source.config, **config}
            proposal_id = None if role == "control" else "batch-32x2"
            request = replace(
                make_request(plan, role, number, proposal_id, trial_id=f"told-{number}"),
                entrypoint=TrainingEntrypoint(f"told_train:{function}"), config=whole,
                config_digest=config_digest(whole), max_steps=5, timeout_seconds=100.0,
            )  # fmt: skip
            executor.submit(request, Launch(request.digest, "demo", str(tmp_path / "told_project"), str(storage.path),
                                            sys.executable, None))  # fmt: skip
            requests.append(request)
        while len(results) < len(requests):
            for request in requests:
                if request.trial_id not in results and (found := executor.poll(request.trial_id)) is not None:
                    results[request.trial_id] = found
            time.sleep(0.05)
        return [results[request.trial_id] for request in requests]

    return run


def test_a_probe_finds_the_out_of_memory_of_a_batch_that_comes_late(run_trials):
    pytest.importorskip("torch")
    # 4 x 4096 x 64 numbers are 4 MiB; forward and backward need several times that, the short ones a 64th of it.
    device = Device("simulated", "simulated-cpu-budget", 8 * MIB)
    probe, control = run_trials(
        ("train", "probe", device, {"batch_size": 4}), ("train", "control", device, {"batch_size": 4})
    )
    assert probe.outcome == "oom" and probe.failure.failure_class == "simulated_out_of_memory", probe.sentence
    assert control.outcome == "completed", control.sentence
    assert (control.progress.steps, control.progress.source) == (5, "optimizer")


def test_each_trial_saves_into_an_empty_folder_that_is_gone_afterwards(run_trials, storage, tmp_path):
    mine = tmp_path / "told_project" / "checkpoints" / "last.pt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    none = Device("none")
    for trial in run_trials(("saves", "probe", none, {}), ("saves", "control", none, {})):
        assert trial.outcome == "completed", trial.sentence
        wanted = {"steps_completed": 5.0, "resumed": 0.0, "same_in_a_child": 1.0, "own": 1.0}
        assert dict(trial.metrics) == wanted, trial.trial_id
    assert mine.read_text() == "mine" and len(list(mine.parent.iterdir())) == 1
    assert not [path for path in storage.path.rglob("*") if "checkpoints" in path.name]


def test_a_trial_reports_the_model_that_was_named(run_trials):
    none = Device("none")
    named, plain, misnamed = run_trials(
        ("names", "probe", none, {}),
        ("names", "probe", none, {"model": "gpt2@607a30d"}),
        ("misnames", "probe", none, {"model": "gpt2@607a30d"}),
    )
    assert named.identity.model_identifier == plain.identity.model_identifier == "gpt2@607a30d"
    assert misnamed.outcome == "contract_error" and "as the configuration has it; got 'another'" in misnamed.sentence
