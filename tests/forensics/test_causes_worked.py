"""The twelve worked messages and the constructed cases of the specification, as numbers (facts/diagnosis.md, 6)."""

import pytest
from cause_vectors import GIB, MIB, changed, gib, ids, judged, static, steps, vector

from watcherml.forensics.causes.diagnose import (
    control_only,
    diagnose,
    refuses,
    ruled_out,
    supported_capabilities,
)
from watcherml.forensics.causes.history import predicted_step
from watcherml.forensics.causes.vector import History, Sizes, Vector
from watcherml.forensics.oom_message import parse
from watcherml.forensics.shortfall import Shortfall, shortfall

ROUND = 2 * round(0.005 * GIB)


def message(q, c, f, a, r, **more):
    """Return the vector of a message that states five rounded figures and from which nothing else is known."""
    rounding = sum(round(0.005 * (GIB if figure >= 1 else MIB)) for figure in (q, f))
    return vector(q, c, f, a, r, rounding=rounding, unallocated=r - a, **{"step": None, **more})


WORKED = [
    (1, message(10.73, 8.00, 0.00, 17.20, 19.15), "diagnosed", ["C25"], [], ["C2"]),
    (2, message(0.98, 8.00, 0.00, 13.98, 14.11), "diagnosed", ["C25"], [], []),
    (3, message(1.69, 14.56, 1.31, 0.63, 1.01), "insufficient_evidence", [], [], ["C4", "C6", "C8"]),
    (4, message(1.63, 44.56, 0.55, 27.91, 27.93), "insufficient_evidence", [], [], ["C4", "C6"]),
    (5, message(1.39, 6.00, 0.47, 4.04, 4.15), "capacity_bound", [], [], ["C21"]),
    (6, message(1.70, 6.00, 0.00, 2.93, 5.23), "insufficient_evidence", [], [], ["C8", "C9"]),
    (7, message(22.78, 31.47, 12.73, 9.08, 18.43), "capacity_bound", [], ["C8"], []),
    (8, message(0.15, 23.69, 0.11, 22.14, 23.03), "capacity_bound", [], ["C8"], []),
    (9, message(0.02, 23.65, 0.01, 22.90, 23.09), "capacity_bound", [], ["C8"], []),
    (10, message(0.01, 10.92, 9.28, 0.01, 0.00), "diagnosed", ["C26"], [], []),
    (11, message(0.02, 12.00, 0.00, 10.89, 11.31), "capacity_bound", [], ["C8"], []),
    (12, message(3.12, 23.70, 0.29, 22.00, 22.29, phase="optimizer", step=0), "diagnosed", ["C15"], [], []),
]


@pytest.mark.parametrize(("number", "case", "status", "enough", "part", "open_ones"), WORKED)
def test_the_worked_messages(number, case, status, enough, part, open_ones):
    found = diagnose(case)
    assert found.status == status, found.sentence
    lists = ids(found)
    assert lists["sufficient"] == enough
    assert set(part) <= set(lists["contributing"]) and set(open_ones) <= set(lists["unknown"]), lists
    assert found.sentence and len(found.sentence) < 600


def test_a_full_card_by_eleven_mebibytes_has_no_small_pool_for_a_cause():
    case = vector(20 / 1024, 23.65, 9.38 / 1024, 22.90, 23.09, unallocated=0.19)
    found = diagnose(case)
    assert found.status == "capacity_bound" and ids(found)["sufficient"] == []
    slack = next(one for one in found.contributing if one.id == "C8")
    assert "0.8 % of a full device" in slack.sentence
    assert "allocator_configuration" not in supported_capabilities(found)


@pytest.mark.parametrize(
    ("case", "enough"),
    [
        (vector(1.69, 14.56, 1.31, 0.63, 1.01, foreign=11.5, own_other=0.74), ["C4"]),
        (vector(1.69, 14.56, 1.31, 0.63, 1.01, foreign=0.1, own_other=12.14), ["C6"]),
        (vector(1.69, 14.56, 1.31, 0.63, 1.01, foreign=6.0, own_other=6.24), ["C4", "C6"]),
    ],
)
def test_the_drivers_split_tells_another_process_from_this_one(case, enough):
    assert ids(case)["sufficient"] == enough


def test_logits_of_exact_size_at_the_loss():
    sizes = Sizes(micro_batch=8, sequence_length=2048, vocabulary=128256)
    asked = 8 * 2048 * 128256 * 4
    assert asked == 8_405_385_216 == 4008 * 2 * MIB
    frames = (("train.py", "step"), ("/site/torch/nn/functional.py", "cross_entropy"))
    case = vector(7.83, 24.0, 1.0, 18.0, 18.1, rounding=ROUND, sizes=sizes, frames=frames)
    assert ids(case)["sufficient"] == ["C14"]
    assert "gradient_checkpointing" not in supported_capabilities(diagnose(case))
    assert "gradient_checkpointing" in {name for name, _, _ in ruled_out(diagnose(case))}
    # Half the micro-batch asks for half of it: another batch is another request.
    half = changed(case, sizes=Sizes(micro_batch=4, sequence_length=2048, vocabulary=128256), missing=case.missing)
    assert judged(half, "C14") == "excluded"
    short = Shortfall(case.missing.low - asked // 2, case.missing.high - asked // 2)
    assert judged(changed(half, requested=asked // 2, missing=short), "C14") == "sufficient"


def test_a_request_larger_than_the_device_that_scales_with_the_batch_is_not_absurd():
    sizes = Sizes(micro_batch=8, sequence_length=2048, vocabulary=128256)
    frames = (("train.py", "step"), ("/site/torch/nn/functional.py", "cross_entropy"))
    case = vector(4008 / 512, 6.0, 1.0, 4.5, 4.6, sizes=sizes, frames=frames)
    found = diagnose(case)
    assert ids(found)["sufficient"] == ["C14"] and not refuses(found)
    plain = changed(case, sizes=Sizes())
    assert judged(plain, "C2") == "unknown" and not refuses(diagnose(plain))
    assert judged(changed(plain, request_scales=True), "C2") == "excluded"
    assert refuses(diagnose(changed(plain, request_is_absurd=True)))


def test_attention_scores_of_exact_size_at_a_softmax():
    sizes = Sizes(micro_batch=4, heads=32, sequence_length=4096, element_bytes=2)
    frames = (("model.py", "forward"), ("/site/torch/nn/functional.py", "softmax"))
    case = vector(4.0, 24.0, 1.0, 18.0, 18.1, sizes=sizes, frames=frames)
    assert case.requested == 4 * 32 * 4096**2 * 2
    assert ids(case)["sufficient"] == ["C13"]
    elsewhere = changed(case, frames=(("model.py", "forward"), ("/site/torch/nn/modules/activation.py", "relu")))
    assert judged(elsewhere, "C13") == "excluded"  # the same size by chance, at another line


@pytest.mark.parametrize(
    ("attention", "said"),
    [(None, "use an attention that does not store them"), ("eager", "use an attention that does not store them"),
     ("sdpa", "see why sdpa stores them here"), ("flash_attention_2", "see why flash_attention_2 stores them here")],
)  # fmt: skip
def test_a_fused_attention_that_kept_its_scores_is_not_advised_to_be_fused(attention, said):
    sizes = Sizes(micro_batch=4, heads=32, sequence_length=4096, element_bytes=2, attention=attention)
    frames = (("model.py", "forward"), ("/site/torch/nn/functional.py", "softmax"))
    found = diagnose(vector(4.0, 24.0, 1.0, 18.0, 18.1, sizes=sizes, frames=frames))
    assert said in found.sentence and "a smaller micro-batch" in found.sentence
    assert ("does not store" in found.sentence) is (attention in (None, "eager"))


def leak(**more):
    history = History(**steps(9_000, 38.0, 231, start=0), in_step_peak=6_000 * MIB, batch_elements=(100,) * 231)
    total, free = 24_576 * MIB, 100 * MIB
    reserved = 23_664 * MIB - free
    held = (9_000 + 38 * 230 + 5_500) * MIB
    return Vector(
        "cuda", "forward", 231, 600 * MIB, total, None, free, held, reserved, Shortfall(500 * MIB, 500 * MIB),
        history=history, own_other=912 * MIB, foreign=0, **{"gc_freed": round(0.02 * 38 * 230 * MIB), **more},
    )  # fmt: skip


def test_a_leak_is_found_where_its_slope_meets_the_limit_and_every_trial_is_refused():
    limit = 23_664
    assert predicted_step(limit, 6_000, 9_000, 38.0) == 228
    assert predicted_step(limit, 3_000, 9_000, 19.0) == 613  # so 500 steps at half the batch would have proved nothing
    case = leak()
    assert case.own_limit == limit * MIB
    found = diagnose(case)
    assert ids(found)["sufficient"] == ["C10"]
    assert "38.0 MiB a step" in found.sentence and "delays" in found.sentence and "not cure" in found.sentence
    assert refuses(found) == found.sentence and not control_only(found)


@pytest.mark.parametrize(
    ("change", "judgement"),
    [
        ({"gc_freed": None}, "unknown"),
        ({"gc_freed": 3_000 * MIB}, "contributing"),
        ({"step": 0}, "excluded"),
        ({"history": History(**steps(9_000, 38.0, 12))}, "unknown"),
        ({"history": History(**steps(9_000, 38.0, 231), in_step_peak=6_000 * MIB)}, "unknown"),
        ({"history": History(**steps(9_000, 0.0, 231))}, "excluded"),
        ({"history": History(**steps(9_000, 38.0, 231), in_step_peak=13_000 * MIB)}, "contributing"),
        ({"history": History(**steps(9_000, 38.0, 231), batch_elements=tuple(range(100, 331)))}, "contributing"),
        ({"history": History()}, "unknown"),
    ],
)
def test_a_leak_needs_all_of_its_evidence(change, judgement):
    assert judged(changed(leak(), **change), "C10") == judgement


def test_what_an_earlier_failure_left_is_a_cause():
    case = vector(2.0, 15.0, 0.5, 13.5, 13.6, at_start=9.2, step=0, earlier_out_of_memory=True,
                  static=static(parameters=0.5, optimizer=0.0))  # fmt: skip
    found = diagnose(case)
    assert found.shortfall_bytes == gib(1.5)
    assert ids(found)["sufficient"] == ["C5"] and not refuses(found)
    assert not control_only(found)  # a control that fails as before has shown that this was not it
    model = static(parameters=9.2)
    assert judged(changed(case, static=model), "C5") == "excluded"  # it is this run's own model
    nobody = changed(case, earlier_out_of_memory=False)
    assert judged(nobody, "C5") == "sufficient" and judged(changed(nobody, step=3), "C5") == "contributing"
    assert judged(changed(case, static=static(parameters=0.5)), "C5") == "unknown"  # its optimizer's state may be there


def test_a_cap_is_not_a_small_card():
    case = vector(1.0, 79.2, 60.0, 15.0, 15.5, y=16.0)
    found = diagnose(case)
    assert found.shortfall_bytes == gib(0.5)
    assert ids(found)["sufficient"] == ["C3"] and "raise the cap" in found.sentence
    assert ids(vector(1.0, 79.2, 60.0, 15.0, 15.5))["sufficient"] == ["C26"]  # the same without the cap's figure


def test_idle_private_pools_are_told_from_fragmentation():
    case = vector(1.0, 24.0, 0.2, 20.0, 20.4, private_idle=3.0, unallocated=0.4)
    found = diagnose(case)
    assert ids(found)["sufficient"] == ["C7"] and "C8" in ids(found)["contributing"]


def test_slack_is_no_fragmentation_where_expandable_segments_are_on():
    case = vector(1.0, 24.0, 0.4, 19.0, 22.1, active=19.0, private_idle=0, largest_inactive=0.1)
    assert judged(changed(case, expandable_segments=False), "C8") == "sufficient"
    assert judged(changed(case, expandable_segments=True), "C8") == "excluded"
    assert judged(changed(case, expandable_segments=False, largest_inactive=2 * GIB), "C26") == "sufficient"


def of_text(text):
    stated = parse(text)
    half = stated.rounding_bytes.get("tried_bytes", 0) + stated.rounding_bytes.get("free_bytes", 0)
    short = shortfall(stated.tried_bytes, stated.free_bytes, rounding=half)
    reserved = None if stated.allocated_bytes is None else stated.allocated_bytes + stated.reserved_unallocated_bytes
    return Vector(
        "cuda", "forward", 3, stated.tried_bytes, stated.total_bytes, None, stated.free_bytes, stated.allocated_bytes,
        reserved, short,
    )  # fmt: skip


TEXT = (
    "CUDA out of memory. Tried to allocate {q}. GPU 0 has a total capacity of 23.65 GiB of which {f} is free. Of the "
    "allocated memory 22.60 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated."
)


def test_a_shortfall_within_the_rounding_of_a_message_decides_nothing():
    fine = of_text(TEXT.format(q="20.00 MiB", f="19.56 MiB"))
    assert (round(fine.missing.low / MIB, 2), round(fine.missing.high / MIB, 2)) == (0.43, 0.45)
    assert diagnose(fine).status == "capacity_bound"
    coarse = of_text(TEXT.format(q="1.70 GiB", f="1.70 GiB"))
    assert coarse.missing.low < 0 < coarse.missing.high
    found = diagnose(coarse)
    assert found.status == "insufficient_evidence" and "rounds" in found.sentence
    assert not found.sufficient and not refuses(found)
