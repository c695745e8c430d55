"""Each row of the table of causes: one case in which it suffices, contributes, is excluded, is unknown."""

from dataclasses import replace

import pytest
from cause_vectors import MIB, changed, judged, static, steps, vector

from watcherml.forensics.causes import guards
from watcherml.forensics.causes.diagnose import diagnose
from watcherml.forensics.causes.table import ORDER
from watcherml.forensics.causes.vector import History, Sizes

LOSS = (("train.py", "step"), ("/s/torch/nn/functional.py", "cross_entropy"))
ATTENTION = (("m.py", "forward"), ("/s/torch/nn/functional.py", "scaled_dot_product_attention"))
STATE = (("train.py", "step"), ("/s/torch/optim/adam.py", "_init_group"))
LOAD = (("train.py", "main"), ("/s/torch/nn/modules/module.py", "load_state_dict"))
CONV = (("m.py", "forward"), ("/s/torch/nn/modules/conv.py", "_conv_forward"))
CACHE = (("train.py", "step"), ("/s/transformers/cache_utils.py", "update"))
LINES = (("train.py", "step"), ("/s/torch/nn/modules/activation.py", "forward"))
FLAT = History(**steps(8_000, 0.0, 30))
LONG = History(**steps(8_000, 0.0, 30), batch_elements=(100,) * 30 + (400,))
EVEN = History(**steps(8_000, 0.0, 30), batch_elements=(100,) * 31)
ENOUGH = {**steps(4_000, 200.0, 30), "batch_elements": (100,) * 31}
SCORES = Sizes(micro_batch=4, heads=32, sequence_length=4096, element_bytes=2)
LOGITS = Sizes(micro_batch=8, sequence_length=2048, vocabulary=128256)
CHECKPOINTED = Sizes(micro_batch=1, checkpointing=True)
EVALUATION = {"phase": "evaluation", "history": FLAT, "grad_enabled": False}
GROWTH = {"evaluation": tuple(n * 400 * MIB for n in range(30))}
GROWING = History(**steps(8_000, 0.0, 30), **GROWTH, batch_elements=(100,) * 31)
SORTED = History(**steps(8_000, 0.0, 30), **GROWTH, batch_elements=tuple(range(8, 39)))
UNSIZED = History(**steps(8_000, 0.0, 30), **GROWTH)
STILL = History(**steps(8_000, 0.0, 30), evaluation=(9_000 * MIB,) * 5)
OWN = static(parameters=1.0, optimizer=0.0)
BLOCKED = {"allocator_backend": "cudaMallocAsync"}


def since_step(grown):
    """Return readings after batches of one step, each so many MiB above the one before."""
    return {"since_step": tuple(n * grown * MIB for n in range(9)), "batch_elements": (9,) * 10}


# What stands below each judgement is the vector's difference from a full card in forward: 1 GiB asked for, 0.2 free.
ROWS = {
    "C25": ({"a": 25.0}, None, {}, {"a": None}),
    "C26": ({"f": 3.0}, None, {}, {"q": None}),
    "C0": ({"host_signature": "DefaultCPUAllocator"}, None, {}, {"exit_signal": "SIGKILL"}),
    "C1": ({"q": None, "error_is_disguised": True, "f": 0.01}, None, {}, {"error_is_disguised": True, "f": None}),
    "C2": ({"request_is_absurd": True}, None, {}, {"c": None}),
    "C3": ({"f": 9.0, "y": 22.5}, {"q": 3.0, "f": 1.5, "y": 23.2}, {}, {"f": None}),
    "C4": ({"foreign": 3.0}, {"foreign": 0.7}, {"foreign": 0.1}, {"r": 10.0}),
    "C5": (
        {"at_start": 3.0, "step": 0, "static": OWN}, {"at_start": 1.4, "step": 0, "static": OWN},
        {"at_start": 3.0, "static": static(parameters=3.0)}, {"at_start": 3.0, "step": 0},
    ),
    "C6": ({"own_other": 3.0}, {"own_other": 1.2}, {"own_other": 0.5}, {"r": 10.0}),
    "C7": ({"private_pools": 3.0}, {"private_idle": 0.4}, {"private_pools": 0.0}, BLOCKED),
    "C8": (
        {"a": 18.0, "active": 18.0, "private_idle": 0.0, "largest_inactive": 0.5, "expandable_segments": False},
        {"r": 22.5}, {"r": 22.0}, {"a": 18.0},
    ),
    "C9": ({"a": 18.0, "active": 20.0}, {"a": 18.0, "active": 18.4}, {"active": 22.0}, {"a": 18.0}),
    "C10": (
        {"gc_freed": 0.0, "history": History(**ENOUGH), "step": 30},
        {"gc_freed": 0.0, "history": History(**steps(4_000, 12.0, 30)), "step": 30},
        {"history": FLAT, "step": 30}, {"history": History(**ENOUGH), "step": 30},
    ),
    "C10b": (
        {"gc_freed": 0.0, "history": History(**since_step(400))},
        {"gc_freed": 0.0, "history": History(**since_step(40))},
        {"gc_freed": 0.0, "history": History(since_step=(9_000 * MIB,) * 9, batch_elements=(9,) * 10)},
        {"gc_freed": 0.0, "history": History(since_step=(9_000 * MIB,) * 2)},
    ),
    "C11": ({"gc_freed": 2.0}, {"gc_freed": 0.4}, {"gc_freed": 0.0}, {}),
    "C12": (
        {"phase": "load", "step": 0, "at_start": 0.0}, {"phase": "load", "step": 0, "at_start": 15.0}, {},
        {"phase": "load", "step": 0},
    ),
    "C12b": (
        {"phase": "load", "step": 0, "at_start": 0.0, "static": static(parameters=11.0), "frames": LOAD},
        {"phase": "load", "step": 0, "at_start": 0.0, "static": static(parameters=21.6), "frames": LOAD},
        {"phase": "load", "step": 0, "frames": LINES}, {"phase": "load", "step": 0, "frames": LOAD},
    ),
    "C13": (
        {"q": 4.0, "sizes": SCORES, "frames": ATTENTION},
        {"q": 4.0, "c": 96.0, "sizes": SCORES, "frames": ATTENTION, "a": 90.0, "r": 90.0},
        {"q": 4.0, "sizes": SCORES, "frames": LINES}, {"q": 4.0, "frames": ATTENTION},
    ),
    "C14": (
        {"q": 4008 / 512, "sizes": LOGITS, "frames": LOSS},
        {"q": 4008 / 512, "c": 192.0, "sizes": LOGITS, "frames": LOSS, "a": 180.0, "r": 180.0},
        {"q": 4.0, "sizes": LOGITS, "frames": LOSS}, {"frames": LOSS},
    ),
    "C15": (
        {"phase": "optimizer", "step": 0, "q": 2.0},
        {"phase": "optimizer", "step": 0, "q": 2.0, "static": static(optimizer_expected=0.6)},
        {"phase": "optimizer", "step": 4}, {"phase": "optimizer", "step": None, "q": 2.0},
    ),
    "C15b": (
        {"step": 1, "static": static(parameters=2.0, optimizer=4.0)}, {"step": 1, "static": static(optimizer=0.4)},
        {"step": 7}, {"step": 1},
    ),
    "C16a": (
        {**EVALUATION, "grad_enabled": True}, {**EVALUATION, "grad_enabled": True, "a": 8.2}, EVALUATION,
        {**EVALUATION, "grad_enabled": None},
    ),
    "C16b": (
        {**EVALUATION, "history": GROWING}, {**EVALUATION, "q": 15.0, "c": 30.0, "history": GROWING},
        {**EVALUATION, "history": STILL}, EVALUATION,
    ),
    "C16c": (
        {**EVALUATION, "history": STILL}, {**EVALUATION, "evaluation_batches": 0, "a": 7.0, "q": 1.0}, {},
        {**EVALUATION, "grad_enabled": None},
    ),
    "C17": ({"history": LONG}, {"a": 7.2, "q": 1.5, "history": LONG}, {"history": EVEN}, {"history": FLAT}),
    "C18": (
        {"q": 2.0, "step": 0, "frames": CONV, "caught_ooms": 2},
        {"q": 1.0, "c": 80.0, "step": 0, "frames": CONV, "caught_ooms": 2}, {"step": 0, "frames": LINES},
        {"q": 2.0, "step": 0, "frames": CONV},
    ),
    "C19": (
        {"q": 2.0, "frames": CACHE, "sizes": Sizes(model_cache=True)},
        {"q": 2.0, "c": 96.0, "frames": CACHE, "sizes": Sizes(model_cache=True)}, {"frames": LINES},
        {"q": 2.0, "frames": CACHE},
    ),
    "C20": (
        {"phase": "recompute", "history": FLAT, "sizes": Sizes(checkpointing=True)},
        {"phase": "recompute", "history": FLAT, "a": 12.0, "sizes": Sizes(checkpointing=True)},
        {"sizes": Sizes(checkpointing=False)}, {"sizes": Sizes(checkpointing=True)},
    ),
    "C21": (
        {"static": static(parameters=6.0)}, {"static": static(parameters=21.4)}, {"phase": "load"}, {},
    ),
    "C22": (
        {"static": static(parameters=6.0), "sizes": CHECKPOINTED},
        {"static": static(parameters=21.4), "sizes": CHECKPOINTED}, {"sizes": Sizes(micro_batch=2)}, {},
    ),
    "C24": (
        {"world_size": 2, "ranks_failed": 1, "sibling_bytes": 2.0},
        {"world_size": 2, "ranks_failed": 1, "sibling_bytes": 0.4}, {"world_size": 1}, {"world_size": 2},
    ),
}  # fmt: skip
JUDGEMENTS = ("sufficient", "contributing", "excluded", "unknown")
CASES = [
    pytest.param(cause, judgement, case, id=f"{cause} {judgement}")
    for cause, cases in ROWS.items()
    for judgement, case in zip(JUDGEMENTS, cases, strict=True)
    if case is not None
]


def test_every_row_of_the_table_has_its_cases():
    assert set(ROWS) == set(ORDER)
    # A guard is there or not: it is no pool that could be a part of the shortfall.
    assert {name for name, cases in ROWS.items() if None in cases} == {"C25", "C26", "C0", "C1", "C2"}
    assert set(guards.DECIDE_ALONE) < set(ORDER)


@pytest.mark.parametrize(("cause", "judgement", "case"), CASES)
def test_a_row_of_the_table(cause, judgement, case):
    made = vector(**case)
    found = diagnose(made)
    assert judged(made, cause) == judgement, found.to_json()
    entry = next(one for one in getattr(found, judgement) if one.id == cause)
    assert entry.name and entry.sentence.endswith(".") and entry.evidence_ids
    if judgement == "sufficient":
        assert found.status != "insufficient_evidence" and found.sentence.endswith(".")
    if judgement == "unknown":
        assert "ot measured" in entry.sentence or "coarse" in entry.sentence or "counted" in entry.sentence


@pytest.mark.parametrize(
    ("cause", "case", "judgement"),
    [
        # A neighbour of 5 GiB explains nothing where the rounding leaves open whether anything was missing.
        ("C4", {"q": 0.2, "f": 0.2, "rounding": 10 * MIB, "foreign": 5.0}, "unknown"),
        # What waits for another stream is in this slack too, so the pieces alone may not have been enough.
        ("C8", {"a": 18.0, "largest_inactive": 0.5, "expandable_segments": False}, "unknown"),
        ("C16c", {**EVALUATION, "grad_enabled": True, "history": STILL}, "excluded"),
        ("C17", {"history": History(**steps(8_000, 0.0, 30), batch_elements=(100,) * 30 + (105,))}, "excluded"),
        # An allowance without its use, a split of which one side is known, a cause at its own threshold.
        ("C3", {"f": 9.0, "y": 22.5, "r": None}, "unknown"),
        ("C26", {"f": 9.0, "y": 22.5, "r": None}, "unknown"),
        ("C6", {"foreign": 6.0, "r": 17.0, "a": 17.0}, "excluded"),
        ("C4", {"foreign": 1.0, "r": 21.5, "a": 21.5}, "contributing"),
        ("C10", {"step": None}, "unknown"),
        ("C7", {"private_idle": 0.0}, "unknown"),
        ("C15", {"phase": "optimizer", "step": None, "q": 2.0, "frames": STATE}, "sufficient"),
        ("C0", {"exit_signal": "SIGKILL", "host_kills": 1}, "sufficient"),
        ("C0", {"exit_signal": "SIGKILL", "host_kills": 0}, "excluded"),
        ("C1", {"q": None, "error_is_disguised": True, "f": 9.0}, "excluded"),
        # What was not measured decides nothing: whether a batch that is far too large is the reason, whether batches
        # grew, which of what was there is this run's own, what a loop keeps while the optimizer steps.
        ("C2", {"q": 30.0}, "unknown"),
        ("C2", {"q": 30.0, "request_scales": True}, "excluded"),
        ("C10", {"gc_freed": 0.0, "history": History(**steps(4_000, 200.0, 30)), "step": 30}, "unknown"),
        (
            "C10",
            {"gc_freed": 0.0, "history": History(**{**ENOUGH, "batch_elements": (100,) * 8}), "step": 30},
            "unknown",
        ),
        ("C16b", {**EVALUATION, "history": UNSIZED}, "unknown"),
        ("C16b", {**EVALUATION, "history": SORTED}, "unknown"),
        ("C5", {"at_start": 3.0, "step": 0, "earlier_out_of_memory": True}, "unknown"),
        (
            "C5",
            {"at_start": 3.0, "step": 0, "earlier_out_of_memory": True, "static": static(parameters=1.0)},
            "unknown",
        ),
        ("C5", {"at_start": 0.1, "step": 0, "earlier_out_of_memory": True}, "excluded"),
        ("C21", {"phase": "optimizer", "step": 0, "q": 2.0}, "unknown"),
        ("C21", {"phase": "optimizer", "step": 0, "q": 2.0, "static": static(parameters=21.5)}, "excluded"),
        ("C21", {"phase": "optimizer", "step": 0, "q": 2.0, "static": static(parameters=9.0)}, "contributing"),
    ],
)
def test_the_edges_of_a_row(cause, case, judgement):
    assert judged(vector(**case), cause) == judgement


@pytest.mark.parametrize("cause", [one for one in ROWS if one not in {*guards.DECIDE_ALONE, "C1", "C2"}])
def test_without_the_request_no_pool_suffices(cause):
    made = changed(vector(**ROWS[cause][0]), requested=None)
    assert judged(made, cause) != "sufficient"


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"parameters": 21.0}, "The model itself takes 21.00 GiB"),
        (
            {"parameters": 6.0, "gradients": 6.0, "optimizer": 9.0},
            "The model with gradients and optimizer state takes 21.00",
        ),
    ],
)
def test_gradients_and_state_are_not_called_the_model_itself(held, words):
    found = diagnose(vector(static=static(**held)))
    sentence = next(one.sentence for one in found.contributing if one.id == "C12")
    assert sentence.startswith(words)


def test_several_models_are_not_called_one():
    several = replace(static(parameters=6.0, gradients=6.0, optimizer=9.0), models=2)
    sentence = next(one.sentence for one in diagnose(vector(static=several)).contributing if one.id == "C12")
    assert sentence.startswith("2 models with gradients and optimizer state take 21.00 GiB")
