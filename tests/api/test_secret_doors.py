"""What a person types beside a record, and the names in a person's code, hold no secret in the store either."""

import contextlib

import pytest
import stored
from builders import FAILED_CONFIG

import watcherml
from watcherml.api.recover import RecoveryPreparation
from watcherml.api.removal import carry_out, plan_deletion
from watcherml.api.resolve import resolve

KEY = "ghp_R7dKq2LmN8vXc4BzT1yWf6HsJ3pGa9EuQ0oD"  # of nobody


def names_in(storage, file, code):
    """Record a run in which this code of that file fails, and return its id."""
    with contextlib.suppress(Exception), watcherml.Run("p", {}, storage, quiet=True) as run:
        exec(compile(code, file, "exec"))
    return run.run_id


def raise_in_function(storage):
    names_in(storage, "train.py", f"def f_{KEY}(): raise ValueError(1)\nf_{KEY}()")


def raise_in_file(storage):
    names_in(storage, f"{KEY}.py", "raise ValueError(1)")


def raise_named(storage):
    names_in(storage, "train.py", f"raise type('E_{KEY}', (Exception,), {{}})(1)")


def resolver(storage):
    run_id = names_in(storage, "train.py", "raise ValueError(1)")
    resolve(run_id, by=f"me {KEY}", note=f"rotated {KEY}", storage=storage)


def approver(storage):
    prepared = RecoveryPreparation(stored.recorded_plan(storage, FAILED_CONFIG), storage)
    proposal = prepared.plan.proposals[0].proposal_id
    prepared.authorize(proposal, approved_by=f"me {KEY}", reason=f"seen with {KEY}")


def remover(storage):
    plan = stored.recorded_plan(storage, FAILED_CONFIG)
    planned = plan_deletion(plan.source.run_id, storage=storage, campaigns=True)
    assert carry_out(planned, by=f"me {KEY}", reason=f"it held {KEY}", storage=storage).deletion


@pytest.mark.parametrize("door", [raise_in_function, raise_in_file, raise_named, resolver, approver, remover])
def test_a_key_that_comes_in_by_this_door_is_in_no_byte_of_the_store(storage, door):
    door(storage)
    files = [path for path in storage.path.rglob("*") if path.is_file()]
    data = b"".join(path.read_bytes() for path in files)
    assert b"[redacted:" in data and KEY[4:].encode() not in data


def test_the_names_of_a_failure_are_otherwise_as_they_were(storage):
    run_id = names_in(storage, "train_model.py", "def step_3(): raise ValueError(1)\nstep_3()")
    found = storage.get_capsule(run_id)["failure"]
    assert (found["where"], found["exception_type"]) == ("train_model.py:1 in step_3", "ValueError")
