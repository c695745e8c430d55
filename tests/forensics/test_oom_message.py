"""The parser of out-of-memory texts: every era's grammar printed and read back, hostile text, and our own device."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.errors import InvalidValue
from watcherml.forensics.oom_message import SIMULATED_DEVICE_NAME, SIMULATED_LABEL, OomMessage, parse

LARGEST = 2**50  # a capacity no device has; sizes above 2**53 - 1 are tested apart
HINT = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management"
)
REJECTED = (
    "Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. "
    "Requested size: {}. "
)


def printed(size: int) -> str:
    """Format as c10's format_size does: inclusive limits, two decimals, powers of 1024."""
    if size <= 1024:
        return f"{size} bytes"
    if size <= 2**20:
        return f"{size / 2**10:.2f} KiB"
    if size <= 2**30:
        return f"{size / 2**20:.2f} MiB"
    return f"{size / 2**30:.2f} GiB"


sizes = st.integers(0, LARGEST) | st.integers(0, 5_000) | st.integers(2**20 - 9, 2**20 + 9) | st.just(2**30)
maybe = st.none() | sizes


@st.composite
def texts_1_x(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """torch 1.0 to 2.0: one parenthesis."""
    facts = {name: draw(sizes) for name in ("tried_bytes", "total_bytes", "allocated_bytes", "free_bytes")}
    facts["gpu_index"] = draw(st.integers(0, 15))
    parts = [
        f"GPU {facts['gpu_index']}",
        f"{printed(facts['total_bytes'])} total capacity",
        f"{printed(facts['allocated_bytes'])} already allocated",
        f"{printed(facts['free_bytes'])} free",
    ]
    allowed, cached = draw(maybe), draw(st.booleans())
    if cached:
        facts["reserved_unallocated_bytes"] = draw(sizes)
        parts.append(f"{printed(facts['reserved_unallocated_bytes'])} cached")
        if draw(st.booleans()):
            parts.append(f"{printed(draw(sizes))} inactive")
    else:
        if allowed is not None:
            facts["allowed_bytes"] = allowed
            parts.append(f"{printed(allowed)} allowed")
        facts["reserved_bytes"] = draw(sizes)
        parts.append(f"{printed(facts['reserved_bytes'])} reserved in total by PyTorch")
    return f"CUDA out of memory. Tried to allocate {printed(facts['tried_bytes'])} ({'; '.join(parts)})", facts


@st.composite
def texts_2_x(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    """torch 2.1 and later: sentences, processes in any number and order, cap and private pools."""
    names = ("tried_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_unallocated_bytes")
    facts: dict[str, object] = {name: draw(sizes) for name in names}
    facts["gpu_index"] = draw(st.integers(0, 15))
    facts["device_name"] = draw(st.sampled_from(["CUDA", "HIP"]))
    tried, total, free, allocated, idle = (printed(facts[name]) for name in names)  # type: ignore[arg-type]
    start = draw(st.sampled_from(["Tried to allocate {}. ", REJECTED]))
    processes = draw(st.lists(st.tuples(st.integers(1, 2**22), sizes), max_size=3))
    sentences = [f"Process {pid} has {printed(used)} memory in use. " for pid, used in processes]
    facts["processes"] = processes
    own, allowed, parked = draw(maybe), draw(maybe), draw(maybe)
    if own is not None:
        facts["process_in_use_bytes"] = own
        place = draw(st.integers(0, len(sentences)))
        sentences.insert(place, f"Including non-PyTorch memory, this process has {printed(own)} memory in use. ")
    cap = pools = ""
    if allowed is not None:
        facts["allowed_bytes"], cap = allowed, f"{printed(allowed)} allowed; "
    if parked is not None:
        facts["private_pool_bytes"] = parked
        pools = f"with {printed(parked)} allocated in private pools (e.g., {facts['device_name']} Graphs), "
    capacity = draw(st.sampled_from(["capacity", "capacty"]))
    text = (
        f"{facts['device_name']} out of memory. "
        + start.format(tried)
        + f"GPU {facts['gpu_index']} has a total {capacity} of {total} of which {free} is free. "
        f"{''.join(sentences)}{cap}Of the allocated memory {allocated} is allocated by PyTorch, {pools}and {idle} is "
        "reserved by PyTorch but unallocated." + draw(st.sampled_from(["", HINT]))
    )
    return text, facts


def assert_says(found: OomMessage, facts: dict[str, object]) -> None:
    processes = facts.pop("processes", [])
    assert [use.pid for use in found.processes] == [pid for pid, _ in processes]
    for use, (_, used) in zip(found.processes, processes, strict=True):
        assert use.in_use_bytes is not None and abs(use.in_use_bytes - used) <= use.rounding_bytes
    for name in found.to_data():
        if name in ("processes", "rounding_bytes", "tried_absurd", "simulated"):
            continue
        if name == "device_name":
            assert found.device_name == facts.get("device_name", "CUDA")
        elif not name.endswith("_bytes"):
            assert getattr(found, name) == facts.get(name), name
        elif name not in facts:
            assert getattr(found, name) is None, name
        else:
            interval = found.interval(name)
            assert interval is not None and interval[0] <= facts[name] <= interval[1], name


around = st.text(max_size=40).filter(lambda text: "memory" not in text)


@settings(max_examples=200, deadline=None)
@given(texts_1_x() | texts_2_x(), around, around)
def test_every_era_is_read_back_anywhere(text: tuple[str, dict[str, object]], before: str, after: str) -> None:
    message, facts = text
    found = parse(f"{before}\n{message}\n{after}")
    assert not found.simulated and not found.tried_absurd
    assert_says(found, dict(facts))
    assert OomMessage.from_json(found.to_json()) == found


@settings(max_examples=100, deadline=None)
@given(sizes)
def test_the_half_width_is_that_of_two_decimals(size: int) -> None:
    found = parse(f"CUDA out of memory. Tried to allocate {printed(size)}. ")
    half = found.rounding_bytes.get("tried_bytes", 0)
    assert half == (0 if size <= 1024 else 6 if size <= 2**20 else 5_243 if size <= 2**30 else 5_368_710)
    low, high = found.interval("tried_bytes") or (-1, -1)
    assert low <= size <= high and low >= 0


WORDS = [
    *("CUDA out of memory. ", "Tried to allocate ", "1.00", " GiB", " bytes", "9" * 30, " total capacity", "GPU "),
    *("; ", "(", " has a total capacity of ", "of which ", " is free", "Process ", " memory in use", SIMULATED_LABEL),
    *("op=", "]", " (no GPU); op=", "more than 1EB", ",", ".", "\u0663", "\ud800", "Requested size: ", " allowed;"),
    *("0", "\0"),
]


@settings(max_examples=300, deadline=None)
@given(st.text(), st.lists(st.sampled_from(WORDS)))
def test_no_text_makes_it_raise(text: str, words: list[str]) -> None:
    for message in (text, "".join(words), text.join(words)):
        found = parse(message)
        assert OomMessage.from_data(found.to_data()) == found


HOSTILE = [
    *("1", "1.", "1,", "1.1 ", "1,111", "A", "a ", "\n", "1.00 GiB ", "GPU  1", "out of memory ", "Tried to allocate "),
    *("Process 1 has 1.00 GiB memory in use. ", SIMULATED_LABEL, "CUDA out of memory. Tried to allocate 1.00 GiB. "),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_megabyte_of_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    parse(text)
    assert time.perf_counter() - started < 5  # about 0.3 s; a quadratic pattern needs minutes


NOT_AVAILABLE = "17179869184.00 GiB"  # how 2**64 bytes are printed
CASES = [
    (
        "2**64 is not available",
        "CUDA out of memory. Tried to allocate 2.00 MiB. Including non-PyTorch memory, this process has "
        f"{NOT_AVAILABLE} memory in use. Process 7 has {NOT_AVAILABLE} memory in use. ",
        {"tried_bytes": 2**21, "process_in_use_bytes": None, "foreign_in_use_bytes": ()},
    ),
    ("1EB", "CUDA out of memory. Tried to allocate more than 1EB memory.", {"tried_bytes": None, "tried_absurd": True}),
    (
        "a request no number holds",
        f"CUDA out of memory. Tried to allocate {NOT_AVAILABLE}. GPU 0",
        {"tried_bytes": None, "tried_absurd": True},
    ),
    (
        "zero is a figure",
        "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 3; 4.00 GiB total capacity; 0 bytes free; ",
        {"free_bytes": 0, "gpu_index": 3, "allocated_bytes": None},
    ),
    ("inclusive limits", "CUDA out of memory. Tried to allocate 1024.00 MiB. ", {"tried_bytes": 2**30}),
    ("no figures", "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`", {"device_name": "CUDA"}),
    ("torch 0.4", "cuda runtime error (2) : out of memory at a.cu:5", {"device_name": "CUDA", "tried_bytes": None}),
    ("triton", "Triton Error [CUDA]: out of memory", {"device_name": "CUDA"}),
    ("hip error", "HIP error: out of memory", {"device_name": "HIP"}),
    (
        "device-generic build",
        "Out of memory. Tried to allocate 2.00 MiB. GPU 1 has a total capacity of 4.00 GiB of which 1 bytes is free. ",
        {"device_name": "", "gpu_index": 1, "free_bytes": 1},
    ),
    (
        "xpu",
        "XPU out of memory. Tried to allocate 1.71 GiB (GPU 0; 15.56 GiB total capacity; "
        "176.00 MiB already allocated; ",
        {"device_name": "XPU", "allocated_bytes": 176 * 2**20, "free_bytes": None},
    ),
    (
        "mps states units that we do not guess",
        "MPS backend out of memory (MPS allocated: 15.05 GB). Tried to allocate 1.16 GB on private pool.",
        {"device_name": "MPS", "tried_bytes": None},
    ),
    (
        "cupy",
        "Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes, "
        "limit set to: 4,000,000,000 bytes).",
        {"tried_bytes": 25_600_000, "allocated_bytes": 3_635_267_072, "allowed_bytes": 4_000_000_000},
    ),
    (
        "tensorflow",
        "OOM when allocating tensor on /job:localhost/device:GPU:1 by allocator GPU_1_bfc",
        {"gpu_index": 1},
    ),
    (
        "two failures never mix",
        "CUDA out of memory. Tried to allocate 2.00 MiB. retry: CUDA out of memory. Tried to allocate 4.00 MiB (GPU 1; "
        "8.00 GiB total capacity; ",
        {"tried_bytes": 2**21, "total_bytes": None, "gpu_index": None},
    ),
    ("prose", "the trainer ran out of memory", {"device_name": None}),
    ("part of a number", "1.2.3.00 GiB free; and 7,3.00 GiB free;", {"free_bytes": None}),
    ("nothing", "", {"device_name": None, "op": None, "simulated": False, "rounding_bytes": {}}),
]


@pytest.mark.parametrize(("message", "facts"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_special_forms(message: str, facts: dict[str, object]) -> None:
    found = parse(message)
    for name, value in facts.items():
        assert getattr(found, name) == value, name


def test_an_unavailable_process_figure_is_unknown_and_not_dropped() -> None:
    found = parse("Process 7 has 17179869184.00 GiB memory in use. Process 8 has 1.00 GiB memory in use. ")
    assert [(use.pid, use.in_use_bytes) for use in found.processes] == [(7, None), (8, 2**30)]
    assert found.foreign_in_use_bytes == (2**30,)


def test_the_text_of_our_own_device_is_simulated_and_names_no_gpu_maker() -> None:
    from watcherml.simulated.error import LABEL, SimulatedOutOfMemoryError

    assert LABEL.startswith(SIMULATED_LABEL)
    error = SimulatedOutOfMemoryError(3_000_000, 90 * 2**20, 96 * 2**20, "aten.native_layer_norm.default", pid=4711)
    for text in (str(error), f"step 3 failed: {error}\nretrying"):
        found = parse(text)
        assert found.simulated and found.device_name == SIMULATED_DEVICE_NAME
        assert found.op == "aten.native_layer_norm.default"
        low, high = found.interval("tried_bytes") or (0, 0)
        assert low <= 3_000_000 <= high
        assert (found.total_bytes, found.free_bytes, found.allocated_bytes) == (96 * 2**20, 6 * 2**20, 90 * 2**20)
        assert found.reserved_unallocated_bytes == 0
        # Its one process sentence is about this process: foreign memory must not appear out of nothing.
        assert found.process_in_use_bytes == 90 * 2**20 and found.foreign_in_use_bytes == ()


def test_a_text_cut_after_the_label_is_still_simulated() -> None:
    found = parse("[SIMULATED memory-budgeted CPU device (no GPU); op=aten.m")
    assert found.simulated and found.op is None and found.tried_bytes is None
    assert parse("[SIMULATED memory-budgeted CPU device (no GPU); op=\ud800] x").op is None


def test_a_simulated_message_cannot_be_built_with_a_cuda_name() -> None:
    with pytest.raises(InvalidValue, match="device_name"):
        OomMessage(simulated=True, device_name="CUDA")


def test_a_half_width_needs_its_figure() -> None:
    with pytest.raises(InvalidValue, match="rounding_bytes"):
        OomMessage(rounding_bytes={"free_bytes": 5})
    with pytest.raises(InvalidValue, match="expected one of"):
        parse("").interval("gpu_index")


LISTED = (
    "Allocation on device 1 would exceed allowed memory. (out of memory)\n"
    "Currently allocated     : 9.82 GiB\nRequested               : 100.00 MiB\nDevice limit            : 12.00 GiB\n"
    "Free (according to CUDA): {}\n"
    "PyTorch limit (set by user-supplied memory fraction)\n                        : {}"
)


@pytest.mark.parametrize(
    ("free", "limit", "allowed"),
    [("0 bytes", "17179869184.00 GiB", None), ("1.50 GiB", "8.00 GiB", 8 * 2**30)],
    ids=["no-fraction", "a-fraction"],
)
def test_the_list_of_the_asynchronous_allocator_is_read(free: str, limit: str, allowed: int | None) -> None:
    found = parse("torch.OutOfMemoryError: " + LISTED.format(free, limit))
    assert (found.tried_bytes, found.total_bytes) == (100 * 2**20, 12 * 2**30)
    assert found.allocated_bytes == round(9.82 * 2**30) and found.free_bytes == (0 if allowed is None else 3 * 2**29)
    assert found.allowed_bytes == allowed and (found.device_name, found.gpu_index) == ("CUDA", 1)
    assert parse(LISTED.format(free, limit) + "\n" + LISTED.replace("100.00", "7.00")).tried_bytes == 100 * 2**20
