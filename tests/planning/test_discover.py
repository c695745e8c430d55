"""Discovery of controls: a table of whole configurations with everything that is found and left out, and the rules."""

import json

import configs_batches
import configs_hf
import configs_plain
import configs_trainers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_ALIAS, BY_NAME, CONTROLS
from watcherml.planning.discover import FORBIDDEN, discover
from watcherml.planning.spelling import spelled, value_of
from watcherml.protocol.plan import NOT_THERE
from watcherml.sealed.canonical import canonical_bytes

ROWS = configs_hf.ROWS + configs_trainers.ROWS + configs_plain.ROWS + configs_batches.ROWS

# What the product description says of each control: authority, risk, semantic.
DESCRIBED = [
    ("micro_batch_size", "automatic", "low", False),
    ("gradient_accumulation_steps", "automatic", "low", False),
    ("gradient_checkpointing", "automatic", "low", False),
    ("sequence_length", "approval_required", "medium", True),
    ("precision", "approval_required", "medium", True),
    ("attention_backend", "approval_required", "medium", False),
    ("memory_efficient_attention", "approval_required", "medium", False),
    ("activation_offload", "approval_required", "medium", False),
    ("optimizer_state_offload", "approval_required", "medium", False),
    ("parameter_offload", "approval_required", "high", False),
    ("optimizer_bits", "approval_required", "high", True),
    ("model_cache", "approval_required", "medium", False),
    ("allocator_configuration", "approval_required", "medium", False),
]
DESCRIBED_ALIASES = {
    "micro_batch_size": ("batch_size", "per_device_train_batch_size"),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", "accumulate_grad_batches"),
    "gradient_checkpointing": ("gradient_checkpointing", "activation_checkpointing"),
    "sequence_length": ("max_seq_length", "block_size"),
    "precision": ("mixed_precision", "torch_dtype"),
    "attention_backend": ("attn_implementation", "attn_impl"),
    "memory_efficient_attention": ("use_memory_efficient_attention",),
    "activation_offload": ("offload_activations",),
    "optimizer_state_offload": ("offload_optimizer",),
    "parameter_offload": ("offload_parameters",),
    "optimizer_bits": ("optim_bits",),
    "model_cache": ("use_cache", "kv_cache"),
    "allocator_configuration": ("pytorch_cuda_alloc_conf",),
}


def following(name, value):
    """The value that a step to less memory, or back, would give: what the last column of the table spells."""
    if name in ("micro_batch_size", "sequence_length"):
        return max(value // 2, 1)
    if name == "gradient_accumulation_steps":
        return value * 2
    others = {
        "precision": "bf16" if value == "fp32" else "fp32",
        "attention_backend": "eager" if value == "flash_attention_2" else "flash_attention_2",
        "optimizer_bits": 8 if value == 32 else 32,
        "allocator_configuration": "expandable_segments:True",
    }
    return others.get(name, not value)


def at(config, path):
    for key in path:
        config = config[key]
    return config


def half_step(capability):
    """A flag named fp16 cannot say bf16; its own step is to its own type."""
    target = following(capability.name, value_of(capability))
    if capability.name == "precision" and target == "bf16" and spelled(capability, target) is None:
        target = "fp16"
    return spelled(capability, target)


def test_the_vocabulary_is_the_description_s():
    assert [(one.name, one.authority, one.risk, one.semantic) for one in CONTROLS] == DESCRIBED
    assert list(BY_NAME) == [name for name, *_ in DESCRIBED]
    for name, aliases in DESCRIBED_ALIASES.items():
        assert {name, *aliases} <= set(BY_NAME[name].aliases)
    assert sum(len(set(one.aliases)) for one in CONTROLS) == len(BY_ALIAS)


def test_the_table_is_large_and_its_rows_have_names():
    names = [name for name, *_ in ROWS]
    assert len(set(names)) == len(names) >= 45


@pytest.mark.parametrize(("config", "expected", "left_out"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_everything_that_is_found_and_left_out(config, expected, left_out):
    found, skipped = discover(config)
    seen = {one.name: ("/".join(one.path), value_of(one), half_step(one)) for one in found}
    assert seen == expected
    assert {name: [type(part) for part in row] for name, row in seen.items()} == {
        name: [type(part) for part in row] for name, row in expected.items()
    }
    for one in found:
        assert type(one.value) is type(at(config, one.path)) and one.value == at(config, one.path)
        assert spelled(one, value_of(one)) == one.value
    reasons = {one.capability: one.reason for one in skipped}
    assert len(reasons) == len(skipped)
    assert {name for name, reason in reasons.items() if reason != NOT_THERE} == set(left_out)
    for name, word in left_out.items():
        assert word in reasons[name]
    nowhere = set(BY_NAME) - set(expected) - set(left_out) - {"allocator_configuration"}
    assert {name for name, reason in reasons.items() if reason == NOT_THERE} == nowhere


@pytest.mark.parametrize(("config", "expected", "left_out"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_declaration_that_a_reason_shows_is_accepted(config, expected, left_out):
    """The exact JSON in a reason settles an ambiguity when it is pasted."""
    for one in discover(config)[1]:
        if "keys could be meant" not in one.reason or "too long" in one.reason:
            continue
        declaration = json.loads(one.reason[one.reason.index("{") : one.reason.rindex("}") + 1])
        found, _ = discover(config, declaration)
        settled = next(capability for capability in found if capability.name == one.capability)
        assert settled.source == "declared" and list(settled.path) == declaration[one.capability]["path"]


@pytest.mark.parametrize(
    ("config", "bf16_path", "fp16_path"),
    [
        ({"fp16": False, "bf16": False}, "bf16", "fp16"),
        ({"use_fp16": "no", "use_bf16": "no"}, "use_bf16", "use_fp16"),
        ({"fp16": {"enabled": False}, "bf16": {"enabled": False}}, "bf16/enabled", "fp16/enabled"),
        ({"fp16": True, "bf16": False}, "fp16", "fp16"),
        ({"fp16": False, "bf16": True}, "bf16", "bf16"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": True}}, "bf16/enabled", "bf16/enabled"),
        ({"fp16": False, "bf16": None}, "fp16", "fp16"),
    ],
)
def test_the_half_says_which_flag_of_a_pair_is_taken_when_both_are_off(config, bf16_path, fp16_path):
    for half, path in (("bf16", bf16_path), ("fp16", fp16_path)):
        found, _ = discover(config, half=half)
        assert ["/".join(one.path) for one in found] == [path]


def test_a_flag_of_a_pair_can_say_its_own_type_only():
    (flag,), _ = discover({"fp16": False, "bf16": False}, half="fp16")
    assert spelled(flag, "fp16") is True and spelled(flag, "bf16") is None and spelled(flag, "fp32") is False


# -- declarations

NESTED = {"a": {"batch_size": 8}, "b": {"batch_size": 16, "samples": "24"}, "word": "fp32", "list": [1, {"x": 2}]}


def one(name, found):
    return next(capability for capability in found if capability.name == name)


def test_a_declared_path_settles_an_ambiguity():
    found, _ = discover(NESTED, {"micro_batch_size": {"path": ["b", "batch_size"]}})
    batch = one("micro_batch_size", found)
    assert (batch.path, batch.value, batch.source) == (("b", "batch_size"), 16, "declared")


def test_a_declared_key_with_any_name_is_read_as_the_capability_says():
    found, _ = discover(NESTED, {"micro_batch_size": {"path": ("b", "samples")}})
    batch = one("micro_batch_size", found)
    assert value_of(batch) == 24 and spelled(batch, 12) == "12"
    found, _ = discover({"kernel": "fa2"}, {"attention_backend": {"path": ["kernel"]}})
    assert spelled(one("attention_backend", found), "eager") == "disabled"


def test_a_declared_path_whose_value_is_not_usable_is_skipped():
    for path, word in ((["a"], "a holds a section; a whole number"), (["word"], "holds 'fp32'"), (["list"], "a list")):
        _, skipped = discover(NESTED, {"micro_batch_size": {"path": path}})
        assert word in skipped[0].reason and skipped[0].capability == "micro_batch_size"


def test_a_declared_path_may_lead_into_a_section_of_evaluation():
    found, _ = discover({"eval": {"use_cache": True}}, {"model_cache": {"path": ["eval", "use_cache"]}})
    assert one("model_cache", found).value is True


@pytest.mark.parametrize(
    ("name", "declaration", "field", "value"),
    [
        ("micro_batch_size", {"authority": "automatic"}, "authority", "automatic"),
        ("micro_batch_size", {"authority": "approval_required"}, "authority", "approval_required"),
        ("micro_batch_size", {"risk": "low"}, "risk", "low"),
        ("micro_batch_size", {"risk": "medium"}, "risk", "medium"),
        ("micro_batch_size", {"risk": "high"}, "risk", "high"),
        ("micro_batch_size", {"semantic": True}, "semantic", True),
        ("micro_batch_size", {"semantic": False}, "semantic", False),
        ("micro_batch_size", {}, "source", "alias"),
        ("precision", {"authority": "approval_required"}, "authority", "approval_required"),
        ("precision", {"semantic": True}, "semantic", True),
        ("optimizer_bits", {"risk": "high"}, "risk", "high"),
    ],
)
def test_a_declaration_can_tighten(name, declaration, field, value):
    found, _ = discover({"batch_size": 8, "precision": "fp32", "optim_bits": 32}, {name: declaration})
    assert getattr(one(name, found), field) == value
    rest = [other for other in found if other.name != name]
    assert all((got.authority, got.risk) == (BY_NAME[got.name].authority, BY_NAME[got.name].risk) for got in rest)


def test_what_a_declaration_forbids_is_left_out_with_the_reason():
    config = {"batch_size": 8, "precision": "fp32"}
    names = ("micro_batch_size", "model_cache", "allocator_configuration")
    found, skipped = discover(config, {name: {"authority": "forbidden"} for name in names})
    assert [got.name for got in found] == ["precision"]
    assert {got.capability for got in skipped if got.reason == FORBIDDEN} == set(names)


def test_the_workload_is_declared_elsewhere():
    assert discover({"batch_size": 8}, {"workload": {"batch_norm": True}}) == discover({"batch_size": 8})


@pytest.mark.parametrize(
    ("declaration", "field", "word"),
    [
        ({"micro_batch": {"path": ["a"]}}, "capabilities.micro_batch", "one of micro_batch_size"),
        ({7: {}}, "capabilities.7", "one of micro_batch_size"),
        ({"\n" * 10_000: {}}, "capabilities.\n", "one of"),
        ([], "capabilities.*", "an object"),
        ({"micro_batch_size": 7}, "capabilities.micro_batch_size", "path, authority, risk, semantic"),
        ({"micro_batch_size": {"other": 1}}, "capabilities.micro_batch_size", "path, authority, risk, semantic"),
        ({"micro_batch_size": {"path": "batch_size"}}, "capabilities.micro_batch_size.path", "a list of 1 to 16 keys"),
        ({"micro_batch_size": {"path": []}}, "capabilities.micro_batch_size.path", "a list of 1 to 16 keys"),
        ({"micro_batch_size": {"path": [1]}}, "capabilities.micro_batch_size.path", "a list of 1 to 16 keys"),
        ({"micro_batch_size": {"path": ["a"] * 17}}, "capabilities.micro_batch_size.path", "a list of 1 to 16 keys"),
        ({"micro_batch_size": {"path": ["\ud800"]}}, "capabilities.micro_batch_size.path", "a list of 1 to 16 keys"),
        (
            {"micro_batch_size": {"path": ["nothing"]}},
            "capabilities.micro_batch_size.path",
            "'a', 'b', 'list', 'word'",
        ),
        ({"micro_batch_size": {"path": ["a", "x"]}}, "capabilities.micro_batch_size.path", "'x' as key 2"),
        ({"micro_batch_size": {"path": ["word", "x"]}}, "capabilities.micro_batch_size.path", "no section"),
        ({"micro_batch_size": {"path": ["list", "0"]}}, "capabilities.micro_batch_size.path", "no section"),
        ({"micro_batch_size": {"authority": "free"}}, "capabilities.micro_batch_size.authority", "forbidden"),
        ({"micro_batch_size": {"authority": ["x"]}}, "capabilities.micro_batch_size.authority", "forbidden"),
        ({"micro_batch_size": {"risk": "none"}}, "capabilities.micro_batch_size.risk", "low, medium, high"),
        ({"micro_batch_size": {"semantic": 1}}, "capabilities.micro_batch_size.semantic", "true or false"),
        ({"sequence_length": {"authority": "automatic"}}, "capabilities.sequence_length.authority", "only tighten"),
        ({"sequence_length": {"risk": "low"}}, "capabilities.sequence_length.risk", "only tighten"),
        ({"parameter_offload": {"risk": "medium"}}, "capabilities.parameter_offload.risk", "the default, high"),
        ({"precision": {"semantic": False}}, "capabilities.precision.semantic", "only tighten"),
        ({"precision": {"authority": "forbidden", "path": ["x"]}}, "capabilities.precision.path", "'x' as key 1"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(declaration, field, word):
    with pytest.raises(InvalidValue) as refused:
        discover(NESTED, declaration)
    error = refused.value
    assert error.message.startswith(field) and word in str(error)
    assert error.expected and error.got and error.remedy


# -- any configuration

KEYS = st.sampled_from(
    [*BY_ALIAS, *(alias.upper().replace("_", "-") for alias in BY_ALIAS), "train", "eval", "trainer", "model", "val",
     "enabled", "device", "zero_optimization", "a", "b", "", "x.y", "train_eval"]
)  # fmt: skip
WORDS = ["auto", "8", "true", "False", "no", "cpu", "none", "fp32", "bf16", "16-mixed", "sdpa", ""]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 64)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=4)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=8)


def backwards(value):
    """The same value with the keys of each mapping in the opposite order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=400, deadline=None)
@given(CONFIGS, st.sampled_from(["bf16", "fp16"]))
def test_any_configuration_is_settled_the_same_way_twice(config, half):
    found, skipped = discover(config, half=half)
    assert discover(config, half=half) == (found, skipped)
    names = [one.name for one in found] + [one.capability for one in skipped]
    assert len(set(names)) == len(names) and set(BY_NAME) - set(names) <= {"allocator_configuration"}
    for one in found:
        assert canonical_bytes(at(config, one.path)) == canonical_bytes(one.value)
        value = value_of(one)
        assert spelled(one, value) == one.value
        after = spelled(one, following(one.name, value))
        if after is not None:
            assert value_of(one.replace(value=after)) == following(one.name, value)


@settings(max_examples=400, deadline=None)
@given(CONFIGS, st.sampled_from(["bf16", "fp16"]))
def test_the_order_of_keys_says_nothing(config, half):
    assert discover(backwards(config), half=half) == discover(config, half=half)


@settings(max_examples=200, deadline=None)
@given(CONFIGS, st.dictionaries(st.sampled_from([*BY_NAME, "workload", "x"]), VALUES | st.fixed_dictionaries(
    {}, optional={"path": st.lists(KEYS, max_size=3), "authority": st.sampled_from(["automatic", "forbidden", "x"]),
                  "risk": st.sampled_from(["low", "high"]), "semantic": st.booleans()}), max_size=3))  # fmt: skip
def test_a_declaration_is_kept_or_refused_by_name(config, declarations):
    try:
        found, _ = discover(config, declarations)
    except InvalidValue as error:
        assert error.message.startswith("capabilities.")
        return
    for one in found:
        path = declarations.get(one.name, {}).get("path")
        assert one.source == ("alias" if path is None else "declared")
        assert path is None or one.path == tuple(path)
