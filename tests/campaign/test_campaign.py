"""Whole campaigns in real processes, without torch: what is verified, what is not, and what stays on record."""

import json

import pytest

import watcherml
from watcherml import (
    InterventionPermissions,
    RecoveryBudget,
    RecoveryPreparation,
    RecoveryResult,
    VerificationRequirements,
    WorkloadIdentity,
)
from watcherml.campaign import resume
from watcherml.errors import (
    CampaignError,
    InvalidConfig,
    InvalidRecord,
    InvalidValue,
    NotAuthorized,
    NotFound,
    NotOnRecord,
    RecoveryRefused,
    TrustError,
)
from watcherml.sealed.record import thaw
from watcherml.store.storage import Storage

SMALL = RecoveryBudget(max_trials=6, max_probe_trials=3, max_full_trials=1)


def recover(storage, run_id, requirements, target="ent:train", budget=SMALL, **options):
    return watcherml.recover_from_oom(run_id, target, requirements, budget, storage=storage, **options)


def test_a_recovery_is_verified_and_everything_is_on_record(storage, failed_run, requirements):
    run_id = failed_run()
    result = recover(storage, run_id, requirements)
    assert result.verified and result.standing == "on_record", result.sentence
    assert result.verified_candidate_id == "checkpointing" and result.verified_config["gradient_checkpointing"] is True
    assert len(set(result.verified_run_ids)) == 2
    rows = storage.audit.trials(result.campaign_id)
    assert [row["role"] for row in rows] == ["control", "probe", "probe", "full", "confirmation", "confirmation"]
    assert [row["outcome"] for row in rows] == ["oom", "oom", "completed", "completed", "completed", "completed"]
    kinds = [event["type"] for event in storage.audit.events(result.campaign_id)]
    assert kinds[0] == "prepared" and kinds[1] == "started" and kinds[-1] == "ended"
    assert kinds.count("trial_started") == kinds.count("trial_ended") == 6 and "ranked" in kinds
    artifact = storage.path / "artifacts" / result.campaign_id / "recovery-result.json"
    assert RecoveryResult.from_json(artifact.read_bytes(), storage=storage).verified
    assert len(storage.list_runs()) == 1 and len(watcherml.frames.trials(storage=storage)) == 6


def test_an_entrypoint_that_ignores_its_configuration_is_not_recovered(storage, failed_run, requirements):
    result = recover(storage, failed_run(), requirements, "ent:constant")
    assert not result.verified
    assert (result.status, result.reason_code) == ("not_recovered", "source_failure_not_reproduced")
    assert "control trial passed" in result.sentence
    assert [row["role"] for row in storage.audit.trials(result.campaign_id)] == ["control"]


def test_a_run_that_reports_no_progress_is_not_recovered(storage, failed_run, requirements):
    result = recover(storage, failed_run(), requirements, "ent:idle")
    assert not result.verified and result.reason_code == "no_candidate_passed_probe"


def test_a_missing_declared_identity_is_never_a_pass(storage, failed_run, requirements):
    wanted = requirements.replace(workload_identity=WorkloadIdentity(dataset_fingerprint="sha256:" + "0" * 64))
    result = recover(storage, failed_run(), wanted)
    assert not result.verified and result.reason_code == "workload_differs"
    assert len(result.trials) == 1  # the control already shows it: nothing more is spent
    assert any(
        c.name.endswith("identity.dataset_fingerprint") and c.outcome == "missing" for c in result.verdict.checks
    )


def test_an_edited_entrypoint_is_another_workload(storage, failed_run, requirements, tmp_path):
    preparation = watcherml.prepare_oom_recovery(failed_run(), "ent:train", requirements, SMALL, storage=storage)
    (tmp_path / "ent.py").write_text((tmp_path / "ent.py").read_text() + "\n# edited\n")
    result = watcherml.run_prepared_recovery(preparation)
    assert not result.verified
    assert any(check.name == "code" and "ent.py is another" in check.observed for check in result.verdict.checks)


def test_an_edited_late_import_is_another_workload(storage, failed_run, requirements, tmp_path):
    run_id = failed_run()
    (tmp_path / "late.py").write_text("VALUE = 0.4\n")
    (tmp_path / "lazy.py").write_text(
        "import ent, pathlib\n"
        "def train(config, max_steps=None):\n"
        "    found = ent.train(config, max_steps)\n"
        "    import late\n"
        "    if max_steps is None:\n"
        "        path = pathlib.Path(late.__file__)\n"
        "        path.write_text(path.read_text() + '# edited\\n')\n"
        "    return found\n"
    )
    result = recover(storage, run_id, requirements, "lazy:train")
    assert not result.verified and result.reason_code == "workload_changed"
    assert any(check.name == "same_code" and check.outcome == "fail" for check in result.verdict.checks)


def test_changed_data_is_another_workload(storage, failed_run, requirements, tmp_path):
    from builders import OOM_TEXT

    failed_run()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("one")
    run = watcherml.Run(
        "demo", {"batch_size": 64, "gradient_checkpointing": False, "training_steps": 50}, storage, quiet=True
    )
    with pytest.raises(RuntimeError), run:
        run.set_dataset(tmp_path / "data")
        raise RuntimeError(OOM_TEXT)
    assert recover(storage, run.run_id, requirements).verified
    (tmp_path / "data" / "a.txt").write_text("two")
    result = recover(storage, run.run_id, requirements)
    assert not result.verified
    assert any(check.name.endswith("identity.dataset_fingerprint") and check.outcome == "fail"
               for check in result.verdict.checks)  # fmt: skip


def test_an_approved_proposal_runs_and_an_unapproved_one_does_not(storage, failed_run, tmp_path):
    (tmp_path / "seq.py").write_text(
        "def train(config, max_steps=None):\n"
        "    if config['sequence_length'] > 64: raise RuntimeError('CUDA out of memory. Tried to allocate 20.00 MiB. "
        "GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is free.')\n"
        "    return {'steps_completed': max_steps or 50}\n"
    )
    run = watcherml.Run("demo", {"sequence_length": 128, "batch_size": 1}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB"
            " is free."
        )
    preparation = watcherml.prepare_oom_recovery(
        run.run_id, "seq:train", VerificationRequirements(50), SMALL,
        InterventionPermissions(allow_approval_required=True, allow_semantic_changes=True), storage=storage,
    )  # fmt: skip
    assert preparation.approval_required_proposal_ids[0] == "sequence-64" and not preparation.automatic_proposal_ids
    refused = watcherml.run_prepared_recovery(preparation)
    assert refused.reason_code == "needs_approval"
    approval = preparation.authorize("sequence-64", approved_by="engineer@example.com", reason="shorter is fine")
    result = watcherml.run_prepared_recovery(preparation, authorizations={"sequence-64": approval})
    assert result.verified and result.verified_config["sequence_length"] == 64


def test_a_plan_runs_only_in_the_store_that_made_it(storage, failed_run, requirements, tmp_path):
    preparation = watcherml.prepare_oom_recovery(failed_run(), "ent:train", requirements, SMALL, storage=storage)
    assert RecoveryPreparation.from_json(preparation.to_json(), storage=storage).plan == preparation.plan
    other = Storage(tmp_path / "other")
    other.create()
    with pytest.raises(NotOnRecord, match="prepared in"):
        RecoveryPreparation.from_json(preparation.to_json(), storage=other)
    forged = preparation.plan.replace(notes=("forged",))
    with pytest.raises(NotOnRecord):
        watcherml.run_prepared_recovery(RecoveryPreparation(forged, storage))
    assert storage.audit.campaigns() == []


def test_forged_results_are_refused_whatever_their_digests_say(storage, failed_run, requirements, tmp_path):
    result = recover(storage, failed_run(), requirements, "ent:constant")
    text = result.to_json()
    forged_verdict = result.verdict.replace(status="verified", candidate_id="checkpointing")
    forged = result.chain.replace(verdict=forged_verdict)
    with pytest.raises(TrustError, match="does not follow"):
        RecoveryResult.from_json(forged.to_json(), storage=storage)
    with pytest.raises(InvalidRecord):
        RecoveryResult.from_json(text.replace("not_recovered", "verified"), storage=storage)
    document = json.loads(text)
    document["value"]["trials"] = []
    with pytest.raises(InvalidRecord):
        RecoveryResult.from_json(json.dumps(document), storage=storage)


def test_a_consistent_result_of_another_store_is_unrecorded(storage, failed_run, requirements, tmp_path):
    result = recover(storage, failed_run(), requirements)
    elsewhere = RecoveryResult.from_json(result.to_json(), storage=tmp_path / "nowhere")
    assert elsewhere.status == elsewhere.standing == "unrecorded"
    assert not elsewhere.verified and elsewhere.verified_config is None
    renamed = result.chain.replace(campaign_id="other")
    with pytest.raises(TrustError):
        RecoveryResult.from_json(renamed.to_json(), storage=storage)


def test_a_supervisor_that_ended_between_two_looks_is_not_taken_for_lost(
    storage, failed_run, requirements, monkeypatch
):
    campaign_id = recover(storage, failed_run(), requirements, "ent:constant").campaign_id
    row, look, rows = storage.audit.campaign(campaign_id), storage.audit.campaign, []

    def before_its_end(name):
        rows.append(name)
        return {**row, "last_change": "trial_ended"} if len(rows) == 1 else look(name)

    monkeypatch.setattr(storage.audit, "campaign", before_its_end)
    assert resume.lifecycle(storage, campaign_id) == "ended" and len(rows) == 2
    rows.clear()
    row["last_change"] = "trial_ended"
    monkeypatch.setattr(storage.audit, "campaign", lambda name: row)
    assert resume.lifecycle(storage, campaign_id) == "interrupted"


def test_what_cannot_be_prepared_is_refused_with_the_reason(storage, failed_run, requirements, tmp_path):
    failed_run()
    with pytest.raises(NotFound, match="no run"):
        watcherml.prepare_oom_recovery("nobody", "ent:train", requirements, storage=storage)
    with watcherml.Run("demo", {}, storage, quiet=True) as good:
        pass
    with pytest.raises(NotFound, match="no capsule"):
        watcherml.prepare_oom_recovery(good.run_id, "ent:train", requirements, storage=storage)
    with pytest.raises(ValueError), watcherml.Run("demo", {}, storage, quiet=True) as other:
        raise ValueError("no")
    with pytest.raises(RecoveryRefused, match="unclassified"):
        watcherml.prepare_oom_recovery(other.run_id, "ent:train", requirements, storage=storage)
    for config, word in (({"api_key": "secret-words"}, "api_key"), ({"where": tmp_path}, "where")):
        run_id = failed_run(**config)
        with pytest.raises(InvalidConfig, match=word):
            watcherml.prepare_oom_recovery(run_id, "ent:train", requirements, storage=storage)


def test_a_campaign_id_is_used_once(storage, failed_run, requirements):
    preparation = watcherml.prepare_oom_recovery(failed_run(), "ent:constant", requirements, SMALL, storage=storage)
    assert watcherml.run_prepared_recovery(preparation, campaign_id="mine").campaign_id == "mine"
    with pytest.raises(CampaignError, match="exists already"):
        watcherml.run_prepared_recovery(preparation, campaign_id="mine")


@pytest.mark.parametrize("name", ["../../escaped", "a b", "x" * 200, "", ".hidden", "a/b", "a\nb"])
def test_a_campaign_id_that_is_no_id_leaves_nothing_behind(storage, failed_run, requirements, tmp_path, name):
    preparation = watcherml.prepare_oom_recovery(failed_run(), "ent:constant", requirements, SMALL, storage=storage)
    with pytest.raises(InvalidRecord, match="campaign_id"):
        watcherml.start_recovery(preparation, campaign_id=name)
    assert storage.audit.campaigns() == [] and not (storage.path / "artifacts").exists()


def test_hostile_names_are_text(storage, tmp_path, requirements):
    from builders import OOM_TEXT, TEXT_ENTRYPOINT

    (tmp_path / "ent.py").write_text(TEXT_ENTRYPOINT)
    name = "<script>alert(1)</script>\n\x1b[31m" + "x" * 300
    config = {"batch_size": 64, "gradient_checkpointing": False, "training_steps": 50, name: name}
    run = watcherml.Run(name, config, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(OOM_TEXT + name)
    result = recover(storage, run.run_id, requirements)
    assert result.verified and result.verified_config[name] == name
    assert thaw(result.chain.plan.source.config) == config


def test_whole_floats_reach_the_trial_and_the_verified_configuration_as_floats(
    storage, failed_run, requirements, tmp_path
):
    """A trainer may take 1.0 for "all batches" and 1 for "one batch"."""
    run_id = failed_run(limit_train_batches=1.0, weights=[1.0, 2, 0.5], nested={"a/b": 3.0})
    path = tmp_path / "ent.py"
    path.write_text(
        path.read_text()
        + """
def typed(config, max_steps=None):
    if type(config["limit_train_batches"]) is not float or [type(w) for w in config["weights"]] != [float, int, float]:
        raise TypeError("the configuration changed on its way")
    if type(config["nested"]["a/b"]) is not float or type(config["batch_size"]) is not int:
        raise TypeError("the configuration changed on its way")
    return train(config, max_steps)
"""
    )
    result = recover(storage, run_id, requirements, "ent:typed")
    assert result.verified, result.sentence
    found = result.verified_config
    assert type(found["limit_train_batches"]) is float and found["weights"] == [1.0, 2, 0.5]
    assert [type(one) for one in found["weights"]] == [float, int, float] and result.verified_environment == {}


def test_a_file_edited_after_the_control_takes_no_credit(storage, failed_run, requirements, tmp_path):
    """The entrypoint ignores its configuration; a module that it imports late is mended while the campaign runs."""
    run_id = failed_run()
    (tmp_path / "late.py").write_text("FITS = False\n")
    path = tmp_path / "ent.py"
    path.write_text(
        path.read_text()
        + f"""
def mended(config, max_steps=None):
    import late
    if config["batch_size"] == 64 and not config["gradient_checkpointing"]:
        pathlib.Path({str(tmp_path / "late.py")!r}).write_text("FITS = True  # mended after the control\\n")
        raise RuntimeError(OOM)
    if not late.FITS:
        raise RuntimeError(OOM)
    return {{"steps_completed": max_steps or 50, "val_loss": 0.4}}
"""
    )
    result = recover(storage, run_id, requirements, "ent:mended")
    assert (result.status, result.reason_code) == ("not_recovered", "workload_changed")
    assert "late.py" in result.sentence and len(result.trials) == 2  # the probe showed it: nothing more is spent
    assert any(check.name == "same_code" and check.observed == "late.py" for check in result.verdict.checks)


def test_an_approval_counts_only_for_what_it_names(storage, failed_run, requirements):
    run_id = failed_run(sequence_length=128)
    wide = InterventionPermissions(True, True, False)
    made = watcherml.prepare_oom_recovery(run_id, "ent:train", requirements, SMALL, wide, storage=storage)
    other = watcherml.prepare_oom_recovery(
        run_id, "ent:train", requirements.replace(confirmation_runs=1), SMALL, wide, storage=storage
    )
    given = made.authorize("sequence-64", approved_by="a@example.org", reason="reviewed")
    with pytest.raises(NotAuthorized, match="plan_digest"):
        watcherml.start_recovery(other, [given])
    with pytest.raises(NotAuthorized, match="sequence-32"):
        watcherml.start_recovery(made, {"sequence-32": given})
    for wrong in ({"authorizations": ["sequence-64"]}, {"rejections": {"sequence-64": "no"}}):
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            watcherml.start_recovery(made, **wrong)
    with pytest.raises(NotAuthorized, match="both"):
        watcherml.start_recovery(made, [given], rejections={"sequence-64": ("b", "no")})
    assert storage.audit.campaigns() == []


def test_a_campaign_is_opened_whole_or_not_at_all(storage, failed_run, requirements, monkeypatch):
    """A rejection that could not be put on record must not leave a campaign that would try what was rejected."""
    from watcherml.campaign.ledger import Ledger, Settings
    from watcherml.store import audit

    made = watcherml.prepare_oom_recovery(failed_run(), "ent:train", requirements, SMALL, storage=storage)
    write = audit._event

    def dies_at_the_rejection(connection, campaign_id, kind, body, at):
        if kind == "rejected":
            raise KeyboardInterrupt
        return write(connection, campaign_id, kind, body, at)

    monkeypatch.setattr(audit, "_event", dies_at_the_rejection)
    with pytest.raises(KeyboardInterrupt):
        Ledger.open_new(storage, "c1", made.plan, (), {"checkpointing": ("a", "no")}, Settings(".", "python"))
    assert storage.audit.campaigns() == []
