"""CUDA failures whose figures come from stand-ins for torch.cuda, a snapshot and NVML, through capture."""

import pytest
import stand_in_cuda as cuda
import torch
from stand_in_cuda import GIB, MIB, Card, segment

import watcherml
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.causes.diagnose import control_only, refuses

OOM = getattr(torch, "OutOfMemoryError", RuntimeError)


@pytest.fixture
def fail(storage, monkeypatch, tmp_path):
    """Run until the card is as the changes say, raise the text, and return the capsule."""

    def failing(requested, *, before=None, text=None, phase="forward", nvml_names_us=True, broken=(), late=None,
                **changes):  # fmt: skip
        card = Card(**(before or {}))
        library = cuda.install(card, monkeypatch, tmp_path / "library")
        for name in broken:
            monkeypatch.setattr(torch.cuda, name, lost, raising=False)
        run = watcherml.Run("demo", {"batch_size": 8}, storage, quiet=True)
        with pytest.raises(OOM), run:
            card.set(**changes)
            cuda.tell_nvml(card, library, own=nvml_names_us)
            with watcherml.phase(phase):
                card.ooms += text is None  # a library's own error is not the allocator's
                said = text or card.message(requested)
                if late is not None:
                    card.active = 0
                    card.set(**late)
                raise OOM(said)
        assert not run.problems, run.problems
        return Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])

    return failing


def sufficient(capsule):
    return [one.id for one in capsule.diagnosis.sufficient]


def evidence(capsule):
    return {piece.id: piece.data for piece in capsule.evidence}


def lost(*_, **__):
    raise RuntimeError("CUDA error: device-side assert triggered")


FULL = {"allocated": 13 * GIB, "reserved": 13 * GIB + 200 * MIB}


def test_another_process_is_told_from_this_ones_context(fail):
    capsule = fail(2 * GIB, allocated=1 * GIB, reserved=1 * GIB, foreign=int(12.2 * GIB))
    assert sufficient(capsule) == ["C4"], capsule.diagnosis.to_data()
    split = evidence(capsule)["EV-5"]["failing"]["nvml"]
    assert split["foreign_bytes"] == int(12.2 * GIB) and split["own_other_bytes"] == 400 * MIB
    assert "12.20 GiB" in capsule.headline and "no change of this configuration can help" in capsule.headline


def test_without_our_pid_in_nvml_the_split_is_unknown_and_not_zero(fail):
    capsule = fail(2 * GIB, allocated=1 * GIB, reserved=1 * GIB, foreign=12 * GIB, nvml_names_us=False)
    split = evidence(capsule)["EV-5"]["failing"]["nvml"]
    assert "foreign_bytes" not in split and split["reason"]
    assert sufficient(capsule) == [] and {"C4", "C6"} <= {one.id for one in capsule.diagnosis.unknown}


def test_this_process_outside_torch(fail):
    capsule = fail(2 * GIB, allocated=4 * GIB, reserved=4 * GIB, own_other=10 * GIB)
    assert sufficient(capsule) == ["C6"], capsule.diagnosis.to_data()


def test_private_pools_come_from_the_snapshot(fail):
    pools = [segment(3 * GIB, (2 * GIB, "inactive", "replay"), pool=(0, 7)), segment(10 * GIB)]
    capsule = fail(2 * GIB, allocated=11 * GIB, reserved=13 * GIB + GIB // 2, segments=pools)
    assert "C7" in sufficient(capsule), capsule.diagnosis.to_data()
    snapshot = evidence(capsule)["EV-5"]["failing"]["snapshot"]
    assert (snapshot["private_pool_bytes"], snapshot["private_pool_idle_bytes"]) == (3 * GIB, 2 * GIB)


def test_fragmentation_needs_the_largest_block_to_be_too_small(fail):
    pieces = [segment(400 * MIB, (200 * MIB, "inactive", "f"), (200 * MIB, "active_allocated", "f")) for _ in range(10)]
    layout = {"allocated": 10 * GIB, "reserved": 13 * GIB, "retries": 3}
    capsule = fail(2 * GIB, segments=pieces, **layout)
    assert sufficient(capsule) == ["C8"], capsule.diagnosis.to_data()
    snapshot = evidence(capsule)["EV-5"]["failing"]["snapshot"]
    assert snapshot["largest_inactive_bytes"] == 200 * MIB
    assert list(snapshot["live_by_frame"]) == [{"frame": "train.py:7 f", "bytes": 2000 * MIB}]
    one = [segment(3 * GIB, (3 * GIB, "inactive", "f"))]
    assert "C8" not in sufficient(fail(2 * GIB, segments=one, **layout))
    on = fail(2 * GIB, segments=pieces, settings={"expandable_segments": True}, **layout)
    assert "C8" not in sufficient(on)


def test_memory_that_waits_for_a_stream(fail):
    capsule = fail(2 * GIB, allocated=10 * GIB, active=13 * GIB, reserved=13 * GIB, segments=[segment(13 * GIB)])
    assert "C9" in sufficient(capsule), capsule.diagnosis.to_data()


LATE = [
    ("unwinding gave temporaries back", FULL, {"allocated": 9 * GIB}, [segment(3 * GIB, (3 * GIB, "inactive", "b"))]),
    (
        "a handler took more",
        {"allocated": 10 * GIB, "reserved": 13 * GIB},
        {"allocated": 13 * GIB},
        [segment(13 * GIB)],
    ),
    ("more, and room elsewhere", FULL, {"allocated": 14 * GIB}, [segment(3 * GIB, (3 * GIB, "inactive", "b"))]),
]


@pytest.mark.parametrize(("name", "then", "late", "segments"), LATE, ids=[row[0] for row in LATE])
def test_a_snapshot_of_another_moment_explains_nothing(fail, name, then, late, segments):
    found = fail(2 * GIB, phase="backward", late={**late, "segments": segments}, **then).diagnosis
    named = {one.id for one in found.sufficient + found.contributing}
    assert not named & {"C26", "C9"}, found.to_data()
    assert not refuses(found) and not control_only(found)
    same = {one.id for one in fail(2 * GIB, segments=segments, **then).diagnosis.sufficient}
    assert ("C26" in same) == (segments[0]["total_size"] == 3 * GIB)  # the same blocks, at the moment of the failure


def test_another_streams_or_pools_block_is_none_that_the_request_could_have_had(fail):
    free = {**segment(3 * GIB, (3 * GIB, "inactive", "f")), "stream": 7}
    used = {**segment(10 * GIB, (10 * GIB, "active_allocated", "f")), "stream": 0}
    assert "C26" not in sufficient(fail(2 * GIB, segments=[free, used], **FULL))
    oom = {"action": "oom", "size": 2 * GIB, "device_free": 15 * GIB - 13 * GIB - 600 * MIB, "stream": 0}
    other = fail(2 * GIB, segments=[free, used], traces=[[oom]], **FULL)
    assert evidence(other)["EV-5"]["failing"]["snapshot"]["largest_inactive_bytes"] == 0
    assert "C26" not in sufficient(other)
    assert sufficient(fail(2 * GIB, segments=[free, used], traces=[[{**oom, "stream": 7}]], **FULL)) == ["C26"]
    graph = segment(1 * GIB, (1 * GIB, "active_allocated", "f"), pool=(0, 7))
    assert "C26" not in sufficient(
        fail(2 * GIB, segments=[segment(3 * GIB, (3 * GIB, "inactive", "f")), graph], **FULL)
    )


def test_a_cap_by_fraction_that_the_text_does_not_state(fail):
    capsule = fail(1 * GIB, allocated=3 * GIB, reserved=3 * GIB, fraction=0.25)
    assert sufficient(capsule) == ["C3"], capsule.diagnosis.to_data()
    assert capsule.memory.allowed_bytes == 15 * GIB // 4 and "allocator afterwards" in capsule.memory.source


def test_what_the_process_held_before_the_run_is_no_part_of_it(fail):
    capsule = fail(2 * GIB, before={"allocated": 12 * GIB, "reserved": 12 * GIB}, phase="load", allocated=13 * GIB,
                   reserved=13 * GIB + 100 * MIB)  # fmt: skip
    assert evidence(capsule)["EV-2"]["device_memory"]["at_start_bytes"] == 12 * GIB
    assert "C5" in [one.id for one in capsule.diagnosis.sufficient + capsule.diagnosis.unknown]


def test_a_failure_from_before_the_run_is_not_measured_by_it(storage, monkeypatch, tmp_path):
    """Somebody puts the last failure on record afterwards: what the device holds then was not there at its start."""
    card = Card(allocated=13 * GIB, reserved=13 * GIB, ooms=1)
    cuda.install(card, monkeypatch, tmp_path / "library")
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.fail(OOM(card.message(2 * GIB)))
    capsule = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])
    assert evidence(capsule)["EV-2"]["device_memory"]["at_start_bytes"] is None
    assert "C5" not in sufficient(capsule)


def test_a_librarys_failure_is_corroborated_by_a_full_card(fail):
    text = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    capsule = fail(0, text=text, allocated=14 * GIB, reserved=14 * GIB + GIB // 2)
    assert capsule.memory.free_bytes == 15 * GIB - 14 * GIB - GIB // 2 - 400 * MIB
    assert "C1" in sufficient(capsule), capsule.diagnosis.to_data()


def test_retries_and_caught_failures_are_counted_since_the_start(fail):
    capsule = fail(2 * GIB, before={"retries": 5, "ooms": 2}, retries=9, ooms=4, **FULL)
    data = evidence(capsule)
    assert data["EV-5"]["failing"]["allocation_retries"] == 9
    assert data["EV-2"]["device_memory"]["earlier_out_of_memory"] is True


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"blocks": 60_000}, "skipped"), ({"backend": "cudaMallocAsync"}, None)],
    ids=["many blocks", "another allocator"],
)
def test_a_snapshot_is_taken_only_where_it_is_cheap_and_means_something(fail, changes, status):
    failing = evidence(fail(2 * GIB, **FULL, **changes))["EV-5"]["failing"]
    assert failing.get("snapshot", {}).get("status") == status


def test_the_history_that_the_user_recorded_tells_block_and_free_bytes(fail):
    trace = [{"action": "alloc", "size": 1}, {"action": "oom", "size": 2 * GIB - 512, "device_free": 7 * MIB}]
    snapshot = evidence(fail(2 * GIB, traces=[trace], **FULL))["EV-5"]["failing"]["snapshot"]
    assert snapshot["history_entries"] == 2
    assert (snapshot["requested_block_bytes"], snapshot["free_bytes_at_failure"]) == (2 * GIB - 512, 7 * MIB)


FUNCTIONS = ("memory_stats", "mem_get_info", "get_allocator_backend", "get_per_process_memory_fraction",
             "memory_allocated", "device_count", "get_device_capability")  # fmt: skip


@pytest.mark.parametrize("broken", [*((name,) for name in FUNCTIONS), FUNCTIONS], ids=[*FUNCTIONS, "all"])
def test_a_card_that_answers_no_more_still_has_its_capsule(fail, broken):
    capsule = fail(2 * GIB, broken=broken, **FULL)
    assert capsule.failure.class_ == "cuda_out_of_memory" and capsule.diagnosis.sentence
    assert capsule.memory.requested_bytes == 2 * GIB
