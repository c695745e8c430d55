"""A row a flag for ``prepare-recovery`` and ``recover``, and what ``recover``, ``resume`` and ``recovery --watch`` say.

Most flags end in the sealed plan: one plan is made without any and one with all that go together, by both commands.
What acts on processes is shown by campaigns without torch, which cost half a second a trial.
"""

import json
import sys
from pathlib import Path

import pytest
import steady_store
from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT
from steady_store import FAILED
from test_cli_flags import EVERYWHERE, flags_of
from test_cli_golden import same_as_golden

import watcherml
from watcherml.api import data
from watcherml.campaign import events
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.cli.json_keys import KEYS
from watcherml.cli.main import main
from watcherml.protocol.plan import RecoveryPlan
from watcherml.store.storage import Storage

COMMANDS = ("prepare-recovery", "recover")
SMALL = "--max-probe-trials 3 --max-full-trials 1 --confirmation-runs 1"
OWN_STEPS = """
import os, pathlib

def train(config, max_steps=None):
    steps = min(max_steps or config["training_steps"], config["training_steps"])
    pathlib.Path("ran-here").touch()
    return {"my_steps": steps, "val_loss": 0.4}
"""


def at(*path):
    """Return a reading of a sealed plan."""

    def read(plan):
        for key in path:
            plan = plan[key]
        return plan

    return read


def left_out(plan):
    return {one["reason"] for one in plan["skipped"] if one["capability"].startswith("precision")}


def contract(*path):
    return at("contract", *path)


budget_of = contract("budget")


def wanted(*path):
    return contract("verification", *path)


def budget(name):
    return contract("budget", name)


# Flag, what is given, where it ends in the plan, and what stands there then.
SEALED = [
    ("--entrypoint", "ent:constant", contract("entrypoint", "target"), "ent:constant"),
    ("--working-directory", "sub", contract("entrypoint", "working_directory"), "sub"),
    ("--metric", "val_loss:minimize:0.42:0.03", lambda plan: len(wanted("metric_guards")(plan)), 1),
    ("--minimum-progress-steps", "40", wanted("minimum_progress_steps"), 40),
    ("--confirmation-runs", "1", wanted("confirmation_runs"), 1),
    ("--max-peak-vram-gib", "0.5", wanted("max_peak_vram_bytes"), 2**29),
    ("--progress-metric", "my_steps", contract("progress_metric"), "my_steps"),
    ("--no-control", None, contract("control"), False),
    ("--dataset-fingerprint", "sha256:d", wanted("workload_identity", "dataset_fingerprint"), "sha256:d"),
    ("--environment-fingerprint", "sha256:e", wanted("workload_identity", "environment_fingerprint"), "sha256:e"),
    ("--git-commit", "0f3c9a1", wanted("workload_identity", "git_commit"), "0f3c9a1"),
    ("--model-identifier", "gpt", wanted("workload_identity", "model_identifier"), "gpt"),
    ("--max-trials", "7", budget("max_trials"), 7),
    ("--max-probe-trials", "4", budget("max_probe_trials"), 4),
    ("--max-full-trials", "1", budget("max_full_trials"), 1),
    # A plan made before there were parallel probes has no such key, and one that has one at a time is the same plan.
    ("--max-parallel-probes", "2", lambda plan: budget_of(plan).get("max_parallel_probes", 1), 2),
    ("--probe-steps", "12", budget("probe_steps"), 12),
    ("--trial-timeout", "77", budget("trial_timeout_seconds"), 77),
    ("--campaign-timeout", "777", budget("campaign_timeout_seconds"), 777),
    ("--max-gpu-seconds", "70", budget("max_gpu_seconds"), 70),
    ("--termination-grace", "0.5", budget("termination_grace_seconds"), 0.5),
    ("--max-proposals", "2", lambda plan: len(plan["proposals"]), 2),
    ("--allow-approval-required", None, contract("permissions", "allow_approval_required"), True),
    ("--allow-semantic-changes", None, contract("permissions", "allow_semantic_changes"), True),
    ("--allow-high-risk", None, contract("permissions", "allow_high_risk"), True),
    ("--capabilities", "declared.json", left_out, {"A declaration forbids changing it."}),
]
# A row of its own below.
ALONE = {"--project-root", "--python-executable", "--secret", "--automatic-only", "--despite", "--no-predict"}
OF_RECOVER = {"--plan", "--authorize", "--approved-by", "--approval-reason", "--no-approval-prompts", "--yes",
              "--save-plan", "--campaign-id", "--trials-root"}  # fmt: skip


def test_every_flag_has_a_row():
    sealed = {flag for flag, *_ in SEALED} | ALONE
    assert flags_of("prepare-recovery") - EVERYWHERE == sealed
    assert flags_of("recover") - EVERYWHERE == sealed | OF_RECOVER


class Place:
    """A folder with a store, failed runs and training functions."""

    def __init__(self, folder):
        self.folder, self.storage = folder, Storage(folder / ".watcherml")
        (folder / "ent.py").write_text(TEXT_ENTRYPOINT)
        (folder / "own.py").write_text(OWN_STEPS)
        (folder / "sub").mkdir()
        (folder / "declared.json").write_text('{"precision": {"authority": "forbidden"}}')
        self.run_id = self.fail(precision="fp32", sequence_length=128)

    def fail(self, **changes):
        scope = {}
        exec(compile("def train(text):\n    raise RuntimeError(text)\n", "train.py", "exec"), scope)
        run = watcherml.Run("demo", {**FAILED_CONFIG, **changes}, self.storage, quiet=True)
        with pytest.raises(RuntimeError), run:
            scope["train"](OOM_TEXT)
        return run.run_id

    def plan(self, command, words, run_id=None):
        """Prepare by either command without running anything, and return the sealed plan's value."""
        where = ["--data-dir", str(self.storage.path)]
        out = self.folder / "plan.json"
        flag, code = ("--out", 0) if command == "prepare-recovery" else ("--save-plan", 5)
        line = [*where, command, run_id or self.run_id, *words, flag, str(out), "--quiet", "--format", "json"]
        assert main(line) == code, line
        return json.loads(out.read_text())["value"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        yield Place(folder)


@pytest.fixture(autouse=True)
def in_place(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.argv", ["watcher"])


@pytest.fixture(scope="module")
def plans(place):
    """By command: the plan without a flag, and with all that go together."""
    everything = [word for flag, value, *_ in SEALED for word in (flag, value) if word is not None]
    return {
        command: (place.plan(command, ["--entrypoint", "ent:train"]), place.plan(command, everything))
        for command in COMMANDS
    }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("flag", "given", "read", "expected"), SEALED, ids=[row[0] for row in SEALED])
def test_a_flag_ends_in_the_sealed_plan(command, flag, given, read, expected, plans):
    without, with_it = plans[command]
    assert read(with_it) == expected and read(without) != expected


def test_both_commands_seal_the_same_contract_from_the_same_words(plans):
    for prepared, recovered in zip(*plans.values(), strict=True):
        assert prepared["contract"] == recovered["contract"] and prepared["proposals"] == recovered["proposals"]


@pytest.mark.parametrize("command", COMMANDS)
def test_automatic_only_says_that_it_was_asked_for(command, place, plans):
    asked = place.plan(command, ["--entrypoint", "ent:train", "--automatic-only"])
    assert left_out(asked) != left_out(plans[command][0]) and "asked for" in str(left_out(asked))


@pytest.mark.parametrize("command", COMMANDS)
def test_project_root_is_where_the_code_is(command, place, monkeypatch, capsys):
    monkeypatch.chdir(place.folder / "sub")
    line = ["--data-dir", str(place.storage.path), command, place.run_id, "--entrypoint", "ent:train", "--yes"]
    assert main([word for word in line if command == "recover" or word != "--yes"]) == 1
    assert "ent" in capsys.readouterr().err
    assert place.plan(command, ["--entrypoint", "ent:train", "--project-root", ".."])["proposals"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interpreter_without_the_package_is_refused_before_any_trial(command, place, tmp_path, capsys):
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    before = data.campaigns(place.storage)
    for python in (bare, tmp_path / "nothing"):
        words = [command, place.run_id, "--entrypoint", "ent:train", "--python-executable", str(python)]
        assert main([*words, *(["--yes"] if command == "recover" else [])]) == 1
        said = capsys.readouterr().err
        assert "watcherml" in said or "interpreter" in said, said
    assert data.campaigns(place.storage) == before and not (place.storage.path / "trials").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_secret_supplies_what_was_redacted(command, place, monkeypatch, capsys):
    run_id = place.fail(hub_token="ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8")
    assert main([command, run_id, "--entrypoint", "ent:train"]) == 1
    assert "hub_token" in capsys.readouterr().err
    monkeypatch.setenv("HUB_TOKEN", "never stored")
    assert place.plan(command, ["--entrypoint", "ent:train", "--secret", "hub_token=env:HUB_TOKEN"], run_id)


@pytest.fixture
def made(tmp_path):
    return steady_store.make(tmp_path / "steady")


@pytest.mark.parametrize("command", COMMANDS)
def test_despite_insists_where_the_diagnosis_refuses(command, place, made):
    steady_store.refuse(made, FAILED)
    place = _of(place, made)
    refused = place.plan("prepare-recovery", ["--entrypoint", "ent:train"], FAILED)
    words = ["--entrypoint", "ent:train", "--despite", "C10", "--allow-approval-required"]
    insisted = place.plan(command, words, FAILED)
    assert refused["proposals"] == [] and insisted["proposals"]
    assert {one["authority"] for one in insisted["proposals"]} == {"approval_required"}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_predict_plans_without_asking_what_the_peaks_are(command, place, made):
    place = _of(place, made)
    words = ["--entrypoint", "ent:train"]
    assert "No peak is predicted" in " ".join(place.plan(command, words, FAILED)["notes"])
    assert place.plan(command, [*words, "--no-predict"], FAILED)["notes"] == []


def _of(place, storage):
    other = object.__new__(Place)
    other.folder, other.storage, other.run_id = place.folder, storage, FAILED
    return other


# -- what only `recover` has -------------------------------------------------------------------------------------------


def sentences(capsys, words, code):
    capsys.readouterr()
    assert main(words) == code
    return capsys.readouterr().out


def steady(place, text):
    return steady_store.steady(text.replace(str(place.folder), "/here").replace(sys.executable, "python"))


@pytest.fixture(scope="module")
def to_approve(place):
    """A sealed plan in a file with proposals that need a person."""
    words = "--entrypoint ent:train --allow-approval-required --allow-semantic-changes --max-proposals 32"
    place.plan("prepare-recovery", [*words.split(), *SMALL.split()])
    return str((place.folder / "plan.json").rename(place.folder / "to-approve.json"))


def test_an_approval_names_one_proposal_a_person_and_a_reason(place, to_approve, capsys):
    words = ["recover", "--plan", to_approve]
    assert "0 approved" in sentences(capsys, words, 5)
    approve = ["--authorize", "sequence-64", "--approved-by", "Ada", "--approval-reason", "short enough"]
    told = sentences(capsys, [*words, *approve], 5)
    assert "sequence-64: approved by Ada" in told and "1 approved" in told
    for missing in (2, 4):
        assert main([*words, *approve[:missing], *approve[missing + 2 :]]) == 2


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
def test_no_approval_prompts_asks_about_the_compute_alone(asked, to_approve, on_a_terminal):
    words = ["recover", "--plan", to_approve, "--no-color"]
    if asked:
        answers = [("Approve precision-bf16", "n"), ("Approve sequence-64", "y"), ("Your name", "Ada"),
                   ("Reason", "short enough"), ("Approve sequence-32", "n"), ("Approve sequence-16", "n")]  # fmt: skip
    else:
        words, answers = [*words, "--no-approval-prompts"], []
    code, shown = on_a_terminal(*words, answers=[*answers, ("wall time? [y/N]", "n")])
    assert code == 5 and ("Approve " in shown) == asked and (f"{int(asked)} approved." in shown)


def test_a_campaign_runs_as_its_flags_say_and_reads_as_before(place, capsys):
    words = (
        f"recover {place.run_id} --entrypoint own:train --no-control --progress-metric my_steps --campaign-id named"
        f" --working-directory sub --trials-root .watcherml/trials --termination-grace 0.5 --trial-timeout 60 {SMALL}"
        " --save-plan saved.json --yes --metric val_loss:minimize:0.42:0.03"
    )
    text = sentences(capsys, words.split(), 0)
    (row,) = [one for one in data.campaigns(place.storage) if one["campaign_id"] == "named"]
    assert row["status"] == "verified" and (place.folder / "sub" / "ran-here").exists()
    request = json.loads(place.storage.audit.records("named", "trial-request")[0])["value"]
    assert (request["grace_seconds"], request["timeout_seconds"]) == (0.5, 60)
    saved = RecoveryPlan.from_json((place.folder / "saved.json").read_text())
    assert place.storage.audit.campaign("named")["plan_digest"] == saved.digest
    assert list((place.folder / ".watcherml" / "trials").iterdir())
    same_as_golden("recover.txt", steady(place, text))
    assert main(words.replace("named", "other").replace(".watcherml/trials", "elsewhere").split()) == 2
    assert "--trials-root" in capsys.readouterr().err and not Path("elsewhere").exists()
    assert main(["recover", "--plan", "saved.json", "--yes", "--campaign-id", "named"]) == 1
    assert "exists already" in capsys.readouterr().err


def test_json_of_a_campaign_is_lines_with_the_keys_that_the_help_names(place, capsys):
    line = f"recover {place.run_id} --entrypoint ent:constant --campaign-id lines --yes --format json {SMALL}"
    text = sentences(capsys, line.split(), 4)
    *happened, last = [json.loads(one) for one in text.splitlines()]
    first, told = (part.replace(" (event)", "").replace(" (verdict)", "") for part in KEYS["recover"].split("; then"))
    assert {tuple(one) for one in happened} == {tuple(first.removeprefix("one line an event with ").split(", "))}
    assert list(last) == told.removeprefix(" one line with ").split(", ")
    same_as_golden("recover.jsonl", steady(place, text))


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_campaign_that_lost_its_supervisor_is_resumed(form, place, capsys):
    place.plan("prepare-recovery", ["--entrypoint", "ent:constant", *SMALL.split()])
    plan = RecoveryPlan.from_json((place.folder / "plan.json").read_text())
    name = f"lost-{form}"
    ledger = Ledger.open_new(place.storage, name, plan, (), {}, Settings(str(place.folder), sys.executable))
    ledger.event(events.STARTED, {"pid": 4711, "started": 1.0, "boot_id": "a boot long ago"})
    assert json.loads(sentences(capsys, ["recovery", name, "--format", "json"], 0))["lifecycle"] == "interrupted"
    text = sentences(capsys, ["resume", name, "--format", form], 4)
    same_as_golden(f"resume.{'txt' if form == 'text' else 'jsonl'}", steady(place, text))
