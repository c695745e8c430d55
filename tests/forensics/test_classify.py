"""The classifier: false friends, chains, groups, notes, workers' texts, and exceptions that are really raised."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch import nn

from watcherml.errors import InvalidValue
from watcherml.forensics.classify import Classification, classify_exception, classify_text
from watcherml.forensics.matching import rule
from watcherml.forensics.rules import RULES, RULES_VERSION

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1 bytes is free."
SIMULATED = f"[SIMULATED memory-budgeted CPU device (no GPU); op=aten.mm.default] {OOM}"
CUDA, SIM, NONE = "cuda_out_of_memory", "simulated_out_of_memory", "unclassified"
SHAPE, FILE, WORKER = "tensor_shape_mismatch", "missing_file_or_dataset_path", "dataloader_worker_failure"
DEVICE, BUILD, NAN = "device_mismatch", "dependency_or_cuda_compatibility", "nan_or_exploding_loss"


def raised(cause: BaseException) -> BaseException:
    """Return the exception with a real traceback."""
    try:
        raise cause
    except BaseException as error:
        return error


FALSE_FRIENDS = [
    ("KeyError", repr(OOM), NONE),
    ("ValueError", f"could not parse the log line {OOM}", NONE),
    ("ValueError", "CUDA out of memory", NONE),
    ("FileNotFoundError", f"[Errno 2] No such file or directory: '/logs/{OOM}.txt'", FILE),
    ("FileNotFoundError", "CUDA out of memory.txt not found", FILE),
    ("AssertionError", OOM, NONE),
    ("TypeError", OOM, NONE),
    ("OSError", OOM, NONE),
    ("SystemExit", OOM, NONE),
    ("omegaconf.errors.ConfigKeyError", OOM, NONE),
    ("RuntimeError", f"unexpected line '{OOM}'", NONE),
    ("RuntimeError", f'unexpected line "{OOM}"', NONE),
    ("RuntimeError", "File /runs/CUDA error: out of memory.log cannot be read", NONE),
    ("RuntimeError", "cannot open /runs/CUDA out of memory/events", NONE),
    ("RuntimeError", "C:\\runs\\CUBLAS_STATUS_ALLOC_FAILED\\x is locked", NONE),
    ("RuntimeError", "see CUDNN_STATUS_ALLOC_FAILED.md for help", NONE),
    ("RuntimeError", "If you see CUDA out of memory, lower the batch size", NONE),
    ("RuntimeError", "no handler for NotCUDA out of memory. Tried to allocate 2.00 GiB", NONE),
    ("RuntimeError", "the trainer ran out of memory", NONE),
    ("RuntimeError", "XPU out of memory. Tried to allocate 2.00 GiB", NONE),
    ("torch.OutOfMemoryError", "XPU out of memory. Tried to allocate 2.00 GiB", NONE),
    ("RuntimeError", "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.00 GiB total capacity; ", NONE),
    ("RuntimeError", "MPS backend out of memory (MPS allocated: 1.00 GB). Tried to allocate 1.16 GB", NONE),
    ("torch.OutOfMemoryError", "Out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity", NONE),
    ("MemoryError", OOM, NONE),
    ("OSError", "[Errno 12] Cannot allocate memory", NONE),
    ("RuntimeError", "unable to mmap 1024 bytes from file </torch_7>: Cannot allocate memory (12)", NONE),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", NONE),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", NONE),
    ("RuntimeError", "Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be", NONE),
    ("RuntimeError", "Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: \"a.weight\". ", NONE),
    ("ValueError", "Input X contains NaN.", NONE),
    ("ValueError", "unknown policy 'nan loss'", NONE),
    ("KeyError", "'DataLoader worker (pid 1) is killed by signal: Killed'", NONE),
    ("KeyError", "'No module named apex'", NONE),
    ("RuntimeError", "", NONE),
    ("", "", NONE),
]
TRUE_FRIENDS = [
    ("RuntimeError", OOM, CUDA),
    ("OutOfMemoryError", OOM, CUDA),
    ("torch.OutOfMemoryError", OOM, CUDA),
    ("torch.cuda.OutOfMemoryError", OOM, CUDA),
    ("Exception", f"rank 3 failed: {OOM}", CUDA),
    ("lightning.TrainerError", f"fit failed\n{OOM}", CUDA),
    ("RuntimeError", "CUDA out of memory.", CUDA),
    ("RuntimeError", "HIP out of memory. Tried to allocate 2.00 GiB", CUDA),
    ("RuntimeError", "CUDA out of memory. Allocation was preemptively rejected because it would exceed", CUDA),
    ("torch.OutOfMemoryError", "Out of memory. Tried to allocate 2.00 GiB. Try PYTORCH_CUDA_ALLOC_CONF=x", CUDA),
    ("torch.AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the manual", CUDA),
    ("RuntimeError", "Triton Error [CUDA]: out of memory", CUDA),
    ("torch.distributed.DistBackendError", "NCCL error in: x.cpp:1\nLast error:\nCuda failure 2 'out of memory'", CUDA),
    ("numba.cuda.cudadrv.driver.CudaAPIError", "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", CUDA),
    ("pycuda._driver.MemoryError", "cuMemAlloc failed: out of memory", CUDA),
    ("ray.exceptions.RayTaskError(OutOfMemoryError)", f"ray::f()\n  File \"a.py\", line 1\ntorch.X: {OOM}", CUDA),
    ("ValueError", "The loss returned in `training_step` is nan or inf.", NAN),
    ("RuntimeError", "Minimum loss scale reached (0.0001). Your loss is probably exploding.", NAN),
    ("torch.OutOfMemoryError", SIMULATED, SIM),
    ("RuntimeError", f"trial failed after 3 steps: {SIMULATED}", SIM),
    ("ValueError", SIMULATED[:50], SIM),
]


@pytest.mark.parametrize(("kind", "message", "expected"), FALSE_FRIENDS + TRUE_FRIENDS)
def test_the_type_and_the_place_of_the_words_decide(kind: str, message: str, expected: str) -> None:
    found = classify_text(kind, message)
    assert found.failure_class == expected, f"{found.rule}: {found.matched!r}"


HOST = [
    ("MemoryError", "", "host_oom"),
    ("RuntimeError", "DefaultCPUAllocator: not enough memory: you tried to allocate 5 bytes.", "host_oom"),
    ("OSError", "[WinError 1455] The paging file is too small. Error loading cublas64_11.dll", "host_oom"),
    ("RuntimeError", "failed to alloc 1024 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "host_pinned_oom"),
]


@pytest.mark.parametrize(("kind", "message", "subkind"), HOST)
def test_host_memory_is_recognised_and_not_the_devices(kind: str, message: str, subkind: str) -> None:
    found = classify_text(kind, message)
    assert (found.failure_class, found.subkind) == (NONE, subkind)


def printed_from(file: str, last_line: str) -> str:
    return f'Traceback (most recent call last):\n  File "{file}", line 9, in f\n    x()\n{last_line}\n'


def test_pinning_frames_turn_a_cuda_error_into_host_memory() -> None:
    words = "CUDA error: out of memory"
    elsewhere = classify_text("RuntimeError", words, printed_from("train.py", f"RuntimeError: {words}"))
    assert elsewhere.failure_class == CUDA
    pinning = printed_from("torch/utils/data/_utils/pin_memory.py", f"RuntimeError: {words}")
    found = classify_text("RuntimeError", words, pinning)
    assert (found.failure_class, found.subkind) == (NONE, "host_pinned_oom")


def test_the_same_words_are_a_worker_in_frames_of_a_spawn_and_a_damaged_file_elsewhere() -> None:
    words = "Ran out of input"
    spawning = printed_from("/usr/lib/python3.11/multiprocessing/spawn.py", f"EOFError: {words}")
    assert classify_text("EOFError", words, spawning).failure_class == WORKER
    assert classify_text("EOFError", words, printed_from("load.py", f"EOFError: {words}")).subkind == "checkpoint_read"
    local = "Can't pickle local object 'f.<locals>.g'"
    spawning = printed_from("C:\\Python\\multiprocessing\\reduction.py", f"AttributeError: {local}")
    assert classify_text("AttributeError", local, spawning).failure_class == WORKER
    saving = printed_from("torch/serialization.py", f"AttributeError: {local}")
    assert classify_text("AttributeError", local, saving).failure_class == NONE


def chain(*steps: tuple[BaseException, str]) -> BaseException:
    """Link exceptions, innermost first; each step names how the next one relates to it."""
    outer: BaseException | None = None
    link = ""
    for exception, next_link in steps:
        if link == "cause":
            exception.__cause__ = outer
        elif link:
            exception.__context__ = outer
            exception.__suppress_context__ = link == "suppressed"
        outer, link = exception, next_link
    assert outer is not None
    return outer


def fnf(text: str) -> FileNotFoundError:
    return FileNotFoundError(text)


SHAPES = "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
CHAINS = [
    ("a cause inside a wrapper", [(RuntimeError(OOM), "cause"), (ValueError("training failed"), "")], CUDA),
    ("a context inside a wrapper", [(RuntimeError(OOM), "context"), (ValueError("training failed"), "")], CUDA),
    ("a suppressed context", [(RuntimeError(OOM), "suppressed"), (ValueError("training failed"), "")], NONE),
    ("the innermost cause", [(fnf("a"), "cause"), (RuntimeError(SHAPES), "cause"), (Exception(), "")], FILE),
    ("a missing key that was handled", [(KeyError("cache"), "context"), (RuntimeError(OOM), "")], CUDA),
    ("a missing file that was handled", [(FileNotFoundError("cache"), "context"), (RuntimeError(OOM), "")], CUDA),
    ("an import that was handled", [(ImportError("apex"), "context"), (RuntimeError(SHAPES), "")], SHAPE),
    ("a handler that fails after the memory ran out", [(RuntimeError(OOM), "context"), (fnf("b"), "")], CUDA),
    ("host memory as the cause", [(MemoryError(), "cause"), (RuntimeError(OOM), "")], NONE),
    ("handled, then caused", [(ImportError("a"), "context"), (ValueError(), "cause"), (RuntimeError(OOM), "")], CUDA),
    ("our device as the cause", [(RuntimeError(SIMULATED), "cause"), (RuntimeError(OOM), "")], SIM),
    ("an exit after the memory ran out", [(RuntimeError(OOM), "context"), (SystemExit(1), "")], CUDA),
    ("Ctrl-C while it was handled", [(RuntimeError(OOM), "context"), (KeyboardInterrupt(), "")], NONE),
    ("a name error as the cause of a known error", [(NameError("apex"), "cause"), (ImportError("apex"), "")], BUILD),
]


@pytest.mark.parametrize(("steps", "expected"), [row[1:] for row in CHAINS], ids=[row[0] for row in CHAINS])
def test_the_innermost_cause_decides(steps: list[tuple[BaseException, str]], expected: str) -> None:
    outer = chain(*steps)
    assert classify_exception(outer).failure_class == expected
    # The same from what was printed, as a store keeps it.
    kind = type(outer).__name__
    printed = "".join(traceback.format_exception(outer))
    assert classify_text(kind, str(outer), printed).failure_class == expected


def test_the_deciding_type_is_named_not_its_wrapper() -> None:
    outer = chain((torch.OutOfMemoryError(OOM), "cause"), (ValueError("training failed"), ""))
    found = classify_exception(outer)
    assert (found.exception_type, found.rule) == ("torch.OutOfMemoryError", "cuda-torch-caching-allocator")
    assert found.matched.startswith("CUDA out of memory. Tried to allocate 2")
    assert classify_exception(ValueError("x")).exception_type == "ValueError"


class GroupOfTheirOwn(Exception):
    """A group as libraries for Python 3.10 build it."""

    def __init__(self, message: str, exceptions: object) -> None:
        super().__init__(message)
        self.exceptions = exceptions


def test_members_of_a_group_decide_and_memory_comes_first() -> None:
    memory = chain((RuntimeError(OOM), "cause"), (ValueError(), ""))
    assert classify_exception(GroupOfTheirOwn("2 workers", [fnf("a"), memory])).failure_class == CUDA
    assert classify_exception(GroupOfTheirOwn("x", (fnf("a"), RuntimeError(SHAPES)))).failure_class == FILE
    assert classify_exception(GroupOfTheirOwn(OOM, [ValueError()])).failure_class == CUDA
    assert classify_exception(GroupOfTheirOwn("x", 5)).failure_class == NONE


@pytest.mark.skipif(sys.version_info < (3, 11), reason="ExceptionGroup came with Python 3.11")
def test_a_real_group_raised_and_printed() -> None:
    group_type = __builtins__["ExceptionGroup"]  # type: ignore[index]
    inner = group_type("inner", [raised(ValueError("b")), raised(RuntimeError(OOM))])
    group = raised(group_type(f"quoting {OOM}", [raised(FileNotFoundError("a")), inner]))
    assert classify_exception(group).failure_class == CUDA
    printed = "".join(traceback.format_exception(group))
    assert classify_text("ExceptionGroup", str(group), printed).failure_class == CUDA
    quoting = raised(group_type(OOM, [raised(ValueError("b")), raised(KeyError("c"))]))
    assert classify_exception(quoting).failure_class == NONE
    assert classify_text("ExceptionGroup", OOM, "".join(traceback.format_exception(quoting))).failure_class == NONE
    two = raised(group_type("x", [raised(FileNotFoundError("a")), raised(RuntimeError(SHAPES))]))
    assert classify_text("ExceptionGroup", "x", "".join(traceback.format_exception(two))).failure_class == FILE


NOTES = [
    ([f"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\ntorch.OutOfMemoryError: {OOM}"], CUDA),
    ([f"RuntimeError: {OOM}"], CUDA),
    (["step 3", f"worker said {SIMULATED}"], SIM),
    ([f"if you see {OOM} lower the batch size"], NONE),
    ([f"KeyError: '{OOM}'"], NONE),
    (["plain", 5, None], NONE),
    ("not a list", NONE),
]


@pytest.mark.parametrize(("notes", "expected"), NOTES)
def test_notes_count_where_they_hold_a_printed_exception(notes: object, expected: str) -> None:
    error = ValueError("training failed")
    error.__notes__ = notes  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == expected


def test_a_note_does_not_outrank_the_exception_itself() -> None:
    error = FileNotFoundError("a")
    error.__notes__ = [f"RuntimeError: {OOM}"]  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == FILE


def test_the_attribute_alone_makes_it_simulated() -> None:
    error = torch.OutOfMemoryError(OOM)
    assert classify_exception(error).failure_class == CUDA
    error.simulated = True  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == SIM
    error.simulated = 1  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == CUDA


def test_the_real_simulated_device_is_never_called_cuda() -> None:
    from watcherml.simulated.device import simulated_device

    with pytest.raises(torch.OutOfMemoryError) as caught:
        with simulated_device(2**20):
            torch.zeros(2**20)
    found = classify_exception(caught.value)
    assert found.failure_class == SIM
    wrapped = chain((caught.value, "context"), (RuntimeError("x"), ""))
    assert classify_text("RuntimeError", "x", "".join(traceback.format_exception(wrapped))).failure_class == SIM


def _work(_: int) -> None:
    raise RuntimeError(OOM)


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.kind == "oom":
            raise torch.OutOfMemoryError(OOM)
        if self.kind == "file":
            Path("/no/such/picture").read_bytes()
        if self.kind == "key":
            return {}[OOM]  # type: ignore[return-value]
        if self.kind == "host":
            np.empty(2**45)
        if self.kind == "caused":
            try:
                {}["a"]
            except KeyError as error:
                raise FileNotFoundError("picture") from error
        return torch.zeros(2 + index)


@pytest.mark.parametrize(("kind", "expected", "subkind"), [
    ("oom", CUDA, "torch_caching_allocator"),
    ("file", FILE, "errno2"),
    ("key", WORKER, "wrapped_dataset_error"),
    ("host", NONE, "host_oom"),
    ("caused", FILE, "project_message"),
    ("shape", SHAPE, "collate"),
])
def test_a_real_worker_passes_on_what_failed_in_it(kind: str, expected: str, subkind: str) -> None:
    loader = iter(torch.utils.data.DataLoader(Samples(kind), 2, num_workers=1, multiprocessing_context="fork"))
    with pytest.raises(Exception) as caught:
        next(loader)
    loader._shutdown_workers()  # left to the collector it takes seconds, in some other test
    found = classify_exception(caught.value)
    assert (found.failure_class, found.subkind) == (expected, subkind)
    kind_name = f"{type(caught.value).__module__}.{type(caught.value).__qualname__}".removeprefix("builtins.")
    printed = "".join(traceback.format_exception(caught.value))
    assert classify_text(kind_name, str(caught.value), printed) == found


def test_real_process_pools_carry_the_cause_as_text() -> None:
    with Pool(1) as pool, pytest.raises(RuntimeError) as caught:
        pool.map(_work, [1])
    assert classify_exception(caught.value).failure_class == CUDA
    with pytest.raises(torch.multiprocessing.ProcessRaisedException) as spawned:
        torch.multiprocessing.start_processes(_work, nprocs=1, start_method="fork")
    assert classify_exception(spawned.value).failure_class == CUDA
    with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeError) as threaded:
        threads.submit(_work, 1).result()
    assert classify_exception(threaded.value).failure_class == CUDA


def anomaly() -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        torch.sqrt(torch.tensor([-1.0], requires_grad=True)).sum().backward()


def scripted() -> None:
    torch.jit.trace(lambda x: x.view(2), torch.zeros(2))(torch.zeros(3))


REAL = [
    (lambda: torch.zeros(2, 3) @ torch.zeros(4, 5), SHAPE, "matmul"),
    (lambda: torch.zeros(2, 3) + torch.zeros(4), SHAPE, "broadcast"),
    (lambda: torch.zeros(2, 3).view(5), SHAPE, "view_reshape"),
    (lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)]), SHAPE, "concat"),
    (lambda: nn.Conv2d(3, 4, 3)(torch.zeros(2, 5, 8, 8)), SHAPE, "conv_channels"),
    (lambda: nn.BatchNorm2d(3)(torch.zeros(2, 5)), SHAPE, "rank"),
    (lambda: nn.CrossEntropyLoss()(torch.zeros(2, 5), torch.zeros(3).long()), SHAPE, "loss_target"),
    (lambda: nn.BCEWithLogitsLoss()(torch.zeros(2, 5), torch.zeros(3)), SHAPE, "loss_target"),
    (lambda: nn.Linear(3, 4).load_state_dict(nn.Linear(3, 5).state_dict()), SHAPE, "state_dict"),
    (lambda: nn.Linear(3, 4).load_state_dict({}), NONE, ""),
    (lambda: nn.LSTM(3, 4)(torch.zeros(2, 2, 5)), SHAPE, "layer_input"),
    (lambda: np.zeros((2, 3)) @ np.zeros((4, 5)), SHAPE, "matmul"),
    (lambda: np.zeros((2, 3)) + np.zeros(4), SHAPE, "broadcast"),
    (lambda: np.zeros((2, 3)).reshape(5), SHAPE, "view_reshape"),
    (scripted, SHAPE, "view_reshape"),
    (lambda: torch.zeros(2) + torch.zeros(2, device="meta"), DEVICE, "same_device_arg"),
    (lambda: torch.load("/no/such/file"), FILE, "errno2"),
    (lambda: torch.save({}, "/no/such/folder/x"), FILE, "torch_save_parent"),
    (lambda: torch.jit.load("/no/such/file"), FILE, "native_open"),
    (lambda: torch.empty(2**45), NONE, "host_oom"),
    (lambda: np.empty(2**45), NONE, "host_oom"),
    (lambda: torch.multinomial(torch.tensor([float("nan"), 1.0]), 1), NAN, "probabilities"),
    (lambda: torch.distributions.Normal(torch.tensor(float("nan")), 1.0), NAN, "nan_parameters"),
    (lambda: torch.distributions.Normal(0.0, torch.tensor(float("nan"))), NAN, "nan_parameters"),
    (lambda: torch.distributions.Normal(0.0, torch.tensor(-1.0)), NONE, ""),
    (lambda: __import__("no_such_package"), BUILD, "module_not_found"),
    (lambda: torch.ops.load_library("/no/such.so"), BUILD, "missing_lib_ctypes"),
    (lambda: torch.ops.torchvision.nms(1), BUILD, "torchvision_ops"),
    (lambda: {}[OOM], NONE, ""),
    (lambda: Path(f"/{OOM}").read_text(), FILE, "errno2"),
    (lambda: int(OOM), NONE, ""),
    (lambda: pickle.loads(b""), NONE, "checkpoint_read"),
    (lambda: pickle.dumps(lambda: 0), NONE, ""),
    (lambda: no_such_name, NONE, "name_error"),  # type: ignore[name-defined]  # noqa: F821
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("fail", "expected", "subkind"), [*REAL, (anomaly, NAN, "autograd_anomaly")])
def test_real_exceptions(fail: object, expected: str, subkind: str) -> None:
    with pytest.raises(Exception) as caught:
        fail()  # type: ignore[operator]
    found = classify_exception(caught.value)
    assert (found.failure_class, found.subkind) == (expected, subkind), str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this build reaches a GPU")
def test_a_cpu_build_asked_for_cuda_is_a_build_problem() -> None:
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        torch.zeros(1).cuda()
    assert classify_exception(caught.value).failure_class == BUILD


def test_torchs_own_class_raised_by_hand_is_caught_under_both_names() -> None:
    for kind in (torch.OutOfMemoryError, torch.cuda.OutOfMemoryError):
        try:
            raise kind(OOM)
        except torch.OutOfMemoryError as error:
            found = classify_exception(error)
        assert found == Classification(
            CUDA, "torch_caching_allocator", "cuda-torch-caching-allocator", RULES_VERSION,
            "CUDA out of memory. Tried to allocate 2", "torch.OutOfMemoryError",
        )


class TheirOom(torch.OutOfMemoryError):
    """A subclass as frameworks define it."""


class TheirValueError(ValueError):
    """A type whose name hides what it is."""


def test_bases_of_a_real_exception_are_known() -> None:
    assert classify_exception(TheirOom(OOM)).failure_class == CUDA
    assert classify_exception(TheirValueError(OOM)).failure_class == NONE
    hidden = type("Trouble", (FileNotFoundError,), {})
    assert classify_exception(hidden("a")).failure_class == FILE


class Hostile(Exception):
    """An exception whose every answer is an error."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    @property
    def simulated(self) -> bool:
        raise RuntimeError("no")

    @property
    def exceptions(self) -> list[Exception]:
        raise RuntimeError("no")

    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no")


def test_hostile_exceptions_are_unclassified_and_do_no_harm() -> None:
    found = classify_exception(Hostile())
    assert (found.failure_class, found.rule) == (NONE, "none")
    surrogate = classify_exception(RuntimeError("\ud800 CUDA out of memory. Tried to allocate 1\ud800"))
    assert surrogate.failure_class == CUDA
    named = type("x" * 900, (Exception,), {"__module__": "\ud800"})
    assert len(classify_exception(named("a")).exception_type) == 400


def test_cycles_and_endless_chains_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert classify_exception(first).failure_class == NONE
    group = GroupOfTheirOwn("x", [])
    group.exceptions = [group, RuntimeError(OOM)]
    assert classify_exception(group).failure_class == CUDA
    long: BaseException = RuntimeError("0")
    for number in range(5_000):
        outer = RuntimeError(str(number))
        outer.__context__ = long
        long = outer
    assert classify_exception(long).failure_class == NONE
    deep = GroupOfTheirOwn("x", [RuntimeError(OOM)])
    for _ in range(2_000):
        deep = GroupOfTheirOwn("x", [deep])
    assert classify_exception(deep).failure_class == NONE


def test_classifying_changes_nothing_in_the_exception() -> None:
    inner = raised(RuntimeError(OOM))
    outer = raised(chain((inner, "cause"), (ValueError("x"), "")))


    def state() -> list[object]:
        return [(one.__traceback__, one.__cause__, one.__context__, dict(one.__dict__)) for one in (outer, inner)]

    before = state()
    classify_exception(outer)
    assert state() == before


HOSTILE = [
    *("'", "' ", "\"'`", "a b ", "\n", "a.", "  | ", "tensors ", "loss is ", "enforce fail at ", '  File "\nA: b\n'),
    *("CUDA out of memory ", "Out of memory. Tried to allocate 1", "Traceback (most recent call last):\n"),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_megabyte_of_hostile_text_is_read_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    classify_text("torch.OutOfMemoryError", text, text)
    assert time.perf_counter() - started < 5  # below 0.3 s; a quadratic pattern needs minutes


def test_a_long_log_is_read_at_both_ends() -> None:
    filler = "step 1 loss 2.5\n" * 10_000
    assert classify_text("RuntimeError", f"{filler}{OOM}").failure_class == CUDA
    assert classify_text("RuntimeError", f"{OOM}{filler}").failure_class == CUDA
    assert classify_text("RuntimeError", f"{filler}{SIMULATED[:40]}{filler}").failure_class == SIM


def test_matched_text_is_short_and_the_record_survives_json() -> None:
    for kind, message, _ in FALSE_FRIENDS + TRUE_FRIENDS:
        found = classify_text(kind, message * 50)
        assert len(found.matched) <= 200
        assert Classification.from_json(found.to_json()) == found
    assert len(classify_text("FileNotFoundError", "x" * 900).matched) == 200


def test_rule_ids_are_unique_and_every_row_says_why() -> None:
    assert len({row.id for row in RULES}) == len(RULES)
    assert RULES[0].failure_class == SIM
    for row in RULES:
        assert row.why and row.types and row.subkind and len(row.id) <= 100


def test_a_row_of_an_unknown_class_cannot_be_written() -> None:
    with pytest.raises(KeyError):
        rule("memory/x", "runtime", "why", "pattern")
    with pytest.raises(InvalidValue):
        Classification("memory", "", "none", 1, "", "")  # type: ignore[arg-type]


def test_classifying_imports_no_framework() -> None:
    code = (
        "import sys; from watcherml.forensics.classify import classify_exception, classify_text;"
        "classify_exception(RuntimeError('CUDA out of memory.')); classify_text('torch.OutOfMemoryError', 'x', 'y');"
        "print(sorted({'torch', 'numpy', 'IPython', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
