"""From a failing run to its capsule: the facts, what is missing and why, and exceptions that misbehave."""

import pytest
from builders import OOM_TEXT

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.causes.diagnose import diagnose, refuses, supported_capabilities
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.shortfall import shortfall

GIB, MIB = 2**30, 2**20


def fail(storage, error, config=None):
    run = watcherml.Run("demo", config or {"batch_size": 64}, storage, quiet=True)
    with pytest.raises(type(error)), run:
        run.log_metric("loss", 0.5, step=3)
        raise error
    assert not run.problems, run.problems
    return Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])


def test_an_oom_becomes_bytes_and_a_first_sentence(storage):
    capsule = fail(storage, RuntimeError(OOM_TEXT))
    assert capsule.failure.class_ == "cuda_out_of_memory" and capsule.failure.step == 3
    assert (capsule.memory.requested_bytes, capsule.memory.free_bytes) == (20 * MIB, 3 * MIB)
    assert capsule.memory.capacity_bytes == 8 * GIB
    assert capsule.diagnosis.shortfall_bytes == pytest.approx(17 * MIB, abs=20_000)
    assert "20.0 MiB were asked for and 3.0 MiB were free" in capsule.headline
    assert capsule.failure.where.startswith("test_capture.py:")
    data = storage.get_capsule(capsule.run_id)
    assert data["failure"]["class"] == "cuda_out_of_memory" and data["failure"]["subkind"]


def test_each_piece_of_evidence_is_there_or_missing_with_a_reason(storage):
    capsule = fail(storage, ValueError("x"))
    assert [piece.id for piece in capsule.evidence] == [f"EV-{number}" for number in range(1, 12)]
    found = {piece.id: piece for piece in capsule.evidence}
    for name in ("EV-1", "EV-2", "EV-3", "EV-4", "EV-8", "EV-10"):
        assert found[name].status == "present" and found[name].data and found[name].source, name
    for name in ("EV-5", "EV-9", "EV-11"):
        assert found[name].status == "missing" and found[name].reason, name
    assert capsule.completeness.present == sum(piece.status == "present" for piece in capsule.evidence)
    assert found["EV-2"].data["last_step"] == 3


class Silent(RuntimeError):
    def __str__(self):
        raise ZeroDivisionError


class Slotted(Exception):
    __slots__ = ()


@pytest.mark.parametrize(
    "error",
    [
        Silent(),
        RuntimeError("\ud800 text"),
        RuntimeError("x" * 5_000_000),
        RuntimeError("a\x00b\x1b[31m<script>alert(1)</script>\n" * 10),
        Slotted("slots"),
        RuntimeError(),
        RuntimeError(b"bytes", {"not": "text"}),
        KeyError("CUDA out of memory. Tried to allocate 1.00 GiB"),
    ],
    ids=["no text", "surrogate", "5 MB", "control characters", "slots", "empty", "arguments", "false friend"],
)
def test_an_exception_that_misbehaves_still_has_its_capsule(storage, error):
    capsule = fail(storage, error)
    assert capsule.failure.class_ == "unclassified" and capsule.headline


def test_secrets_of_messages_and_configurations_stay_out(storage):
    key = "sk-" + "a1B2" * 8
    capsule = fail(storage, RuntimeError(f"cannot log in with {key}"), {"api_key": key, "note": f"uses {key}"})
    assert key not in capsule.to_json() and "[redacted:" in capsule.failure.message


def test_a_phase_mark_wins_over_the_traceback(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(RuntimeError), run, watcherml.phase("evaluation"):
        raise RuntimeError(OOM_TEXT)
    assert storage.get_capsule(run.run_id)["failure"]["phase"] == "evaluation"
    with pytest.raises(watcherml.errors.InvalidValue, match="phase"), watcherml.phase("lunch"):
        pass


def vector(requested, capacity, free, allocated, reserved, kind="cuda", phase="forward", allowed=None):
    missing = shortfall(requested, free, allowed=allowed, reserved=reserved)
    return Vector(kind, phase, 0, requested, capacity, allowed, free, allocated, reserved, missing)


@pytest.mark.parametrize(
    ("case", "status", "causes"),
    [
        (vector(10 * GIB, 8 * GIB, 0, 7 * GIB, 7 * GIB), "capacity_bound", []),
        (vector(10 * GIB, 8 * GIB, 0, 17 * GIB, 19 * GIB), "diagnosed", ["C25"]),
        (vector(10 * MIB, 10 * GIB, 9 * GIB, 10 * MIB, 10 * MIB), "diagnosed", ["C26"]),
        (vector(2 * GIB, 15 * GIB, GIB, GIB, GIB), "insufficient_evidence", []),
        (vector(GIB, 8 * GIB, 0, 7 * GIB, 7 * GIB + 400 * MIB), "capacity_bound", []),
        (vector(8 * MIB, 96 * MIB, 3 * MIB, 93 * MIB, 93 * MIB, "simulated"), "capacity_bound", []),
        (vector(None, None, None, None, None), "insufficient_evidence", []),
        (
            vector(GIB, 80 * GIB, 60 * GIB, 15 * GIB, 15 * GIB + 512 * MIB, allowed=16 * GIB),
            "diagnosed",
            ["C3"],
        ),
    ],
)
def test_the_first_rules_of_the_diagnosis(case, status, causes):
    found = diagnose(case)
    assert found.status == status and found.sentence
    assert [one.id for one in found.sufficient] == causes
    assert bool(refuses(found)) == (causes == ["C25"])
    assert bool(supported_capabilities(found)) == (status == "capacity_bound" or causes == ["C3"])


def test_the_shortfall_is_an_interval_and_a_cap_counts():
    assert shortfall(None, 5) is None and shortfall(5, None) is None
    found = shortfall(20 * MIB, 3 * MIB, rounding=10)
    assert (found.low, found.high, found.middle) == (17 * MIB - 10, 17 * MIB + 10, 17 * MIB)
    capped = shortfall(GIB, 60 * GIB, allowed=16 * GIB, reserved=15 * GIB + 512 * MIB)
    assert capped.middle == 512 * MIB
