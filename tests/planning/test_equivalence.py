"""What makes accumulation another update: declared, seen in the failed process, or readable from the configuration."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcherml.errors import InvalidValue
from watcherml.planning.equivalence import accumulation_for, divisors_down, traits_of, update_sentences


@given(st.integers(1, 5000), st.integers(1, 64))
def test_ladders_are_exact_divisors_that_keep_the_effective_batch(batch, accumulation):
    rungs = divisors_down(batch)
    assert all(batch % rung == 0 for rung in rungs)
    assert all(later <= earlier // 2 for earlier, later in itertools.pairwise([batch, *rungs]))
    assert not rungs or rungs[-1] == 1
    for rung in rungs:
        assert rung * accumulation_for(batch, accumulation, rung) == batch * accumulation
    with pytest.raises(ValueError):
        accumulation_for(batch, accumulation, batch + 1)


def test_a_ladder_of_a_huge_batch_is_found_at_once():
    assert divisors_down(2**40)[0] == 2**39
    assert divisors_down(1_000_003) == [1]


SEEN = [
    ({"model": "resnet50"}, ["batch_norm"]),
    ({"model": {"name": "timm/efficientnet_b0"}}, ["batch_norm"]),
    ({"arch": "vgg16_bn"}, ["batch_norm"]),
    ({"arch": "vgg16"}, []),
    ({"model": "gpt2"}, []),
    ({"dataset": "resnet-features"}, []),
    ({"norm_layer": "BatchNorm2d"}, ["batch_norm"]),
    ({"norm": "layernorm"}, []),
    ({"use_batch_norm": True}, ["batch_norm"]),
    ({"use_batch_norm": False}, []),
    ({"model": {"bn": "none"}}, []),
    ({"sync_bn": True}, ["batch_norm"]),
    ({"loss": "info_nce"}, ["in_batch_negatives"]),
    ({"loss": {"name": "MultipleNegativesRankingLoss", "loss_name": "multiple_negatives"}}, ["in_batch_negatives"]),
    ({"train": {"criterion": "NT-Xent"}}, ["in_batch_negatives"]),
    ({"loss": "cross_entropy"}, []),
    ({"ignore_index": -100}, ["mean_of_means"]),
    ({"train_on_inputs": False}, ["mean_of_means"]),
    ({"train_on_inputs": True}, []),
    ({"completion_only_loss": True}, ["mean_of_means"]),
    ({"completion_only_loss": False}, []),
    ({"model": "resnet18", "loss": "clip", "mask_prompt": True}, ["batch_norm", "in_batch_negatives", "mean_of_means"]),
    ({"lr": 0.1, "steps": [1, 2], "nothing": None}, []),
]


@pytest.mark.parametrize(("config", "expected"), SEEN)
def test_what_a_configuration_gives_away(config, expected):
    found = traits_of(config, (), None)
    assert [one.name for one in found] == expected
    assert all(one.known_by == "seen" and " is " in one.words for one in found)


def test_modules_of_the_failed_process_and_declarations_count_too():
    (seen,) = traits_of({}, ("SyncBatchNorm", "BatchNorm2d"), None)
    assert seen.words == "BatchNorm2d, SyncBatchNorm in the failed process"
    (declared,) = traits_of({}, ("BatchNorm2d",), {"workload": {"batch_norm": True}})
    assert declared.known_by == "declared"


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        ("batch_norm", "capabilities.workload"),
        ({"batchnorm": True}, "capabilities.workload.batchnorm"),
        ({"batch_norm": False}, "capabilities.workload.batch_norm"),
        ({"batch_norm": 1}, "capabilities.workload.batch_norm"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(workload, field):
    with pytest.raises(InvalidValue, match=field):
        traits_of({}, (), {"workload": workload})


def test_a_person_reads_what_was_seen_or_that_nothing_was():
    assert "Neither BatchNorm nor in-batch negatives" in update_sentences((), 8)[0]
    sentences = update_sentences(traits_of({"model": "resnet50"}, (), None), 8)
    assert sentences == (
        "Not the same update: BatchNorm normalises each micro-batch of 8 by its own statistics (model is 'resnet50').",
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner)
                    | st.dictionaries(st.text(max_size=9), inner), max_leaves=12))  # fmt: skip
def test_any_configuration_can_be_read(config):
    traits_of({"config": config}, (), None)
