"""Causes that hold together, what they mean for a recovery, and laws that hold for every vector."""

from dataclasses import replace

import pytest
from cause_vectors import GIB, MIB, changed, gib, ids, static, steps, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.forensics.causes import diagnose as diagnosing
from watcherml.forensics.causes import thresholds
from watcherml.forensics.causes.diagnose import control_only, diagnose, refuses, ruled_out, supported_capabilities
from watcherml.forensics.causes.effects import EFFECTS
from watcherml.forensics.causes.table import CONTROL_ONLY, ORDER, REFUSES, ROWS
from watcherml.forensics.causes.vector import History, Sizes
from watcherml.sealed.canonical import digest

LOSS = (("train.py", "step"), ("/s/torch/nn/functional.py", "cross_entropy"))
LOGITS = Sizes(micro_batch=8, sequence_length=2048, vocabulary=128256)
GROWTH = History(**steps(4_000, 300.0, 30), batch_elements=(100,) * 31)
LONG = History(**steps(8_000, 0.0, 30), batch_elements=(100,) * 30 + (400,))

# (what is wrong, the vector, the causes in the table's order, refused, control only)
TWO = [
    ("a neighbour and a leak", {"foreign": 3.0, "own_other": 0.5, "history": GROWTH, "gc_freed": 0.0, "step": 30},
     ["C4", "C10"], False, True),
    ("a neighbour and the logits", {"q": 4008 / 512, "f": 7.0, "foreign": 3.0, "sizes": LOGITS, "frames": LOSS},
     ["C4", "C14"], False, False),
    ("left over here and the optimizer's first step",
     {"phase": "optimizer", "step": 0, "q": 2.0, "at_start": 5.0, "earlier_out_of_memory": True,
      "static": static(parameters=1.0, optimizer=0.0, optimizer_expected=2.0)}, ["C5", "C15"], False, False),
    ("fragments and the longest batch",
     {"a": 16.0, "active": 16.0, "r": 23.0, "private_idle": 0.0, "largest_inactive": 0.5, "expandable_segments": False,
      "history": LONG}, ["C8", "C17"], False, False),
    ("a leak and an evaluation with gradients",
     {"phase": "evaluation", "grad_enabled": True, "history": GROWTH, "gc_freed": 0.0, "step": 30},
     ["C10", "C16a"], True, False),
    ("cycles and private pools", {"gc_freed": 2.0, "private_pools": 3.0}, ["C7", "C11"], False, False),
    ("a cap and cycles", {"f": 9.0, "y": 22.5, "gc_freed": 2.0}, ["C3", "C11"], False, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "causes", "refused", "control"), TWO, ids=[one[0] for one in TWO])
def test_two_causes_are_both_named_in_the_order_of_the_table(name, case, causes, refused, control):
    found = diagnose(vector(**case))
    assert found.status == "ambiguous" and ids(found)["sufficient"] == causes, found.to_json()
    assert bool(refuses(found)) == refused and bool(control_only(found)) == control
    assert all(one in found.sentence for one in causes[1:])
    assert ruled_out(found) == ()


def test_a_cause_that_is_a_part_keeps_its_own_help_open():
    found = diagnose(vector(foreign=3.0, own_other=0.5, r=22.5, a=22.1))
    assert ids(found)["sufficient"] == ["C4"] and "C8" in ids(found)["contributing"]
    assert "allocator_configuration" not in {name for name, _, _ in ruled_out(found)}


def test_the_neighbours_sentence_says_first_what_it_means():
    found = diagnose(vector(12.4, 24.0, 0.2, 10.0, 10.6, foreign=12.2, own_other=1.0))
    assert found.sentence == (
        "The card was 12.20 GiB short because another process held 12.20 GiB: no change of this configuration can help;"
        " free it and run the control trial."
    )


def test_a_full_card_says_what_to_do():
    found = diagnose(vector(static=static(parameters=6.0), sizes=Sizes(micro_batch=4), foreign=0.0, own_other=0.5))
    assert found.status == "capacity_bound" and ids(found)["sufficient"] == ["C21"]
    assert "a smaller micro-batch with accumulation, or checkpointing" in found.sentence
    assert "micro_batch_size" in supported_capabilities(found)
    last = diagnose(vector(static=static(parameters=6.0), sizes=Sizes(micro_batch=1, checkpointing=True)))
    assert ids(last)["sufficient"] == ["C22"] and "micro_batch_size" not in supported_capabilities(last)
    assert last.status == "capacity_bound"


FEW = History(**steps(4_000, 1_500.0, 10), batch_elements=(9,) * 11)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"q": None}, "the size of the request"),
        ({"f": None}, "what was free"),
        ({"r": None}, "what torch had reserved"),
        ({"phase": "unknown"}, "in which part of training"),
        ({"r": 15.0, "a": 15.0}, "how it splits between this process and others (NVML)"),
        ({"a": 15.0}, "the largest cached block"),
        ({"history": GROWTH, "step": 30}, "what a garbage collection gives back"),
        ({"history": FEW, "step": 10, "gc_freed": 0.0, "static": static(parameters=1.0)}, "a leak cannot be told"),
        ({"phase": "unknown", "q": 30.0}, "exceeds the whole device (24.00 GiB): look at the shapes in that line"),
    ],
)
def test_too_little_evidence_names_what_is_missing(case, words):
    found = diagnose(vector(**case))
    assert found.status == "insufficient_evidence" and found.sentence.count(words) == 1
    assert not refuses(found) and not control_only(found) and ruled_out(found) == ()


def test_steps_after_the_last_reading_are_no_batch_of_evaluation():
    kept = History(**steps(4_000, 200.0, 30), batch_elements=(9,) * 91)
    made = vector(
        q=0.5, phase="evaluation", grad_enabled=False, gc_freed=0.0, step=92, history=kept, evaluation_batches=0
    )
    assert "C16c" not in ids(made)["sufficient"]


def test_causes_that_refuse_and_those_that_wait_for_the_control_are_apart():
    assert set(REFUSES) & set(CONTROL_ONLY) == set() and set(REFUSES + CONTROL_ONLY) <= set(ORDER)
    assert set(ROWS) <= set(EFFECTS)
    for one in REFUSES:
        assert not EFFECTS[one].supports, one  # what no trial is spent on supports no control


def test_the_version_of_the_rules_moves_with_their_numbers_and_words():
    numbers = {name: value for name, value in vars(thresholds).items() if name.isupper()}
    rows = {key: [row.name, list(row.evidence_ids), row.held, row.remedy] for key, row in ROWS.items()}
    effects = {key: [*one.supports, *one.rules_out, one.because] for key, one in EFFECTS.items()}
    tables = {"numbers": numbers, "rows": rows, "effects": effects, "refuses": REFUSES, "control": CONTROL_ONLY}
    sealed = digest("rules", 1, tables)
    known = {7: "sha256:38f1d113c4016dbc660090b9f45871b302974a024d2bc7bd63c8d8bb1a8d25b0"}
    assert known[thresholds.RULES_VERSION] == sealed, "the rules changed: raise RULES_VERSION and add its digest"


def sizes(low=0.0, high=30.0):
    return st.none() | st.floats(low, high).map(lambda value: round(value * 16) / 16)


PHASES = ("load", "data", "forward", "backward", "recompute", "optimizer", "evaluation", "checkpoint", "unknown")
VECTORS = st.builds(
    vector,
    q=sizes(), c=sizes(4), f=sizes(0, 8), a=sizes(), r=sizes(), y=sizes(4),
    phase=st.sampled_from(PHASES), step=st.none() | st.integers(0, 300), foreign=sizes(), own_other=sizes(),
    private_pools=sizes(), private_idle=sizes(), active=sizes(), largest_inactive=sizes(), at_start=sizes(),
    gc_freed=sizes(), earlier_out_of_memory=st.none() | st.booleans(), expandable_segments=st.none() | st.booleans(),
    grad_enabled=st.none() | st.booleans(), frames=st.sampled_from([(), LOSS]), unallocated=sizes(),
    static=st.builds(static, parameters=sizes(), optimizer=sizes(), optimizer_expected=sizes()),
    sizes=st.builds(Sizes, micro_batch=st.none() | st.just(1), checkpointing=st.none() | st.booleans()),
    history=st.sampled_from([History(), GROWTH, LONG]), device_kind=st.sampled_from(["cuda", "simulated"]),
    evaluation_batches=st.none() | st.integers(0, 3), rounding=st.sampled_from([0, 10 * MIB]),
)  # fmt: skip
RANK = {"absent": 0, "excluded": 0, "unknown": 0, "contributing": 1, "sufficient": 2}
POOLS = {"C4": "foreign", "C6": "own_other", "C7": "private_pools", "C11": "gc_freed"}


@given(VECTORS)
@settings(max_examples=300, deadline=None)
def test_every_vector_has_one_diagnosis_that_can_be_sealed(made):
    found = diagnose(made)
    assert diagnose(made) == found and type(found).from_json(found.to_json()) == found
    listed = [one for name in ids(found).values() for one in name]
    assert sorted(listed, key=ORDER.index) == list(ORDER)  # every cause once, in one of the four lists
    for name in ids(found).values():
        assert name == sorted(name, key=ORDER.index)
    enough = [one.id for one in found.sufficient if one.id not in ("C21", "C22")]
    assert (found.status == "diagnosed") == (len(enough) == 1)
    assert (found.status == "ambiguous") == (len(enough) > 1)
    assert not (refuses(found) and control_only(found))
    assert not refuses(found) or found.status in ("diagnosed", "ambiguous")


@given(VECTORS, st.sampled_from(sorted(POOLS)), st.floats(0.1, 8))
@settings(max_examples=300, deadline=None)
def test_a_larger_pool_never_makes_its_cause_less(made, cause, more):
    size = getattr(made, POOLS[cause])
    if size is not None:
        larger = replace(made, **{POOLS[cause]: size + gib(more)})
        assert RANK[_judged(larger, cause)] >= RANK[_judged(made, cause)]


@given(VECTORS, st.floats(0.1, 8))
@settings(max_examples=300, deadline=None)
def test_a_larger_shortfall_makes_no_pool_sufficient_that_was_not(made, more):
    """What a pool covers, it covers with less missing too."""
    before = diagnose(made)
    if made.requested is None or made.missing is None or made.missing.low <= 0:
        return
    short = replace(made.missing, low=made.missing.low + gib(more), high=made.missing.high + gib(more))
    after = diagnose(replace(made, missing=short))
    for cause in POOLS:
        if cause not in ids(before)["sufficient"]:
            assert cause not in ids(after)["sufficient"]


@given(VECTORS, st.floats(0.1, 40))
@settings(max_examples=300, deadline=None)
def test_with_room_for_the_request_no_pool_is_called_the_cause(made, more):
    if made.requested is None or made.allocated is None or made.capacity is None:
        return
    room = changed(made, free=made.requested + gib(more), allowed=None)
    assert not set(ids(room)["sufficient"]) - {"C25", "C26", "C0", "C2", "C1"}


@given(VECTORS, st.sampled_from([("private_pools", "C7"), ("gc_freed", "C11"), ("at_start", "C5")]))
@settings(max_examples=300, deadline=None)
def test_what_was_not_measured_never_excludes_its_cause(made, pair):
    name, cause = pair
    if _judged(made, cause) == "sufficient":
        assert _judged(replace(made, **{name: None}), cause) != "excluded"


@given(VECTORS, st.permutations(diagnosing._FAMILIES))
@settings(max_examples=100, deadline=None)
def test_the_order_in_which_the_families_are_asked_never_matters(made, order):
    before, kept = diagnose(made), diagnosing._FAMILIES
    try:
        diagnosing._FAMILIES = tuple(order)
        assert diagnose(made) == before
    finally:
        diagnosing._FAMILIES = kept


def _judged(made, cause):
    return next((name for name, found in ids(made).items() if cause in found), "absent")


def test_zero_and_not_measured_are_two_answers():
    for cause, name in POOLS.items():
        none, nothing = vector(**{name: None, "r": 12.0, "a": 12.0}), vector(**{name: 0.0, "r": 12.0, "a": 12.0})
        assert _judged(none, cause) == "unknown" and _judged(nothing, cause) == "excluded", cause
    assert GIB == 1024 * MIB
