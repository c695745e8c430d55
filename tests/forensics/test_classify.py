"""The classifier's reading of one exception: false friends, true ones, frames, and what its record holds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from failure_texts import CUDA, FILE, NAN, NONE, OOM, SIM, SIMULATED, WORKER

from watcherml.errors import InvalidValue
from watcherml.forensics.classify import Classification, classify_text
from watcherml.forensics.matching import rule
from watcherml.forensics.rules import RULES

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
    ("RuntimeError", 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". ', NONE),
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
    ("OutOfMemoryError", "Out of memory. Tried to allocate 2.00 GiB. Try PYTORCH_CUDA_ALLOC_CONF=x", CUDA),
    ("torch.AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the manual", CUDA),
    ("RuntimeError", "CUDA driver error: out of memory", CUDA),
    ("RuntimeError", "CUDA error: cudaErrorMemoryAllocation: out of memory", CUDA),
    (
        "torch.OutOfMemoryError",
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nRequested : 1",
        CUDA,
    ),
    ("torch.OutOfMemoryError", "Allocation on device ", CUDA),
    ("RuntimeError", "parallel_for failed: cudaErrorMemoryAllocation: out of memory", CUDA),
    ("xgboost.core.XGBoostError", "[1] a.cuh:4: bad allocation: cudaErrorMemoryAllocation: out of memory", CUDA),
    ("onnxruntime.capi.x.RuntimeException", "6 : CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc(p)", CUDA),
    ("MemoryError", "std::bad_alloc: out_of_memory: CUDA error at: /x/rmm/cuda_memory_resource.hpp:60", CUDA),
    ("MemoryError", "std::bad_alloc: CUDA error at: /x/rmm/y.hpp:6: cudaErrorMemoryAllocation out of memory", CUDA),
    ("RuntimeError", "Triton Error [CUDA]: out of memory", CUDA),
    ("torch.distributed.DistBackendError", "NCCL error in: x.cpp:1\nLast error:\nCuda failure 2 'out of memory'", CUDA),
    ("numba.cuda.cudadrv.driver.CudaAPIError", "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", CUDA),
    ("pycuda._driver.MemoryError", "cuMemAlloc failed: out of memory", CUDA),
    ("ray.exceptions.RayTaskError(OutOfMemoryError)", f'ray::f()\n  File "a.py", line 1\ntorch.X: {OOM}', CUDA),
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
    ("MemoryError", "std::bad_alloc", "host_oom"),
    ("MemoryError", "std::bad_alloc: out_of_memory: CUDA error at: /rmm/pinned_host_memory_resource.hpp:8", "host_oom"),
    ("onnxruntime.x.RuntimeException", "CUDA failure 2: out of memory ; expr=cudaHostAlloc(p, n)", "host_pinned_oom"),
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
