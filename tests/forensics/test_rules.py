"""Every row of the classification table is reached by a text that a framework prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watcherml.forensics.classify import classify_text
from watcherml.forensics.rules import RULES

SPAWN = 'Traceback (most recent call last):\n  File "lib/multiprocessing/spawn.py", line 1, in main\nX: y\n'
PINNING = 'Traceback (most recent call last):\n  File "a/pin_memory.py", line 1, in pin_memory\nX: y\n'
BOOTSTRAP = "An attempt has been made to start a new process before the current process has finished its bootstrapping."
CONFLICT = "tokenizers>=0.14 is required for a normal functioning of this module, but found tokenizers==0.13."
TARGET = "Target size (torch.Size([3])) must be the same as input size (torch.Size([2, 5]))"

# The texts that the corpus has are not repeated here.
TEXTS = [
    ("none-host-oom-allocator", "RuntimeError", "std::bad_alloc"),
    ("none-host-pinned-oom", "RuntimeError", "cudaHostAlloc failed: out of memory"),
    ("none-xpu-oom", "RuntimeError", "backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("cuda-library-alloc-failed", "RuntimeError", "cuFFT error: CUFFT_ALLOC_FAILED"),
    ("cuda-library-alloc-failed", "RuntimeError", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `x`"),
    ("none-tf-oom", "tensorflow.ResourceExhaustedError", "OOM when allocating tensor with shape[1,2]"),
    ("worker-timed-out", "RuntimeError", "DataLoader timed out after 30 seconds"),
    ("worker-fd-passing", "RuntimeError", "Too many open files. Communication with the workers is no more"),
    ("worker-worker-socket", "FileNotFoundError", "[Errno 2] No such file or directory: '/tmp/pymp-7/listener-x'"),
    ("worker-worker-start", "RuntimeError", BOOTSTRAP),
    ("nan-gradient-norm", "RuntimeError", "The total norm of order 2.0 for gradients from `parameters` is non-finite"),
    ("nan-probabilities", "RuntimeError", "probability tensor contains either `inf`, `nan` or element < 0"),
    ("nan-nan-parameters-values", "ValueError", "Expected parameter p to satisfy x, but found invalid values:\n[nan]"),
    ("nan-project-check-detected", "ValueError", "Detected nan and/or inf values in `layer.weight`."),
    ("nan-project-check-detected", "RuntimeError", "step 7: NaN gradients, stopping"),
    ("nan-project-check", "RuntimeError", "Model diverged with loss = NaN."),
    ("device-same-device", "RuntimeError", "stft input and window must be on the same device but got self on cpu"),
    ("device-same-device-arg", "RuntimeError", "Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU"),
    ("device-same-device-arg", "RuntimeError", "expected device cuda:0 but got device cpu"),
    ("device-input-weight-type", "RuntimeError", "Input type (MPSFloatType) and weight type (torch.FloatTensor)"),
    ("device-indices", "RuntimeError", "Input, output and indices must be on the current device"),
    ("shape-matmul", "RuntimeError", "size mismatch, m1: [2 x 3], m2: [4 x 5] at /pytorch/x.cpp:1"),
    ("shape-matmul", "ValueError", "shapes (2,3) and (4,5) not aligned: 3 (dim 1) != 4 (dim 0)"),
    ("shape-broadcast", "IndexError", "shape mismatch: indexing tensors could not be broadcast"),
    ("shape-loss-target", "ValueError", TARGET),
    ("shape-rank", "RuntimeError", "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got [5, 8]"),
    ("shape-rank", "IndexError", "Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
    ("shape-rank", "IndexError", "too many indices for tensor of dimension 1"),
    ("shape-concat", "RuntimeError", "Sizes of tensors must match except in dimension 0. Expected size 3 but got 4"),
    ("shape-collate", "RuntimeError", "stack expects each tensor to be equal size, but got [2] at entry 0"),
    ("shape-collate", "RuntimeError", "each element in list of batch should be of equal size"),
    ("shape-layer-input", "RuntimeError", "Expected hidden[0] size (1, 2, 4), got [1, 3, 4]"),
    ("shape-layer-input", "RuntimeError", "Calculated padded: Kernel size can't be greater than actual input size"),
    ("build-missing-library", "FileNotFoundError", "Could not find module 'C:\\x\\c10.dll' (or a dependency)."),
    ("build-missing-library", "FileNotFoundError", "[Errno 2] No such file or directory: '/x/libcudart.so.12'"),
    ("file-huggingface-weights", "OSError", "x/y does not appear to have a file named config.json."),
    ("file-native-open", "OSError", "Unable to open file (name = 'a.h5', message = 'No such file or directory')"),
    ("build-undefined-symbol", "ImportError", "version `GLIBCXX_3.4.30' not found (required by x.so)"),
    ("build-numpy-abi", "RuntimeError", "Numpy is not available"),
    ("build-missing-lib-ctypes", "OSError", '[WinError 126] Not found. Error loading "x.dll"'),
    ("build-torch-without-cuda", "RuntimeError", "Attempting to deserialize object on a CUDA device but it is absent"),
    ("build-no-driver", "RuntimeError", "Found no NVIDIA driver on your system."),
    ("build-no-driver", "RuntimeError", "No CUDA GPUs are available"),
    ("build-no-kernel-image", "RuntimeError", "FlashAttention only supports Ampere GPUs or newer."),
    ("build-version-conflict", "ImportError", CONFLICT),
    ("build-version-conflict", "RuntimeError", "The detected CUDA version (12.1) mismatches the version of PyTorch"),
    ("none-cuda-library", "RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    ("none-cuda-library", "RuntimeError", "cuFFT error: CUFFT_INTERNAL_ERROR"),
    ("none-illegal-memory-access", "RuntimeError", "CUDA error: unspecified launch failure"),
    ("none-dtype", "RuntimeError", "dot : expected both vectors to have same dtype, but found Half and Float"),
    ("none-checkpoint-read", "_pickle.UnpicklingError", "invalid load key, '<'."),
    ("none-disk-quota", "OSError", "[Errno 28] No space left on device"),
    ("file-labels-not-found", "RuntimeError", "Found 0 files in subfolders of: /data/train"),
    ("file-project-message", "FileNotFoundError", ""),
    ("cuda-torch-async-allocator", "torch.OutOfMemoryError", "Allocation on device"),
    ("cuda-library-bad-alloc", "MemoryError", "std::bad_alloc: out_of_memory: CUDA error at: /x/a.hpp:60"),
    ("cuda-runtime-oom", "RuntimeError", "parallel_for failed: cudaErrorMemoryAllocation: out of memory"),
    ("none-device-generic-oom-arena", "RuntimeError", "Available memory of 0 is smaller than requested bytes of 2048"),
]
FRAMED = [
    ("none-host-pinned-oom-frames", "RuntimeError", "CUDA error: out of memory", PINNING),
    ("worker-worker-start-pickle", "AttributeError", "Can't get local object 'f.<locals>.g'", SPAWN),
    ("worker-worker-start-pickle", "_pickle.PicklingError", "Can't pickle <function f>: not the same object", SPAWN),
    ("worker-worker-start-pickle", "TypeError", "cannot pickle 'generator' object", SPAWN),
    ("worker-worker-start-pickle-eof", "EOFError", "Ran out of input", SPAWN),
    ("worker-fd-passing-frames", "OSError", "[Errno 24] Too many open files", SPAWN.replace("spawn", "reduction")),
]


@pytest.mark.parametrize(("rule", "kind", "message", "printed"), [*((*row, "") for row in TEXTS), *FRAMED])
def test_a_printed_text_reaches_its_row(rule: str, kind: str, message: str, printed: str) -> None:
    assert classify_text(kind, message, printed).rule == rule


def test_no_row_is_dead() -> None:
    data = Path(__file__).parent.parent / "data"
    lines = [
        one for name in ("failures", "printed") for one in (data / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    reached = {classify_text(record["exception_type"], record["message"]).rule for record in map(json.loads, lines)}
    reached |= {row[0] for row in (*TEXTS, *FRAMED)}
    elsewhere = {  # reached in test_classify, with texts made for the order of the rows
        *("simulated-simulated-device", "cuda-pycuda-oom", "cuda-triton-oom", "none-device-generic-oom"),
        *("cuda-torch-caching-allocator-generic", "cuda-torch-caching-allocator-short"),
    }
    assert {row.id for row in RULES} - reached == elsewhere
