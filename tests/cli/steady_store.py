"""A store whose every id, moment and value is fixed, so that what the program says about it can be kept in files.

It is made through the same functions that recorder and supervisor use, with a clock of its own; nothing is run.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from pathlib import Path

from builders import CONFIG, MIB, good_trials, planned, trial
from stored import record, rename

from watcherml.campaign import events
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.campaign.prepare import source_of
from watcherml.forensics.capsule import Capsule, Cause, Completeness, Diagnosis, FailureFacts, MemoryFacts
from watcherml.forensics.evidence import NAMES, missing, present
from watcherml.platform import ProcessId
from watcherml.sealed.device import Device
from watcherml.store.runs import NewRun
from watcherml.store.storage import Storage
from watcherml.store.title import set_title

GOOD, FAILED, OTHER = "demo-mx000000good1", "demo-mx000000oom01", "other-mx00000error1"
VERIFIED, REFUSED, PREPARED, LOST = "demo-first", "demo-second", "demo-waiting", "demo-lost"
LONG = "a-name-of-two-hundred-characters-" + "x" * 167
DEVICE = Device("simulated", "simulated-cpu-budget", 96 * MIB)
_BEGAN = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
# A process of a boot that is over: nobody can take it for a living one.
_GONE = ProcessId(4711, _BEGAN, "a boot long ago")
_FACTS = {
    "argv": ["train.py", "--epochs", "3"],
    "environment": {"python": "3.11.7", "packages": {"numpy": "2.1.0", "torch": "2.13.0"}},
    "git": {"status": "available", "commit": "0f3c9a1" + "0" * 33, "branch": "main", "dirty": False},
}
_TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 31, in train
    loss = model(batch).loss
watcherml.simulated.error.SimulatedOutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 MiB."""
_POINTS = (("loss", 1, 2.5), ("loss", 2, None), ("loss", 3, 2.25), ("val_loss", 3, 2.5))


def make(folder: Path) -> Storage:
    """Fill a new store: a success, a failure with campaigns that verified it and did not, and another failure."""
    ticks = itertools.count()
    storage = Storage(folder, clock=lambda: _BEGAN + 600 + next(ticks), alive=lambda process: False)
    storage.create()
    _run(storage, GOOD, "demo", _BEGAN, {**CONFIG, "batch_size": 16}, "success")
    _run(storage, FAILED, "demo", _BEGAN + 60, CONFIG, "failed")
    _run(storage, OTHER, "other", _BEGAN + 120, {"lr": 0.1}, "failed")
    _points(storage, GOOD)
    capsule = _out_of_memory(FAILED)
    _keep(storage, capsule)
    _keep(storage, _missing_file(OTHER))
    set_title(storage, OTHER, "Wrong data path")
    plan = planned(source_of(storage.get_run(FAILED), capsule), DEVICE)
    storage.audit.put_record(plan.digest, plan.KIND, plan.to_json(), storage.clock())
    record(storage, VERIFIED, plan, rename(good_trials(plan), VERIFIED))
    failing = (*good_trials(plan)[:2], trial(plan, "full", 3, "batch-32x2", outcome="oom"))
    record(storage, REFUSED, plan, rename(failing, REFUSED))
    # Beside a campaign that waits for its supervisor none of the same plan is opened, so the younger one comes first.
    clock = storage.clock
    moments = [clock() for _ in range(3)]
    storage.clock = iter([*moments[1:], moments[0]]).__next__
    Ledger.open_new(storage, LOST, plan, (), {}, Settings("/nowhere", "python")).event(events.STARTED, _GONE._asdict())
    Ledger.open_new(storage, PREPARED, plan, (), {}, Settings("/nowhere", "python"))
    storage.clock = clock
    return storage


def refuse(storage: Storage, run_id: str) -> None:
    """Have the failure diagnosed as a leak, which no change of the configuration can help."""
    capsule = _out_of_memory(run_id)
    leak = Cause("C10", "leak across steps", 71 * MIB, ("EV-4",), "Memory grows by 1.0 MiB a step.")
    found = capsule.diagnosis.replace(sufficient=(leak,), excluded=(), horizon_step=3)
    _keep(storage, capsule.replace(diagnosis=found))


def _run(storage: Storage, run_id: str, project: str, at: float, config: dict, status: str) -> None:
    storage.runs.add(NewRun(run_id, project, "user", at, _GONE, config, device=DEVICE.to_data()))
    storage.runs.note(run_id, _FACTS)
    storage.runs.end(run_id, status, "" if status == "success" else "It raised.", at + 41.25, 3)


def _points(storage: Storage, run_id: str) -> None:
    connection = sqlite3.connect(storage.database.path, isolation_level=None)
    try:
        connection.execute("INSERT INTO metric_sources VALUES (1, ?, '1')", (run_id,))
        names = {name: key for key, name in enumerate(dict.fromkeys(name for name, _, _ in _POINTS))}
        connection.executemany("INSERT INTO metric_names VALUES (1, ?, ?)", [(k, n) for n, k in names.items()])
        rows = [(names[name], step, value, _BEGAN + step) for name, step, value in _POINTS]
        connection.executemany("INSERT INTO metrics (key, step, value, at) VALUES (?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO metric_ranges VALUES (?, 1, 1, ?)", (run_id, len(rows)))
        connection.executemany(
            "INSERT INTO samples (run_id, at, rss_bytes, device_kind, device_allocated_bytes) VALUES (?, ?, ?, ?, ?)",
            [(run_id, _BEGAN + n, (300 + n) * MIB, "simulated", n * 10 * MIB) for n in (1, 2, 6)],
        )
    finally:
        connection.close()


def _keep(storage: Storage, capsule: Capsule) -> None:
    storage.evidence.add_capsule(
        capsule.run_id, digest=capsule.digest, failure_class=capsule.failure.class_, subkind="",
        sentence=capsule.headline, document=capsule.to_json(), at=capsule.created_at,
    )  # fmt: skip


def _out_of_memory(run_id: str) -> Capsule:
    found = {
        "EV-1": {"config": CONFIG, "lossy": [], "redacted": []},
        "EV-2": {"last_step": 3, "logging_gap": 1},
        "EV-6": {"torch": "2.13.0+cpu"},
    }
    sufficient = Cause("C21", "the step itself", 71 * MIB, ("EV-6",), "The tensors of this step take 71.0 MiB.")
    excluded = Cause("C10", "leak across steps", 0, ("EV-4",), "Memory after each step is flat.")
    unknown = Cause("C4", "another process holds the memory", None, (), "Nobody asked the driver.")
    sentence = "8.0 MiB were missing in forward: the device was full of this training's own tensors."
    return Capsule(
        schema_version="2.0", run_id=run_id, project="demo", created_at=_BEGAN + 101,
        headline=f"The simulated device ran out of memory in forward at train.py:31 in train. {sentence}",
        failure=FailureFacts(
            class_="simulated_out_of_memory", subkind="", rule="simulated-label", rules_version=1, matched="SIMULATED",
            exception_type="watcherml.simulated.error.SimulatedOutOfMemoryError",
            message="CUDA out of memory. Tried to allocate 12.00 MiB.", traceback=_TRACEBACK, phase="forward", step=3,
            where="train.py:31 in train",
        ),
        device=DEVICE,
        memory=MemoryFacts(12 * MIB, 96 * MIB, None, 4 * MIB, 92 * MIB, None, 0, None, "the exception's message"),
        diagnosis=Diagnosis(
            "diagnosed", 8 * MIB, "forward", (sufficient,), (), (excluded,), (unknown,), 1, sentence,
            action="make the step smaller",
        ),
        evidence=_evidence(found),
        completeness=Completeness(len(found), len(NAMES)),
    )  # fmt: skip


def _missing_file(run_id: str) -> Capsule:
    return Capsule(
        schema_version="2.0", run_id=run_id, project="other", created_at=_BEGAN + 161,
        headline="FileNotFoundError at train.py:7 in load: [Errno 2] No such file or directory: 'data.csv'",
        failure=FailureFacts(
            "dataset_failure", "", "builtin", 1, "FileNotFoundError", "FileNotFoundError",
            "[Errno 2] No such file or directory: 'data.csv'", "", "load", None, "train.py:7 in load",
        ),
        device=Device("none"),
        memory=MemoryFacts(),
        diagnosis=Diagnosis("insufficient_evidence", None, "load", (), (), (), (), 1, "Not about memory."),
        evidence=_evidence({"EV-1": {"config": {"lr": 0.1}, "lossy": [], "redacted": []}}),
        completeness=Completeness(1, len(NAMES)),
    )  # fmt: skip


def _evidence(found):
    return tuple(
        present(key, found[key], "the run") if key in found else missing(key, "Nothing was measured.") for key in NAMES
    )


# -- what differs from machine to machine and from run to run ---------------------------------------------------------

_STEADY = (
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "YYYY-MM-DD hh:mm:ss UTC"),
    (re.compile(r"\b\d{10}\.\d+"), "0.5"),
    # Ids end in the moment and in chance.
    (re.compile(r"(?<=-)(?=[0-9]*[a-z])m[a-z0-9]{12}\b"), "m" + "x" * 12),
    (re.compile(r"\b\d+(\.\d+)? (s|min|KiB|MiB)\b"), r"N \2"),
    (re.compile(r'(seconds|_s|pid|size_bytes|process_started|bytes)": \d+(\.\d+)?'), r'\1": 0'),
    (re.compile(r'("boot_id": )"[^"]*"'), r'\1"boot"'),
)


def without_digests(text: str) -> str:
    """Return text with every digest as zeros: it changes with each field of each version of what it covers."""
    return re.sub(r"(?<=sha256:)[0-9a-f]+", lambda found: "0" * len(found[0]), text)


def steady(text: str) -> str:
    """Return what real processes made with everything that differs from run to run replaced by the same words."""
    for pattern, words in _STEADY:
        text = pattern.sub(words, text)
    return without_digests(text)
