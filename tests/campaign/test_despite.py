"""``--despite CAUSE``: who may insist on what, what the plan and the verdict keep of it, and no forged way around."""

import pytest
from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT, planned
from stored import recorded_plan

import watcherml
from watcherml.api import data
from watcherml.campaign.despite import refused_by
from watcherml.campaign.prepare import source_of
from watcherml.campaign.source import disagreements
from watcherml.cli.main import main
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidValue, TrustError, UsageError
from watcherml.forensics.capsule import Capsule, Cause, Diagnosis
from watcherml.forensics.causes.thresholds import RULES_VERSION
from watcherml.notebook.recover import parsed
from watcherml.options import permissions, prepare_options
from watcherml.protocol.plan import Refusing, RuledOut
from watcherml.sealed.record import thaw

# More allocated than the device has: the driver lends system memory, and no change of the configuration can help.
LENT = OOM_TEXT.replace("7.10 GiB", "17.10 GiB")


def cause(one):
    return Cause(one, f"cause {one}", 2**30, ("EV-6",), f"{one} holds 1.00 GiB.")


def diagnosis(*ids, **changes):
    status = "diagnosed" if len(ids) == 1 else "ambiguous"
    made = Diagnosis(status, 2**20, "forward", tuple(map(cause, ids)), (), (), (), RULES_VERSION, "It holds it.")
    return made.replace(**changes)


# -- which causes can be insisted on


@pytest.mark.parametrize(
    ("ids", "asked", "told"),
    [
        (["C10"], (), {"C10": False}),
        (["C10"], ("C10",), {"C10": True}),
        (["C10"], ["c10", "C10", " C10 "], {"C10": True}),
        (["C12b"], ("C12B",), {"C12b": True}),
        (["C10"], "C10", {"C10": True}),  # a text is one id, not three letters
        (["C4"], ("C4",), {"C4": True}),
        (["C4", "C10"], ("C10",), {"C4": False, "C10": True}),
        (["C4", "C10"], ("C10", "C4"), {"C4": True, "C10": True}),
        (["C21"], (), None),
        ([], (), None),
    ],
)
def test_the_causes_that_refuse_are_told_with_what_was_insisted_on(ids, asked, told):
    found = refused_by(diagnosis(*ids), asked)
    assert (None if found is None else {one.cause: one.insisted for one in found}) == told


@pytest.mark.parametrize(
    ("ids", "asked", "expected", "got", "remedy"),
    [
        (["C10"], ("C16a",), "C10 (cause C10)", "C16a", "Insist on C10"),
        (["C4", "C10"], ("C1",), "C4 (cause C4), C10 (cause C10)", "C1", "Insist on C4 and C10"),
        (["C10"], ("leak",), "C10", "leak", "Insist on C10"),
        (["C10"], ("",), "C10", "an empty text", "Insist on C10"),
        (["C10"], (10,), "C10", "int", "Insist on C10"),
        (["C10"], (None,), "C10", "NoneType", "Insist on C10"),
        (["C15"], ("C15",), "no cause of this failure refuses", "C15, a cause of this failure that", "Leave it out"),
        (["C10", "C13"], ("C10",), "no cause of this failure", "C10, a cause of this failure that", "Leave it out"),
        ([], ("C10",), "no cause of this failure refuses", "C10", "Leave it out"),
    ],
)
def test_what_refuses_nothing_cannot_be_insisted_on(ids, asked, expected, got, remedy):
    with pytest.raises(InvalidValue, match="despite") as refused:
        refused_by(diagnosis(*ids), asked)
    assert expected in refused.value.expected and refused.value.got.startswith(got)
    assert remedy in refused.value.remedy


# -- a plan and the capsule that it was made for


@pytest.fixture
def failed(storage, failed_run):
    """Return a call that gives a recorded run's row and its capsule with another diagnosis."""
    run_id = failed_run()
    recorded = Capsule.from_json(storage.evidence.capsule(run_id)["document"])

    def make(*ids, **changes):
        return storage.get_run(run_id), recorded.replace(diagnosis=diagnosis(*ids, **changes))

    return make


def plan_for(row, capsule, despite=()):
    return planned(source_of(row, capsule, None, despite), capsule.device)


@pytest.mark.parametrize(
    ("ids", "despite", "proposals", "control"),
    [
        (["C10"], (), False, False),
        (["C10"], ("C10",), True, False),
        (["C4"], (), False, True),
        (["C4"], ("c4",), True, False),
        (["C4", "C10"], ("C10",), False, True),
        (["C4", "C10"], ("C4", "C10"), True, False),
        (["C16a", "C10"], ("C10",), False, False),
    ],
)
def test_only_where_every_cause_is_insisted_on_something_is_proposed(failed, ids, despite, proposals, control):
    row, capsule = failed(*ids)
    made = plan_for(row, capsule, despite)
    assert (bool(made.proposals), made.runs_control_only) == (proposals, control)
    assert disagreements(made, capsule) == []
    assert {one.authority for one in made.proposals} <= {"approval_required"}
    if proposals and "C10" in ids and len(ids) == 1:  # and what this cause alone ruled out is there again
        assert made.source.ruled_out and any("micro_batch_size" in one.capabilities for one in made.proposals)


def refusal(one, insisted=False):
    found = cause(one)
    return Refusing(found.id, found.name, found.sentence, insisted)


FORGED = {
    "insists on what nobody was refused": (["C21"], (), {"refused_by": (refusal("C10", True),)}, "refused_by"),
    "insists on a cause that the capsule does not hold": (
        ["C10"], (), {"refused_by": (refusal("C16a", True),)}, "refused_by[0].cause"),
    "another sentence of the cause": (
        ["C10"], ("C10",), {"refused_by": (refusal("C10", True).replace(sentence="Nothing."),)}, "[0].sentence"),
    "hides the refusal": (["C10"], (), {"refused_by": None}, "plan.source.refused_by"),
    "hides one of two": (["C10", "C16a"], (), {"refused_by": (refusal("C10", True),)}, "plan.source.refused_by"),
    "hides that only the control is tried": (["C4"], (), {"control_only": None}, "plan.source.control_only"),
    "hides both": (["C4"], (), {"control_only": None, "refused_by": None}, "plan.source.refused_by"),
    "leaves open what a cause rules out": (["C15"], (), {"ruled_out": ()}, "plan.source.ruled_out"),
    "supports what no cause supports": (["C10"], ("C10",), {"supports": ("precision",)}, "plan.source.supports"),
    "tries the control alone": (["C21"], (), {"control_only": "Nothing."}, "plan.source.control_only"),
    "drops the horizon": (["C10"], ("C10",), {"horizon_step": None}, "plan.source.horizon_step"),
    "a nearer horizon": (["C10"], ("C10",), {"horizon_step": 1}, "plan.source.horizon_step"),
    "a horizon that nobody measured": (["C21"], (), {"horizon_step": 500}, "plan.source.horizon_step"),
}  # fmt: skip


@pytest.mark.parametrize("edit", FORGED)
def test_a_plan_that_tells_another_refusal_disagrees_with_the_capsule(failed, edit):
    ids, despite, changes, path = FORGED[edit]
    row, capsule = failed(*ids, **({"horizon_step": 386} if "C10" in ids else {}))
    honest = source_of(row, capsule, None, despite)
    forged = planned(honest.replace(**changes), capsule.device)
    assert disagreements(planned(honest, capsule.device), capsule) == []
    assert any(path in one.path for one in disagreements(forged, capsule)), disagreements(forged, capsule)


def test_a_plan_made_under_other_rules_is_held_to_causes_that_the_capsule_holds(failed):
    """Which causes refuse may have been another table then; a plan from before kept none of them."""
    row, capsule = failed("C10", rules_version=RULES_VERSION - 1)
    honest = source_of(row, capsule)
    assert disagreements(planned(honest, capsule.device), capsule) == []
    assert disagreements(planned(honest.replace(refused_by=None), capsule.device), capsule) == []
    for wrong in (refusal("C16a", True), refusal("C10").replace(name="other")):
        assert disagreements(planned(honest.replace(refused_by=(wrong,)), capsule.device), capsule)


def test_a_plan_without_what_its_capsule_refuses_does_not_run(storage, tmp_path):
    """Even one that this store has put on record."""
    run_id = lent_run(storage, tmp_path)
    capsule = Capsule.from_json(storage.evidence.capsule(run_id)["document"])
    honest = source_of(storage.get_run(run_id), capsule)
    forged = planned(honest.replace(refused_by=None, ruled_out=()), capsule.device)
    assert honest.refused_by[0].cause == "C25" and forged.proposals
    storage.audit.put_record(forged.digest, forged.KIND, forged.to_json(), storage.clock())
    with pytest.raises(TrustError, match="refused_by"):
        watcherml.run_prepared_recovery(watcherml.RecoveryPreparation(forged, storage))


def test_a_plan_of_an_ordinary_failure_keeps_nothing_of_it(storage):
    made = recorded_plan(storage, FAILED_CONFIG)
    assert made.source.refused_by is None and made.source.horizon_step is None
    assert "refused_by" not in made.to_json() and "horizon" not in made.to_json()


def test_a_cause_that_is_ruled_out_elsewhere_stays_out(failed):
    row, capsule = failed("C10")
    made = source_of(row, capsule, None, ("C10",))
    other = RuledOut("gradient_checkpointing", "C20", "C20 rules it out: it saves nothing.")
    found = planned(made.replace(ruled_out=(*made.ruled_out, other)), capsule.device)
    assert not any("gradient_checkpointing" in one.capabilities for one in found.proposals)
    assert ("gradient_checkpointing", other.sentence) in {(one.capability, one.reason) for one in found.skipped}


# -- the flag


@pytest.mark.parametrize(
    ("line", "despite"),
    [
        ("--allow-approval-required", ()),
        ("--allow-approval-required --despite C10", ("C10",)),
        ("--despite C10 --despite c4 --allow-approval-required", ("C10", "c4")),
    ],
)
def test_the_magic_and_the_command_take_it_repeatedly(line, despite):
    values = parsed(line)
    assert permissions(values).allow_approval_required and prepare_options(values)["despite"] == despite


@pytest.mark.parametrize("line", ["--despite C10", "--despite C10 --automatic-only"])
def test_insisting_without_anything_that_may_be_approved_is_a_mistake(line):
    with pytest.raises(UsageError, match="--despite") as refused:
        permissions(parsed(line))
    assert "--allow-approval-required" in refused.value.remedy


# -- in real processes, without torch


def lent_run(storage, folder):
    """Record a failure that no change of a configuration can remove, and leave its entrypoint in the folder."""
    (folder / "ent.py").write_text(TEXT_ENTRYPOINT.replace(repr(OOM_TEXT), repr(LENT)))
    run = watcherml.Run("demo", FAILED_CONFIG, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(LENT)
    return run.run_id


def test_a_refusal_is_insisted_on_approved_and_told_by_the_verdict(storage, tmp_path, capsys):
    """Refused; insisted on, without approval: the control alone; with it: verified, and it says despite what."""
    run_id = lent_run(storage, tmp_path)
    flags = ["--entrypoint", "ent:train", "--yes", "--max-trials", "5", "--max-probe-trials", "2", "--max-full-trials",
             "1", "--format", "text"]  # fmt: skip

    def recover(*more):
        capsys.readouterr()
        code = main(["recover", run_id, *flags, *more])
        said = capsys.readouterr()
        return code, " ".join(f"{said.out} {said.err}".split()), data.campaigns(storage)[0]

    code, said, row = recover()
    assert (code, row["status"], row["reason_code"]) == (4, "not_recovered", "no_supported_intervention")
    assert row["trials"] == 0
    assert said.count("--despite C25") >= 2  # the plan and the verdict both name the flag
    assert main(["recover", run_id, *flags, "--allow-approval-required", "--despite", "C10"]) == 1
    assert "C25 (driver oversubscription)" in capsys.readouterr().err

    insisting = ("--allow-approval-required", "--despite", "c25")
    code, said, row = recover(*insisting)
    assert (code, row["reason_code"], row["trials"]) == (4, "needs_approval", 1), said
    assert "tried despite C25 (driver oversubscription)" in said
    assert "despite C25 (driver oversubscription)" in row["sentence"]

    who = ("--approved-by", "a@example.org", "--approval-reason", "the driver's setting cannot be changed here")
    code, said, row = recover(*insisting, "--authorize", "checkpointing", *who)
    assert (code, row["status"], row["trials"]) == (0, "verified", 5), said
    assert "despite C25 (driver oversubscription)" in said
    artifact = storage.path / "artifacts" / row["campaign_id"] / "recovery-result.json"
    result = watcherml.RecoveryResult.from_json(artifact.read_bytes(), storage=storage)
    assert result.verified and result.standing == "on_record" and result.verdict.cause_addressed == "no"


def test_the_sdk_insists_and_its_one_call_recovery_runs_nothing(storage, tmp_path, requirements):
    run_id = lent_run(storage, tmp_path)
    permitted = InterventionPermissions(True, False, False)
    made = watcherml.prepare_oom_recovery(
        run_id, "ent:train", requirements, None, permitted, storage=storage, despite=["C25"]
    )
    assert made.automatic_proposal_ids == () and made.approval_required_proposal_ids
    assert thaw(made.plan.source.to_data())["refused_by"][0]["insisted"] is True
    result = watcherml.recover_from_oom(run_id, "ent:train", requirements, storage=storage, despite="C25")
    assert (result.reason_code, len(result.trials)) == ("no_supported_intervention", 0)
    assert "approval" in result.sentence
    with pytest.raises(InvalidValue, match="despite"):
        watcherml.recover_from_oom(run_id, "ent:train", requirements, storage=storage, despite=["C10"])
