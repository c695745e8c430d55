"""The campaign's own process: ``python -m watcherml.campaign.supervisor STORE CAMPAIGN_ID``.

It outlives the notebook or terminal that started it. Whoever wants to know what happens reads the store; whoever
wants it to end adds a ``stop_requested`` event. If it is killed, the guards end the trials, and the same call resumes.
A signal to this process (a shutdown of the machine, a job scheduler's limit) is no wish to end the campaign either: it
ends the running trials, which are lost, and goes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from watcherml.campaign import events
from watcherml.campaign.lanes import charged, gpus_here
from watcherml.campaign.ledger import Ledger, earliest
from watcherml.campaign.run import CampaignRun, Interrupted
from watcherml.errors import CampaignError, StoreError
from watcherml.platform import exclusive_lock, make_private_dir, new_session_options, signal_name, this_process
from watcherml.protocol.verdict import Ending
from watcherml.store.storage import Storage
from watcherml.trials.check_entrypoint import child_environment
from watcherml.trials.guard import kill_all
from watcherml.trials.outcome import result_of
from watcherml.trials.paths import TrialPaths
from watcherml.trials.runner import LocalExecutor, read_exit

_START_SECONDS = 30.0
_GUARD_SECONDS = 3.0


def spawn(storage: Storage, campaign_id: str) -> None:
    """Start the supervisor of a campaign in a session of its own and return once it is on record.

    Nobody has to keep anything: a daemon thread reaps the process when it ends, if this one still lives.

    Raises ``CampaignError`` with the end of its log if it does not come up.
    """
    folder = storage.path / "artifacts" / campaign_id
    make_private_dir(folder)
    before = len(storage.audit.events(campaign_id))
    log_path = folder / "supervisor.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "watcherml.campaign.supervisor", str(storage.path), campaign_id],
            cwd=folder,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **new_session_options(),
        )
    threading.Thread(target=process.wait, name="watcherml-reaper", daemon=True).start()
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        recent = storage.audit.events(campaign_id, after=before)
        if any(event["type"] in (events.STARTED, events.RESUMED, events.ENDED) for event in recent):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    got = log_path.read_text("utf-8", "replace")[-1_000:].strip() or "no output"
    remedy = f"It may still come up: `watcher recovery {campaign_id}` tells."
    if process.poll() is not None:
        remedy = "No trial was run. Start it again once that is mended."
        with contextlib.suppress(StoreError):
            Ledger(storage, campaign_id).event(events.START_FAILED, {"got": got})
    raise CampaignError(f"the supervisor of {campaign_id} did not start", got=got, remedy=remedy)


def supervise(storage: Storage, campaign_id: str) -> int:
    """Run a campaign to its end in this process; returns 0 once there is a verdict, 1 if there is none (yet).

    A store that cannot be written decides nothing: the campaign is interrupted, as by a signal, and can be resumed.
    """
    ledger = Ledger(storage, campaign_id)
    folder = storage.path / "artifacts" / campaign_id
    make_private_dir(folder)
    with exclusive_lock(folder / "lock") as held:
        if not held:
            print(f"campaign {campaign_id} has a supervisor already", file=sys.stderr)  # noqa: T201 - its log
            return 1
        if ledger.chain() is not None:
            return 0
        try:
            ledger.take(this_process())
        except CampaignError as error:
            print(error, file=sys.stderr)  # noqa: T201 - its log, whose end the starter shows
            return 1
        asked: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda signum, _: asked.append(signum))
        settle_lost_trials(ledger)
        executor = LocalExecutor(storage.path)
        run = CampaignRun(ledger, executor, interrupted=lambda: bool(asked))
        try:
            run.run()
        except Interrupted:
            ledger.event(events.INTERRUPTED, {"signal": signal_name(asked[0])})
            executor.abandon()
            settle_lost_trials(ledger)
            return 1
        except StoreError:  # locked or full for longer than a write waits: what is on record stays, and is taken up
            traceback.print_exc()
            executor.abandon()
            with contextlib.suppress(StoreError):
                settle_lost_trials(ledger)
            return 1
        except Exception as error:  # noqa: BLE001 - whatever it was, the campaign ends on record without a claim
            traceback.print_exc()
            for request in ledger.unfinished():
                kill_all(TrialPaths.of(storage.path, request.trial_id).mark)
            settle_lost_trials(ledger)
            run.conclude(Ending("integration_error", f"{type(error).__name__}: {error}"[:2000]))
    return 0


def settle_lost_trials(ledger: Ledger) -> None:
    """Give every trial without an end its end: what its guard wrote, or ``lost``; and leave none of its processes."""
    requests = ledger.unfinished()
    if not requests:
        return
    plan = ledger.plan()
    gpus, not_before = gpus_here(plan), earliest(ledger.trials(), ledger.authorizations())
    for request in requests:
        paths = TrialPaths.of(ledger.storage.path, request.trial_id)
        kill_all(paths.mark)
        deadline = time.monotonic() + _GUARD_SECONDS
        while not paths.exit.exists() and time.monotonic() < deadline:
            time.sleep(0.05)  # its guard has just learned of the same loss and is writing
        started = next(
            row["started_at"]
            for row in ledger.storage.audit.trials(ledger.campaign_id)
            if row["trial_id"] == request.trial_id
        )
        paths.drop_outputs()
        result = result_of(request, read_exit(paths, started), paths.folder)
        result = result.replace(started_at=max(result.started_at, not_before))
        alone = request.role == "probe" and plan.contract.budget.parallel_probes > 1  # on a lane, with a GPU of its own
        ledger.end_trial(request, charged(result, 1 if alone else gpus))


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(supervise(Storage(Path(sys.argv[1])), sys.argv[2]))
