"""Making a capsule from a run and the exception that ended it. Strings and numbers only; no frame is kept."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watcherml.forensics.capsule import Capsule, Completeness, Diagnosis, FailureFacts, MemoryFacts
from watcherml.forensics.causes.diagnose import citing, diagnose, not_memory
from watcherml.forensics.classify import Classification, classify_exception
from watcherml.forensics.evidence import NAMES, Evidence, missing, present
from watcherml.forensics.matching import ask, real
from watcherml.forensics.measured import Measured, measure, training_facts
from watcherml.forensics.modules import batch_norm_modules
from watcherml.forensics.oom_message import OomMessage, parse
from watcherml.forensics.origin import chain, frames, frames_to
from watcherml.forensics.phases import phase_of_exception
from watcherml.forensics.seen import frame_tensors
from watcherml.forensics.text import amount
from watcherml.recorder import framework, host_memory, machine, redact
from watcherml.recorder.life import name_of
from watcherml.recorder.run import Run
from watcherml.sealed.device import Device

OOM_CLASSES = ("cuda_out_of_memory", "simulated_out_of_memory")
_RECENT_POINTS = 200
_RECENT_SAMPLES = 60

# Returns the cells executed so far, or None outside a notebook.
_MOST_TEXT = 200_000  # characters of a message, and of a traceback

History = Callable[[], "list[dict[str, Any]] | None"]


def capture(run: Run, error: BaseException, history: History | None = None) -> Capsule:
    """Return the capsule of a failure; every piece of evidence is there or missing with a reason."""
    found = classify_exception(error)
    text = redact.redact_text(exception_text(error)[: 2 * _MOST_TEXT])
    origin = _origin(error)
    device = _device(origin, found)
    phase = phase_of_exception(error, other_loader=run.memory.other_loader, stepping=run.memory.stepping)
    measured = _measured(run, error, origin, found, device, phase)
    memory = MemoryFacts() if measured is None else measured.memory
    diagnosis = not_memory("This failure is not about device memory.")
    if measured is not None:
        diagnosis = diagnose(measured.vector)
    failure = FailureFacts(
        class_=found.failure_class,
        subkind=found.subkind,
        rule=found.rule,
        rules_version=found.rules_version,
        matched=redact.redact_text(_printable(found.matched)),
        exception_type=_type_name(error),
        message=text[:_MOST_TEXT],
        traceback=_traceback(error),
        phase=phase,
        step=run.last_step,
        where=redact.redact_text(_where(error))[:2000],
    )
    evidence = _evidence(run, device, history, error, origin, measured)
    diagnosis = citing(diagnosis, {one.id for one in evidence if one.status == "present"})
    return Capsule(
        schema_version="2.0",
        run_id=run.run_id,
        project=run.project,
        created_at=run.storage.clock(),
        headline=_headline(failure, device, memory, diagnosis)[:2000],
        failure=failure,
        device=device,
        memory=memory,
        diagnosis=diagnosis,
        evidence=evidence,
        completeness=Completeness(sum(one.status == "present" for one in evidence), len(NAMES)),
    )


def _traceback(error: BaseException) -> str:
    # Cut before secrets are looked for, which takes its time in megabytes, and again after.
    try:
        text = "".join(traceback.format_exception(error))[-2 * _MOST_TEXT :]
    except BaseException:  # noqa: BLE001 - a class with code of its own in the way; its frames and its words are left
        told = "".join(traceback.format_tb(real(error, "__traceback__")))
        text = f"Traceback (most recent call last):\n{told}{_type_name(error)}: {exception_text(error)}\n"[
            -2 * _MOST_TEXT :
        ]
    return redact.redact_text(_printable(text))[-_MOST_TEXT:]


def exception_text(error: BaseException) -> str:
    """Return ``str(error)`` as text that can be stored; an exception that cannot be printed says so."""
    try:
        return _printable(str(error))
    except BaseException as problem:  # noqa: BLE001 - the user's own __str__, which may even want to exit
        return f"<its text could not be made: {type(problem).__name__}>"


def _printable(text: str) -> str:
    # A lone surrogate has no UTF-8 form; its escape shows what was there.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _device(error: BaseException, found: Classification) -> Device:
    if found.failure_class == "simulated_out_of_memory":
        budget = _attribute(error, "budget_bytes") or parse(exception_text(error)).total_bytes or 0
        return Device("simulated", "simulated-cpu-budget", budget)
    return framework.device_here()


def _origin(error: BaseException) -> BaseException:
    """Return the innermost exception of the chain that states figures of a device's memory, else the error itself."""
    stating = [
        one
        for one in chain(error)
        if _attribute(one, "requested_bytes") is not None or parse(exception_text(one)).tried_bytes is not None
    ]
    return stating[-1] if stating else error


def _measured(
    run: Run, error: BaseException, origin: BaseException, found: Classification, device: Device, phase: str
) -> Measured | None:
    if found.failure_class not in OOM_CLASSES:
        return None
    stated = parse(redact.redact_text(exception_text(origin)))
    return measure(run, error, origin, found, _facts(origin, stated, device), stated, device, phase)


def _facts(error: BaseException, stated: OomMessage, device: Device) -> tuple[MemoryFacts, int]:
    """Return the bytes with the summed rounding of the requested and the free figure."""
    if device.kind == "simulated":
        # The exception carries exact figures; its text rounds them.
        requested, allocated = _attribute(error, "requested_bytes"), _attribute(error, "allocated_bytes")
        if requested is not None and allocated is not None and device.budget_bytes is not None:
            free = max(0, device.budget_bytes - allocated)
            return MemoryFacts(
                requested_bytes=requested, capacity_bytes=device.budget_bytes, free_bytes=free,
                allocated_bytes=allocated, reserved_bytes=allocated, reserved_unallocated_bytes=0,
                source="simulated device",
            ), 0  # fmt: skip
    reserved = stated.reserved_bytes
    if reserved is None and stated.allocated_bytes is not None and stated.reserved_unallocated_bytes is not None:
        reserved = stated.allocated_bytes + stated.reserved_unallocated_bytes
    rounding = sum(stated.rounding_bytes.get(name, 0) for name in ("tried_bytes", "free_bytes"))
    return MemoryFacts(
        requested_bytes=stated.tried_bytes, capacity_bytes=stated.total_bytes, allowed_bytes=stated.allowed_bytes,
        free_bytes=stated.free_bytes, allocated_bytes=stated.allocated_bytes, reserved_bytes=reserved,
        reserved_unallocated_bytes=stated.reserved_unallocated_bytes,
        process_in_use_bytes=stated.process_in_use_bytes, source="exception text",
    ), rounding  # fmt: skip


def _evidence(
    run: Run,
    device: Device,
    history: History | None,
    error: BaseException,
    origin: BaseException,
    measured: Measured | None,
) -> tuple[Evidence, ...]:
    facts: dict[str, Any] = {}
    try:
        facts = run.storage.runs.get(run.run_id)["facts"]
    except Exception:  # noqa: BLE001 - a store that cannot be read must not cost the rest of the capsule
        facts = {}
    pieces = {
        "EV-1": lambda: ({"config": run.config, "lossy": run.lossy_paths, "redacted": run.redacted_paths}, "init"),
        "EV-2": lambda: (_training(run, measured), "log, optimizer steps"),
        "EV-3": lambda: (_process(run, error, facts.get("argv")), "psutil"),
        "EV-4": lambda: (_samples(run), "sampler"),
        "EV-5": lambda: (_gpu(device, measured), "simulated device" if device.kind == "simulated" else "torch, NVML"),
        "EV-6": lambda: (_framework(error, origin, measured), "torch"),
        "EV-7": lambda: (facts.get("git") if facts.get("git", {}).get("status") == "available" else None, "git"),
        "EV-8": lambda: (facts.get("environment"), "importlib.metadata"),
        "EV-9": lambda: (_without_path(facts.get("dataset")), "set_dataset"),
        "EV-10": lambda: (_metrics(run), "log"),
        "EV-11": lambda: (history() if history else None, "notebook"),
    }  # fmt: skip
    return tuple(_piece(name, collect) for name, collect in pieces.items())


_REASONS = {
    "EV-4": "The sampler has no reading of this run.",
    "EV-5": "No CUDA context in this process.",
    "EV-6": "torch is not loaded in this process.",
    "EV-7": "Not inside a git repository, or git is not installed.",
    "EV-8": "Packages were not collected in time.",
    "EV-9": "run.set_dataset(...) was not called.",
    "EV-10": "No metric was logged.",
    "EV-11": "Not in a notebook, or the extension is not loaded.",
}


def _piece(name: str, collect: Callable[[], tuple[Any, str]]) -> Evidence:
    try:
        data, source = collect()
        if data:
            return present(name, data, source)
        return missing(name, _REASONS.get(name, "Nothing was recorded."))
    except Exception as error:  # noqa: BLE001 - one broken source must not cost the other ten
        return missing(name, f"Could not be captured: {type(error).__name__}: {error}"[:2000])


def _training(run: Run, measured: Measured | None) -> dict[str, Any]:
    seen = training_facts(run, None) if measured is None else measured.training
    last = {"last_step": run.last_step, "logging_gap": run.logging_gap, "last_metrics": _finite(run.last_metrics)}
    return {**last, **seen}


def _process(run: Run, error: BaseException, argv: Any) -> dict[str, Any]:
    found = {**machine.process_state(), "argv": argv}
    if run.host is not None:
        found["host_memory"] = run.host.facts()
    killed = [host_memory.killed_child(exception_text(one)) for one in chain(error)]
    if any(killed):
        found["killed_child"] = next(one for one in killed if one)
        found["dead_children"] = host_memory.dead_children()
    return found


def _framework(error: BaseException, origin: BaseException, measured: Measured | None) -> dict[str, Any] | None:
    facts = framework.collect()
    if not facts:
        return None
    facts["failing_frames"] = frame_tensors(frames_to(error, origin))
    if measured is not None:
        facts["batch_norm_modules"] = batch_norm_modules(error)
        facts.update(measured.framework)
    return facts


def _samples(run: Run) -> list[dict[str, Any]]:
    keep = ("at", "cpu_percent", "rss_bytes", "device_kind", "device_allocated_bytes", "device_reserved_bytes")
    return [{key: row[key] for key in keep} for row in run.storage.runs.samples(run.run_id, _RECENT_SAMPLES)]


def _metrics(run: Run) -> list[dict[str, Any]]:
    run.storage.runs.fold(run.run_id)
    points = run.storage.runs.metrics(run.run_id)[-_RECENT_POINTS:]
    return [{**point, "value": _number(point["value"])} for point in points]


def _finite(metrics: dict[str, float]) -> dict[str, Any]:
    return {name: _number(value) for name, value in metrics.items()}


def _number(value: float) -> float | str:
    # JSON has no NaN; the word keeps it readable in a sealed document.
    return value if value == value and abs(value) != float("inf") else repr(value)


def _gpu(device: Device, measured: Measured | None) -> Any:
    if device.kind == "simulated":
        return {"simulated": True, "name": device.name, "budget_bytes": device.budget_bytes}
    gpus = framework.gpus()
    if measured is None or not measured.gpu:
        return {"gpus": gpus} if gpus else None
    return {"gpus": gpus, "failing": measured.gpu}


def _without_path(dataset: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if dataset is None else {key: value for key, value in dataset.items() if key != "path"}


def _attribute(error: BaseException, name: str) -> int | None:
    value = ask(error, name)
    return value if type(value) is int and value >= 0 else None


def _type_name(error: BaseException) -> str:
    kind = type(error)
    module, name = ask(kind, "__module__"), ask(kind, "__qualname__") or name_of(kind)  # the metaclass may be anybody's
    told = f"{module}.{name}" if isinstance(module, str) else name
    return redact.redact_text(told.removeprefix("builtins."))[:2000]


def _where(error: BaseException) -> str:
    """Return the innermost frame outside the standard library, installed packages and ourselves."""
    own = str(Path(__file__).resolve().parents[1])
    inside = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), own})
    found = ""
    for frame, line in frames(error):
        file = frame.f_code.co_filename
        if "site-packages" not in file and "dist-packages" not in file and not file.startswith(inside):
            short = "notebook cell" if "ipykernel" in file or file.startswith("<ipython") else Path(file).name
            found = f"{short}:{line} in {frame.f_code.co_name}"
    return found


def _headline(failure: FailureFacts, device: Device, memory: MemoryFacts, diagnosis: Diagnosis) -> str:
    where = f" at {failure.where}" if failure.where else ""
    if failure.class_ not in OOM_CLASSES:
        lines = (line.strip() for line in failure.message.splitlines())
        first = next((line for line in lines if any(map(str.isalnum, line))), "")[:300]
        # A wrapper's first line may not say what failed.
        matched = " ".join(failure.matched.split())
        told = "" if failure.class_ == "unclassified" or matched in " ".join(first.split()) else f" ({matched[:120]})"
        return f"{failure.exception_type}{where}: {first}{told}"
    name = "The simulated device" if device.kind == "simulated" else "CUDA"
    phase = f" in {failure.phase}" if failure.phase != "unknown" else ""
    text = f"{name} ran out of memory{phase}{where}."
    if memory.requested_bytes is not None and memory.free_bytes is not None:
        text += f" {amount(memory.requested_bytes)} were asked for and {amount(memory.free_bytes)} were free."
    return f"{text} {diagnosis.sentence}"
