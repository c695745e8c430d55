"""What a worker measures about itself: progress, peak memory, identity, failure."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args

from watcherml.contract.identity import CodeIdentity
from watcherml.errors import InvalidValue
from watcherml.forensics.capture import exception_text
from watcherml.forensics.classify import classify_exception
from watcherml.forensics.oom_message import parse
from watcherml.forensics.phases import phase_of_exception
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import Failure, MeasuredIdentity, Progress
from watcherml.recorder import dataset, environment, redact, source
from watcherml.recorder.life import name_of
from watcherml.recorder.run import as_number
from watcherml.recorder.steps import StepCounter
from watcherml.sealed.device import Device
from watcherml.sealed.fields import MetricName, Text
from watcherml.simulated import active

OOM_CLASSES = ("cuda_out_of_memory", "simulated_out_of_memory")
_MAX_METRICS = 1_000
_NAME: Text = get_args(MetricName)[1]
MAX_STEPS = 10**12  # as sealed.fields.Steps has it


def metrics_of(returned: Any) -> dict[str, float]:
    """Return the entrypoint's metrics as finite floats by name.

    Raises ``InvalidValue`` naming the metric for anything but None or a mapping of names to finite numbers, also where
    the mapping or a number of it raises when it is looked at.
    """
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        raise InvalidValue("returned value", expected="None or a mapping of metrics", got=type(returned).__name__)
    try:
        # A dict is read as what it is, whatever a subclass says of itself; others once, and not without an end.
        pairs = dict.items(returned) if isinstance(returned, dict) else returned.items()
        taken = list(itertools.islice(pairs, _MAX_METRICS + 1))
        if len(taken) > _MAX_METRICS:
            got = f"{dict.__len__(returned)}" if isinstance(returned, dict) else "more"
            raise InvalidValue("returned value", expected=f"at most {_MAX_METRICS} metrics", got=got)
        return dict(_metric(name, value) for name, value in taken)
    except InvalidValue:
        raise
    except Exception as error:
        got = f"{type(returned).__name__} that raises {type(error).__name__}: {exception_text(error)}"
        raise InvalidValue("returned value", expected="a mapping that can be read", got=got[:500]) from error


def _metric(name: Any, value: Any) -> tuple[str, float]:
    if not isinstance(name, str):
        raise InvalidValue("metric name", expected=_NAME.wanted(), got=type(name).__name__)
    plain = str.__str__(name)
    if not _NAME.holds(plain):
        got = f"{len(plain)} characters, {plain[:40]!r}"
        raise InvalidValue("metric name", expected=_NAME.wanted(), got=got)
    number = as_number(value, f"metric {plain[:80]!r}")
    if not math.isfinite(number):
        raise InvalidValue(f"metric {plain[:80]!r}", expected="a finite number", got=repr(number))
    return plain, number


def progress_of(counter: StepCounter, claimed: float | None) -> Progress:
    """Return the steps that were seen.

    Marks decide if there are any, then the optimizer calls. Where optimizers were watched and none was called,
    nothing was trained, whatever the entrypoint says; only where nobody could watch is a claim taken as such.
    Raises ``InvalidValue`` for more steps than anybody can make.
    """
    seen = max(counter.marks, counter.optimizer_steps, 0 if claimed is None else claimed)
    if seen > MAX_STEPS:
        raise InvalidValue("steps", expected=f"at most {MAX_STEPS}", got=f"{seen:.6g}")
    if counter.marks:
        return Progress(counter.marks, "marks", claimed)
    if counter.watches_optimizers or "torch" in sys.modules:
        steps = counter.optimizer_steps
        return Progress(steps, "optimizer" if steps else "none", claimed)
    if claimed is not None and claimed >= 1:
        return Progress(int(claimed), "claimed", claimed)
    return Progress(0, "none", claimed)


def simulated_device_used() -> Device:
    """Return the simulated device that was really entered in this process, as it describes itself."""
    device = active.last()
    if device is None or device.budget_bytes is None:
        return Device("none")
    return Device("simulated", device.device_id, device.budget_bytes)


def failure_of(error: BaseException, *, other_loader: bool = False, stepping: Collection[str] = ()) -> Failure:
    """Return the classified failure with redacted text; of an exception that cannot be looked at, its type's name.

    The two are those of ``phase_of_exception``: a control has to see the phase that the failed run saw.
    """
    try:
        return _failure_of(error, other_loader, stepping)
    except BaseException as problem:  # noqa: BLE001 - a class of the user's that raises whatever it likes
        text = f"<it could not be looked at: {name_of(type(problem))}>"
        return Failure("unknown_failure", "", name_of(type(error))[:2000], text[:2000], None, "unknown")


def _failure_of(error: BaseException, other_loader: bool, stepping: Collection[str]) -> Failure:
    found = classify_exception(error)
    text = redact.redact_text(exception_text(error))
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return Failure(
        failure_class=found.failure_class,
        subkind=found.subkind,
        exception_type=kind[:2000],
        message=text[:2000],
        requested_bytes=parse(text).tried_bytes if found.failure_class in OOM_CLASSES else None,
        phase=phase_of_exception(error, other_loader=other_loader, stepping=stepping),
    )


def packages() -> str:
    """Return the fingerprint of the packages that are installed where this process looks for them now."""
    return str(environment.collect()["fingerprint"])


def identity_of(
    request: TrialRequest, launch: Launch, files: dict[str, str], found_packages: str | None, told_model: str | None
) -> MeasuredIdentity:
    """Measure dataset, packages, commit, model and code in this process; what fails stays None.

    ``found_packages`` is what ``packages`` told before the entrypoint was called, None where it came to no call;
    ``told_model`` is what the entrypoint gave to ``watcherml.identify``.
    """
    fingerprint: str | None = None
    if launch.dataset_path is not None:
        try:
            fingerprint = str(dataset.fingerprint(launch.dataset_path)["fingerprint"])
        except (InvalidValue, OSError):
            fingerprint = None
    return MeasuredIdentity(
        dataset_fingerprint=fingerprint,
        environment_fingerprint=found_packages or packages(),
        git_commit=source.head_commit(Path(launch.project_root)),
        model_identifier=told_model or model_identifier(request.config),
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
