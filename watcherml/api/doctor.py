"""Does recording and recovering work here? Plain findings, for the command line and the notebook.

Each check tries the real thing: a transaction in the store, a trial through a guard and a worker. What this
process has not loaded (torch, CUDA) is looked at in a child process, so that looking changes nothing here.
"""

from __future__ import annotations

import json
import os
import platform as system
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from watcherml import platform
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import WatcherError
from watcherml.platform import new_session_options
from watcherml.protocol.proposal import config_digest
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import TrialResult
from watcherml.sealed.device import Device
from watcherml.store.migrate import SCHEMA_VERSION, schema_version
from watcherml.store.storage import Storage
from watcherml.trials.check_entrypoint import child_environment
from watcherml.trials.paths import TrialPaths
from watcherml.trials.runner import LocalExecutor

Status = Literal["ok", "warn", "fail"]
WORKER_SECONDS = 60.0
TORCH_SECONDS = 180.0
OLDEST_TORCH = (2, 4)
_POLL_SECONDS = 0.05
_STEPS = 3
_ENTRYPOINT = f"def train(config, max_steps=None):\n    return {{'steps_completed': {_STEPS}}}\n"


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. ``fail``: something needed is broken; ``warn``: something is weaker or absent."""

    name: str
    status: Status
    sentence: str
    remedy: str = ""

    def to_data(self) -> dict[str, str]:
        """Return the finding as plain strings."""
        return asdict(self)


def examine(storage: Storage) -> Iterator[Finding]:
    """Yield the findings as they are made; the trial and torch take seconds each. Never raises for what it finds."""
    yield _python()
    yield _psutil()
    yield _location(storage)
    yield _schema(storage)
    yield _worker()
    yield from _torch()
    for name, sentence in platform.describe().items():
        yield Finding(f"system: {name}", "warn", f"Weaker on this system: {sentence}.")


def healthy(findings: list[Finding]) -> bool:
    """Tell whether nothing that is needed is broken."""
    return all(finding.status != "fail" for finding in findings)


def _python() -> Finding:
    words = f"{system.python_implementation()} {system.python_version()} on {system.system()} {system.machine()}"
    return Finding("Python", "ok", f"{words}, {os.cpu_count()} processors.")


def _psutil() -> Finding:
    try:
        import psutil

        memory = psutil.virtual_memory()
        psutil.Process().create_time()
    except Exception as error:  # noqa: BLE001 - a broken build may raise anything on import
        return Finding(
            "psutil", "fail", f"It does not work: {error}", "Install it again: pip install --force-reinstall psutil"
        )
    return Finding("psutil", "ok", f"Version {psutil.__version__}; {memory.total / 2**30:.1f} GiB of host memory.")


def _location(storage: Storage) -> Finding:
    if not storage.exists:
        return _future_location(storage.path)
    try:
        if storage.database.outdated:
            return Finding("Store", "ok", f"{storage.path} has an older schema. It is read through a copy; the next"
                           f" recorded run moves it to schema {SCHEMA_VERSION}.")  # fmt: skip
        # A real transaction: permissions alone say nothing on a full or read-only file system.
        with storage.database.writing() as connection:
            journal = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    except WatcherError as error:
        return _from_error("Store", error)
    found = _journal(storage, journal)
    if os.name != "nt" and stat.S_IMODE(storage.path.stat().st_mode) & 0o077:
        return Finding("Store", "warn", f"{found.sentence} Others on this machine may look into it.",
                       f"chmod 700 {storage.path}")  # fmt: skip
    return found


def _journal(storage: Storage, mode: str) -> Finding:
    """Say which way of writing is in use, and why."""
    plain = storage.database.why_plain
    if plain and mode != "wal":
        return Finding("Store", "ok", f"{storage.path} is writable, in the plain mode, because {plain}: journal mode"
                       f" {mode}, so that writers wait for readers, and metric points are appended to a file.",
                       "A folder on a local disk is faster: --data-dir or WATCHERML_DIR.")  # fmt: skip
    if plain:
        return Finding("Store", "warn", f"{storage.path} is writable; its journal mode is still {mode}, because other"
                       f" programs have it open, though {plain}.", "Close them and run this again.")  # fmt: skip
    if mode != "wal":
        return Finding("Store", "warn", f"{storage.path} is writable; its journal mode is {mode}, because other"
                       " programs have it open, so writers wait for readers.",
                       "Close them and run this again.")  # fmt: skip
    return Finding("Store", "ok", f"{storage.path} is writable, journal mode {mode}.")


def _future_location(path: Path) -> Finding:
    parent = next((one for one in path.parents if one.exists()), Path(path.anchor))
    try:
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(20, "it is a file", str(path))
        with tempfile.TemporaryFile(dir=path if path.exists() else parent):
            pass
    except OSError as error:
        return Finding("Store", "fail", f"{path} cannot be created: {error.strerror}",
                       "Choose another folder with --data-dir or WATCHERML_DIR.")  # fmt: skip
    return Finding("Store", "ok", f"There is none yet; the first recorded run creates {path}.")


def _schema(storage: Storage) -> Finding:
    if not storage.exists:
        return Finding("Schema", "ok", f"A new store will have schema {SCHEMA_VERSION}.")
    try:
        with storage.database.reading() as connection:
            version = "of WatcherML 0.1" if storage.is_older else schema_version(connection, storage.database.path)
            problems = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
            runs = connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
    except WatcherError as error:
        return _from_error("Schema", error)
    if problems != ["ok"]:
        return Finding("Schema", "fail", f"SQLite finds the file damaged: {'; '.join(problems)[:300]}",
                       "Restore it from a copy, or start a new store.")  # fmt: skip
    return Finding("Schema", "ok", f"Schema {version}, {runs} runs on record, no damage found.")


def _worker() -> Finding:
    """Run one trial without torch through a guard and a worker, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="watcherml-doctor-", ignore_cleanup_errors=True) as folder:
        try:
            result, log = _round_trip(Path(folder))
        except (OSError, WatcherError) as error:
            return Finding("Trial", "fail", f"No trial could be started: {error}", _TRIAL_REMEDY)
    if result is None:
        return Finding("Trial", "fail", f"A trial was not done within {WORKER_SECONDS:g} s.", _TRIAL_REMEDY)
    if result.outcome != "completed" or result.progress.steps != _STEPS:
        return Finding("Trial", "fail", f"A trial ended as {result.outcome}. {result.sentence} {log}".strip(),
                       _TRIAL_REMEDY)  # fmt: skip
    return Finding("Trial", "ok", f"A fresh process was guarded, trained {_STEPS} steps and reported in"
                   f" {result.wall_seconds:.1f} s.")  # fmt: skip


_TRIAL_REMEDY = "Trials need to start Python as a child process and to write temporary files."


def _round_trip(folder: Path) -> tuple[TrialResult | None, str]:
    (folder / "doctor_entrypoint.py").write_text(_ENTRYPOINT, "utf-8")
    executor, request = LocalExecutor(folder / "store"), _request()
    launch = Launch(request.digest, "doctor", str(folder), str(folder / "store"), sys.executable, None)
    executor.submit(request, launch)
    deadline = time.monotonic() + WORKER_SECONDS
    result = None
    while result is None and time.monotonic() < deadline + 2 * request.grace_seconds:
        result = executor.poll(request.trial_id)
        time.sleep(_POLL_SECONDS)
    paths = TrialPaths.of(folder / "store", request.trial_id)
    tails = [path.read_text("utf-8", "replace")[-300:].strip() for path in (paths.guard_log, paths.stderr)
             if path.exists()]  # fmt: skip
    return result, " ".join(filter(None, tails))


def _request() -> TrialRequest:
    nothing = config_digest({})
    return TrialRequest(
        request_id="doctor", campaign_id="doctor", trial_id=f"doctor-{os.getpid()}", run_id="doctor-trial",
        role="probe", plan_digest=nothing, contract_digest=nothing, source_run_id="doctor", proposal_id=None, config={},
        float_paths=(),
        config_digest=nothing, environment={}, entrypoint=TrainingEntrypoint("doctor_entrypoint:train"),
        device=Device("none"), progress_metric="steps_completed", max_steps=_STEPS,
        timeout_seconds=WORKER_SECONDS, grace_seconds=2.0,
    )  # fmt: skip


# Run in a child: importing torch takes seconds, and asking for CUDA must not wake it up in a kernel.
_LOOK = """
import json, sys
found = {}
try:
    import torch
    found.update(torch=torch.__version__, cuda_build=torch.version.cuda, gpus=[])
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            one = torch.cuda.get_device_properties(index)
            found["gpus"].append([one.name, one.total_memory])
    from watcherml.simulated.device import simulated_device
    with simulated_device("1 MiB") as device:
        torch.zeros(1024)
    found["simulated_peak"] = device.peak_bytes
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"[:500]
print(json.dumps(found), file=sys.__stdout__)
"""


def _torch() -> Iterator[Finding]:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        yield Finding("PyTorch", "ok", "Not installed here, and not needed to record or inspect.",
                      "Install the build for your GPU before training; the demo needs it too.")  # fmt: skip
        yield Finding("CUDA", "ok", "Not looked for, because PyTorch is not installed.")
        return
    found = _look()
    if "torch" not in found:
        yield Finding("PyTorch", "warn", f"Version {version} is installed and does not import: {found['error']}",
                      "Install it again; recording works without it.")  # fmt: skip
        return
    known = _release(found["torch"])
    old = known is not None and known < OLDEST_TORCH
    least = ".".join(map(str, OLDEST_TORCH))
    yield Finding("PyTorch", "warn" if old else "ok", f"Version {found['torch']}.",
                  f"Version {least} or later is what this is tested with." if old else "")  # fmt: skip
    yield _cuda(found)
    if "simulated_peak" in found:
        yield Finding("Simulated device", "ok", "Its byte counter agrees with this PyTorch; `watcher demo` can run.")
    else:
        yield Finding("Simulated device", "warn", f"It cannot be used: {found.get('error', 'no reason was given')}")


def _cuda(found: dict[str, Any]) -> Finding:
    if found["gpus"]:
        names = ", ".join(f"{name} ({total / 2**30:.0f} GiB)" for name, total in found["gpus"])
        return Finding("CUDA", "ok", f"Available, built for {found['cuda_build']}: {names}.")
    why = "this PyTorch is a CPU build" if found["cuda_build"] is None else "no usable GPU or driver was found"
    return Finding("CUDA", "ok", f"Not available: {why}. Recording and the simulated device work without it.")


def _look() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="watcherml-doctor-", ignore_cleanup_errors=True) as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-c", _LOOK], cwd=folder, env=child_environment(), capture_output=True,
                stdin=subprocess.DEVNULL, timeout=TORCH_SECONDS, check=False, **new_session_options(),
            )  # fmt: skip
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            return {"error": f"importing it took longer than {TORCH_SECONDS:g} s"}
        except (OSError, ValueError, IndexError):
            return {"error": "the process that imported it ended without an answer"}
    return found


def _release(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return None


def _from_error(name: str, error: WatcherError) -> Finding:
    got = f": {error.got}" if error.got else ""
    return Finding(name, "fail", f"{error.message}{got}", error.remedy)
