"""The example notebooks from their first cell to their last in a real kernel, and the outputs that are committed."""

import getpass
import hashlib
import re
import socket
import zipfile

import pytest
from example_notebooks import FOLDER, NAMES, cell, failed, kinds, named, read, run, shown

from watcherml import RecoveryResult, Storage

MIB = 2**20
MACHINE = ("/home/", "/root/", "/Users/", "/tmp/", "/var/folders", "/work", "site-packages", "C:\\", "\\Users\\")
DONE = {}


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """``executed("02")`` is that notebook with its outputs, and the folder it ran in; each runs once."""

    def get(number):
        if number not in DONE:
            folder = tmp_path_factory.mktemp(f"notebook{number}")
            DONE[number] = run(named(number), folder), folder
        return DONE[number]

    yield get
    DONE.clear()


# -- what is committed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_it_is_committed_executed_from_top_to_bottom(name):
    code = [one for one in read(name).cells if one.cell_type == "code"]
    assert [one.execution_count for one in code] == list(range(1, len(code) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_cells_that_are_meant_to_fail_did_and_no_traceback_leads_through_this_package(name):
    notebook = read(name)
    tagged = [one for one in notebook.cells if "raises-exception" in one.metadata.get("tags", ())]
    refused = [one for one in tagged if "UsageError" in shown(one)]
    assert failed(notebook) == [one for one in tagged if one not in refused]
    for one in failed(notebook):
        printed = "\n".join(line for out in one.outputs if out.output_type == "error" for line in out.traceback)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
        assert not re.search(r"^File ", plain, re.MULTILINE), "frames of the notebook's own cells, and no others"
    for one in notebook.cells:
        warned = [out.text for out in one.get("outputs", ()) if out.output_type == "stream" and out.name == "stderr"]
        assert one in refused or not warned, warned


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_it_belongs_to_one_machine_or_one_minute(name):
    text = (FOLDER / name).read_text("utf-8")
    for word in MACHINE:
        assert word not in text, word
    for person in {getpass.getuser(), socket.gethostname()} - {"root", "user", "localhost", "runner"}:
        assert not re.search(rf"\b{re.escape(person)}\b", text), person
    notebook = read(name)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert all("execution" not in one.metadata for one in notebook.cells)


@pytest.mark.parametrize("name", NAMES)
def test_a_code_host_can_show_its_panels(name):
    """Widgets need a kernel; what is kept is their static face, and no stored state that would hide it."""
    text = (FOLDER / name).read_text("utf-8")
    assert "application/vnd.jupyter.widget" not in text
    panels = [out for one in read(name).cells for out in one.get("outputs", ()) if "text/html" in out.get("data", {})]
    assert panels and all("text/plain" in out.data for out in panels)
    for out in panels:
        assert "<script" not in out.data["text/html"] and "<svg" not in out.data["text/html"]
    assert len(text) < 1_500_000


@pytest.mark.parametrize("number", ["02", "03", "04", "05"])
def test_the_committed_outputs_are_of_the_kinds_that_the_committed_code_gives(executed, number):
    fresh, _ = executed(number)
    for old, new in zip(read(named(number)).cells, fresh.cells, strict=True):
        if old.cell_type == "code":
            assert kinds(old) == kinds(new), old.source


# -- 02: record, compare, plot ------------------------------------------------------------------------------------


def test_the_runs_are_recorded_compared_and_plotted(executed):
    notebook, folder = executed("02")
    storage = Storage(folder / ".watcherml")
    runs = storage.list_runs()
    assert [row["status"] for row in runs] == ["failed", "success", "success", "success", "success"]
    assert storage.get_capsule(runs[0]["run_id"])["failure"]["class"] == "nan_or_exploding_loss"
    reached = {row["run_id"]: storage.get_metrics(row["run_id"], ["test_accuracy"]) for row in runs}
    assert max(points[-1]["value"] for points in reached.values() if points) > 0.95
    # Of the configuration the learning rate differs and nothing else, as the text says.
    compared = shown(cell(notebook, "%watcher compare"))
    assert "learning_rate" in compared and "width" not in compared
    changed = {key for key in runs[0]["config"] if runs[0]["config"][key] != runs[1]["config"][key]}
    assert changed == {"learning_rate"}
    assert any("image/png" in out.get("data", {}) for out in cell(notebook, "import matplotlib").outputs)


def test_the_best_run_of_the_table_is_the_one_that_the_failed_one_was_made_from(executed):
    notebook, folder = executed("02")
    storage = Storage(folder / ".watcherml")
    table = shown(cell(notebook, "runs = watcherml.frames.runs"))
    assert table.index(storage.list_runs()[1]["run_id"]) < min(
        table.index(row["run_id"]) for row in storage.list_runs()[2:]
    )


# -- 03: a decision ------------------------------------------------------------------------------------------------


def test_what_was_approved_is_verified_and_what_was_rejected_was_not_tried(executed):
    _, folder = executed("03")
    storage = Storage(folder / ".watcherml")
    result = RecoveryResult.of_campaign(storage.audit.campaigns()[0]["campaign_id"], storage)
    assert result.verified and result.standing == "on_record" and result.device_kind == "simulated"
    assert [one.proposal_id for one in result.chain.authorizations] == ["sequence-512"]
    assert {one.request.proposal_id for one in result.trials} == {None, "sequence-512"}
    roles = [one.request.role for one in result.trials]
    assert roles[0] == "control" and roles.count("confirmation") == 2
    assert all(0 < one.result.peak.compared_bytes <= 14 * MIB for one in result.trials)
    assert result.verified_config["block_size"] == 512 and result.verified_config["precision"] == "fp32"
    decided = [one["body"] for one in storage.audit.events(result.campaign_id) if "precision-bf16" in str(one["body"])]
    assert any("Ada" in str(body) and "fp32" in str(body) for body in decided), "the rejection is on record"


def test_nothing_could_run_before_the_decision_and_nothing_was_automatic(executed):
    notebook, _ = executed("03")
    plan = shown(cell(notebook, "%%watcher recover"))
    assert "4 of 4 proposals run only after a person approves them." in " ".join(plan.split())
    assert "[approved]" in plan and "[rejected]" in plan and "[automatic]" not in plan
    verdict = shown(cell(notebook, "recovery.start()"))
    assert verdict.startswith("Verified on the simulated device")
    assert "Ada: Characters that far apart" in shown(cell(notebook, "for given in result.chain"))


def test_the_configuration_that_was_found_trains_here(executed):
    notebook, folder = executed("03")
    latest = Storage(folder / ".watcherml").list_runs()[0]
    assert latest["status"] == "success" and latest["config"]["block_size"] == 512
    told = shown(cell(notebook, "verified = result.verified_config"))
    assert "{'block_size': (1024, 512)}" in told
    assert float(re.search(r"val_loss (\d\.\d+)", told)[1]) < 2.9


# -- 04: the gallery -----------------------------------------------------------------------------------------------

CLASSES = [
    "nan_or_exploding_loss", "tensor_shape_mismatch", "missing_file_or_dataset_path", "dataloader_worker_failure",
    "device_mismatch", "dependency_or_cuda_compatibility", "cuda_out_of_memory", "unclassified",
]  # fmt: skip
# The heading, the causes that explain it alone, and what the first advice says.
CAUSES = {
    "The batch is too big": (["C21"], "smaller"),
    "A leak": (["C10"], "detach"),
    "Evaluation with gradients": (["C16a", "C16b"], "no_grad"),
    "The optimizer's first step": (["C15"], "smaller state"),
}


def under(notebook, heading):
    """The first failing code cell below a heading."""
    start = next(at for at, one in enumerate(notebook.cells) if f"## {heading}" in one.source.split("\n"))
    return next(one for one in notebook.cells[start:] if one in failed(notebook))


def run_of(panel):
    """The run that a failure panel is about."""
    return re.search(r"\bgallery-\w+", panel)[0]


@pytest.mark.parametrize("name", CLASSES)
def test_the_gallery_shows_every_class_under_its_name(executed, name):
    notebook, folder = executed("04")
    capsule = Storage(folder / ".watcherml").get_capsule(run_of(shown(under(notebook, name))))
    assert capsule["failure"]["class"] == name


@pytest.mark.parametrize("heading", CAUSES)
def test_the_gallery_shows_every_cause_under_its_heading(executed, heading):
    notebook, folder = executed("04")
    panel = shown(under(notebook, heading))
    found = Storage(folder / ".watcherml").get_capsule(run_of(panel))["diagnosis"]
    causes, advice = CAUSES[heading]
    assert [one["id"] for one in found["sufficient"]] == causes
    assert advice in found["sentence"] and "Simulated device" in panel


def test_what_the_text_of_a_card_only_suggests_is_not_claimed(executed):
    notebook, folder = executed("04")
    run_id = run_of(shown(under(notebook, "cuda_out_of_memory")))
    found = Storage(folder / ".watcherml").get_capsule(run_id)["diagnosis"]
    assert found["status"] == "insufficient_evidence" and found["sufficient"] == []


def test_the_leak_is_refused_without_a_trial_and_says_how_to_insist(executed):
    notebook, folder = executed("04")
    told = shown(cell(notebook, "recovery.start()"))
    assert told.startswith("not_recovered no_supported_intervention") and "--despite C10" in told
    audit = Storage(folder / ".watcherml").audit
    campaign = audit.campaigns()[0]
    assert audit.trials(campaign["campaign_id"]) == []


def test_a_failure_that_is_not_out_of_memory_is_refused_in_a_sentence(executed):
    notebook, _ = executed("04")
    told = shown(cell(notebook, "shapes = "))
    assert "failed as tensor_shape_mismatch" in told and "trials cannot recover it" in told


# -- 05: away and at home ------------------------------------------------------------------------------------------


def test_the_pack_is_read_at_home_and_stays_as_it_came(executed):
    notebook, folder = executed("05")
    away, home = Storage(folder / ".watcherml"), Storage(folder / "from-colab")
    ids = [row["run_id"] for row in away.list_runs()]
    assert [row["run_id"] for row in home.list_runs()] == ids and len(ids) == 2
    for run_id in ids:
        assert home.get_metrics(run_id) == away.get_metrics(run_id)
    assert home.get_capsule(ids[0]) == away.get_capsule(ids[0])
    listed = shown(cell(notebook, "import sys"))
    assert all(run_id in listed for run_id in ids)
    with zipfile.ZipFile(folder / "watcherml-store.zip") as pack:
        packed = hashlib.sha256(pack.read("watcherml.db")).hexdigest()
    assert hashlib.sha256((folder / "from-colab" / "watcherml.db").read_bytes()).hexdigest() == packed


def test_away_it_installs_only_where_it_is_missing(executed):
    """And from what lies beside it, with the extra, never by a bare name."""
    notebook, _ = executed("05")
    install = cell(notebook, "import importlib.util")
    assert install.outputs == [] and '%pip install -q "{source}"' in install.source
    assert "[notebook]" in install.source and "find_spec" in install.source
