"""A plan holds together or does not exist: edits that keep every digest right are refused with the path."""

import copy

import pytest
from builders import CONFIG, MIB, approve, plan, planned, source

from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidRecord, InvalidValue, NotAuthorized, NotFound
from watcherml.planning.authorize import approvals_given, authorize, check_authorization, rejections_given
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import apply_changes, config_digest
from watcherml.sealed.device import Device

PLAN = plan()
CUDA = Device("cuda", "H", 96 * MIB)
CUDA_PLAN = planned(source(device=CUDA, slack_bytes=40 * MIB), CUDA)


def proposal(data, proposal_id):
    return next(one for one in data["proposals"] if one["proposal_id"] == proposal_id)


def capability(data, name):
    return next(one for one in data["capabilities"] if one["name"] == name)


def retarget(data, proposal_id, change):
    """Change a proposal's first change and bind its configuration again, as a forger would."""
    one = proposal(data, proposal_id)
    one["changes"][0].update(change)
    made = PLAN.proposal(proposal_id)
    changes = tuple(type(made.changes[0]).from_data(each) for each in one["changes"])
    one["config_digest"] = config_digest(apply_changes(data["source"]["config"], changes))


def set_config(data, **values):
    """Change the source's configuration and bind the contract to it again."""
    data["source"]["config"].update(values)
    data["contract"]["source_config_digest"] = config_digest(data["source"]["config"])


def hide(data):
    """Add a proposal of a harmless and a semantic change that calls itself harmless."""
    one = copy.deepcopy(proposal(data, "sequence-64"))
    one["changes"].append(copy.deepcopy(proposal(data, "checkpointing")["changes"][0]))
    config = {**CONFIG, "sequence_length": 64, "gradient_checkpointing": True}
    one.update(proposal_id="hidden", semantic=False, config_digest=config_digest(config))
    data["proposals"].append(one)


EDITS = {
    "an approval-required proposal called automatic": (
        lambda d: proposal(d, "sequence-64").update(authority="automatic"), "sequence-64.authority"),
    "a semantic change called harmless": (
        lambda d: proposal(d, "sequence-64").update(semantic=False), "sequence-64.semantic"),
    "a lower risk": (lambda d: proposal(d, "sequence-64").update(risk="low"), "sequence-64.risk"),
    "a control that was not found": (lambda d: d["capabilities"].pop(0), "control that was found"),
    "a control found twice": (lambda d: d["capabilities"].append(d["capabilities"][0]), "each name once"),
    "a control found elsewhere": (
        lambda d: capability(d, "micro_batch_size").update(path=["training_steps"], value=50), "micro_batch_size.path"),
    "a change under a gentler control's name": (
        lambda d: retarget(d, "sequence-64", {"capability": "micro_batch_size"}), "micro_batch_size.path"),
    "a change of a value nobody found": (
        lambda d: retarget(d, "batch-32x2", {"path": ["training_steps"], "before": 50}), "micro_batch_size.path"),
    "another value after the change": (
        lambda d: proposal(d, "batch-32x2")["changes"][0].update(after=1), "batch-32x2.config_digest"),
    "another value before the change": (
        lambda d: proposal(d, "batch-32x2")["changes"][0].update(before=128), "config.batch_size"),
    "a change that changes nothing": (
        lambda d: proposal(d, "batch-32x2")["changes"][0].update(after=64), "another value"),
    "the same path twice": (
        lambda d: proposal(d, "checkpointing")["changes"].append(proposal(d, "checkpointing")["changes"][0]),
        "each path once"),
    "another value than the configuration's": (
        lambda d: capability(d, "micro_batch_size").update(value=32), "capabilities.micro_batch_size.value"),
    "a control that says it is the environment's": (
        lambda d: capability(d, "micro_batch_size").update(source="environment"), "micro_batch_size.value"),
    "an effective batch that is not preserved": (
        lambda d: proposal(d, "checkpointing").update(effective_batch="preserved"), "checkpointing.effective_batch"),
    "an effective batch called untouched": (
        lambda d: proposal(d, "batch-32x2").update(effective_batch="untouched"), "batch-32x2.effective_batch"),
    "a control trial that stops early": (lambda d: d.update(control_max_steps=3), "control_max_steps"),
    "a semantic change hidden behind a harmless one": (
        lambda d: hide(d), "hidden.semantic"),
    "no change at all": (lambda d: proposal(d, "checkpointing").update(changes=[]), "at least one change"),
    "two proposals of one id": (
        lambda d: d["proposals"].append(copy.deepcopy(d["proposals"][0])), "unique proposal ids"),
    "another configuration": (lambda d: d["source"]["config"].update(batch_size=128), "source_config_digest"),
    "another configuration, bound": (lambda d: set_config(d, batch_size=128), "capabilities.micro_batch_size.value"),
    "one more key in the configuration, bound": (lambda d: set_config(d, extra=1), "config_digest"),
    "another run": (lambda d: d["source"].update(run_id="other"), "source_run_id"),
    "another capsule": (lambda d: d["source"].update(capsule_digest="sha256:" + "0" * 64), "source_capsule_digest"),
    "another class of failure": (lambda d: d["source"].update(failure_class="unclassified"), "source_failure_class"),
    "a permission taken back": (
        lambda d: d["contract"]["permissions"].update(allow_approval_required=False), "allow_approval_required"),
    "a meaning not permitted": (
        lambda d: d["contract"]["permissions"].update(allow_semantic_changes=False), "allow_semantic_changes"),
    "more trials than a contract may have": (lambda d: d["contract"]["budget"].update(max_trials=11), "max_trials"),
    "a budget that does not add up": (lambda d: d["contract"]["budget"].update(max_full_trials=6), "max_trials"),
    "longer probes than full trials": (lambda d: d["contract"]["budget"].update(probe_steps=51), "probe_steps"),
    "a trial longer than the campaign": (
        lambda d: d["contract"]["budget"].update(trial_timeout_seconds=15_000.0), "trial_timeout_seconds"),
    "a control of no length": (lambda d: d.update(control_max_steps=0), "control_max_steps"),
    "a simulated device without a budget": (
        lambda d: d["contract"]["device"].update(budget_bytes=None), "budget_bytes"),
    "a configuration that is no object": (
        lambda d: d["source"].update(config=[1]) or d["contract"].update(source_config_digest=config_digest([1])),
        "Source.config"),
    "any other variable": (
        lambda d: proposal(d, "checkpointing").update(environment={"LD_PRELOAD": "x.so"}), "environment"),
    "the allocator under one name": (
        lambda d: proposal(d, "checkpointing").update(environment={"PYTORCH_ALLOC_CONF": "a:b"}), "both names"),
    "the allocator without its control": (
        lambda d: (proposal(d, "checkpointing").update(
            environment={"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "a:b"}),
            d["capabilities"].remove(capability(d, "allocator_configuration"))), "control that was found"),
    "the allocator beside an automatic change": (
        lambda d: proposal(d, "checkpointing").update(
            environment={"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "a:b"}), "checkpointing.authority"),
    "an id that is a path": (lambda d: proposal(d, "checkpointing").update(proposal_id="../x"), "proposal_id"),
    "33 proposals": (lambda d: d.update(proposals=[d["proposals"][0]] * 33), "proposals"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_does_not_decode(edit):
    change, words = EDITS[edit]
    data = PLAN.to_data()
    change(data)
    with pytest.raises(InvalidRecord) as refused:
        RecoveryPlan.from_data(data)
    assert words in str(refused.value) and refused.value.expected and refused.value.got


def test_a_proposal_for_both_names_of_the_allocator_needs_both_to_say_the_same():
    made = CUDA_PLAN.proposal("expandable-segments")
    with pytest.raises(InvalidValue, match="both names"):
        made.replace(environment={"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "a:c"})
    with pytest.raises(InvalidValue, match="environment"):
        made.replace(environment=dict.fromkeys(made.environment, "a\n:b"))


def test_a_configuration_has_at_most_a_million_bytes():
    room = 1_000_000 - len('{"text":""}')
    assert source({"text": "x" * room}).config["text"]
    with pytest.raises(InvalidValue, match=r"Source\.config"):
        source({"text": "x" * (room + 1)})


# -- authority


def test_an_approval_is_bound_to_one_proposal_of_one_plan():
    made, other = plan(), plan({**CONFIG, "batch_size": 128})
    given = approve(made, "sequence-64")
    check_authorization(made, given)
    with pytest.raises(NotAuthorized, match="plan_digest"):
        check_authorization(other, given)
    with pytest.raises(NotAuthorized, match="proposal_digest"):
        check_authorization(made, given.replace(proposal_id="batch-32x2"))
    with pytest.raises(NotAuthorized, match="proposal_digest"):
        check_authorization(made, given.replace(proposal_digest=made.proposal("sequence-32").digest))
    with pytest.raises(NotFound, match="sequence-64"):
        approve(made, "nothing")
    with pytest.raises(NotFound):
        check_authorization(made, given.replace(proposal_id="nothing"))


def test_approvals_come_by_proposal_in_a_list_or_alone():
    given = approve(PLAN, "sequence-64")
    for shape in ({"sequence-64": given}, [given], (given,), iter([given]), given):
        assert approvals_given(shape) == (given,)
    assert approvals_given(()) == approvals_given({}) == ()
    with pytest.raises(NotAuthorized, match="sequence-32"):
        approvals_given({"sequence-32": given})


@pytest.mark.parametrize("wrong", ["sequence-64", ["sequence-64"], {"sequence-64": None}, None, 5, [("a", "b")]])
def test_what_is_no_approval_is_refused_and_says_how_to_make_one(wrong):
    with pytest.raises(InvalidValue, match=r"authorizations: expected approvals.*preparation\.authorize"):
        approvals_given(wrong)


@pytest.mark.parametrize("wrong", [["sequence-64"], "no", {"sequence-64": "no"}, {"sequence-64": ("a",)},
                                   {"sequence-64": None}, {"sequence-64": (1, 2)}])  # fmt: skip
def test_a_rejection_says_who_and_why(wrong):
    assert rejections_given({"sequence-64": ("a", "b")}) == {"sequence-64": ("a", "b")} and not rejections_given(None)
    with pytest.raises(InvalidValue, match=r"rejections.*who, why"):
        rejections_given(wrong)


def test_an_unknown_proposal_is_named_whatever_it_is():
    for wrong in (None, 5, "x" * 10_000, ("a",)):
        with pytest.raises(NotFound, match=r"no proposal .* in this plan.*sequence-64"):
            PLAN.proposal(wrong)


def test_an_approval_of_a_proposal_is_worth_nothing_once_the_proposal_changed():
    made = plan()
    given = approve(made, "sequence-64")
    changed = made.proposal("sequence-64").replace(title="Shorten sequences")
    proposals = tuple(changed if one.proposal_id == "sequence-64" else one for one in made.proposals)
    with pytest.raises(NotAuthorized):
        check_authorization(made.replace(proposals=proposals), given)


def test_nothing_beyond_the_ceiling_can_be_approved():
    closed = plan(permissions=InterventionPermissions(False, False, False))
    with pytest.raises(NotFound):
        approve(closed, "sequence-64")
    with pytest.raises(InvalidValue, match="allow_semantic_changes"):
        PLAN.replace(contract=PLAN.contract.replace(permissions=InterventionPermissions(True, False, False)))


@pytest.mark.parametrize(
    ("field", "inside", "outside"),
    [
        ("approved_by", ("a", "x" * 400, " a "), ("", "  ", "\n\t", "x" * 401)),
        ("reason", ("a", "x" * 2_000, "two\nlines"), ("", "  ", "x" * 2_001)),
    ],
)
def test_who_and_why_are_asked_for(field, inside, outside):
    def give(value):
        words = {"approved_by": "a@example.org", "reason": "reviewed", field: value}
        return authorize(PLAN, "sequence-64", now=1000.0, **words)

    for value in inside:
        assert Authorization.from_json(give(value).to_json()) == give(value)
    for value in outside:
        with pytest.raises(InvalidValue, match=field):
            give(value)
