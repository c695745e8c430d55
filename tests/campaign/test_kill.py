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


def check_killed_and_resumed(campaign, delay):
    time.sleep(delay)
    if campaign.lifecycle == "ended":
        assert campaign.result().verified
        return "ended before"
    kill_supervisor(campaign, signal.SIGKILL)
    wait_for(lambda: campaign.lifecycle != "running", what="the supervisor's death to be seen")
    if campaign.lifecycle == "ended":
        assert campaign.result().verified
        return "ended first"
    wait_for(lambda: not trial_processes(campaign.campaign_id), seconds=15, what="the trial's processes to be gone")
    row = data.campaign(campaign.storage, campaign.campaign_id)
    assert (row["status"], row["reason_code"]) == ("stopped", "supervisor_lost")
    with pytest.raises(CampaignError, match="resume"):
        campaign.wait(1)
    resumed = watcherml.resume_recovery(campaign.campaign_id, campaign.storage)
    result = resumed.wait(60)
    assert result.verified, result.sentence
    assert len(result.trials) <= BUDGET.max_trials
    assert all(trial["ended_at"] for trial in campaign.trials())
    return "resumed"


def seeds(count):
    return [random.Random(number).uniform(0.0, 6.0) for number in range(count)]


@pytest.mark.parametrize("delay", seeds(4))
def test_a_killed_supervisor_leaves_no_trial_and_resumes_to_the_same_verdict(start, delay):
    check_killed_and_resumed(start(), delay)


@pytest.mark.long
@pytest.mark.parametrize("delay", seeds(30)[4:])
def test_a_killed_supervisor_at_many_more_moments(start, delay):
    check_killed_and_resumed(start(), delay)


def test_sigterm_to_the_supervisor_stops_the_campaign(start):
    campaign = start(seconds=5)
    wait_for(lambda: trial_processes(campaign.campaign_id), what="the first trial")
    kill_supervisor(campaign, signal.SIGTERM)
    result = campaign.wait(30)
    assert (result.status, result.reason_code) == ("stopped", "stopped_by_user")
    assert not trial_processes(campaign.campaign_id)


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
