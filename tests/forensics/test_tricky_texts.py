"""Texts of our own that are easy to get wrong: translated, truncated, chained, grouped, quoted, half related.

With the tables of ``test_classify`` and ``test_classify_chains`` these are the tricky texts; the last test counts them.
"""

from __future__ import annotations

import pytest
from failure_texts import BUILD, CUDA, DEVICE, FILE, NAN, NONE, OOM, SHAPE, SIM, SIMULATED, WORKER

from watcherml.forensics.classify import classify_text
from watcherml.forensics.oom_message import parse

# What an operating system says in the language of its user. The number and the type carry it, not the words.
TRANSLATED = [
    ("FileNotFoundError", "[Errno 2] Datei oder Verzeichnis nicht gefunden: 'daten/train.csv'", FILE),
    ("FileNotFoundError", "[Errno 2] Aucun fichier ou dossier de ce nom: 'd/train.csv'", FILE),
    ("FileNotFoundError", "[Errno 2] Нет такого файла или каталога: 'd/train.csv'", FILE),
    ("FileNotFoundError", "[Errno 2] そのようなファイルやディレクトリはありません: 'd/train.csv'", FILE),
    ("FileNotFoundError", "[WinError 3] Das System kann den angegebenen Pfad nicht finden: 'D:\\\\daten'", FILE),
    ("FileNotFoundError", "[WinError 2] 系统找不到指定的文件。: 'D:\\\\d.csv'", FILE),
    ("OSError", "[Errno 12] Nicht genügend Hauptspeicher verfügbar", NONE),
    ("OSError", "[WinError 1455] Die Auslagerungsdatei ist zu klein, um diesen Vorgang durchzuführen", NONE),
    ("OSError", "[Errno 28] Auf dem Gerät ist kein Speicherplatz mehr verfügbar", NONE),
    ("MemoryError", "Memoria insuficiente", NONE),
]
# Cut off where a log line, a terminal or a database column ended.
TRUNCATED = [
    ("torch.OutOfMemoryError", OOM[:60], CUDA),
    ("torch.OutOfMemoryError", "CUDA out of memory. Tried to al", CUDA),
    ("torch.OutOfMemoryError", "CUDA out of memory.", CUDA),
    ("RuntimeError", "CUDA error: out of mem", NONE),
    ("RuntimeError", "... GPU 0 has a total capacity of 8.00 GiB of which 1 bytes is free.", NONE),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x1", SHAPE),
    ("RuntimeError", "mat1 and mat2 shapes cannot be mul", NONE),
    ("RuntimeError", "DataLoader worker (pid 71", NONE),
    ("RuntimeError", SIMULATED[:38], SIM),
]
# A printed chain or group, as a store or a log keeps it.
HEAD = 'Traceback (most recent call last):\n  File "train.py", line 3, in step\n    x()\n'
DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"
TOLD = [
    ("ValueError", "bad", f"{HEAD}torch.OutOfMemoryError: {OOM}{CAUSE}{HEAD}ValueError: bad\n", CUDA),
    ("FileNotFoundError", "a", f"{HEAD}torch.OutOfMemoryError: {OOM}{DURING}{HEAD}FileNotFoundError: a\n", CUDA),
    ("RuntimeError", OOM, f"{HEAD}KeyError: 'cache'{DURING}{HEAD}RuntimeError: {OOM}\n", CUDA),
    ("ValueError", "b", f"{HEAD}KeyError: '{OOM}'{CAUSE}{HEAD}ValueError: b\n", NONE),
    ("ValueError", "b", f"{HEAD}FileNotFoundError: [Errno 2] No such file: '{OOM}'{CAUSE}{HEAD}ValueError: b\n", FILE),
    ("KeyboardInterrupt", "", f"{HEAD}torch.OutOfMemoryError: {OOM}{DURING}{HEAD}KeyboardInterrupt\n", NONE),
    ("RuntimeError", "x", f"{HEAD}watcherml.E: {SIMULATED}{CAUSE}{HEAD}RuntimeError: x\n", SIM),
    ("ExceptionGroup", "2 failed (2 sub-exceptions)",
     f"  + Exception Group {HEAD}  | ExceptionGroup: 2 failed (2 sub-exceptions)\n"
     "  +-+---------------- 1 ----------------\n"
     f"    | ValueError: a\n    +---------------- 2 ----------------\n    | RuntimeError: {OOM}\n"
     "    +------------------------------------\n", CUDA),
]  # fmt: skip
# Next door to a class, and not in it; or in it under a name that does not say so.
RELATED = [
    ("RuntimeError", "CUDA out of memory occurred when warming up with 256 dummy requests.", CUDA),
    ("RuntimeError", "CUDA out of memory while running the decoder", CUDA),
    ("RuntimeError", "CUDA out of memory handler is not installed", NONE),
    ("RuntimeError", "CUDA error (2)", CUDA),
    ("RuntimeError", "CUDA error (2): out of memory", CUDA),
    ("RuntimeError", "CUDA error (201): invalid device context", NONE),
    ("RuntimeError", "Error out of memory at line 12 in file /b/csrc/interface.c", CUDA),
    ("RuntimeError", "Error out of memory at line 12 in file C:\\b\\csrc\\ops.cu", CUDA),
    ("RuntimeError", "Error out of memory at line 12 in file notes.txt", NONE),
    ("RuntimeError", "Status Message: bfc_arena.cc:1 Available memory of 0 is smaller than requested bytes of 8", NONE),
    ("RuntimeError", "The text 'CUDA out of memory. Tried to allocate 2.00 GiB' was found 3 times", NONE),
    ("KeyError", "'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB'", NONE),
    ("json.decoder.JSONDecodeError", f"Expecting value: {OOM}", NONE),
    ("pandas.errors.ParserError", f"Error tokenizing data: {OOM}", NONE),
    ("pydantic_core._pydantic_core.ValidationError", f"1 validation error\n{OOM}", NONE),
    ("RuntimeError", "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.", NONE),
    ("jaxlib.xla_extension.XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.", NONE),
    ("triton.runtime.errors.OutOfResources", "out of resource: shared memory, Required: 147456, Hardware limit: 1",
     NONE),
    ("RuntimeError", "Unable to write to file </torch_42_1>: No space left on device (28)", WORKER),
    ("RuntimeError", "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you"
     " tried to allocate 4000 bytes. Error code 12 (Cannot allocate memory)", NONE),
    ("numpy.core._exceptions._ArrayMemoryError", "Unable to allocate 2.00 GiB for an array with shape (5, 5)", NONE),
    ("RuntimeError", "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
     DEVICE),
    ("RuntimeError", "DataLoader worker (pid 71) is killed by signal: Killed. ", WORKER),
    ("RuntimeError", "DataLoader worker (pid(s) 71, 72) exited unexpectedly", WORKER),
    ("RuntimeError", "Function 'MulBackward0' returned nan values in its 0th output.", NAN),
    ("ImportError", "libcudart.so.12: cannot open shared object file: No such file or directory", BUILD),
    ("ModuleNotFoundError", "No module named 'flash_attn'", BUILD),
    ("RuntimeError", "stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1", SHAPE),
    ("RuntimeError", "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension", SHAPE),
    ("IndexError", "index 9 is out of bounds for dimension 0 with size 5", NONE),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message", "expected"), TRANSLATED + TRUNCATED + RELATED)
def test_a_tricky_text_gets_the_class_that_it_means(kind: str, message: str, expected: str) -> None:
    found = classify_text(kind, message)
    assert found.failure_class == expected, f"{found.rule}: {found.matched!r}"


@pytest.mark.parametrize(("kind", "message", "traceback", "expected"), TOLD)
def test_a_printed_chain_gets_the_class_of_what_failed_in_it(
    kind: str, message: str, traceback: str, expected: str
) -> None:
    found = classify_text(kind, message, traceback)
    assert found.failure_class == expected, f"{found.rule}: {found.matched!r}"


@pytest.mark.parametrize("length", range(0, len(OOM), 7))
def test_a_text_cut_anywhere_states_only_what_still_stands_in_it(length: int) -> None:
    whole, cut = parse(OOM), parse(OOM[:length])
    for name in ("tried_bytes", "total_bytes", "free_bytes", "gpu_index"):
        assert getattr(cut, name) in (None, getattr(whole, name)), name


def test_there_are_at_least_sixty_tricky_texts() -> None:
    from test_classify import FALSE_FRIENDS, HOST, TRUE_FRIENDS
    from test_classify_chains import CHAINS, NOTES

    here = len(TRANSLATED) + len(TRUNCATED) + len(TOLD) + len(RELATED)
    assert here >= 40
    assert here + len(FALSE_FRIENDS) + len(TRUE_FRIENDS) + len(HOST) + len(CHAINS) + len(NOTES) >= 120


@pytest.mark.parametrize(
    "message",
    ["x.cc:376 Available memory of 0 is smaller than requested bytes of 2048",
     "x.cc:368 Failed to allocate memory for requested buffer of size 9437184"],
)  # fmt: skip
def test_an_arena_of_a_card_or_a_host_is_told_as_memory_and_no_device_is_named(message: str) -> None:
    found = classify_text("onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException", message)
    assert (found.failure_class, found.subkind) == (NONE, "device_generic_oom")
