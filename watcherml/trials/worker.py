"""The trial's own process: ``python -m watcherml.trials.worker REQUEST``.

It runs the entrypoint once and writes one sealed report. The guard has a nonce for it that is taken when training is
over; the report's file name carries it, so that a file written by the entrypoint is not taken for the report.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watcherml.errors import BindingError, InvalidValue
from watcherml.platform import die_with_parent, write_atomically
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import Failure, KnobReading, Peak, Progress, WorkerOutcome, WorkerReport
from watcherml.recorder import framework
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.resupply import resupply
from watcherml.recorder.run import Run
from watcherml.recorder.steps import StepCounter, count_here
from watcherml.recorder.told import Told, listen
from watcherml.sealed.device import Device
from watcherml.sealed.floats import restore_floats
from watcherml.sealed.record import thaw
from watcherml.trials import code, loading, measure, observe, peaks, surroundings
from watcherml.trials.handover import WorkerEnd
from watcherml.trials.members import put_mark
from watcherml.trials.paths import GUARD, TrialPaths


@dataclass
class _Attempt:
    """What is known of the attempt while it goes on."""

    outcome: WorkerOutcome = "training_failed"
    failure: Failure | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    progress: Progress = field(default_factory=lambda: Progress(0, "none"))
    files: dict[str, str] = field(default_factory=dict)
    packages: str | None = None
    peak: Peak | None = None
    knobs: tuple[KnobReading, ...] = ()
    device: Device = field(default_factory=lambda: Device("none"))
    gpus: int = 1


_INNERMOST = 4  # frames of an error that are printed: what is shown of a log holds no more


def main(argument: str) -> int:
    """Run one trial; the exit code is 0 only if the entrypoint ended well."""
    if os.environ.get(GUARD, "").isdigit():
        die_with_parent(int(os.environ[GUARD]))
    process = os.getpid()
    line = WorkerEnd()
    paths = TrialPaths(Path(argument).absolute().parent)
    request = TrialRequest.from_json(paths.request.read_bytes())
    launch = Launch.from_json(paths.launch.read_bytes())
    if launch.request_digest != request.digest:
        raise BindingError("launch.request_digest", expected=request.digest, got=launch.request_digest)
    put_mark(paths.mark)
    execution_id = f"{request.trial_id}-{uuid.uuid4().hex[:12]}"
    # O_EXCL: one request is executed once, even if two workers are started for it.
    claim = os.open(paths.claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(claim, execution_id.encode())
    os.close(claim)
    started = time.monotonic()
    counter = StepCounter()
    told = Told(counter, probes=request.role == "probe", model=measure.model_identifier(request.config))
    run = _open_run(request, launch)
    traits = observe.Observer(request, run.memory)
    put_back = surroundings.keep()
    error, attempt = _attempt(request, launch, told, run.memory, traits, put_back)
    if os.getpid() != process:
        os._exit(0)  # a child that the entrypoint forked came back here; the report is its parent's
    report = WorkerReport(
        request_digest=request.digest,
        execution_id=execution_id,
        outcome=attempt.outcome,
        failure=attempt.failure,
        metrics=attempt.metrics,
        progress=attempt.progress,
        peak=attempt.peak,
        identity=measure.identity_of(request, launch, attempt.files, attempt.packages, told.model),
        knobs=attempt.knobs,
        traits=traits.seen,
        device=attempt.device,
        gpu_count=attempt.gpus,
        seconds=round(time.monotonic() - started, 3),
    )
    data = report.to_json().encode()
    write_atomically(paths.report(line.take()), data)
    line.seal(data)
    _say_where(error, report)
    _close_run(run, error, report)
    return 0 if report.outcome == "completed" else 1


def _attempt(
    request: TrialRequest,
    launch: Launch,
    told: Told,
    memory: MemoryLog,
    traits: observe.Observer,
    put_back: Callable[[], None],
) -> tuple[BaseException | None, _Attempt]:
    attempt = _Attempt()
    counter = told.counter
    root = Path(launch.project_root)
    undo = (count_here(counter), listen(told))
    try:
        with _on_device(request.device, counter) as enter:
            loading.arrange(root, request.entrypoint.working_directory)
            traits.watch()  # before the entrypoint's module may build a model
            config = resupply(config_of(request), launch.secrets, os.environ)
            returned = _call(request, config, root, counter, attempt, enter, put_back)
            attempt.metrics = measure.metrics_of(returned)
            attempt.progress = measure.progress_of(counter, attempt.metrics.get(request.progress_metric))
            attempt.outcome = "completed"
    except InvalidValue as error:
        put_back()  # the user's mapping was asked for its items
        attempt.outcome = "contract_error"
        attempt.failure = measure.failure_of(error)
        return error, attempt
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of the entrypoint end a trial too
        put_back()
        attempt.failure = measure.failure_of(error, other_loader=memory.other_loader, stepping=memory.stepping)
        oom = attempt.failure.failure_class in measure.OOM_CLASSES
        attempt.outcome = "oom" if oom else "training_failed"
        return error, attempt
    finally:
        for one in undo:
            one()
        if attempt.outcome != "completed":
            attempt.progress = _progress(counter)
        attempt.peak = peaks.peak_of(request.device.kind, traits.memory)
        attempt.knobs = traits.knobs()
        if request.device.kind == "simulated":
            attempt.device = measure.simulated_device_used()
        cuda = framework.cuda_in_use()
        if cuda is not None:
            attempt.gpus = int(cuda.device_count())
            if request.device.kind == "cuda":
                attempt.device = framework.device_here()
    return None, attempt


def _call(
    request: TrialRequest,
    config: Any,
    root: Path,
    counter: StepCounter,
    attempt: _Attempt,
    enter: Callable[[], Any],
    put_back: Callable[[], None],
) -> Any:
    """Import the entrypoint and call it; whatever it did to the process is undone, whichever way it ended."""
    began = code.Began(time.time())
    imported = code.watch_imports(root, began)
    replaced = surroundings.watch_own_code()
    try:
        function = loading.load(request.entrypoint)
        attempt.files = code.together(imported, code.code_files(root, began))
        # As it was when the entrypoint was checked: what training imports may add folders of packages to sys.path.
        attempt.packages = measure.packages()
        counter.watch()
        began.calls()
        with enter():
            return function(config=config, max_steps=request.max_steps)
    finally:
        put_back()
        found = replaced()
        # What training imported on its way counts too, with the content that it had when it was imported.
        attempt.files = code.together(imported, attempt.files, code.code_files(root, began))
        if found:
            raise InvalidValue(", ".join(found[:5]), expected="this package's own code", got="another's")


def _progress(counter: StepCounter) -> Progress:
    """Return the steps before a failure; what nobody can have made counts as none."""
    try:
        return measure.progress_of(counter, None)
    except InvalidValue:
        return Progress(0, "none")


@contextmanager
def _on_device(wanted: Device, counter: StepCounter) -> Iterator[Any]:
    """Prepare the device that the contract names; yields the context in which the entrypoint is called."""
    from contextlib import nullcontext

    if wanted.kind == "simulated":
        from watcherml.simulated.device import simulated_device

        counter.hook_torch()
        yield lambda: simulated_device(wanted.budget_bytes)
    elif wanted.kind == "cuda":
        import torch

        if torch.cuda.is_available():
            torch.cuda.init()  # type: ignore[no-untyped-call]
            peaks.reset_peaks()
        counter.hook_torch()
        yield nullcontext
    else:
        yield nullcontext


def config_of(request: TrialRequest) -> Any:
    """Return the configuration as it was recorded, whole floats included."""
    return restore_floats(thaw(request.config), request.float_paths)


def _open_run(request: TrialRequest, launch: Launch) -> Run:
    # Trial runs are ordinary runs of the store; the supervisor records what happened even if this one cannot.
    run = Run(
        launch.project,
        config_of(request),
        launch.store_path,
        role="trial",
        run_id=request.run_id,
        campaign_id=request.campaign_id,
        trial_id=request.trial_id,
        quiet=True,
    )
    return run.start()


def _say_where(error: BaseException | None, report: WorkerReport) -> None:
    """Print where an error of the function's own came from; its words stand in the report, and it is asked nothing."""
    if report.outcome == "training_failed" and error is not None and not isinstance(error, SystemExit):
        with suppress(Exception):  # the report is written: a stream that training broke is no failure
            lines = traceback.format_tb(error.__traceback__, limit=-_INNERMOST)
            sys.stderr.writelines(["Traceback (most recent call last):\n", *lines])
            sys.stderr.flush()


def _close_run(run: Run, error: BaseException | None, report: WorkerReport) -> None:
    # The report is written: whatever the recording meets now is no failure of training.
    try:
        run.log(report.metrics, step=report.progress.steps)
        if error is None:
            run.finish()
        elif isinstance(error, SystemExit):
            run.interrupt(f"training left with sys.exit({error.code!r:.80})", "failed")  # with 0 too: it has no result
        else:
            run.fail(error)
    except Exception:  # noqa: BLE001 - an exception or a store that training made unreadable
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main(sys.argv.pop(1)))  # a function that parses its command line finds none, and gets its defaults
