"""Each family of interventions: what it proposes, and the evidence that closes it."""

import pytest
from builders import MIB, planned, source

from watcherml.contract.permissions import InterventionPermissions
from watcherml.protocol.plan import RuledOut, Trait
from watcherml.protocol.proposal import ALLOCATOR_VARIABLES
from watcherml.sealed.device import Device

CUDA = Device("cuda", "H", 96 * MIB)
NONE = Device("none")
EVERYTHING = InterventionPermissions(True, True, True)


def make(config, device=CUDA, half="bf16", **facts):
    return planned(
        source(config, device, **facts), device, permissions=EVERYTHING, max_proposals=32, half=half,
    )  # fmt: skip


def offered(made):
    return [one.proposal_id for one in made.proposals]


def reason(made, capability):
    (found,) = [one.reason for one in made.skipped if one.capability == capability]
    return found


# configuration, facts of the failure, the proposals' ids with (path, value) of their only change
ODD = {"batch_size": 37, "accum": 1}
OFFERED = [
    ({"precision": "fp32"}, {}, {"precision-bf16": ("precision", "bf16")}),
    ({"precision": "32-true"}, {"half_precision": ("bf16", "fp16")}, {"precision-bf16": ("precision", "bf16-mixed")}),
    ({"mixed_precision": "no"}, {"half_precision": ("fp16",)}, {"precision-fp16": ("mixed_precision", "fp16")}),
    ({"torch_dtype": "float32"}, {"half_precision": None}, {"precision-bf16": ("torch_dtype", "bfloat16")}),
    ({"precision": "fp64"}, {}, {"precision-fp32": ("precision", "fp32"), "precision-bf16": ("precision", "bf16")}),
    ({"attn_implementation": "eager"}, {}, {"attention-sdpa": ("attn_implementation", "sdpa")}),
    ({"use_memory_efficient_attention": False}, {},
     {"memory-efficient-attention": ("use_memory_efficient_attention", True)}),
    ({"flash_attention": False}, {}, {"attention-flash": ("flash_attention", True)}),
    ({"use_cache": True}, {}, {"no-cache": ("use_cache", False)}),
    ({"offload_activations": False}, {}, {"activation-offload": ("offload_activations", True)}),
    ({"offload_optimizer": False}, {}, {"optimizer-offload": ("offload_optimizer", True)}),
    ({"offload_parameters": False}, {}, {"parameter-offload": ("offload_parameters", True)}),
    ({"optim_bits": 32}, {}, {"optimizer-8bit": ("optim_bits", 8)}),
    ({"block_size": 12}, {}, {"sequence-6": ("block_size", 6), "sequence-3": ("block_size", 3)}),
    ({"batch_size": "4"}, {}, {"batch-2": ("batch_size", "2"), "batch-1": ("batch_size", "1")}),
    ({"gradient_checkpointing": "false"}, {}, {"checkpointing": ("gradient_checkpointing", "true")}),
    ({"optim_bits": 32, "batch_size": 1}, {}, {"optimizer-8bit": ("optim_bits", 8)}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "facts", "expected"), OFFERED)
def test_a_control_that_is_found_is_proposed_in_the_spelling_of_the_configuration(config, facts, expected):
    made = make(config, **facts)
    assert set(offered(made)) == set(expected)
    for proposal_id, (key, value) in expected.items():
        candidate = made.candidate_config(proposal_id)
        assert candidate == {**config, key: value} and type(candidate[key]) is type(value)


CLOSED = [
    ({"precision": "bf16"}, {}, "precision", "in bf16 already"),
    ({"precision": "16-mixed"}, {}, "precision", "in fp16 already"),
    ({"precision": "fp32"}, {"half_precision": ()}, "precision", "no half precision"),
    ({"bf16": False}, {"half_precision": ("fp16",)}, "precision", "bf16 cannot say fp16"),
    ({"attn_implementation": "sdpa"}, {}, "attention_backend", "keeps no scores"),
    ({"use_memory_efficient_attention": True}, {}, "memory_efficient_attention", "on already"),
    ({"use_cache": False}, {}, "model_cache", "off already"),
    ({"offload_activations": True}, {}, "activation_offload", "on already"),
    ({"optim_bits": 8}, {}, "optimizer_bits", "8 bits already"),
    ({"optim_bits": 32, "batch_size": 8}, {}, "optimizer_bits", "activations come first"),
    ({"offload_optimizer": False, "batch_size": 8}, {"phase": "backward"}, "optimizer_state_offload", "in backward"),
    ({"block_size": 7}, {}, "sequence_length", "cannot be halved"),
    ({"batch_size": 1}, {}, "micro_batch_size", "1 already"),
    ({"gradient_checkpointing": True}, {}, "gradient_checkpointing", "on already"),
    ({}, {"slack_bytes": None}, "allocator_configuration", "not recorded"),
    ({}, {"slack_bytes": 10}, "allocator_configuration", "Only 10 bytes"),
    ({}, {"slack_bytes": 40 * MIB, "allocator": "expandable_segments:True"}, "allocator_configuration", "on already"),
    ({"batch_size": 8}, {"phase": "load"}, "micro_batch_size", "before any batch"),
    ({"gradient_checkpointing": False}, {"phase": "load"}, "gradient_checkpointing", "before any batch"),
    ({"batch_size": 8}, {"ruled_out": (RuledOut("micro_batch_size", "C15", "C15 rules it out."),)},
     "micro_batch_size", "C15 rules it out."),
]  # fmt: skip


@pytest.mark.parametrize(("config", "facts", "capability", "words"), CLOSED)
def test_what_the_evidence_closes_is_listed_with_the_reason(config, facts, capability, words):
    made = make(config, **facts)
    assert not any(capability in one.capabilities for one in made.proposals)
    assert words in reason(made, capability)


@pytest.mark.parametrize(
    ("config", "facts", "proposal_id"),
    [
        ({"optim_bits": 32, "batch_size": 8}, {"phase": "optimizer"}, "optimizer-8bit"),
        ({"optim_bits": 32, "batch_size": 8}, {"supports": ("optimizer_bits",)}, "optimizer-8bit"),
        ({"offload_optimizer": False, "batch_size": 8}, {"phase": "unknown"}, "optimizer-offload"),
        ({}, {"slack_bytes": 0, "supports": ("allocator_configuration",)}, "expandable-segments"),
        ({}, {"slack_bytes": MIB, "shortfall_bytes": 4 * MIB}, "expandable-segments"),
    ],
)
def test_the_same_control_is_open_where_the_evidence_points_to_it(config, facts, proposal_id):
    assert proposal_id in offered(make(config, **facts))


def test_every_control_of_the_vocabulary_is_proposed_or_left_out_with_a_reason():
    from watcherml.planning.capability import CONTROLS

    for device in (CUDA, NONE, Device("simulated", "simulated-cpu-budget", 96 * MIB)):
        made = make({"lr": 0.1}, device)
        assert {one.capability for one in made.skipped} == {control.name for control in CONTROLS}
        assert all(len(one.reason) > 10 for one in made.skipped)


def test_nothing_is_offloaded_on_the_simulated_device_and_its_allocator_has_no_setting():
    config = {"offload_activations": False, "offload_optimizer": False, "offload_parameters": False}
    made = make(config, Device("simulated", "simulated-cpu-budget", 96 * MIB), slack_bytes=90 * MIB)
    assert offered(made) == []
    assert "no host memory" in reason(made, "activation_offload")
    assert "CUDA" in reason(made, "allocator_configuration")


@pytest.mark.parametrize(
    ("present", "setting"),
    [
        ("", "expandable_segments:True"),
        ("max_split_size_mb:128", "expandable_segments:True"),
        ("garbage_collection_threshold:0.8, max_split_size_mb:64",
         "garbage_collection_threshold:0.8,expandable_segments:True"),
        ("expandable_segments:False,roundup_power2_divisions:4", "roundup_power2_divisions:4,expandable_segments:True"),
    ],
)  # fmt: skip
def test_the_allocator_setting_is_merged_and_given_under_both_names(present, setting):
    made = make({"lr": 0.1}, slack_bytes=40 * MIB, allocator=present)
    (proposal,) = made.proposals
    assert dict(proposal.environment) == dict.fromkeys(ALLOCATOR_VARIABLES, setting)
    assert proposal.changes == () and made.candidate_config(proposal.proposal_id) == {"lr": 0.1}
    assert proposal.authority == "approval_required" and setting in proposal.words


def test_declarations_of_the_allocator_count_where_no_configuration_holds_it():
    def offer(declaration, permissions=EVERYTHING):
        return planned(source({"lr": 0.1}, CUDA, slack_bytes=40 * MIB), CUDA, permissions=permissions,
                       declarations={"allocator_configuration": declaration})  # fmt: skip

    assert offered(offer({"risk": "high"})) == ["expandable-segments"]
    closed = offer({"risk": "high"}, InterventionPermissions(True, True, False))
    assert "allow_high_risk" in reason(closed, "expandable-segments")
    assert "forbids" in reason(offer({"authority": "forbidden"}), "allocator_configuration")


def test_a_configuration_that_holds_the_allocator_setting_says_the_same_as_the_environment():
    made = make({"env": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}}, slack_bytes=40 * MIB,
                allocator="max_split_size_mb:64")  # fmt: skip
    assert made.candidate_config("expandable-segments") == {
        "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    }


def test_controls_on_a_diagnosed_cause_come_first_then_the_gentlest():
    config = {"batch_size": 4, "gradient_accumulation_steps": 1, "attn_implementation": "eager"}
    assert offered(make(config, supports=()))[:2] == ["batch-2x2", "batch-1x4"]
    assert offered(make(config, supports=("attention_backend",)))[0] == "attention-sdpa"


def test_authority_risk_and_meaning_follow_the_vocabulary():
    config = {"offload_parameters": False, "optim_bits": 32, "use_cache": True, "precision": "fp32"}
    made = make(config)
    told = {one.proposal_id: (one.authority, one.risk, one.semantic) for one in made.proposals}
    assert told["parameter-offload"] == ("approval_required", "high", False)
    assert told["optimizer-8bit"] == ("approval_required", "high", True)
    assert told["no-cache"] == ("approval_required", "medium", False)
    assert told["precision-bf16"] == ("approval_required", "medium", True)
    closed = planned(source(config, CUDA), CUDA, permissions=InterventionPermissions(True, True, False))
    assert "allow_high_risk" in reason(closed, "optimizer-8bit") and "optimizer-8bit" not in offered(closed)


TRAITS = [
    ("batch_norm", "BatchNorm normalises each micro-batch of 2", True),
    ("in_batch_negatives", "negatives from a micro-batch of 2", True),
    ("mean_of_means", "unequal numbers of counted tokens", False),
]


@pytest.mark.parametrize(("trait", "words", "semantic"), TRAITS)
@pytest.mark.parametrize("config", [{"batch_size": 4, "gradient_accumulation_steps": 1}, {"batch_size": 4}])
def test_a_smaller_batch_that_is_another_update_needs_approval_and_says_why(trait, words, semantic, config):
    traits = (Trait(trait, "seen", "BatchNorm2d in the failed process"),)
    first = make(config, traits=traits).proposals[0]
    assert (first.authority, first.semantic) == ("approval_required", semantic)
    assert any(words in caution and "BatchNorm2d in the failed" in caution for caution in first.cautions)
    plain = make(config).proposals[0]
    assert (plain.authority, plain.semantic) == ("automatic", False)
    assert not any("Not the same update" in caution for caution in plain.cautions)


def test_a_combination_is_as_strict_as_its_parts():
    config = {"batch_size": 4, "gradient_accumulation_steps": 1, "gradient_checkpointing": False}
    made = make(config, traits=(Trait("batch_norm", "declared", "declared"),))
    both = made.proposal("batch-2x2+checkpointing")
    assert (both.authority, both.semantic) == ("approval_required", True)
    assert made.proposal("checkpointing").authority == "automatic"


# -- what is said of the effective batch: configuration, declarations, label, words of the first caution, words of none

NEMO = {"trainer": {"accumulate_grad_batches": 1}, "model": {"micro_batch_size": 4, "global_batch_size": 8}}
DERIVED = "may derive the accumulation from it, so that the effective batch may stay"
CHANGES = "Changes the effective batch"
BATCH = {"micro_batch_size": {"path": ["train_batch_size"]}}
LABELS = [
    (NEMO, None, "changed", f"model.global_batch_size is set: the framework {DERIVED}", CHANGES),
    ({"device_train_microbatch_size": 8, "global_train_batch_size": 64}, None, "changed", DERIVED, CHANGES),
    ({"train_batch_size": 128, "micro_train_batch_size": 4}, None, "changed", DERIVED, CHANGES),
    ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, None, "changed", DERIVED, CHANGES),
    ({"batch_size": 128, "micro_batch_size": 4}, None, "changed", DERIVED, CHANGES),
    ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}, None,
     "preserved", "The same update if", DERIVED),
    ({"batch_size": 8}, None, "changed", CHANGES, DERIVED),
    ({"batch_size": 8, "eval": {"global_batch_size": 8}}, None, "changed", CHANGES, DERIVED),
    ({"batch_size": 8, "gradient_accumulation_steps": 1}, None, "preserved", "The same update if", DERIVED),
    # A person says that it is the batch of one device: a script that is not DeepSpeed's.
    ({"train_batch_size": 8, "gradient_accumulation_steps": 1}, BATCH, "preserved", "The same update if", CHANGES),
    # Nobody can say that of DeepSpeed's own configuration: there it counts accumulated steps.
    ({"train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_print": 9}, BATCH, "changed", CHANGES,
     DERIVED),
    ({"train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_print": 9},
     {**BATCH, "gradient_accumulation_steps": {"path": ["gradient_accumulation_steps"]}}, "changed", CHANGES, DERIVED),
    ({"global_batch_size": 8, "accum_iter": 1}, {"micro_batch_size": {"path": ["global_batch_size"]}}, "changed",
     CHANGES, DERIVED),
    # A person says that training reads the accumulation; what speaks against it stays in view.
    (NEMO, {"gradient_accumulation_steps": {"path": ["trainer", "accumulate_grad_batches"]}}, "preserved",
     "model.global_batch_size is set", CHANGES),
]  # fmt: skip


@pytest.mark.parametrize(("config", "declarations", "label", "first", "nowhere"), LABELS)
def test_what_is_said_of_the_effective_batch_is_true(config, declarations, label, first, nowhere):
    made = planned(source(config, CUDA), CUDA, permissions=EVERYTHING, declarations=declarations)
    ladder = [one for one in made.proposals if one.policy_rule == "micro_batch_ladder"]
    assert ladder
    for one in ladder:
        assert one.effective_batch == label
        assert first in one.cautions[0] and not any(nowhere in caution for caution in one.cautions)
        assert ("effective batch stays" in one.expected_effect) == (label == "preserved")


# -- keys without end

LONG = "k" * 1900


@pytest.mark.parametrize(
    ("inner", "facts", "capability", "words"),
    [
        ({"bf16": False}, {"half_precision": ("fp16",)}, "precision", "bf16 cannot say fp16; declare"),
        ({"use_fp16": False}, {"half_precision": ("bf16",)}, "precision", "use_fp16 cannot say bf16; declare"),
        ({"batch_size": 8, "mini_batch_size": 4}, {}, "micro_batch_size", "whole path as"),
        ({"train_batch_size": 8, "accum_iter": 4}, {}, "micro_batch_size", "whole path as"),
        ({"micro_batch_size": 8, "global_batch_size": 8, "accum_iter": 4}, {}, "gradient_accumulation_steps",
         "global_batch_size sets the effective batch"),
        ({"batch_size": "x" * 5000}, {}, "micro_batch_size", "a whole number of at least 1 is needed"),
    ],
)  # fmt: skip
def test_a_reason_keeps_its_important_words_whatever_the_keys(inner, facts, capability, words):
    for config in ({LONG: inner}, {LONG: {LONG: {LONG: inner}}}):
        made = make(config, **facts)
        assert words in reason(made, capability) and len(reason(made, capability)) < 1500


def test_what_is_said_of_a_proposal_is_short_whatever_the_keys():
    made = make({LONG: {LONG: {"micro_batch_size": 8, "global_batch_size": 8}}})
    assert all(len(caution) < 600 for one in made.proposals for caution in one.cautions)


def test_a_long_reason_is_cut_in_the_middle():
    from watcherml.planning.rules.draft import left_out

    _, (skipped,) = left_out("precision", "It cannot say " + "x" * 5000 + "; declare the control that can.")
    assert skipped.reason.startswith("It cannot say x") and skipped.reason.endswith("x; declare the control that can.")
    assert len(skipped.reason) <= 2000


def test_a_value_that_cannot_be_said_is_refused_shortly():
    from watcherml.errors import InvalidValue
    from watcherml.planning.rules.draft import change
    from watcherml.protocol.proposal import Capability

    with pytest.raises(InvalidValue, match="a key that can say 'bf16'") as refused:
        change(Capability("precision", (LONG, LONG, "fp16"), "x" * 9000, "automatic", "low", False), "bf16")
    assert len(str(refused.value)) < 900


def test_without_accumulation_an_odd_batch_is_halved_and_not_taken_to_one():
    assert offered(make({"batch_size": 37})) == ["batch-18", "batch-9", "batch-4", "batch-2", "batch-1"]
    assert offered(make({"batch_size": 96}))[:3] == ["batch-48", "batch-24", "batch-12"]


def test_a_batch_that_only_one_divides_says_so():
    (only,) = make(ODD).proposals
    assert only.proposal_id == "batch-1x37" and only.effective_batch == "preserved"
    (told,) = [one for one in only.cautions if "between 1 and 37" in one]
    assert "Train on 36 instead" in told
    assert not [
        one for made in make({"batch_size": 96, "accum": 1}).proposals for one in made.cautions if "divide" in one
    ]
