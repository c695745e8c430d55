"""Sizes, budgets, and what can be known of the device where torch is missing, too old or not loaded."""

import subprocess
import sys

import pytest
import torch
from sim_workloads import MIB

from watcherml.errors import InvalidValue
from watcherml.simulated import active
from watcherml.simulated.active import format_bytes, parse_bytes
from watcherml.simulated.device import simulated_device


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("96 MiB", 96 * MIB),
        ("96MiB", 96 * MIB),
        (" 1.5 gib ", 3 * 2**29),
        ("512 bytes", 512),
        ("1 byte", 1),
        ("700 B", 700),
        ("0.30 KiB", 307),
        ("0 bytes", 0),
    ],
)
def test_sizes_are_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),  # c10's limits are inclusive
        (1025, "1.00 KiB"),
        (MIB, "1024.00 KiB"),
        (96 * MIB, "96.00 MiB"),
        (2**30, "1024.00 MiB"),
        (5 * 2**29, "2.50 GiB"),
    ],
)
def test_sizes_are_written_in_the_grammar_of_torch(size: int, text: str) -> None:
    assert format_bytes(size) == text
    assert abs(parse_bytes(text) - size) <= size * 0.005


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("96", ["budget", "powers of 1024", "got '96' (str)", "Write '96 bytes' or '96 MiB'"]),
        ("96 MB", ["budget", "got '96 MB' (str)", "Write 96 MiB."]),
        ("2.5G", ["got '2.5G' (str)", "Write 2.5 GiB."]),
        ("-5 MiB", ["budget", "got '-5 MiB' (str)"]),
        ("", ["budget", "got '' (str)"]),
        ("x" * 5000, ["budget", "..."]),
        ("9" * 5000 + " MiB", ["budget", "..."]),
        ("99999999999 GiB", ["budget", "at most 9007199254740991 bytes"]),
        (0, ["budget", "512 to 9007199254740991 bytes", "got 0 (int)", "budget=None"]),
        ("0 MiB", ["budget", "512 to", "got '0 MiB' (str)"]),
        (511, ["512 to", "got 511 (int)"]),
        (-1, ["512 to", "got -1 (int)"]),
        (2**60, ["512 to", f"got {2**60} (int)"]),
        (True, ["budget", "None for no limit", "got True (bool)"]),
        (1e8, ["budget", "got 100000000.0 (float)"]),
        ([96], ["budget", "got [96] (list)"]),
    ],
)
def test_a_bad_budget_is_refused_before_anything_starts(budget: object, words: list[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        simulated_device(budget)  # type: ignore[arg-type]
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert len(text) < 400
    assert active.current() is None


@pytest.mark.parametrize("size", [-1, True, 1.0, "1"])
def test_only_counts_of_bytes_are_formatted(size: object) -> None:
    with pytest.raises(InvalidValue, match="size: expected an integer of at least 0 bytes"):
        format_bytes(size)  # type: ignore[arg-type]


def test_looking_for_a_device_does_not_load_torch() -> None:
    code = (
        "import sys, watcherml.simulated; from watcherml.simulated import active\n"
        "assert active.current() is None and active.last() is None\n"
        "assert active.parse_budget('96 MiB') == 96 * 2**20\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["device", "error", "ledger", "prediction"])
def test_without_torch_the_error_says_how_to_get_it(module: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from watcherml.errors import MissingDependency\n"
        f"try: import watcherml.simulated.{module}\n"
        "except MissingDependency as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert 'pip install "torch>=2.4"' in said


def test_a_torch_that_is_too_old_is_named() -> None:
    code = (
        "import torch; del torch.OutOfMemoryError\n"
        "from watcherml.errors import MissingDependency\n"
        "try: import watcherml.simulated.device\n"
        "except MissingDependency as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert f"expected torch 2.4 or later in this environment; got torch {torch.__version__}" in said
