"""SIGKILL, SIGTERM and interrupts at any moment: nothing runs on, everything is on record, and it can be resumed."""

import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

import watcherml
from watcherml.api import data
from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError
from watcherml.trials.paths import MARKER

BUDGET = watcherml.RecoveryBudget(max_trials=9, max_probe_trials=5, max_full_trials=1)


def trial_processes(campaign_id):
    """Every living process of any trial of a campaign, workers and guards."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(MARKER, "").startswith(campaign_id)
            guard = campaign_id in " ".join(process.cmdline()) and "watcherml.trials" in " ".join(process.cmdline())
            if (marked or guard) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(condition, seconds=20.0, what="the condition"):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


@pytest.fixture
def start(storage, failed_run, requirements):
    def begin(seconds=0.4):
        run_id = failed_run(seconds=seconds)
        preparation = watcherml.prepare_oom_recovery(run_id, "ent:train", requirements, BUDGET, storage=storage)
        return watcherml.start_recovery(preparation)

    return begin


def kill_supervisor(campaign, number):
    process = Ledger(campaign.storage, campaign.campaign_id).supervisor()
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        pass  # it came to its end at the same moment


# Control, probe, full trial, confirmation, and two places for what is lost: of these, four trials at least run.
SHORT = watcherml.RecoveryBudget(max_trials=6, max_probe_trials=2, max_full_trials=1)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# Prepared, started, two a trial, ranked, ended: the life of such a campaign, counted in what is on record.
EVENTS = 12


class Killed:
    """A campaign whose supervisor gets a signal once so many events are on record and a moment has passed."""

    def __init__(self, campaign, number, seed):
        rng = random.Random(seed)
        self.campaign, self.number = campaign, number
        self.after, self.pause = rng.randint(2, EVENTS - 1), rng.uniform(0.0, 0.6)
        self.due = None
        self.killed = False

    def look(self):
        """Kill it if its moment has come; True once there is nothing left to do."""
        if self.due is None and len(self.campaign.events()) >= self.after:
            self.due = time.monotonic() + self.pause
        if self.campaign.lifecycle == "ended":
            return True
        if self.due is None or time.monotonic() < self.due:
            return False
        kill_supervisor(self.campaign, self.number)
        wait_for(lambda: self.campaign.lifecycle != "running", 15, "the supervisor's end to be seen")
        self.killed = self.campaign.lifecycle == "interrupted"
        return True

    def check_gone(self):
        wait_for(lambda: not trial_processes(self.campaign.campaign_id), 15, "the trial's processes to be gone")
        row = data.campaign(self.campaign.storage, self.campaign.campaign_id)
        assert (row["status"], row["reason_code"]) == ("stopped", "supervisor_lost")
        assert f"`watcher resume {self.campaign.campaign_id}`" in row["sentence"] == self.campaign.sentence
        told = [event["body"]["signal"] for event in self.campaign.events() if event["type"] == "interrupted"]
        # A signal before the supervisor listens ends it like SIGKILL, and nobody is left to tell.
        assert told in ([], [self.number.name]) and (not told or self.number != signal.SIGKILL)
        assert (f"was ended by {self.number.name}" if told else "is gone") in row["sentence"]
        with pytest.raises(CampaignError, match="resume"):
            self.campaign.wait(1)


def kill_and_resume(folder, seeds):
    """Start a campaign a seed, all at once; kill each at its moment, resume it, and return all at their end."""
    from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT

    (folder / "ent.py").write_text(TEXT_ENTRYPOINT)
    storage = watcherml.Storage(folder / ".watcherml")
    run = watcherml.Run("demo", {**FAILED_CONFIG, "batch_size": 32, "seconds": 0.3}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(OOM_TEXT)
    wanted = watcherml.VerificationRequirements(minimum_progress_steps=50, confirmation_runs=1)
    waiting, all_ = [], []
    for place, seed in enumerate(seeds):
        budget = SHORT.replace(campaign_timeout_seconds=14_000.0 + seed)  # a plan of its own, which one campaign runs
        made = watcherml.prepare_oom_recovery(
            run.run_id, "ent:train", wanted, budget, project_root=folder, storage=storage
        )
        campaign = watcherml.start_recovery(made, project_root=folder, campaign_id=f"killed-{seed}")
        all_.append(Killed(campaign, SIGNALS[place % len(SIGNALS)], seed))
        waiting = [one for one in [*waiting, all_[-1]] if not one.look()]
    deadline = time.monotonic() + 240
    while waiting:
        assert time.monotonic() < deadline, [one.campaign for one in waiting]
        waiting = [one for one in waiting if not one.look()]
        time.sleep(0.05)
    for one in all_:
        if one.killed:
            one.check_gone()
            watcherml.resume_recovery(one.campaign.campaign_id, storage)
    for one in all_:
        one.result = one.campaign.wait(240)
    return all_


def check_all(found):
    for one in found:
        assert one.result.verified and one.result.verified_candidate_id == "batch-16x2", one.result.sentence
        assert len(one.result.trials) <= SHORT.max_trials
        assert all(row["ended_at"] for row in one.campaign.trials())
        lost = [trial for trial in one.result.trials if trial.result.outcome == "lost"]
        assert len(lost) <= int(one.killed)
        finished = [(trial.request.role, trial.request.proposal_id) for trial in one.result.trials
                    if trial.result.outcome != "lost"]  # fmt: skip
        # What was finished is not repeated; a second control is the one at the end.
        assert finished[:4] == [("control", None)] + [
            (role, "batch-16x2") for role in ("probe", "full", "confirmation")
        ]
        assert not trial_processes(one.campaign.campaign_id)
    return [(one.number.name, one.after, len(one.result.trials)) for one in found if one.killed]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_supervisors_ended_at_random_moments_leave_no_trial_and_resume_to_the_same_verdict(tmp_path):
    killed = check_all(kill_and_resume(tmp_path, range(8)))
    assert len(killed) >= 5 and {name for name, _, _ in killed} == {one.name for one in SIGNALS}, killed


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("first", range(8, 38, 6))
def test_supervisors_ended_at_thirty_more_moments(tmp_path, first):
    print(check_all(kill_and_resume(tmp_path, range(first, first + 6))))


def test_sigterm_to_the_supervisor_ends_the_trial_and_is_nobodys_wish_to_stop(start):
    """A machine that shuts down says SIGTERM to everyone; the campaign is there after the next start."""
    campaign = start(seconds=2)
    wait_for(lambda: len(trial_processes(campaign.campaign_id)) >= 2, what="the first trial")
    kill_supervisor(campaign, signal.SIGTERM)
    wait_for(lambda: campaign.lifecycle == "interrupted", what="the supervisor's end")
    assert not trial_processes(campaign.campaign_id)  # it goes when they are gone
    assert [row["outcome"] for row in campaign.trials()] == ["lost"]
    assert "was ended by SIGTERM" in campaign.sentence
    assert watcherml.resume_recovery(campaign.campaign_id, campaign.storage).lifecycle == "running"
    campaign.stop("a test")
    assert campaign.wait(60).reason_code == "stopped_by_user"


def test_a_stop_request_ends_the_campaign_and_the_store_says_who_asked(start):
    campaign = start(seconds=5)
    wait_for(lambda: trial_processes(campaign.campaign_id), what="the first trial")
    campaign.stop("a test")
    result = campaign.wait(30)
    assert result.reason_code == "stopped_by_user" and not result.verified
    assert any(event["body"].get("by") == "a test" for event in campaign.events())
    with pytest.raises(CampaignError, match="ended"):
        watcherml.resume_recovery(campaign.campaign_id, campaign.storage)


def test_guard_and_supervisor_killed_together_leave_no_trial_after_resume(start):
    campaign = start(seconds=1.5)
    guards = wait_for(
        lambda: [p for p in trial_processes(campaign.campaign_id) if "watcherml.trials.guard" in p.cmdline()],
        what="a guard",
    )
    wait_for(lambda: len(trial_processes(campaign.campaign_id)) >= 2, what="a worker")
    supervisor = Ledger(campaign.storage, campaign.campaign_id).supervisor()
    for pid in (guards[0].pid, supervisor.pid):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: campaign.lifecycle == "interrupted")
    result = watcherml.resume_recovery(campaign.campaign_id, campaign.storage).wait(90)
    assert result.verified and not trial_processes(campaign.campaign_id)
    assert "lost" in [trial.result.outcome for trial in result.trials]


def test_a_campaign_outlives_the_process_that_started_it(storage, failed_run, requirements):
    run_id = failed_run(seconds=0.3)
    code = (
        "import sys, watcherml, os, signal\n"
        "r = watcherml.VerificationRequirements(minimum_progress_steps=50)\n"
        "p = watcherml.prepare_oom_recovery(sys.argv[2], 'ent:train', r, storage=sys.argv[1])\n"
        "print(watcherml.start_recovery(p).campaign_id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    starter = subprocess.run(
        [sys.executable, "-c", code, str(storage.path), run_id], capture_output=True, text=True, cwd=storage.path.parent
    )
    assert starter.returncode == -signal.SIGKILL, starter.stderr
    from watcherml.api.recover import Campaign

    assert Campaign(starter.stdout.strip(), storage).wait(60).verified


def test_ctrl_c_in_a_blocking_call_stops_the_campaign(storage, failed_run):
    run_id = failed_run(seconds=5)
    code = (
        "import sys, watcherml\n"
        "r = watcherml.VerificationRequirements(minimum_progress_steps=50)\n"
        "watcherml.recover_from_oom(sys.argv[2], 'ent:train', r, storage=sys.argv[1])\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code, str(storage.path), run_id], stderr=subprocess.PIPE, cwd=storage.path.parent
    )
    wait_for(lambda: storage.audit.campaigns() and storage.audit.trials(), what="the first trial")
    caller.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in caller.communicate(timeout=40)[1]
    row = storage.audit.campaigns()[0]
    assert (row["status"], row["reason_code"]) == ("stopped", "stopped_by_user")
    assert not trial_processes(row["campaign_id"])


def test_limits_of_time_end_the_campaign(storage, failed_run, requirements):
    budget = watcherml.RecoveryBudget(trial_timeout_seconds=1.0, campaign_timeout_seconds=1.0)
    run_id = failed_run(seconds=30)
    result = watcherml.recover_from_oom(run_id, "ent:train", requirements, budget, storage=storage)
    assert (result.status, result.reason_code) == ("stopped", "campaign_timeout")
    budget = watcherml.RecoveryBudget(max_gpu_seconds=1.0)
    result = watcherml.recover_from_oom(run_id, "ent:train", requirements, budget, storage=storage)
    assert (result.status, result.reason_code) == ("stopped", "gpu_seconds_exhausted")
    budget = watcherml.RecoveryBudget(trial_timeout_seconds=1.0)
    result = watcherml.recover_from_oom(run_id, "ent:train", requirements, budget, storage=storage)
    assert (result.status, result.reason_code) == ("stopped", "control_inconclusive")
