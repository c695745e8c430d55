"""What a person reads: lists that say why they are empty and fit the terminal, sentences said once, the next step."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest
import stored
from builders import FAILED_CONFIG, good_trials

import watcherml


@pytest.fixture
def runs(storage):
    """Two successes of one project and a failure of another, recovered by a verified campaign; ids by name."""
    made = {}
    for name in ("first", "second"):
        with watcherml.Run("tomato-disease", {"lr": 0.1}, storage, quiet=True) as run:
            run.log_metric("loss", 0.5, step=1)
        made[name] = run.run_id
    plan = stored.recorded_plan(storage, FAILED_CONFIG)
    stored.record(storage, "camp-1", plan, stored.rename(good_trials(plan), "camp-1"))
    return {**made, "failed": plan.source.run_id}


def other_failure(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(FileNotFoundError), run:
        raise FileNotFoundError(2, "No such file or directory", "data.csv")
    return run.run_id


# -- lists ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["runs", "failures", "recoveries"])
def test_an_unknown_project_is_answered_with_the_projects_there_are(command, runs, watcher):
    code, out, _ = watcher(command, "--project", "tomato")
    said = " ".join(out.split())
    assert code == 0 and said.startswith("No ") and "no project 'tomato'. Projects there: demo, tomato-disease." in said
    document = json.loads(watcher(command, "--project", "tomato", "--format", "json")[1])
    assert list(document.values())[1] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "--status", "killed"], "match --status killed."),
        (["runs", "--project", "demo", "--status", "success"], "match --project demo --status success."),
        (["failures", "--project", "tomato-disease"], "match --project tomato-disease."),
        (["recoveries", "--status", "stopped"], "match --status stopped."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_empty_list_names_the_filters_that_emptied_it(words, told, runs, watcher):
    code, out, _ = watcher(*words)
    assert code == 0 and told in " ".join(out.split()) and "yet" not in out


def test_an_empty_list_says_where_it_looked(storage, watcher):
    assert "there is no store in" in watcher("runs")[1] and str(storage.path) in watcher("runs")[1]
    storage.create()
    out = " ".join(watcher("failures")[1].split())
    assert out == f"No failures are recorded in {storage.path} yet."
    assert "It has no runs yet" in watcher("runs", "--project", "any")[1]


def test_many_projects_are_not_all_listed(storage, watcher):
    for number in range(13):
        with watcherml.Run(f"project-{number:02}", {}, storage, quiet=True):
            pass
    out = " ".join(watcher("runs", "--project", "none")[1].split())
    assert "project-12, " in out and "project-03 and 3 more." in out and "project-02" not in out


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
@pytest.mark.parametrize("command", ["runs", "failures", "recoveries"])
def test_a_list_fits_the_terminal_with_whole_ids_and_says_what_it_left_out(command, columns, runs, on_a_terminal):
    code, shown = on_a_terminal("--no-color", command, COLUMNS=str(columns))
    assert code == 0
    ids = [runs["failed"]] if command == "failures" else list(runs.values()) if command == "runs" else ["camp-1"]
    assert all(one in shown for one in ids)
    lines = shown.splitlines()
    if columns >= 80:
        assert max(map(len, lines)) <= max(columns, 96 if "Left out" in lines[-1] else 0), shown
    wide = "Started" if command == "runs" else "Failed" if command == "failures" else "Prepared"
    left_out = any(line.startswith("Left out at this width") for line in lines)
    assert (wide in lines[0]) or left_out


def test_a_list_that_goes_elsewhere_has_every_column(runs, tmp_path):
    env = {**os.environ, "COLUMNS": "40"}
    command = [sys.executable, "-m", "watcherml", "runs"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=True)
    title = done.stdout.splitlines()[0]
    assert all(name in title for name in ("Started", "Took", "Step", "Peak", "Device", "Failure"))
    assert "Left out" not in done.stdout


def test_a_sentence_in_a_list_is_cut_at_its_end(runs, watcher):
    row = watcher("failures")[1].splitlines()[1]
    assert row.endswith("…") and "CUDA ran out of memory at" in row


def test_an_id_as_long_as_ids_get_stands_whole_in_a_list(storage, watcher):
    with watcherml.Run("a-project-of-a-name-that-goes-on-and-on-and-on-for-long", {}, storage, quiet=True) as run:
        pass
    assert run.run_id in watcher("runs")[1]


# -- sentences said once ---------------------------------------------------------------------------------------------


def test_a_verified_campaign_says_once_that_it_is_verified(runs, watcher):
    code, out, _ = watcher("recovery", "camp-1")
    assert code == 0 and out.startswith("Verified on no device") and "Verified: Verified" not in out
    assert out.count("Verified on") == 2 and "verified: Verified" not in out  # the headline, and the last event
    assert max(map(len, out.splitlines())) <= 96
    assert "The full trial: " in out and "proposal_id=" not in out


def test_events_are_told_in_sentences(runs, watcher):
    out = watcher("recovery", "camp-1")[1].split("\nEvents\n")[1]
    assert "Detail" in out.splitlines()[0]
    assert "probe of batch-32x2 started (at most 30 steps)." in " ".join(out.split())


def test_an_export_says_what_it_has_not_without_a_double_negative(runs, watcher):
    code, out, _ = watcher("export", runs["first"])
    assert code == 0 and "Not recorded    a failure capsule" in out and "Without" not in out and "no failure" not in out
    assert "Left out        the bytes of datasets" in out
    assert "failure capsule" not in watcher("export", runs["failed"])[1]


def test_a_run_shows_its_packages_as_a_number_and_single_facts_without_a_title_each(runs, watcher):
    out = watcher("inspect", runs["first"])[1]
    assert "names each" in out and "packages.pytest" not in out and "\nArgv\n" not in out and "\nStarted as\n" in out


def test_a_capsules_configuration_can_be_copied_as_it_is(runs, watcher):
    out = watcher("inspect", runs["failed"])[1].split("\nConfiguration\n")[1]
    shown = out.split("\n\n")[0]
    assert json.loads(shown) == FAILED_CONFIG


# -- the next step ---------------------------------------------------------------------------------------------------


def test_a_failure_is_shown_with_what_to_do_next(runs, storage, failed_run, watcher):
    open_one, other = failed_run(), other_failure(storage)
    assert "A recovery was verified: " in watcher("inspect", runs["failed"])[1]
    assert "recovery camp-1" in watcher("inspect", runs["failed"])[1].splitlines()[-1]
    assert f"prepare-recovery {open_one} --entrypoint MODULE:FUNCTION" in watcher("inspect", open_one)[1]
    assert f"resolve {other}" in watcher("inspect", other)[1].splitlines()[-1]
    assert watcher("resolve", other)[0] == 0
    assert f"resolve {other}" not in watcher("inspect", other)[1] and "Next" not in watcher("inspect", runs["first"])[1]


@pytest.mark.parametrize("flag", [["--quiet"], ["--format", "json"], ["--format", "markdown"], ["--output", "f.txt"]])
def test_the_next_step_is_for_a_person_at_a_terminal_alone(flag, storage, watcher, tmp_path):
    other = other_failure(storage)
    out = watcher("inspect", other, *flag)[1]
    assert "once it is dealt with" not in out
    assert flag[0] != "--output" or "once it is dealt with" not in (tmp_path / "f.txt").read_text()


def test_prune_without_a_flag_deletes_nothing_and_says_what_could_go(runs, storage, watcher):
    code, out, err = watcher("prune")
    said = " ".join(out.split())
    assert code == 0 and err == "" and said.startswith("Nothing was deleted. No flag says what should go.")
    assert "2 ended runs, 2 metric points" in said and "--keep N or --older-than DAYS" in said
    assert "1 run stays: a campaign stands on it" in said
    assert len(storage.list_runs()) == 3
    (choice,) = json.loads(watcher("prune", "--format", "json")[1])["prunable"]
    assert (choice["what"], choice["runs"], choice["points"]) == ("runs", 2, 2)
    assert "no project 'nope'" in " ".join(watcher("prune", "--project", "nope")[1].split())
    assert "prunable" not in watcher("prune", "--trials", "--format", "json")[1]
    watcher("prune", "--keep", "0", "--yes")
    assert "There is nothing to prune." in watcher("prune")[1]


# -- schema ----------------------------------------------------------------------------------------------------------


def test_schema_lists_the_documents_and_shows_one(storage, watcher):
    code, out, _ = watcher("schema")
    listed = [row["name"] for row in json.loads(watcher("schema", "--format", "json")[1])["schemas"]]
    assert code == 0 and all(name in out for name in listed) and "recovery-plan" in listed
    out = watcher("schema", "recovery-plan")[1]
    assert "value (RecoveryPlan)" in out and "planner_version" in out and "an integer, 1 to 10000" in out
    assert not storage.exists


def test_the_printed_schema_accepts_what_the_program_writes_and_nothing_else(runs, storage, watcher, tmp_path):
    assert watcher("schema", "recovery-result", "--format", "json", "--output", "schema.json")[0] == 0
    validator = jsonschema.Draft202012Validator(json.loads((tmp_path / "schema.json").read_text()))
    (text,) = storage.audit.records("camp-1", "recovery-result")
    document = json.loads(text)
    validator.validate(document)
    document["value"]["verdict"]["status"] = "won"
    assert not validator.is_valid(document)


def test_an_unknown_document_is_wrong_usage_and_is_answered_with_the_list(watcher):
    code, out, err = watcher("schema", "plan")
    assert (code, out) == (2, "") and "unknown document 'plan'" in err and "recovery-plan" in err


# -- packs -----------------------------------------------------------------------------------------------------------


def test_a_pack_of_this_store_is_on_record_until_it_is_changed(runs, storage, watcher, tmp_path):
    assert watcher("pack")[0] == 0
    code, out, _ = watcher("verify", "watcherml-store.zip")
    assert code == 0 and "This store packed it" in " ".join(out.split())
    other = ("--data-dir", str(tmp_path / "other"))
    code, out, _ = watcher("verify", "watcherml-store.zip", *other)
    assert code == 4 and "has not packed it" in " ".join(out.split())
    data = bytearray((tmp_path / "watcherml-store.zip").read_bytes())
    data[100] ^= 1
    (tmp_path / "watcherml-store.zip").write_bytes(data)
    assert watcher("verify", "watcherml-store.zip")[0] == 1


# -- ids that are not known here -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["inspect x", "export x", "compare x y", "resolve x", "recovery x", "stop x", "resume x",
     "prepare-recovery x --entrypoint a:b", "recover x --entrypoint a:b --yes"],
)  # fmt: skip
def test_a_folder_without_a_store_says_how_to_name_one_and_where_one_is(words, tmp_path, monkeypatch, watcher):
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    watcherml.Storage(tmp_path / ".watcherml").create()
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    code, _, told = watcher(*words.split())
    assert code == 3 and f"there is no store in {below / '.watcherml'}" in told
    assert f"There is one in {tmp_path / '.watcherml'}: --data-dir or WATCHERML_DIR names another." in told
    assert not (below / ".watcherml").exists()


def test_an_id_of_the_other_kind_is_answered_with_the_command_that_takes_it(runs, watcher):
    for command in ("inspect", "export", "resolve"):
        assert "It is a campaign: `watcher recovery camp-1` shows it." in watcher(command, "camp-1")[2]
    for command in ("recovery", "stop", "resume"):
        run_id = runs["first"]
        assert f"It is a run: `watcher inspect {run_id}` shows it." in watcher(command, run_id)[2]
    assert "`watcher runs` lists them." in watcher("inspect", "nobody")[2]
