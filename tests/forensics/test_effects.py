"""What a cause means for the controls: the table holds together, and only a measured cause rules anything out."""

import pytest

from watcherml.forensics.capsule import Cause, Diagnosis
from watcherml.forensics.causes.diagnose import ruled_out, supported_capabilities
from watcherml.forensics.causes.effects import EFFECTS
from watcherml.planning.capability import BY_NAME


def diagnosis(status="diagnosed", sufficient=(), contributing=(), phase="forward"):
    def causes(ids):
        return tuple(Cause(one, f"cause {one}", 1, ("EV-6",), "a sentence") for one in ids)

    return Diagnosis(status, 1, phase, causes(sufficient), causes(contributing), (), (), 1, "a sentence")


@pytest.mark.parametrize("cause", EFFECTS)
def test_the_table_speaks_of_known_controls_and_never_both_ways(cause):
    effect = EFFECTS[cause]
    assert set(effect.supports + effect.rules_out) <= set(BY_NAME)
    assert not set(effect.supports) & set(effect.rules_out)
    assert bool(effect.rules_out) == bool(effect.because)


def test_one_diagnosed_cause_rules_out_with_its_id_and_sentence():
    found = {name: (cause, words) for name, cause, words in ruled_out(diagnosis(sufficient=("C15",)))}
    assert set(found) == {
        "micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "sequence_length",
    }  # fmt: skip
    assert found["micro_batch_size"][0] == "C15" and "activations are gone" in found["micro_batch_size"][1]


def test_a_contributing_cause_keeps_what_acts_on_it_open():
    names = {name for name, _, _ in ruled_out(diagnosis(sufficient=("C15",), contributing=("C14",)))}
    assert names == {"gradient_checkpointing"}


@pytest.mark.parametrize("status", ["ambiguous", "capacity_bound", "insufficient_evidence"])
def test_without_one_diagnosed_cause_nothing_is_ruled_out(status):
    assert ruled_out(diagnosis(status, sufficient=("C15", "C4"))) == ()


def test_supports_are_those_of_every_cause_found_and_of_a_full_card_at_work():
    assert supported_capabilities(diagnosis(sufficient=("C19",))) == ("model_cache",)
    assert "gradient_checkpointing" in supported_capabilities(diagnosis("capacity_bound"))
    assert supported_capabilities(diagnosis("capacity_bound", phase="optimizer")) == ()
    assert supported_capabilities(diagnosis("insufficient_evidence")) == ()
