"""What a worker measures about itself: progress, peak memory, identity, failure."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watcherml.contract.identity import CodeIdentity
from watcherml.errors import InvalidValue
from watcherml.forensics.capture import exception_text
from watcherml.forensics.classify import classify_exception
from watcherml.forensics.oom_message import parse
from watcherml.forensics.phases import phase_of_exception
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import Failure, MeasuredIdentity, Peak, Progress
from watcherml.recorder import dataset, environment, framework, redact, source
from watcherml.recorder.run import as_number
from watcherml.recorder.steps import StepCounter
from watcherml.sealed.device import Device
from watcherml.simulated import active

OOM_CLASSES = ("cuda_out_of_memory", "simulated_out_of_memory")
_MAX_METRICS = 1_000


def metrics_of(returned: Any) -> dict[str, float]:
    """Return the entrypoint's metrics as finite floats by name.

    Raises ``InvalidValue`` naming the metric for anything but None or a mapping of names to finite numbers.
    """
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        raise InvalidValue("returned value", expected="None or a mapping of metrics", got=type(returned).__name__)
    if len(returned) > _MAX_METRICS:
        raise InvalidValue("returned value", expected=f"at most {_MAX_METRICS} metrics", got=str(len(returned)))
    found: dict[str, float] = {}
    for name, value in returned.items():
        if not isinstance(name, str) or not name:
            raise InvalidValue("metric name", expected="non-empty text", got=repr(name)[:80])
        number = as_number(value, f"metric {name[:80]!r}")
        if not math.isfinite(number):
            raise InvalidValue(f"metric {name[:80]!r}", expected="a finite number", got=repr(number))
        found[name] = number
    return found


def progress_of(counter: StepCounter, claimed: float | None) -> Progress:
    """Return the steps that were seen.

    Marks decide if there are any, then the optimizer calls. Where optimizers were watched and none was called,
    nothing was trained, whatever the entrypoint says; only where nobody could watch is a claim taken as such.
    """
    if counter.marks:
        return Progress(counter.marks, "marks", claimed)
    if counter.watches_optimizers or "torch" in sys.modules:
        steps = counter.optimizer_steps
        return Progress(steps, "optimizer" if steps else "none", claimed)
    if claimed is not None and claimed >= 1:
        return Progress(int(claimed), "claimed", claimed)
    return Progress(0, "none", claimed)


def reset_peaks() -> None:
    """Start counting torch's peaks from here, on every CUDA device of this process."""
    cuda = framework.cuda_in_use()
    if cuda is not None:
        for index in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(index)


def peak_of(kind: str) -> Peak | None:
    """Return the peak of this process on the device kind, None where nothing measures it."""
    if kind == "simulated":
        device = active.last()
        if device is None:
            return None
        return Peak("simulated", "tracker of the simulated device", int(device.peak_bytes), None)
    cuda = framework.cuda_in_use()
    if kind != "cuda" or cuda is None:
        return None
    peaks = [
        (cuda.max_memory_reserved(index), cuda.max_memory_allocated(index)) for index in range(cuda.device_count())
    ]
    reserved, allocated = max(peaks)
    return Peak("cuda", "torch allocator, largest device", int(allocated), int(reserved))


def simulated_device_used() -> Device:
    """Return the simulated device that was really entered in this process, as it describes itself."""
    device = active.last()
    if device is None or device.budget_bytes is None:
        return Device("none")
    return Device("simulated", device.device_id, device.budget_bytes)


def failure_of(error: BaseException) -> Failure:
    """Return the classified failure with redacted text."""
    found = classify_exception(error)
    text = redact.redact_text(exception_text(error))
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return Failure(
        failure_class=found.failure_class,
        subkind=found.subkind,
        exception_type=kind[:2000],
        message=text[:2000],
        requested_bytes=parse(text).tried_bytes if found.failure_class in OOM_CLASSES else None,
        phase=phase_of_exception(error),
    )


def identity_of(request: TrialRequest, launch: Launch, files: dict[str, str]) -> MeasuredIdentity:
    """Measure dataset, packages, commit, model and code in this process; what fails stays None."""
    fingerprint: str | None = None
    if launch.dataset_path is not None:
        try:
            fingerprint = str(dataset.fingerprint(launch.dataset_path)["fingerprint"])
        except (InvalidValue, OSError):
            fingerprint = None
    return MeasuredIdentity(
        dataset_fingerprint=fingerprint,
        environment_fingerprint=str(environment.collect()["fingerprint"]),
        git_commit=source.head_commit(Path(launch.project_root)),
        model_identifier=model_identifier(request.config),
        code=CodeIdentity(files) if files else None,
    )


def model_identifier(config: Mapping[str, Any]) -> str | None:
    """Return the model's name as the configuration gives it: ``model``, ``model.name``, ``model_name_or_path``."""
    model = config.get("model")
    if isinstance(model, Mapping):
        model = model.get("name")
    for value in (model, config.get("model_name_or_path")):
        if isinstance(value, str) and 0 < len(value) <= 1024:
            return value
    return None
