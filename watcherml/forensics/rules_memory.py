"""Rules for memory that ran out: on our simulated device, in host RAM, on other vendors' devices, on CUDA and ROCm.

What is surely *not* CUDA stands before what is. The class of the exception and the prefix of its text decide
together: XPU and others raise torch's own ``OutOfMemoryError``, and older torch raises a plain ``RuntimeError``.
"""

from __future__ import annotations

import re

from watcherml.forensics.matching import ANY_TYPE, FIRST_LINE, rule
from watcherml.forensics.oom_message import SIMULATED_LABEL

# Words inside a path, an identifier or a quotation do not count: nothing of the kind may touch the match.
START = r"(?<![\w/\\.'\"`-])"
END = r"(?![\w/\\'\"`-]|\.\w)"
ASKED = r"(?:Tried to allocate (?:[0-9]|more than 1EB)|Allocation was preemptively rejected)"
CUDA_NAMED = r"(?:PYTORCH_(?:CUDA|HIP)_ALLOC_CONF|(?:CUDA|HIP) Graphs)"
IN_PINNING = r"\bpin_memory\b[^\n]{0,300}(?:\n[^\n]{0,300}){0,4}\Z"  # among the last frames

SIMULATED = rule(
    "simulated/simulated_device",
    ANY_TYPE,
    "Our own label outranks the CUDA words behind it.",
    re.escape(SIMULATED_LABEL),
    quoted=True,
)

MEMORY = (
    rule(
        "cuda/library_bad_alloc",
        "runtime MemoryError",
        "RMM and Thrust raise bad_alloc for device memory; of a pinned pool it is host memory.",
        r"\bstd::bad_alloc: (?:out_of_memory: CUDA error\b|(?:CUDA error at: [^\n]{0,300})?"
        r"\bcudaErrorMemoryAllocation:? out of memory)(?![^\n]{0,300}\bpinned)",
    ),
    rule(
        "none/host_oom",
        "runtime",
        "The CPU allocator or the system refused host RAM.",
        "DefaultCPUAllocator",
        r"\A\W{0,5}Torch: not enough memory: you tried to allocate\b",
        r"\bCUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED\b",
        r"\bnode running low on memory\b",
        r"enforce fail at [^\n]{0,300}(?:CPUAllocator|alloc_cpu)\.cpp",
        r"\bstd::bad_alloc\b",
        r"\bCannot allocate memory\b",
        variant="allocator",
    ),
    rule(
        "cuda/paddle_oom",
        "runtime paddle.MemoryError SystemError",
        "Paddle raises a MemoryError of its own that names the GPU.",
        r"\bOut of memory error on GPU [0-9]",
    ),
    rule("cuda/pycuda_oom", "pycuda.MemoryError", "PyCUDA's own MemoryError is device memory.", r"\bout of memory\b"),
    rule(
        "none/host_oom",
        "MemoryError _ArrayMemoryError ArrowMemoryError duckdb.OutOfMemoryException",
        "The type means host RAM.",
        FIRST_LINE,
        variant="type",
    ),
    rule(
        "none/host_oom",
        "OSError",
        "errno 12 and the paging file are host RAM.",
        r"\[Errno 12\]",
        r"\[WinError (?:8|1455)\]",
        variant="errno",
    ),
    rule(
        "none/host_pinned_oom",
        "runtime",
        "The pinned host allocation failed.",
        r"\bfailed to alloc [0-9]+ bytes on host\b",
        r"\b(?:cudaHostAlloc|cuMemHostAlloc|cudaHostRegister|cuMemAllocHost)\w*[^\n]{0,200}\bout of memory\b",
        r"\bCUDA failure 2: out of memory\b[^\n]{0,600}\bexpr=cudaHostAlloc",
        r"\bruntime error \(2\) : out of memory at [^\n]{0,300}\bTHCCachingHostAllocator\b",
        r"\b(?:CUDA|HIP) error: out of memory\b(?=[\s\S]{0,2000}\bException raised from [^\n]{0,300}"
        r"\bCachingHostAllocator)",
    ),
    rule(
        "none/host_pinned_oom",
        "runtime",
        "The same words from the pinning thread mean host memory.",
        r"\b(?:CUDA|HIP) (?:driver )?error: (?:\w+ErrorMemoryAllocation: )?out of memory\b",
        frames=IN_PINNING,
        variant="frames",
    ),
    rule(
        "none/mps_oom",
        "runtime",
        "Apple's device, not CUDA.",
        START + r"MPS backend out of memory\b",
        r"\A\s{0,20}Invalid buffer size: [0-9.]{1,20} [KMGT]?i?B\b",
    ),
    rule(
        "none/xpu_oom",
        "runtime",
        "The class is torch's, the prefix is Intel's.",
        START + r"XPU out of memory\.",
        r"Current platform can NOT allocate memory block",
        r"\bUR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)\b",
        r"\bPI_ERROR_OUT_OF_RESOURCES\b",
    ),
    rule(
        "none/other_device_oom",
        "runtime",
        "Another vendor's prefix on the same grammar.",
        START + r"(?!CUDA\b|HIP\b)[A-Z]\w{1,20} out of memory\. " + ASKED,
        r"\bnot enough GPU video memory available\b",
    ),
    rule(
        "cuda/absurd_size",
        "runtime",
        "The allocator's own text for a request no device could hold.",
        START + r"(?:CUDA|HIP) out of memory\. Tried to allocate more than 1EB",
    ),
    rule(
        "cuda/torch_caching_allocator",
        "runtime",
        "The caching allocator's sentence with its request.",
        START + r"CUDA out of memory\. " + ASKED,
    ),
    rule("cuda/hip_oom", "runtime", "The same allocator built for ROCm.", START + r"HIP out of memory\. " + ASKED),
    rule(
        "cuda/torch_caching_allocator",
        "runtime",
        "A message that begins with the statement, cut off or raised by hand.",
        r"\A\s{0,20}(?:CUDA|HIP) out of memory(?=\s*(?:[.:;,!(]|\Z)|\s(?:occurred|while|when|during)\b)",
        variant="short",
    ),
    rule(
        "cuda/torch_caching_allocator",
        "torch.OutOfMemoryError",
        "A device-generic build; only its hint names CUDA.",
        START + r"Out of memory\. " + ASKED + r"(?=[\s\S]{0,3000}" + CUDA_NAMED + ")",
        variant="generic",
    ),
    rule(
        "none/device_generic_oom",
        "torch.OutOfMemoryError",
        "A device-generic text that names no device.",
        START + r"Out of memory\. " + ASKED,
    ),
    rule(
        "none/device_generic_oom",
        "runtime",
        "The arena of ONNX Runtime has one text for the card and for the host.",
        r"\bAvailable memory of [0-9]{1,20} is smaller than requested bytes of [0-9]",
        r"\bFailed to allocate memory for requested buffer of size [0-9]",
        variant="arena",
    ),
    rule(
        "cuda/cuda_error_oom",
        "runtime",
        "The runtime's error 2 as torch prints it.",
        START + "(?:CUDA|HIP) (?:driver )?error: out of memory" + END,
    ),
    rule(
        "cuda/torch_async_allocator",
        "torch.OutOfMemoryError",
        "The allocator of cudaMallocAsync has a text of its own; some traces keep only its begin.",
        r"\A\s{0,20}Allocation on device(?= [0-9]{1,4} would exceed allowed memory\.|\s*\Z)",
        START + r"Allocation on device [0-9]{1,4} would exceed allowed memory\. \(out of memory\)",
    ),
    rule(
        "cuda/runtime_oom",
        "runtime",
        "Error 2 by its name, or its number as ONNX Runtime, bitsandbytes and others print it.",
        START + "cudaErrorMemoryAllocation:? out of memory" + END,
        START + "CUDA failure 2: out of memory" + END,
        START + "CUDA: out of memory" + END,
        START + r"(?:CUDA|HIP) error \(2\)(?![\w)])",
        r"\A\s{0,20}Error out of memory at line [0-9]{1,6} in file [^\n]{1,300}\.(?:cu|c|cpp|hip)\b",
    ),
    rule(
        "cuda/thc_cuda_runtime_error_2", "runtime", "Error 2 before torch 1.5.", r"\b(?:cuda|hip) runtime error \(2\)"
    ),
    rule(
        "cuda/triton_oom",
        "runtime",
        "A kernel launch found no device memory.",
        r"\bTriton Error \[(?:CUDA|HIP)\]: out of memory" + END,
    ),
    rule(
        "cuda/driver_oom",
        "runtime",
        "A device allocation call of the driver or runtime.",
        r"\b(?:cuMem(?:Alloc|Create|Map)|cudaMalloc|hipMalloc)\w*[^\n]{0,120}(?:\b(?:CUDA|HIP)_ERROR_OUT_OF_MEMORY\b"
        r"|\bout of memory\b)",
        START + "CUDA_ERROR_OUT_OF_MEMORY: out of memory" + END,
    ),
    rule(
        "cuda/cublas_alloc_failed",
        "runtime",
        "The library found no device memory for its workspace.",
        START + "(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED" + END,
    ),
    rule(
        "cuda/cudnn_alloc_failed",
        "runtime",
        "The library found no device memory for its workspace.",
        START + "CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)" + END,
    ),
    rule(
        "cuda/library_alloc_failed",
        "runtime",
        "The library found no device memory for its workspace.",
        START + "(?:(?:(?:CU|HIP)SPARSE|(?:CU|HIP)SOLVER)_STATUS|(?:CU|HIP)FFT)_ALLOC_FAILED" + END,
        START + "miopenStatusAllocFailed" + END,
    ),
    rule(
        "cuda/nccl_oom",
        "runtime",
        "NCCL quotes the runtime's error 2.",
        r"\bCuda failure (?:2 )?'out of memory'",
        quoted=True,
    ),
    rule("cuda/cupy_oom", "cupy.OutOfMemoryError", "CuPy's own type.", r"\bout of memory\b", any_case=True),
    rule(
        "cuda/tf_oom",
        "runtime",
        "TensorFlow names the GPU.",
        r"\bOOM when allocating tensor\b[^\n]{0,400}\bdevice:GPU:[0-9]",
    ),
    rule(
        "none/tf_oom",
        "tensorflow.ResourceExhaustedError runtime",
        "TensorFlow without a named GPU.",
        r"\bOOM when allocating tensor\b",
        r"\Afailed to allocate memory\b",
    ),
    rule(
        "none/jax_oom",
        "runtime",
        "JAX without a named GPU.",
        r"\bRESOURCE_EXHAUSTED: (?:Out of memory\b|Attempting to (?:allocate|reserve)\b|Failed to allocate\b"
        r"|[^\n]{0,200}\bRan out of memory\b)",
    ),
    rule(
        "none/triton_shared_memory",
        "runtime",
        "On-chip memory of one kernel, not the device's.",
        r"\bout of resource: ",
    ),
    rule(
        "none/vllm_kv_cache_budget",
        "runtime ValueError",
        "A serving engine's own budget.",
        r"\bNo available memory for the cache blocks\b",
        r"\blarger than the (?:available KV cache memory|maximum number of tokens that can be stored in KV cache)\b",
        r"\bis less than desired GPU memory utilization\b",
    ),
)
