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
    assert divisors_down(2**53)[-1] == 1 and len(divisors_down(2**53)) == 53


@pytest.mark.parametrize("batch", [2**53 - 1, 2**53 - 111, 10**9 + 7, 3 * (10**9 + 7), 97 * 2**46, 6**20, 999_983**2])
def test_a_ladder_of_a_huge_batch_is_exact(batch):
    rungs = divisors_down(batch)
    assert rungs[-1] == 1 and all(batch % rung == 0 for rung in rungs)
    assert all(later <= earlier // 2 for earlier, later in itertools.pairwise([batch, *rungs]))


def test_only_small_factors_of_a_huge_batch_are_looked_for():
    """Both factors are primes beyond the bound: finding them would take a million divisions, so nobody does."""
    assert divisors_down(999_983 * 1_000_003) == [1]
    assert divisors_down(4 * 999_983 * 1_000_003) == [2 * 999_983 * 1_000_003, 999_983 * 1_000_003, 4, 2, 1]


def test_the_divisions_are_counted():
    class Counting(int):
        divisions = 0

        def __mod__(self, other):
            Counting.divisions += 1
            return int(self) % other

        def __floordiv__(self, other):
            return Counting(int(self) // other)

    divisors_down(Counting(2**53 - 111))  # a prime
    assert 1000 < Counting.divisions <= 100_000


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
    # nested forms of a loss
    ({"loss": {"name": "info_nce"}}, ["in_batch_negatives"]),
    ({"criterion": {"_target_": "losses.SupConLoss"}}, ["in_batch_negatives"]),
    ({"criterion": {"type": "NTXentLoss", "temperature": 0.1}}, ["in_batch_negatives"]),
    ({"train": {"objective": {"kind": {"class_path": "a.b.InfoNCE"}}}}, ["in_batch_negatives"]),
    ({"losses": [{"type": "CrossEntropy"}, {"type": "SupConLoss"}]}, ["in_batch_negatives"]),
    ({"loss_fn": ["mse", "info-nce"]}, ["in_batch_negatives"]),
    ({"loss": {"info_nce": {"weight": 0.5}}}, ["in_batch_negatives"]),
    ({"loss": {"contrastive_weight": 0.5}}, ["in_batch_negatives"]),
    ({"loss": {"contrastive_weight": 0.0, "ce_weight": 1.0}}, []),
    ({"loss": {"contrastive": "False"}}, []),
    ({"temperature": 0.07, "contrastive": True}, ["in_batch_negatives"]),
    ({"use_contrastive": "yes"}, ["in_batch_negatives"]),
    ({"contrastive": "margin", "contrastive_search": True}, []),
    ({"method": "simclr"}, ["in_batch_negatives"]),
    ({"module": {"_target_": "pkg.MultipleNegativesRankingLoss"}}, ["in_batch_negatives"]),
    ({"loss": {"name": "cross_entropy", "reduction": "mean"}}, []),
    ({"loss": {"_target_": "torch.nn.CrossEntropyLoss"}}, []),
    ({"loss": {"clip_value": 1.0, "name": "ppo"}}, []),
    ({"optimizer": {"type": "clip"}}, []),
    ({"dataset": {"name": "contrastive-pairs"}}, []),
    ({"loss": {"_target_": "torch.nn.CrossEntropyLoss", "ignore_index": -100}}, ["mean_of_means"]),
    # nested forms of a model
    ({"model": {"type": "ResNet"}}, ["batch_norm"]),
    ({"model": {"backbone": {"type": "mmcls.ResNet", "depth": 50}}}, ["batch_norm"]),
    ({"model": {"type": "EncoderDecoder", "backbone": {"type": "MyResNetV2"}}}, ["batch_norm"]),
    ({"backbone": {"type": "ViT", "norm_cfg": {"type": "SyncBN", "requires_grad": True}}}, ["batch_norm"]),
    ({"net": "resnet50"}, ["batch_norm"]),
    ({"network": {"name": "DenseNet"}}, ["batch_norm"]),
    ({"trunk": "wide_resnet50_2"}, ["batch_norm"]),
    ({"model_type": "efficientnet"}, ["batch_norm"]),
    ({"model": {"_target_": "torchvision.models.resnet50"}}, ["batch_norm"]),
    ({"lit_module": {"_target_": "torchvision.models.resnet50"}}, ["batch_norm"]),
    ({"lit_module": {"net": {"_target_": "timm.create_model", "model_name": "mobilenetv3_large_100"}}}, ["batch_norm"]),
    ({"experiment": {"model": {"arch": "resnext101_32x8d"}}}, ["batch_norm"]),
    ({"models": {"resnet18": {"width": 64}}}, ["batch_norm"]),
    ({"models": [{"name": "gpt2"}, {"name": "resnet18"}]}, ["batch_norm"]),
    # nested forms of a norm
    ({"norm_layer": "nn.BatchNorm2d"}, ["batch_norm"]),
    ({"norm_layer": "<class 'torch.nn.modules.batchnorm.BatchNorm2d'>"}, ["batch_norm"]),
    ({"norm_layer": "batch"}, ["batch_norm"]),
    ({"model": {"normalization": {"type": "Batch"}}}, ["batch_norm"]),
    ({"norm_cfg": {"type": "BN"}}, ["batch_norm"]),
    ({"norm_cfg": {"type": "MMSyncBN"}}, ["batch_norm"]),
    ({"model": {"norm": "BN"}}, ["batch_norm"]),
    ({"layers": [{"type": "Conv2d"}, {"type": "BatchNorm2d"}]}, ["batch_norm"]),
    ({"batch_norm": {"momentum": 0.1}}, ["batch_norm"]),
    ({"batch_norm": {"enabled": False, "momentum": 0.1}}, []),
    ({"batch_norm": {"enabled": "no", "momentum": 0.1}}, []),
    ({"use_bn": "False", "sync-bn": "NO", "model": {"bn": 0.0}}, []),
    # innocent
    ({"norm_cfg": {"type": "GN", "num_groups": 32}}, []),
    ({"norm_layer": "nn.LayerNorm"}, []),
    ({"norm_layer": "FrozenBatchNorm2d"}, []),
    ({"norm": {"type": "instance"}, "grad_norm": "batch_max"}, []),
    ({"model": {"type": "GPT", "encoder": {"name": "bert-base"}}}, []),
    ({"net": {"name": "vgg16"}}, []),
    ({"model": {"_target_": "torchvision.models.vgg16"}}, []),
    ({"model": {"data": {"name": "resnet-features"}}}, []),
    ({"data": {"pretrained": "resnet50-imagenet-features.pt"}}, []),
    ({"data": {"name": "resnet-features", "encoder_features": "resnet50.npy"}}, []),
    ({"dataset": {"type": "ResNetFeatures"}}, []),
    ({"model_name_or_path": "inceptionai/jais-13b"}, []),
    ({"model": {"name": "convnext_tiny"}}, []),
    ({"wandb": {"name": "resnet-run"}, "run_name": "resnet50-lr1"}, []),
    ({"optimizer": {"name": "adam"}, "scheduler": {"type": "cosine"}}, []),
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


def test_what_was_seen_is_said_shortly_and_keeps_the_key():
    (seen,) = traits_of({"k" * 1900: {"net": {"name": "resnet50" + "x" * 5000}}}, (), None)
    assert len(seen.words) < 400 and "net.name is 'resnet50" in seen.words
    assert traits_of({"batch_norm": 10**5000}, (), None)[0].name == "batch_norm"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner)
                    | st.dictionaries(st.text(max_size=9), inner), max_leaves=12))  # fmt: skip
def test_any_configuration_can_be_read(config):
    names = [one.name for one in traits_of({"config": config}, (), None)]
    assert len(set(names)) == len(names) and set(names) <= {"batch_norm", "in_batch_negatives", "mean_of_means"}
