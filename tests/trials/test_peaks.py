"""The peak that a worker reports, from the simulated device and from stand-ins for torch.cuda and NVML."""

import importlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[1] / "forensics"))

from stand_in_cuda import GIB, MIB, UUID, Card, install, tell_nvml  # noqa: E402

from watcherml.recorder import framework  # noqa: E402
from watcherml.recorder.device_memory import MemoryLog  # noqa: E402
from watcherml.simulated.device import simulated_device  # noqa: E402
from watcherml.trials.peaks import peak_of  # noqa: E402


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A card of 15 GiB whose largest reserved and allocated bytes are set apart from the present ones."""
    made = Card(allocated=1 * GIB, reserved=2 * GIB)
    made.peak_reserved, made.peak_allocated = 12 * GIB, 11 * GIB
    made.library = install(made, monkeypatch, tmp_path / "library")
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda *_: made.peak_reserved)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: made.peak_allocated)
    return made


def lost(*_, **__):
    raise RuntimeError("CUDA error: device-side assert triggered")


def test_the_simulated_device_tells_peak_budget_and_what_was_left():
    with simulated_device("1 MiB"):
        kept = torch.zeros(1000)
    peak = peak_of("simulated")
    assert (peak.allocated_bytes, peak.limit_bytes) == (4096, MIB) and peak.headroom_bytes == MIB - 4096
    assert peak.reserved_bytes is None and peak.retries is None and kept.numel() == 1000
    with simulated_device(None):
        torch.zeros(1000)
    assert (peak_of("simulated").limit_bytes, peak_of("simulated").headroom_bytes) == (None, None)


def test_what_lies_beside_torch_comes_from_nvml_and_is_part_of_what_a_ceiling_sees(card):
    peak = peak_of("cuda")
    assert (peak.reserved_bytes, peak.allocated_bytes, peak.other_bytes) == (12 * GIB, 11 * GIB, 400 * MIB)
    assert peak.compared_bytes == 12 * GIB + 400 * MIB and "NVML" in peak.method
    assert (peak.limit_bytes, peak.headroom_bytes) == (15 * GIB, 3 * GIB - 400 * MIB)


def test_other_processes_take_from_what_was_left_and_not_from_the_peak(card):
    card.set(foreign=2 * GIB)
    tell_nvml(card, card.library)
    peak = peak_of("cuda")
    assert peak.compared_bytes == 12 * GIB + 400 * MIB and peak.headroom_bytes == 1 * GIB - 400 * MIB


def test_where_nvml_does_not_name_us_the_rest_of_the_peak_is_unknown_and_what_was_left_is_not(card):
    tell_nvml(card, card.library, own=False)
    peak = peak_of("cuda")
    assert peak.other_bytes is None and peak.compared_bytes == 12 * GIB and "NVML" not in peak.method
    assert peak.headroom_bytes == 3 * GIB - 400 * MIB
    card.library.FAILS.add("*")
    assert peak_of("cuda").other_bytes is None
    card.library.FAILS.clear()


def test_a_cap_below_the_card_is_the_limit(card):
    card.set(fraction=0.8125)
    tell_nvml(card, card.library)
    peak = peak_of("cuda")
    assert (peak.limit_bytes, peak.headroom_bytes) == (int(0.8125 * 15 * GIB), int(0.8125 * 15 * GIB) - 12 * GIB)


@pytest.mark.parametrize(
    ("broken", "field"), [("mem_get_info", "headroom_bytes"), ("max_memory_reserved", None), ("memory_reserved", None)]
)
def test_a_card_that_does_not_answer_is_a_missing_figure_and_never_zero(card, monkeypatch, broken, field):
    monkeypatch.setattr(torch.cuda, broken, lost)
    peak = peak_of("cuda")
    assert peak is None if field is None else (getattr(peak, field) is None and peak.reserved_bytes == 12 * GIB)


def test_of_two_devices_the_larger_peak_counts_and_an_unused_one_gets_no_context(card, monkeypatch):
    asked = []
    reserved = {0: 3 * GIB, 1: 5 * GIB, 2: 0}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda index: reserved[index])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: reserved[index])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: asked.append(index) or (8 * GIB, 15 * GIB))
    monkeypatch.setattr(framework, "cuda_uuids", lambda: [UUID, "GPU-1", "GPU-2"])
    assert peak_of("cuda").reserved_bytes == 5 * GIB
    assert set(asked) == {0, 1}


def test_without_cuda_or_for_no_device_there_is_no_peak():
    assert peak_of("cuda") is None and peak_of("none") is None


# -- retries -------------------------------------------------------------------------------------------------------

optimizers = importlib.import_module("torch.optim.optimizer")


class OnCard(torch.optim.Optimizer):
    """An optimizer whose parameters say that they are on the card; nothing is computed."""

    def __init__(self):
        super().__init__([torch.nn.Parameter(torch.ones(1))], {})
        self.param_groups[0]["params"] = [type("Parameter", (), {"device": torch.device("cuda", 0)})()]

    def step(self, closure=None):
        pass


RETRIES = [
    ((0, 0, 0), 0, 0), ((1, 0, 1, 0, 1), 3, 1), ((0, 2, 1, 1, 0), 4, 3), ((1, 1), 2, 2), ((), 0, None),
    ((0, 0, 5), 5, 1),
]  # fmt: skip


@pytest.mark.parametrize(("per_step", "total", "row"), RETRIES)
def test_retries_are_counted_and_how_many_steps_running_had_some(card, per_step, total, row):
    problems = []
    card.set(retries=7)  # of what came before
    log = MemoryLog(problems.append)
    log.start()
    try:
        optimizer = OnCard()
        for count in per_step:
            card.retries += count
            optimizer.step()
        peak = peak_of("cuda", log)
    finally:
        log.stop()
    assert (peak.retries, peak.retrying_steps) == (total, row) and not problems


def test_an_allocator_that_counts_no_retries_says_nothing_of_them(card, monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda *_: {})
    log = MemoryLog(lambda error: None)
    log.start()
    try:
        OnCard().step()
        peak = peak_of("cuda", log)
    finally:
        log.stop()
    assert (peak.retries, peak.retrying_steps) == (None, None)
