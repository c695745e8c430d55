"""Reading a value and writing another one the same way: types, words, capitals, dialects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_NAME
from watcherml.planning.spelling import spelled, value_of
from watcherml.protocol.proposal import Capability


def capability(name, key, raw):
    control = BY_NAME[name]
    path = tuple(key.split("/"))
    return Capability(name, path, raw, control.authority, control.risk, control.semantic)


COUNTS = [(32, 16, 16), ("32", 16, "16"), (32.0, 16, 16.0), (" 32 ", 16, " 16 "), ("032", 16, "16")]
FLAGS = [(False, True), (0, 1), (0.0, 1.0), ("false", "true"), ("False", "True"), ("FALSE", "TRUE"), ("no", "yes"),
         ("No", "Yes"), ("NO", "YES"), ("off", "on"), ("Off", "On"), ("0", "1"), ("disabled", "enabled"),
         ("n", "y"), ("F", "T")]  # fmt: skip
FLAG_KEYS = [("gradient_checkpointing", "gradient_checkpointing"),
             ("gradient_checkpointing", "activation_checkpointing/enabled"),
             ("memory_efficient_attention", "xformers"), ("model_cache", "use_cache")]  # fmt: skip
OFFLOADS = [("activation_offload", "cpu_checkpointing"), ("optimizer_state_offload", "offload_optimizer_device"),
            ("optimizer_state_offload", "zero_optimization/offload_optimizer/device"),
            ("parameter_offload", "fsdp_config/fsdp_offload_params")]  # fmt: skip
DEVICES = [("none", "cpu"), ("None", "cpu"), ("NONE", "cpu")]

# key, present, its canonical value, {canonical: how it is written there, None where it cannot be}
PRECISIONS = [
    ("precision", "fp32", "fp32", {"fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "fp64": "fp64"}),
    ("precision", "BF16", "bf16", {"fp32": "FP32", "fp16": "FP16"}),
    ("dtype", "float32", "fp32", {"bf16": "bfloat16", "fp16": "float16", "fp64": "float64", "fp8": None}),
    ("dtype", "bfloat16", "bf16", {"fp32": "float32"}),
    ("dtype", "Float32", "fp32", {"bf16": "Bfloat16"}),
    ("torch_dtype", "torch.float32", "fp32", {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8": None}),
    ("torch_dtype", "torch.float16", "fp16", {"fp32": "torch.float32"}),
    ("torch_dtype", "torch.half", "fp16", {"fp32": "torch.float32"}),
    ("torch_dtype", "half", "fp16", {"fp32": "float32"}),
    ("torch_dtype", "float", "fp32", {"bf16": "bfloat16"}),
    ("torch_dtype", "double", "fp64", {"fp32": "float32"}),
    ("trainer/precision", "32-true", "fp32", {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp8": None}),
    ("trainer/precision", "64-true", "fp64", {"bf16": "bf16-mixed", "fp32": "32-true"}),
    ("trainer/precision", "16-mixed", "fp16", {"fp32": "32-true", "bf16": "bf16-mixed"}),
    ("trainer/precision", "bf16-mixed", "bf16", {"fp32": "32-true", "fp16": "16-mixed"}),
    ("trainer/precision", "bf16-true", "bf16", {"fp32": "32-true", "fp16": "16-true"}),
    ("trainer/precision", "16-true", "fp16", {"fp32": "32-true", "bf16": "bf16-true"}),
    ("trainer/precision", 32, "fp32", {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": 64, "fp8": None}),
    ("trainer/precision", "32", "fp32", {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": "64"}),
    ("trainer/precision", 16, "fp16", {"fp32": 32, "bf16": "bf16-mixed"}),
    ("trainer/precision", "16", "fp16", {"fp32": "32", "bf16": "bf16-mixed"}),
    ("precision", 64, "fp64", {"fp32": 32, "bf16": "bf16-mixed"}),
    ("mixed_precision", 32, "fp32", {"fp16": 16, "bf16": None}),
    ("bits_of_mine", "32", "fp32", {"fp16": "16", "bf16": None}),
    ("mixed_precision", "no", "fp32", {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp64": None}),
    ("mixed_precision", "none", "fp32", {"bf16": "bf16"}),
    ("mixed_precision", "No", "fp32", {"bf16": "Bf16"}),
    ("mixed_precision", "fp16", "fp16", {"fp32": "no", "bf16": "bf16"}),
    ("mixed_precision", "bf16", "bf16", {"fp32": "no"}),
    ("mixed_precision", "fp8", "fp8", {"bf16": "bf16"}),
    ("precision", "amp_bf16", "bf16", {"fp32": "fp32", "fp16": "amp_fp16", "fp8": "amp_fp8"}),
    ("precision", "amp_fp16", "fp16", {"bf16": "amp_bf16"}),
    ("bf16", False, "fp32", {"bf16": True, "fp16": None, "fp8": None}),
    ("bf16", "True", "bf16", {"fp32": "False", "fp16": None}),
    ("fp16", False, "fp32", {"fp16": True, "bf16": None}),
    ("fp16/enabled", False, "fp32", {"fp16": True, "bf16": None}),
    ("BF16/Enabled", 0, "fp32", {"bf16": 1}),
    ("use_fp16", "no", "fp32", {"fp16": "yes", "bf16": None}),
]  # fmt: skip
ATTENTION = [
    ("attention_backend", "eager", "eager", {"sdpa": "sdpa", "flash_attention_2": "flash_attention_2",
                                             "xformers": "xformers", "flex_attention": "flex_attention"}),
    ("attn_implementation", "eager", "eager", {"sdpa": "sdpa", "flash_attention_3": "flash_attention_3",
                                               "xformers": None}),
    ("model/_attn_implementation", "flash_attention_2", "flash_attention_2", {"sdpa": "sdpa"}),
    ("attention_backend", "math", "eager", {"flash_attention_2": "flash_attention", "sdpa": None}),
    ("attention_backend", "MATH", "eager", {"flash_attention_2": "FLASH_ATTENTION"}),
    ("attention_backend", "flash_attention", "flash_attention_2", {"eager": "math"}),
    ("attention_backend", "flash-attention-2", "flash_attention_2", {"flash_attention_3": "flash-attention-3"}),
    ("attention_backend", "flash_attn", "flash_attention_2", {"sdpa": "sdpa"}),
    ("attention_backend", "flash_attn_3", "flash_attention_3", {"sdpa": "sdpa"}),
    ("attention_backend", "xformers", "xformers", {"sdpa": "sdpa"}),
    ("attention_backend", "flex", "flex_attention", {"sdpa": "sdpa"}),
    ("attention_backend", "SDPA", "sdpa", {"eager": "EAGER"}),
    ("attn_impl", "torch", "eager", {"flash_attention_2": "flash", "sdpa": None}),
    ("attn_impl", "flash", "flash_attention_2", {"eager": "torch"}),
    ("flash_attn", "fa2", "flash_attention_2", {"sdpa": "sdpa", "flash_attention_3": "fa3", "eager": "disabled"}),
    ("flash_attn", "disabled", "eager", {"sdpa": "sdpa", "flash_attention_2": "fa2"}),
    ("flash_attn", False, "eager", {"flash_attention_2": True, "sdpa": None}),
    ("flash_attention", False, "eager", {"flash_attention_2": True, "sdpa": None}),
    ("use_flash_attention_2", "true", "flash_attention_2", {"eager": "false", "sdpa": None}),
]  # fmt: skip
BITS = [
    ("optim_bits", 32, 32, {8: 8, 16: 16, 4: 4, 7: None}),
    ("optim_bits", "32", 32, {8: "8"}),
    ("optim_bits", 32.0, 32, {8: 8.0}),
    ("use_8bit_adam", False, 32, {8: True, 16: None}),
    ("use_8bit_adam", "true", 8, {32: "false"}),
    ("use_8bit_adam", 0, 32, {8: 1}),
]
ALLOCATOR = [
    ("PYTORCH_CUDA_ALLOC_CONF", "", "", {"expandable_segments:True": "expandable_segments:True"}),
    ("env/PYTORCH_ALLOC_CONF", " max_split_size_mb:64 ", "max_split_size_mb:64", {"": ""}),
]


def cases():
    for name in ("micro_batch_size", "gradient_accumulation_steps", "sequence_length"):
        for raw, after, written in COUNTS:
            yield name, name, raw, 32, {after: written, 0: None, -4: None, True: None, "16": None, 2**60: None}
    for name, key in (*FLAG_KEYS, *OFFLOADS):
        for off, on in FLAGS:
            yield name, key, off, False, {True: on, "true": None}
            yield name, key, on, True, {False: off, "no": None}
    for name, key in OFFLOADS:
        for off, on in DEVICES:
            yield name, key, off, False, {True: on}
            yield name, key, on, True, {False: "none"}
        yield name, key, "nvme", True, {False: "none"}
    for table, name in ((PRECISIONS, "precision"), (ATTENTION, "attention_backend"), (BITS, "optimizer_bits"),
                        (ALLOCATOR, "allocator_configuration")):  # fmt: skip
        for key, raw, value, others in table:
            yield name, key, raw, value, others


CASES = list(cases())
IDS = [f"{name}-{key}-{raw!r}" for name, key, raw, *_ in CASES]


@pytest.mark.parametrize(("name", "key", "raw", "value", "others"), CASES, ids=IDS)
def test_a_value_is_read_and_another_one_written_the_same_way(name, key, raw, value, others):
    control = capability(name, key, raw)
    assert value_of(control) == value and type(value_of(control)) is type(value)
    assert spelled(control, value) == raw and type(spelled(control, value)) is type(raw)
    for after, written in others.items():
        got = spelled(control, after)
        assert got == written and type(got) is type(written)
        if got is not None:
            assert value_of(control.replace(value=got)) == after


@pytest.mark.parametrize(
    ("name", "key", "raws"),
    [
        (
            "micro_batch_size",
            "batch_size",
            [None, True, False, 0, -1, 8.5, "8.0", "+8", "", "auto", "٣", [8], {}, 1e300],
        ),
        ("sequence_length", "seq_len", [1, "1", True, 10**5000]),
        ("gradient_checkpointing", "gradient_checkpointing", [None, 2, -1, "unsloth", "", "auto", [], {"enabled": 1}]),
        ("precision", "precision", [None, True, False, "auto", "no", "tf32", 8, 32.0, "", "mixed", "int8"]),
        ("precision", "mixed_precision", [False, True, "yes", "auto"]),
        ("precision", "bf16", ["auto", "bf16", None, 2]),
        ("attention_backend", "attn_implementation", [None, True, False, "auto", "", "mamba", 2]),
        ("attention_backend", "flash_attention", ["auto", None, 2]),
        ("optimizer_state_offload", "offload_optimizer", [None, "cuda", "auto", 2, {"device": "cpu"}]),
        ("optimizer_bits", "optim_bits", [None, True, 7, 64, "8bit", "auto"]),
        ("optimizer_bits", "use_8bit_adam", [8, 32, "auto"]),
        ("allocator_configuration", "pytorch_cuda_alloc_conf", [None, 7, True, ["a"]]),
    ],
)
def test_what_is_not_usable_has_no_value(name, key, raws):
    reading = BY_NAME[name].reading
    for raw in raws:
        assert reading.read(key, raw) is None
        assert reading.wanted


def test_a_capability_that_discovery_would_not_make_is_refused():
    with pytest.raises(InvalidValue, match="capability precision"):
        value_of(capability("precision", "precision", "magic"))
    stranger = Capability("magic", ("x",), 1, "automatic", "low", False)
    for ask in (lambda: value_of(stranger), lambda: spelled(stranger, 1)):
        with pytest.raises(InvalidValue, match="capability name"):
            ask()


def test_true_is_no_count_and_one_is_no_flag():
    assert spelled(capability("micro_batch_size", "batch_size", 1), True) is None
    assert spelled(capability("model_cache", "use_cache", True), 1) is None
    assert spelled(capability("optimizer_bits", "use_8bit_adam", True), True) is None


def test_a_flag_writes_no_type_but_its_own():
    write = BY_NAME["precision"].reading.write
    assert write("bf16", False, "bf16") is True and write("bf16", True, "fp32") is False
    assert write("bf16", True, "fp16") is None and write("bf16", True, "fp64") is None


@given(st.integers(1, 2**53 - 1), st.integers(1, 2**53 - 1), st.sampled_from([int, str, float]))
def test_counts_keep_their_type(before, after, kind):
    control = capability("micro_batch_size", "batch_size", kind(before))
    written = spelled(control, after)
    assert value_of(control) == before and written == kind(after) and type(written) is kind


@given(st.sampled_from(CASES), st.sampled_from(CASES))
def test_what_is_written_reads_as_what_was_meant(first, second):
    name, key, raw, *_ = first
    control = capability(name, key, raw)
    written = spelled(control, second[3])
    if written is not None:
        again = value_of(control.replace(value=written))
        assert again == second[3] and type(again) is type(second[3])
