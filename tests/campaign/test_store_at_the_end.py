"""A store that cannot be written when a campaign ends: nothing is decided by that, and the campaign is taken up."""

import contextlib
import signal
import sqlite3
import time

import pytest
from builders import FAILED_CONFIG, good_trials, trial
from stored import recorded_plan, rename

from watcherml import RecoveryResult
from watcherml.campaign import supervisor
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.store.patience import Patience
from watcherml.store.storage import Storage


@pytest.fixture(autouse=True)
def signals():
    """A supervisor listens to signals of its own process, which is this one here."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def locked(storage, folder):
    connection = sqlite3.connect(storage.database.path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@contextlib.contextmanager
def in_the_way(storage, folder):
    (folder / "recovery-result.json").mkdir()
    yield
    (folder / "recovery-result.json").rmdir()


@pytest.mark.parametrize("trouble", [locked, in_the_way])
def test_a_verified_campaign_whose_end_cannot_be_written_is_verified_when_it_is_resumed(tmp_path, monkeypatch, trouble):
    storage, name = Storage(tmp_path / ".watcherml"), f"at-the-end-{trouble.__name__}"
    plan = recorded_plan(storage, FAILED_CONFIG)
    ledger = Ledger.open_new(storage, name, plan, (), {}, Settings(str(tmp_path), "python"))
    for number, one in enumerate(rename((*good_trials(plan), trial(plan, "control", 6, outcome="oom")), name), 1):
        ledger.start_trial(one.request, number)
        ledger.end_trial(one.request, one.result)
    folder, settle, stack = storage.path / "artifacts" / name, supervisor.settle_lost_trials, contextlib.ExitStack()

    def then_trouble(ledger):
        """Come between the supervisor's start and its end, when no trial is left to run."""
        settle(ledger)
        monkeypatch.undo()
        stack.enter_context(trouble(storage, folder))

    monkeypatch.setattr(supervisor, "settle_lost_trials", then_trouble)
    with stack, Patience(0.2).used():
        assert supervisor.supervise(storage, name) == 1
        assert ledger.chain() is None
    assert supervisor.supervise(storage, name) == 0
    assert RecoveryResult.of_campaign(name, storage).verified


def test_a_trial_whose_end_nobody_saw_is_charged_no_more_than_it_could_have_taken(tmp_path, monkeypatch):
    """As after a machine was switched off: a day later there is still time to resume the campaign."""
    storage, name = Storage(tmp_path / ".watcherml", clock=lambda: time.time() - 86_400), "switched-off"
    plan = recorded_plan(storage, FAILED_CONFIG)
    ledger = Ledger.open_new(storage, name, plan, (), {}, Settings(str(tmp_path), "python"))
    request = rename((trial(plan, "control", 1, outcome="oom"),), name)[0].request
    ledger.start_trial(request, 1)
    monkeypatch.setattr(supervisor, "_GUARD_SECONDS", 0.0)
    supervisor.settle_lost_trials(ledger)
    result = ledger.trials()[0].result
    assert result.outcome == "lost" and result.started_at < time.time() - 80_000
    assert result.wall_seconds == result.gpu_seconds == request.timeout_seconds + request.grace_seconds == 105
