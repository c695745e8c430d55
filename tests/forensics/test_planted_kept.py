"""Real training on the simulated device in which a smaller step does not help: the action says what does."""

from dataclasses import replace

import planted_kept
import pytest
import torch
from cause_vectors import static, steps, vector
from torch import nn

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.causes.diagnose import diagnose, supported_capabilities
from watcherml.forensics.causes.vector import History, Sizes
from watcherml.forensics.contained import MOST_LOOKED_AT, Contained, contained
from watcherml.forensics.seen import Live, static_bytes
from watcherml.report.advice import next_step, without_next
from watcherml.simulated.device import simulated_device

MIB = 2**20


def fail(storage, program, budget):
    run = watcherml.Run("demo", {"batch_size": 64}, storage, quiet=True)
    with pytest.raises(RuntimeError, match="SIMULATED"), run, simulated_device(int(budget * MIB)) as device:
        getattr(planted_kept, program)(device)
    assert not run.problems, run.problems
    return Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])


# Program, budget in MiB, how the action begins, what it and the sentence must say, and what neither may, and
# whether the step's own tensors may be listed as a cause.
SMALLER = "make the step smaller"
NONE_HELPS = "no smaller step helps"
CASES = [
    ("averaged_copy_first_backward", 10.5, "let go of those of the 2 models", "no smaller step helps", SMALLER, False),
    ("models_in_a_list", 10.5, "let go of those of the 2 models", "no smaller step helps", SMALLER, True),
    ("quasi_newton", 14, "use an optimizer with smaller state or a shorter history", "", SMALLER, False),
    ("early_leak", 14, "see what is kept from step to step", "if nothing is, ", "it does not cure it", True),
    ("cached_models", 14, "let go of models that were built before", "whether an earlier model", "smaller type", False),
    ("sweep", 24, "", "models that this training does not need", SMALLER, False),
    ("shadow_list", 10, "move what is kept from step to step", "a smaller step alone frees too", SMALLER, True),
    ("data_on_the_device", 11.2, "move what is kept from step to step", "to the CPU", "no smaller step", True),
    ("inference_with_gradients", 12, "if this is no training, run it under torch.no_grad()", "else ", "no small", True),
    ("generation", 8, "use a smaller evaluation batch, and see what is kept", "", "micro-batch", False),
    (
        "kept_exception",
        6,
        "find what holds the rest (an earlier model, a kept exc",
        "no model or optimizer found",
        NONE_HELPS,
        True,
    ),
    ("model_in_a_closure", 6, "let go of those of the 2 models", SMALLER, NONE_HELPS, True),
    ("host_data", 24, SMALLER, "", "move what is kept", True),
]


@pytest.mark.parametrize(("program", "budget", "begin", "said", "never", "step"), CASES, ids=[row[0] for row in CASES])
def test_the_action_names_what_fills_the_device(storage, program, budget, begin, said, never, step):
    capsule = fail(storage, program, budget)
    found = capsule.diagnosis
    assert found.action is not None and found.action.startswith(begin), found.to_data()
    assert said in f"{found.action} {found.sentence}" and never not in f"{found.action} {found.sentence}"
    assert step or "C21" not in {one.id for one in (*found.sufficient, *found.contributing)}, found.to_data()
    shown = without_next(capsule.headline, capsule)
    assert "Next" not in shown and found.action not in shown  # it stands once, below
    assert next_step(capsule).count(found.action) == 1


def test_memory_of_an_earlier_attempt_is_not_excluded_because_the_run_began_before_it(storage):
    found = fail(storage, "kept_exception", 6).diagnosis
    left = next(one for one in found.unknown if one.id == "C5")
    assert left.bytes is not None and left.bytes >= 3 * MIB and "belong to no model" in left.sentence, found.to_data()
    assert "C5" in {one.id for one in fail(storage, "model_in_a_closure", 6).diagnosis.excluded}  # it was found


FULL = {"phase": "backward", "step": 0, "foreign": 0.0, "own_other": 0.5, "gc_freed": 0.0}


def test_gradients_still_to_come_that_cannot_fit_leave_the_step_out_of_it():
    """22 GiB are held, 10 of them the model's; its gradients and state need 16 more, on a card of 24."""
    case = vector(**FULL, static=static(parameters=10.0, to_come=16.0), sizes=Sizes(micro_batch=8))
    found = diagnose(case)
    assert found.status == "capacity_bound" and not found.sufficient and "C21" in {one.id for one in found.contributing}
    assert "need 26.00 GiB of the 22.40 GiB" in found.sentence and "no smaller step helps" in str(found.action)
    fits = diagnose(vector(**FULL, static=static(parameters=10.0, to_come=6.0), sizes=Sizes(micro_batch=8)))
    assert [one.id for one in fits.sufficient] == ["C21"] and "make the step smaller" in str(fits.action)
    unknown = diagnose(vector(**FULL, static=static(parameters=10.0), sizes=Sizes(micro_batch=8)))
    assert "no smaller step helps" not in str(unknown.action)


def test_what_lay_there_after_the_last_step_is_not_called_the_steps_own():
    resting = History(**steps(21_900, 0.0, 10), batch_elements=(8,) * 11)
    case = {**FULL, "step": 10, "static": static(parameters=6.0, returning=0.0), "sizes": Sizes(micro_batch=8)}
    found = diagnose(vector(**case, history=resting))
    assert "C21" not in {one.id for one in (*found.sufficient, *found.contributing)}, found.to_data()
    assert str(found.action).startswith("move what is kept from step to step")
    # Gradients that every step makes again were in that reading and are not kept.
    gone = diagnose(vector(**{**case, "static": static(parameters=6.0, returning=6.0)}, history=resting))
    assert [one.id for one in gone.sufficient] == ["C21"]
    assert "micro_batch_size" in supported_capabilities(found)  # it is only not known


def test_an_earlier_model_that_has_a_name_too_is_not_excluded_as_a_left_over():
    """In a notebook the first model may still be in ``_`` or ``Out`` when the cell that builds it runs again."""
    case = {**FULL, "phase": "optimizer", "at_start": 6.0, "q": 1.0}
    one = diagnose(vector(**case, static=static(parameters=6.0, optimizer=0.0, optimizer_expected=12.0)))
    assert "C5" in {found.id for found in one.excluded} and str(one.action) == "use an optimizer with smaller state"
    both = replace(static(parameters=6.0, optimizer=0.0, optimizer_expected=12.0), models=2)
    two = diagnose(vector(**case, static=both))
    assert "C5" in {found.id for found in two.unknown}
    assert "let go of those of the 2 models" in str(two.action) and str(two.action) in two.sentence


def test_growth_that_lies_in_the_optimizers_state_is_no_leak():
    growing = {"history": History(**steps(4_000, 300.0, 30), batch_elements=(100,) * 31), "gc_freed": 0.0, "step": 30}
    assert [one.id for one in diagnose(vector(**growing)).sufficient] == ["C10"]
    found = diagnose(vector(**growing, static=static(parameters=1.0, optimizer=11.0)))
    assert "C10" in {one.id for one in found.contributing} and found.horizon_step is None


def test_state_in_lists_is_counted_and_a_training_that_ended_makes_nothing_more():
    model, old = nn.Linear(64, 64), nn.Linear(64, 64)
    own = 4 * (64 * 64 + 64)
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        lbfgs.zero_grad()
        loss = model(torch.ones(2, 64)).pow(2).sum()
        loss.backward()
        return loss

    lbfgs.step(closure)
    assert static_bytes(Live([model], [lbfgs]), "cpu").optimizer >= 4 * own
    adam = torch.optim.Adam(old.parameters())
    assert static_bytes(Live([old], [adam]), "cpu").to_come == 3 * own
    old(torch.ones(1, 64)).sum().backward()
    adam.step()
    adam.zero_grad()
    assert static_bytes(Live([old], [adam]), "cpu").to_come == 0
    assert static_bytes(Live([old], [adam], [adam]), "cpu").returning == own
    old.weight.register_post_accumulate_grad_hook(lambda one: None)
    assert static_bytes(Live([old], [adam]), "cpu").to_come is None


def test_a_model_that_a_name_and_a_list_hold_is_one_model():
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    kept = Contained({id(one): one for one in (first, second)})
    found = static_bytes(Live([first], kept=kept), "cpu")
    own = 4 * (64 * 64 + 64)
    assert (found.models, found.parameters, found.contained) == (2, own, own)


class Hostile(list):
    """A list of the user's own is not walked."""

    def __iter__(self):
        raise ZeroDivisionError


def test_the_walk_through_containers_ends_and_runs_no_code_of_the_users():
    knot: list = []
    knot.append(knot)
    deep: list = [torch.zeros(1)]
    for _ in range(50):
        deep = [deep]
    kinds = (nn.Module, torch.optim.Optimizer, torch.Tensor)
    found = contained([knot, deep, Hostile([1]), {"a": [Hostile([2])]}, {}], kinds, lambda one: [])
    assert not found.modules and not found.tensors
    layer = nn.Linear(2, 2)
    many = [[0] * 1_000 for _ in range(2 * MOST_LOOKED_AT // 1_000)]
    assert not contained([[*many, layer], many], kinds, lambda one: []).tensors
    assert list(contained([{"results": [{"model": layer}]}], kinds, lambda one: []).modules.values()) == [layer]
