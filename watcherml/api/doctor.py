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
from importlib import metadata
from pathlib import Path
from typing import Any

from watcherml import platform
from watcherml.api import surroundings
from watcherml.api.finding import Finding
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import WatcherError
from watcherml.platform import new_session_options
from watcherml.protocol.proposal import config_digest
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import TrialResult
from watcherml.sealed.device import Device
from watcherml.store.migrate import SCHEMA_VERSION, schema_version
from watcherml.store.storage import Storage

WORKER_SECONDS = 60.0
TORCH_SECONDS = 180.0
OLDEST_TORCH = (2, 4)
_POLL_SECONDS = 0.05
_STEPS = 3
_OF_A_PROCESS = ("create_time", "status", "memory_info", "cpu_times", "children", "environ")
_WRITTEN_BYTES = 256 * 1024
_ENTRYPOINT = f"def train(config, max_steps=None):\n    return {{'steps_completed': {_STEPS}}}\n"


def examine(storage: Storage) -> Iterator[Finding]:
    """Yield the findings as they are made; the trial and torch take seconds each. Never raises for what it finds."""
    yield _python()
    yield (processes := _psutil())
    if processes.status == "fail":
        return  # whatever follows needs it
    yield _location(storage)
    yield _schema(storage)
    yield from surroundings.look(storage)
    yield _worker()
    yield from _torch()
    for name, sentence in platform.describe().items():
        yield Finding(f"system: {name}", "warn", f"Weaker on this system: {sentence}.",
                      "Nothing to mend: recording and verdicts are not affected.")  # fmt: skip


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
        psutil.pids()
        psutil.boot_time()
        me = psutil.Process()
        for name in _OF_A_PROCESS:
            getattr(me, name)()
    except Exception as error:  # noqa: BLE001 - a broken build may raise anything on import
        return Finding("psutil", "fail", f"It does not work, and recording and trials need it: {error}",
                       'Install it again: pip install --force-reinstall "psutil>=5.9"')  # fmt: skip
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
        # That transaction has changed no page, which a full disk permits.
        with tempfile.TemporaryFile(dir=storage.path) as stream:
            stream.write(b"\0" * _WRITTEN_BYTES)
            stream.flush()
    except WatcherError as error:
        return _from_error("Store", error)
    except OSError as error:
        return Finding("Store", "fail", f"{storage.path} takes no more files: {error.strerror}",
                       "Make room, or choose another folder with --data-dir or WATCHERML_DIR.")  # fmt: skip
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
    try:
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(20, "it is a file", str(path))
        with tempfile.TemporaryFile(dir=surroundings.nearest_folder(path)):
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
    try:
        with tempfile.TemporaryDirectory(prefix="watcherml-doctor-", ignore_cleanup_errors=True) as folder:
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
    from watcherml.trials.paths import TrialPaths  # trials import psutil, and a broken one is a finding
    from watcherml.trials.runner import LocalExecutor

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


_INSTALL_TORCH = f'pip install --upgrade "torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}"'

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
                      f"Install it again ({_INSTALL_TORCH}); recording works without it.")  # fmt: skip
        return
    known = _release(found["torch"])
    old = known is not None and known < OLDEST_TORCH
    least = ".".join(map(str, OLDEST_TORCH))
    if old:
        yield Finding("PyTorch", "warn", f"Version {found['torch']} is older than {least}, the first that trials and"
                      " the simulated device were made for.", f"Install a later one: {_INSTALL_TORCH}")  # fmt: skip
    else:
        yield Finding("PyTorch", "ok", f"Version {found['torch']}.")
    yield _cuda(found)
    if "simulated_peak" in found:
        yield Finding("Simulated device", "ok", "Its byte counter agrees with this PyTorch; `watcher demo` can run.")
    else:
        yield Finding("Simulated device", "warn", f"It cannot be used: {found.get('error', 'no reason was given')}",
                      f"Only `watcher demo` and rehearsals need it: {_INSTALL_TORCH}")  # fmt: skip


def _cuda(found: dict[str, Any]) -> Finding:
    if found["gpus"]:
        names = ", ".join(f"{name} ({total / 2**30:.0f} GiB)" for name, total in found["gpus"])
        return Finding("CUDA", "ok", f"Available, built for {found['cuda_build']}: {names}.")
    cpu_build = found["cuda_build"] is None
    if surroundings.has_nvidia_driver():
        why = "this PyTorch is a CPU build" if cpu_build else "it finds no GPU that it can use"
        remedy = (
            "Install the build of PyTorch for your CUDA version, as its installation page says."
            if cpu_build
            else "Look at CUDA_VISIBLE_DEVICES and `nvidia-smi`; the driver has to be as new as that CUDA version asks."
        )
        return Finding("CUDA", "warn", f"There is an NVIDIA driver, but {why}.", remedy)
    why = "this PyTorch is a CPU build" if cpu_build else "no usable GPU or driver was found"
    return Finding("CUDA", "ok", f"Not available: {why}. Recording and the simulated device work without it.")


def _look() -> dict[str, Any]:
    from watcherml.trials.check_entrypoint import child_environment

    try:
        with tempfile.TemporaryDirectory(prefix="watcherml-doctor-", ignore_cleanup_errors=True) as folder:
            done = subprocess.run(
                [sys.executable, "-c", _LOOK], cwd=folder, env=child_environment(), capture_output=True,
                stdin=subprocess.DEVNULL, timeout=TORCH_SECONDS, check=False, **new_session_options(),
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"importing it took longer than {TORCH_SECONDS:g} s"}
    except OSError as error:
        return {"error": f"no process could be started to look: {error}"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        ended = platform.signal_name(-done.returncode) if done.returncode < 0 else f"exit code {done.returncode}"
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return {"error": ": ".join([f"the process that imported it ended with {ended}", *said])[:500]}
    return found if isinstance(found, dict) else {"error": "it printed something else than an answer"}


def _release(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return None


def _from_error(name: str, error: WatcherError) -> Finding:
    got = f": {error.got}" if error.got else ""
    return Finding(name, "fail", f"{error.message}{got}", error.remedy)
