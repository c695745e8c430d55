"""The next step after a failure, in one sentence, for somebody who is tired. By class, and by subkind where it matters.

Out of memory has it in the diagnosis: what helps against the first cause that explains the failure.
"""

from __future__ import annotations

from watcherml.forensics.capsule import Capsule
from watcherml.report.neighbours import first_change, recovery_sentence
from watcherml.report.safe import one_line

_OUT_OF_MEMORY = ("cuda_out_of_memory", "simulated_out_of_memory")
_NAN = (
    "look at the last metrics before it turned bad, try half the learning rate or clip the gradients,"
    " and check that batch; torch.autograd.set_detect_anomaly(True) names the operation"
)
_SHAPE = "the message names both sizes: make the layer{where} and what is fed to it agree"
_BY_SUBKIND = {
    "state_dict": "build the model with the configuration that the checkpoint was saved with; the message lists what"
    " does not fit",
    "collate": "the samples of one batch differ in size: pad or crop them, or give the loader a collate_fn",
    "loss_target": "the output of the model and its target need shapes that this loss accepts; print both{where}",
    "same_device_arg": "move everything to one device; what is made inside forward() needs device=x.device",
    "host_oom": "the host's memory ran out, not the GPU's: use fewer loader workers, load less at once, or pin less",
    "host_pinned_oom": "pinned host memory ran out, not the GPU's: switch pin_memory off or use fewer workers",
    "name_error": "run the cell that defines this name, or correct its spelling",
    "checkpoint_read": "the file is damaged or was cut off while it was written: take an earlier one, or save again",
    "disk_quota": "free space on the disk or raise the quota; what was being written is not complete",
    "checkpoint_write": "free space where the checkpoint is written; what is there now is not complete",
    "device_assert": "run again with CUDA_LAUNCH_BLOCKING=1, which names the real line; mostly a label or an index is"
    " out of range",
    "illegal_memory_access": "restart the kernel and run again with CUDA_LAUNCH_BLOCKING=1, which names the real line",
    "inplace_autograd": "do not write into the tensor that the message names; torch.autograd.set_detect_anomaly(True)"
    " names the operation",
    "dtype": "convert one side to the other's dtype where the traceback points{where}",
    "nan_in_input_data": "the data holds a NaN: find the rows, and drop or fill them",
    "shared_memory_full": "shared memory is full: remove what is left in /dev/shm, use fewer workers, or give a"
    " container more (--shm-size)",
    "shm_full": "shared memory is full: use fewer loader workers, or give a container more (--shm-size)",
    "bus_error": "shared memory is full: use fewer loader workers, or give a container more (--shm-size)",
    "fd_passing": "raise the limit of open files (ulimit -n), or"
    " torch.multiprocessing.set_sharing_strategy('file_system')",
    "no_such_device": "the number of a device that is not here: print torch.cuda.device_count(), and load with"
    " map_location",
    "no_driver": "no usable GPU was found: look at nvidia-smi (or rocm-smi) and at CUDA_VISIBLE_DEVICES, then"
    " `watcher doctor`",
    "no_kernel_image": "the build has no code for this GPU: install the build of the package that was made for it",
    "no_compiler": "install what the message names (a C++ compiler, Python's headers, the CUDA toolkit, ninja), or run"
    " without compiling",
    "empty_dataset": "the dataset has no samples: print its length, and look at its path and its filters",
    "nccl_other": "set NCCL_DEBUG=INFO and look at every rank's log: the one that failed first tells why",
    "jax_oom": "this device is full: a smaller batch, or shorter sequences",
    "tf_oom": "this device is full: a smaller batch, or shorter sequences",
    "other_device_oom": "this device is full: a smaller batch, or shorter sequences",
    "device_generic_oom": "this device is full: a smaller batch, or shorter sequences",
    "vllm_kv_cache_budget": "give the engine more of the device (gpu_memory_utilization), or a shorter max_model_len",
    "triton_shared_memory": "a kernel wants more of the chip's shared memory than there is: smaller blocks or fewer"
    " stages; a smaller batch does not help",
    "mps_oom": "the device of this Mac is full: a smaller batch, or shorter sequences",
    "xpu_oom": "this device is full: a smaller batch, or shorter sequences",
    "wrapped_dataset_error": "the dataset's own code raised this inside a worker: num_workers=0 makes it stop there",
}
_BY_CLASS = {
    "nan_or_exploding_loss": _NAN,
    "tensor_shape_mismatch": _SHAPE,
    "missing_file_or_dataset_path": "check the path in the message; a relative one starts in the working directory"
    " (in a notebook: the notebook's folder)",
    "dataloader_worker_failure": "run once with num_workers=0, which shows the worker's own error; if that works, a"
    " worker ran out of memory or of shared memory",
    "device_mismatch": "move everything to one device; what is made inside forward() needs device=x.device",
    "dependency_or_cuda_compatibility": "the message names the package or library that does not fit; install the"
    " version that it asks for, then `watcher doctor`",
}


def without_next(text: str, capsule: Capsule) -> str:
    """Return a text of the capsule without the remedy that it ends with, because ``next_step`` says it below."""
    action = capsule.diagnosis.action
    text = text.removesuffix(f" Next: {action}.")
    return text.removesuffix(f": {action}.") + "." if action and text.endswith(f": {action}.") else text


def next_step(capsule: Capsule) -> str:
    """Return what to do next and what changed since it last worked; empty where nothing is known beyond the headline.

    Out of memory has a ``Next:`` where a cause explains it; where too little is known the headline ends with what to
    do. A recovery that was verified for a failure like it comes first.
    """
    near = capsule.neighbours
    return " ".join(filter(None, (recovery_sentence(near), _next(capsule), first_change(near))))


def _next(capsule: Capsule) -> str:
    failure = capsule.failure
    if failure.class_ in _OUT_OF_MEMORY:
        action = capsule.diagnosis.action
        return f"Next: {action}." if action else ""
    where = f" at {one_line(failure.where, 120)}" if failure.where else ""
    words = _BY_SUBKIND.get(failure.subkind) or _BY_CLASS.get(failure.class_)
    if words is None:
        words = "start at{where} and read the traceback upwards" if where else "read the traceback upwards"
        words = words.replace("at{where}", where.strip())
    return f"Next: {words.replace('{where}', where)}."
