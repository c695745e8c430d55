"""Recovery from the command line, with real campaigns in real processes and a training function without torch."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

import watcherml
from watcherml.api import data
from watcherml.cli.follow import held_interrupts
from watcherml.cli.main import main
from watcherml.trials.paths import MARKER

# Control and up to two probes, one full trial, one confirmation.
SMALL = ("--max-probe-trials", "3", "--max-full-trials", "1", "--confirmation-runs", "1")
# Names of this process alone: processes are looked for by them.
BY_HAND, TYPED = f"stopped-by-hand-{os.getpid()}", f"typed-{os.getpid()}"
CTRL_C = "\x03"
GUARD = ("--metric", "val_loss:minimize:0.42:0.03")
SEQUENCE = """
def train(config, max_steps=None):
    if config["sequence_length"] > 64:
        raise RuntimeError({text!r})
    return {{"steps_completed": max_steps or 50}}
"""


def recover(run_id, *words, target="ent:train"):
    return ["recover", run_id, "--entrypoint", target, *SMALL, *words]


def processes_of(campaign_id):
    """Every living process that carries a trial's marker of the campaign, or names it."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(MARKER, "").startswith(campaign_id)
            named = process.pid != os.getpid() and any(campaign_id in word for word in process.cmdline())
            if (marked or named) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(condition, what, seconds=40):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


@pytest.fixture
def long_sequence(storage, tmp_path):
    """A failed run that only a shorter sequence can save, which needs a person's approval."""
    text = (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
        " free."
    )
    (tmp_path / "seq.py").write_text(SEQUENCE.format(text=text))
    run = watcherml.Run("demo", {"sequence_length": 128, "batch_size": 1, "training_steps": 50}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(text)
    return run.run_id


# -- the whole way -----------------------------------------------------------------------------------------------


def test_a_verified_recovery_ends_with_0_and_can_be_looked_at_again(storage, failed_run, capsys):
    assert main(recover(failed_run(), *GUARD, "--yes", "--campaign-id", "first")) == 0
    shown = capsys.readouterr().out
    stages = ["[1/5] Observe", "[2/5] Plan", "[3/5] Authorize", "[4/5] Execute", "[5/5] Verify"]
    assert [shown.index(stage) for stage in stages] == sorted(shown.index(stage) for stage in stages)
    ended = [line.split() for line in shown.splitlines() if "steps, " in line and "started" not in line]
    assert [words[0] for words in ended] == ["control", "probe", "probe", "full", "confirmation"]
    assert "Reason: verified_recovery" in shown and "Change gradient_checkpointing: false → true" in shown
    assert '"gradient_checkpointing": true' in shown and "fail" not in shown.split("[5/5]")[1]

    assert main(["recoveries", "--verified", "--format", "json"]) == 0
    assert [row["campaign_id"] for row in json.loads(capsys.readouterr().out)["campaigns"]] == ["first"]
    assert main(["recoveries", "--status", "stopped", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["campaigns"] == []
    assert main(["recovery", "first"]) == 0
    again = capsys.readouterr().out
    assert again.startswith("Verified") and "campaign ended" in again and "Checks: " in again
    assert main(["recovery", "first", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (
        document["verified"] is True and document["lifecycle"] == "ended" and document["events"][-1]["type"] == "ended"
    )
    assert main(["runs", "--trials", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 6
    assert main(["resume", "first"]) == 1
    said = capsys.readouterr().err
    assert "cannot be resumed" in said and "watcher recover --plan FILE" in said
    assert main(["stop", "first"]) == 0 and "had ended already" in capsys.readouterr().out


def test_json_is_a_line_an_event_and_then_the_result(storage, failed_run, capsys):
    assert main(recover(failed_run(), *GUARD, "--yes", "--format", "json")) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    *events, last = lines
    assert {one["kind"] for one in events} == {"event"} and said.err == ""
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("prepared", "ended")
    assert last["kind"] == "verdict" and last["verified"] is True
    assert last["campaign_id"] == events[0]["campaign_id"]
    assert last["changes"] == [{"path": "gradient_checkpointing", "before": False, "after": True}]


def test_a_function_that_ignores_its_configuration_ends_with_4(storage, failed_run, capsys, tmp_path):
    report = tmp_path / "verdict.txt"
    words = recover(failed_run(), "--yes", "--output", str(report), target="ent:constant")
    assert main(words) == 4
    assert "source_failure_not_reproduced" in report.read_text()
    assert main(recover(failed_run(), "--yes", "--quiet", target="ent:constant")) == 4
    shown = capsys.readouterr().out
    quiet = shown[shown.rindex("Wrote") :].split("\n", 2)[2]
    assert quiet.lstrip().startswith("Not recovered") and "source_failure_not_reproduced" in quiet


def test_a_reader_that_has_gone_changes_neither_campaign_nor_exit_code(storage, failed_run):
    words = recover(failed_run(), "--yes", "--campaign-id", "unread", target="ent:constant")
    process = subprocess.Popen(
        [sys.executable, "-m", "watcherml", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), said) == (4, "")
    assert data.campaign(storage, "unread")["reason_code"] == "source_failure_not_reproduced"


def test_a_plan_that_proposes_nothing_is_put_on_record_without_compute(storage, failed_run, capsys):
    run_id = failed_run(batch_size=1, gradient_checkpointing=True)
    assert main(recover(run_id)) == 4
    assert "no_supported_intervention" in capsys.readouterr().out
    (row,) = data.campaigns(storage)
    assert row["trials"] == 0 and row["status"] == "not_recovered"


# -- plans -------------------------------------------------------------------------------------------------------


def test_the_prepare_command_of_the_product_description_works_as_written(storage, failed_run, tmp_path, capsys):
    run_id = failed_run(training_steps=1000)
    (tmp_path / "train_entrypoint.py").write_text((tmp_path / "ent.py").read_text())
    words = (
        f"prepare-recovery {run_id} --entrypoint train_entrypoint:train --project-root . --working-directory ."
        " --metric validation_loss:minimize:0.42:0.03 --minimum-progress-steps 1000 --confirmation-runs 2"
        " --max-peak-vram-gib 14 --max-trials 6 --max-probe-trials 3 --max-full-trials 1 --probe-steps 30"
        " --trial-timeout 3600 --campaign-timeout 14400 --max-gpu-seconds 7200 --automatic-only"
        " --out recovery-plan.json"
    )
    assert main(words.split()) == 0
    said = capsys.readouterr().out
    assert "recover --plan recovery-plan.json" in said
    plan = watcherml.RecoveryPreparation.from_json((tmp_path / "recovery-plan.json").read_text(), storage=storage).plan
    budget, wanted = plan.contract.budget, plan.contract.verification
    assert (budget.max_trials, budget.max_probe_trials, budget.max_full_trials, budget.max_gpu_seconds) == (
        6,
        3,
        1,
        7200,
    )
    assert (wanted.minimum_progress_steps, wanted.max_peak_vram_bytes) == (1000, 14 * 2**30)
    assert data.campaigns(storage) == []


def test_the_required_progress_comes_from_the_configuration_or_is_asked_for(storage, failed_run, capsys):
    assert main(["prepare-recovery", failed_run(), "--entrypoint", "ent:train", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["contract"]["verification"]["minimum_progress_steps"] == 50
    assert main(["prepare-recovery", failed_run(training_steps=0), "--entrypoint", "ent:train"]) == 2
    assert "--minimum-progress-steps" in capsys.readouterr().err


def test_a_saved_plan_runs_where_it_was_made_and_nowhere_else(storage, failed_run, tmp_path, capsys):
    run_id = failed_run()
    assert main(recover(run_id, "--save-plan", "plan.json")) == 5
    assert main(["--data-dir", str(tmp_path / "other"), "init"]) == 0
    capsys.readouterr()
    assert main(["--data-dir", str(tmp_path / "other"), "recover", "--plan", "plan.json", "--yes"]) == 1
    assert "not on record" in capsys.readouterr().err
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "forged.json").write_text(text.replace('"max_full_trials":1', '"max_full_trials":2'))
    assert main(["recover", "--plan", "forged.json", "--yes"]) == 1
    (tmp_path / "torn.json").write_text(text[: len(text) // 2])
    assert main(["recover", "--plan", "torn.json", "--yes"]) == 1
    assert data.campaigns(storage) == []
    assert main(["recover", "--plan", "plan.json", "--yes", "--project-root", str(tmp_path)]) == 0


# -- authority ---------------------------------------------------------------------------------------------------


def test_without_a_terminal_and_without_yes_nothing_runs(storage, failed_run, capsys):
    assert main(recover(failed_run())) == 5
    said = capsys.readouterr()
    assert "nobody could be asked" in said.err and "--yes" in said.err
    assert main(recover(failed_run(), "--format", "json")) == 5
    said = capsys.readouterr()
    assert said.out == "" and json.loads(said.err)["error"]["code"] == "declined"
    assert data.campaigns(storage) == []


def test_a_person_who_says_no_is_obeyed(storage, failed_run, on_a_terminal):
    code, shown = on_a_terminal(*recover(failed_run()), answers=[("wall time? [y/N]", "n")])
    assert code == 5 and "declined; nothing was run" in shown and "[4/5]" not in shown
    assert data.campaigns(storage) == []


def test_a_person_who_says_yes_sees_each_trial(storage, failed_run, on_a_terminal):
    code, shown = on_a_terminal(*recover(failed_run()), answers=[("wall time? [y/N]", "y")])
    assert code == 0 and "\x1b[32mcompleted" in shown and "Verified" in shown


def test_yes_confirms_compute_and_approves_no_proposal(storage, long_sequence, capsys):
    allow = ("--allow-approval-required", "--allow-semantic-changes", "--yes", "--no-approval-prompts")
    assert main(recover(long_sequence, *allow, target="seq:train")) == 4
    shown = capsys.readouterr().out
    assert "sequence-64: not approved, so it will not run" in shown and "needs_approval" in shown
    approve = ("--authorize", "sequence-64", "--approved-by", "a@example.org", "--approval-reason", "shorter is fine")
    assert main(recover(long_sequence, *allow, *approve, target="seq:train")) == 0
    shown = capsys.readouterr().out
    assert "a@example.org approved sequence-64: shorter is fine" in shown and "sequence_length: 128 → 64" in shown


def test_an_unknown_proposal_cannot_be_authorized(storage, failed_run, capsys):
    words = ("--authorize", "batch-999", "--approved-by", "a", "--approval-reason", "b", "--yes")
    assert main(recover(failed_run(), *words)) == 3
    assert "batch-32x2" in capsys.readouterr().err and data.campaigns(storage) == []


def test_a_person_is_asked_for_each_proposal_that_needs_approval(storage, long_sequence, on_a_terminal):
    allow = ("--allow-approval-required", "--allow-semantic-changes")
    answers = [
        ("Approve sequence-64", "y"), ("Your name", "Ada"), ("Reason", "context is short enough"),
        ("Approve sequence-32", "n"), ("Approve sequence-16", ""), ("wall time? [y/N]", "yes"),
    ]  # fmt: skip
    code, shown = on_a_terminal(*recover(long_sequence, *allow, target="seq:train"), answers=answers)
    assert code == 0 and "0 automatic, 1 approved" in shown
    assert "Ada approved sequence-64: context is short enough" in shown


# -- stopping, losing, resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json"])
def test_ctrl_c_stops_the_campaign_and_leaves_no_process(form, storage, failed_run):
    words = recover(failed_run(seconds=30), "--yes", "--campaign-id", BY_HAND, "--termination-grace", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "watcherml", *words, "--format", form],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(
        lambda: [one for one in processes_of(BY_HAND) if "watcherml.trials.worker" in one.cmdline()],
        "a trial's worker",
    )
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    if form == "text":
        assert "Stopping the campaign" in err and "ended. stopped" in err and "Interrupted" in err
    else:
        last = json.loads(out.splitlines()[-1])
        assert (last["type"], last["body"]["status"]) == ("ended", "stopped")
        assert json.loads(err)["error"]["code"] == "interrupted"
    row = data.campaign(storage, BY_HAND)
    assert (row["status"], row["reason_code"], row["lifecycle"]) == ("stopped", "stopped_by_user", "ended")
    asked = [event["body"].get("by") for event in data.events(storage, BY_HAND)]
    assert "Ctrl-C at watcher recover" in asked
    wait_for(lambda: not processes_of(BY_HAND), "the campaign's processes to be gone", 10)


def test_ctrl_c_at_a_terminal_does_the_same(storage, failed_run, on_a_terminal):
    words = recover(failed_run(seconds=30), "--yes", "--campaign-id", TYPED, "--termination-grace", "1")
    code, shown = on_a_terminal(*words, during=("started, at most", CTRL_C))
    assert code == 130 and "stopped" in shown
    assert data.campaign(storage, TYPED)["status"] == "stopped" and not processes_of(TYPED)


def test_ctrl_c_at_a_question_starts_nothing(storage, failed_run, on_a_terminal):
    code, shown = on_a_terminal(*recover(failed_run()), during=("wall time? [y/N]", CTRL_C))
    assert code == 130 and "Interrupted" in shown and "[4/5]" not in shown
    assert data.campaigns(storage) == [] and not (storage.path / "trials").exists()


def test_an_interrupt_while_the_campaign_starts_is_kept_until_it_can_be_stopped():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with held_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            done.append("started")
    assert done == ["started"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def running(storage, failed_run, requirements):
    """A campaign that takes its time."""

    def start(seconds):
        # One place more than needed: a trial that is lost with its supervisor has used its place.
        budget = watcherml.RecoveryBudget(max_trials=7, max_probe_trials=4, max_full_trials=1)
        preparation = watcherml.prepare_oom_recovery(
            failed_run(seconds=seconds), "ent:train", requirements, budget, storage=storage
        )
        return watcherml.start_recovery(preparation)

    return start


def test_stop_ends_a_running_campaign(storage, running, capsys):
    campaign = running(30)
    wait_for(campaign.trials, "a trial")
    assert main(["recovery", campaign.campaign_id]) == 0
    assert "running" in capsys.readouterr().out
    assert main(["stop", campaign.campaign_id, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["was"], document["status"]) == ("running", "stopped")
    assert campaign.lifecycle == "ended" and campaign.result().reason_code == "stopped_by_user"
    assert not processes_of(campaign.campaign_id)


def test_a_lost_supervisor_is_said_and_the_campaign_is_resumed_to_its_verdict(storage, running, capsys):
    campaign = running(0.5)
    wait_for(campaign.trials, "a trial")
    started = next(event["body"] for event in campaign.events() if event["type"] == "started")
    os.kill(started["pid"], signal.SIGKILL)
    wait_for(lambda: campaign.lifecycle == "interrupted", "the loss to be seen")
    assert main(["recovery", campaign.campaign_id, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["lifecycle"], document["status"]) == ("interrupted", "stopped")
    assert main(["stop", campaign.campaign_id]) == 0
    assert f"resume {campaign.campaign_id}" in capsys.readouterr().out
    assert main(["resume", campaign.campaign_id]) == 0
    assert "Reason: verified_recovery" in capsys.readouterr().out


def test_watching_follows_to_the_end_and_ctrl_c_only_ends_the_watching(storage, running, capsys):
    campaign = running(0.5)
    watching = subprocess.Popen(
        [sys.executable, "-m", "watcherml", "recovery", campaign.campaign_id, "--watch"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "control" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=30)
    assert watching.returncode == 130
    assert f"{campaign.campaign_id} goes on" in told and f"stop {campaign.campaign_id}` ends it" in told
    assert main(["recovery", campaign.campaign_id, "--watch"]) == 0
    assert "Verified" in capsys.readouterr().out
    assert campaign.result().verified
