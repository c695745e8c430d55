"""Texts and exceptions that the tests of the classifier share."""

from __future__ import annotations

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
