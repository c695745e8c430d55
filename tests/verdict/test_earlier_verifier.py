"""What version 2 of the verifier put on record: trials that name no changes and read nothing back."""

import pytest
from builders import CAMPAIGN, DECIDED, FAILED_CONFIG, good_trials, plan, trial
from stored import record, recorded_plan, rename

from watcherml import RecoveryResult
from watcherml.campaign.decide import decide
from watcherml.errors import TrustError
from watcherml.protocol.proposal import ALLOCATOR
from watcherml.protocol.result import Trial
from watcherml.store.storage import Storage
from watcherml.verdict.verify import VERIFIER_VERSION, verify


def of_version_2(trials):
    """Return the trials as they were sealed before requests named the changes and workers looked for them."""
    made = []
    for one in trials:
        request = one.request.replace(changes=None)
        knobs = tuple(each for each in one.result.knobs if each.capability == ALLOCATOR)
        made.append(Trial(request, one.result.replace(request_digest=request.digest, knobs=knobs)))
    return tuple(made)


def put_on_record(storage, name, **changes):
    """Put a campaign of version 2 on record that was verified then."""
    made = recorded_plan(storage, FAILED_CONFIG)
    now = rename(good_trials(made), name)
    found = verify(name, made, (), now, DECIDED)
    outcome = {key: getattr(found, key) for key in (
        "status", "reason_code", "sentence", "checks", "candidate_id", "config", "confirmation_run_ids",
        "cause_addressed")}  # fmt: skip
    return record(storage, name, made, of_version_2(now), **{**outcome, "verifier_version": 2, **changes})


def test_what_version_2_verified_stays_verified(tmp_path):
    storage = Storage(tmp_path / ".watcherml")
    chain = put_on_record(storage, "of-version-2")
    for found in (RecoveryResult.of_campaign("of-version-2", storage),
                  RecoveryResult.from_json(chain.to_json(), storage=storage)):  # fmt: skip
        assert found.verified and found.standing == "on_record"
        assert found.verdict.verifier_version == 2
        assert [one.request.changes for one in found.trials] == [None] * 5  # shown as they are on record


@pytest.mark.parametrize("changes", [{"status": "not_recovered", "config": None}, {"reason_code": "other"},
                                     {"verifier_version": VERIFIER_VERSION}])  # fmt: skip
def test_an_outcome_that_version_2_would_not_have_come_to_is_refused(tmp_path, changes):
    storage = Storage(tmp_path / ".watcherml")
    put_on_record(storage, "of-version-2", **changes)
    with pytest.raises(TrustError, match="does not follow"):
        RecoveryResult.of_campaign("of-version-2", storage)


MADE = plan()
GOOD = good_trials(MADE)


def test_what_names_no_changes_is_no_chain_of_the_present_version():
    assert verify(CAMPAIGN, MADE, (), of_version_2(GOOD), DECIDED).reason_code == "broken_chain"
    assert verify(CAMPAIGN, MADE, (), of_version_2(GOOD), DECIDED, version=2).status == "verified"


def test_a_campaign_that_version_2_began_spends_nothing_more():
    begun = of_version_2(GOOD)[:2]
    assert decide(MADE, (), frozenset(), GOOD[:2]) != DECIDED
    assert decide(MADE, (), frozenset(), begun) == DECIDED
    assert verify(CAMPAIGN, MADE, (), begun, DECIDED).reason_code == "broken_chain"


def forged(position, request=None, **result):
    """Return the trials of version 2 with one of them edited, its result bound to the request again."""
    trials = list(of_version_2(GOOD))
    made = trials[position].request.replace(**(request or {}))
    trials[position] = Trial(made, trials[position].result.replace(**{"request_digest": made.digest, **result}))
    return tuple(trials)


@pytest.mark.parametrize(
    "trials",
    [
        of_version_2(GOOD)[:-1],
        forged(2, request_digest=MADE.digest),  # a result of another request is not bound to the one that is read now
        forged(2, request={"max_steps": 3}),
        forged(3, exit_code=1),
        (*of_version_2(GOOD), *of_version_2([trial(MADE, "control", 6)])),
    ],
)
def test_every_other_check_holds_for_version_2_too(trials):
    assert verify(CAMPAIGN, MADE, (), trials, DECIDED, version=2).status != "verified"


def test_a_trial_that_does_name_changes_is_held_to_them_whatever_the_version():
    named = list(of_version_2(GOOD))
    named[2] = Trial(GOOD[2].request, GOOD[2].result.replace(knobs=()))
    assert verify(CAMPAIGN, MADE, (), tuple(named), DECIDED, version=2).status != "verified"
