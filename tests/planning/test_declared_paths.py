"""A declared path says where a control is. It can't make a strict control gentle, nor one value two controls."""

import pytest
from builders import planned, source

from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_NAME, CONTROLS
from watcherml.planning.discover import discover

CONFIG = {
    "sequence_length": 128, "fp16": {"enabled": False, "on": False}, "model": {"Max-Seq-Length": 64}, "hidden": 64,
    "data.block_size": 32, "--seq-len": 16, "precision": "fp32", "batch_size": {"size": 8, "accum": 2}, "opt": 32,
    "activation_checkpointing": {"cpu_checkpointing": False, "on": False}, "optim_bits": 32, "use_cache": True,
    "maxSeqLength": 8, "SequenceLength ": 8, "deep": {"offload_parameters": {"how": {"far": False}}},
}  # fmt: skip

LOOSER = [
    ("micro_batch_size", ["sequence_length"], "sequence_length"),
    ("gradient_accumulation_steps", ["sequence_length"], "sequence_length"),
    ("gradient_checkpointing", ["fp16", "enabled"], "precision"),
    ("gradient_checkpointing", ["fp16", "on"], "precision"),
    ("micro_batch_size", ["model", "Max-Seq-Length"], "sequence_length"),
    ("micro_batch_size", ["data.block_size"], "sequence_length"),
    ("micro_batch_size", ["--seq-len"], "sequence_length"),
    ("micro_batch_size", ["maxSeqLength"], "sequence_length"),
    ("micro_batch_size", ["SequenceLength "], "sequence_length"),
    ("micro_batch_size", ["optim_bits"], "optimizer_bits"),
    ("gradient_checkpointing", ["deep", "offload_parameters", "how", "far"], "parameter_offload"),
    ("gradient_checkpointing", ["use_cache"], "model_cache"),
    ("activation_offload", ["deep", "offload_parameters", "how", "far"], "parameter_offload"),
    ("sequence_length", ["batch_size"], "micro_batch_size"),
    ("attention_backend", ["precision"], "precision"),
]


@pytest.mark.parametrize(("name", "path", "other"), LOOSER)
def test_a_path_to_another_control_is_refused(name, path, other):
    with pytest.raises(InvalidValue) as refused:
        discover(CONFIG, {name: {"path": path}})
    error = refused.value
    assert error.message == f"capabilities.{name}.path"
    assert other in str(error) and error.expected and error.got and error.remedy


def test_no_alias_can_be_declared_as_another_control():
    for control in CONTROLS:
        for alias in control.aliases:
            for other in set(BY_NAME) - {control.name}:
                with pytest.raises(InvalidValue, match=f"capabilities.{other}.path"):
                    discover({"x": {alias: 8}}, {other: {"path": ["x", alias]}})
            discover({"x": {alias: 8}}, {control.name: {"path": ["x", alias]}})


def test_a_section_of_a_stricter_control_is_allowed_to_one_that_is_declared_as_strict():
    strict = {"path": ["fp16", "on"], "authority": "approval_required", "risk": "medium", "semantic": True}
    found, _ = discover(CONFIG, {"gradient_checkpointing": strict})
    (capability,) = [one for one in found if one.name == "gradient_checkpointing"]
    assert (capability.authority, capability.risk, capability.semantic) == ("approval_required", "medium", True)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("micro_batch_size", ["hidden"]),
        ("gradient_accumulation_steps", ["batch_size", "accum"]),
        ("micro_batch_size", ["batch_size", "size"]),
        ("activation_offload", ["activation_checkpointing", "cpu_checkpointing"]),
        ("gradient_checkpointing", ["activation_checkpointing", "on"]),
        ("precision", ["fp16", "enabled"]),
    ],
)
def test_an_unknown_key_or_a_key_of_its_own_is_allowed_at_the_control_s_authority(name, path):
    found, _ = discover(CONFIG, {name: {"path": path}})
    (capability,) = [one for one in found if one.name == name]
    assert capability.source == "declared" and list(capability.path) == path
    assert capability.authority == BY_NAME[name].authority and capability.semantic == BY_NAME[name].semantic


@pytest.mark.parametrize("forbidden", [False, True])
def test_two_declarations_of_one_path_are_refused_by_both_names(forbidden):
    told = {"path": ["hidden"], **({"authority": "forbidden"} if forbidden else {})}
    with pytest.raises(InvalidValue) as refused:
        discover(CONFIG, {"micro_batch_size": {"path": ["hidden"]}, "gradient_accumulation_steps": told})
    text = str(refused.value)
    assert "capabilities.gradient_accumulation_steps.path" in text and "capabilities.micro_batch_size.path" in text
    assert "hidden" in text and refused.value.remedy


def test_a_declared_path_that_was_found_as_another_control_is_refused_by_both_names(monkeypatch):
    from watcherml.planning import controls_declared

    monkeypatch.setattr(controls_declared, "_other_control", lambda control, path: None)
    with pytest.raises(InvalidValue) as refused:
        discover({"sequence_length": 128}, {"micro_batch_size": {"path": ["sequence_length"]}})
    assert "sequence_length" in str(refused.value) and "micro_batch_size" in str(refused.value)


def test_a_declaration_does_not_pass_the_permissions():
    with pytest.raises(InvalidValue):
        planned(source({"sequence_length": 128}), permissions=InterventionPermissions(),
                declarations={"micro_batch_size": {"path": ["sequence_length"]}})  # fmt: skip


# -- what is said of keys and values without end

LONG = "k" * 1900
HUGE = 10**5000
NESTED: list = []
for _ in range(5000):
    NESTED = [NESTED]
WRONG = [
    {"micro_batch_size": {"path": [LONG, LONG]}},
    {"micro_batch_size": {"path": [LONG] * 16}},
    {"micro_batch_size": {"path": [LONG] * 17}},
    {"micro_batch_size": {"path": [LONG, "seq_len"]}},
    {"micro_batch_size": {"path": [LONG, "size"]}, "gradient_accumulation_steps": {"path": [LONG, "size"]}},
    {"micro_batch_size": {LONG: 1}},
    {"micro_batch_size": NESTED},
    {"micro_batch_size": {"authority": NESTED}},
    {"micro_batch_size": {"risk": HUGE}},
    {"micro_batch_size": {"semantic": [HUGE]}},
    {"micro_batch_size": {"path": HUGE}},
    {HUGE: {}},
    {LONG: {}},
    NESTED,
    HUGE,
]


@pytest.mark.parametrize("declarations", WRONG, ids=range(len(WRONG)))
def test_an_error_about_a_declaration_without_end_is_short(declarations):
    with pytest.raises(InvalidValue) as refused:
        discover({LONG: {"size": 8, "seq_len": 8, **{f"{n}{LONG}": n for n in range(50)}}}, declarations)
    assert len(str(refused.value)) < 1500 and refused.value.message.startswith("capabilities.")


@pytest.mark.parametrize("workload", [{LONG: True}, {HUGE: True}, NESTED, {"batch_norm": NESTED}, {"batch_norm": HUGE}])
def test_an_error_about_a_workload_without_end_is_short(workload):
    from watcherml.planning.equivalence import declared_traits

    with pytest.raises(InvalidValue, match=r"capabilities\.workload") as refused:
        declared_traits({"workload": workload})
    assert len(str(refused.value)) < 800
