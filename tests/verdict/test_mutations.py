"""Thousands of small edits of plans and results, with digests left or renewed: none is accepted."""

import json
import random
from collections import Counter

import pytest
from mutate import as_it_is, mutate, sealed_everywhere, sealed_outside, sealed_plan
from stored import campaigns, record_by

import watcherml
from watcherml import RecoveryPreparation, RecoveryResult
from watcherml.errors import TrustError, WatcherError
from watcherml.store.storage import Storage
from watcherml.verdict.verify import VERIFIER_VERSION

RESULTS, PLANS = 1_800, 600


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with recorded campaigns, and their chains."""
    storage = Storage(tmp_path_factory.mktemp("store") / ".watcherml")
    return storage, campaigns(storage)


def test_the_originals_are_accepted(store):
    storage, chains = store
    found = [RecoveryResult.from_json(one.to_json(), storage=storage) for one in chains]
    assert [one.standing for one in found] == ["on_record"] * 6
    assert [one.verified for one in found] == [True] * 4 + [False] * 2
    assert {one.status for one in found[4:]} == {"not_recovered"}
    assert all(RecoveryPreparation.from_json(one.plan.to_json(), storage=storage).plan == one.plan for one in chains)


def outcome_of(load, text):
    """Return "accepted", "not verified", or the name of the refusal, which always says what was expected or got."""
    try:
        loaded = load(text)
    except WatcherError as error:
        assert error.expected or error.got, error
        return type(error).__name__
    if isinstance(loaded, RecoveryPreparation):
        return "accepted"
    return "accepted" if loaded.verified or loaded.standing == "on_record" else "not verified"


def attack(documents, count, seals, load):
    rng = random.Random(20_261_130)
    outcomes = Counter()
    while outcomes.total() < count:
        original = rng.choice(documents)
        words, edited, spelling = mutate(json.loads(original), rng)
        seal = rng.choice(seals)
        try:
            text = seal(edited, spelling)
        except (WatcherError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            outcomes["no valid value"] += 1  # the forger's own attempt failed; it can only write what does not decode
            text = as_it_is(edited, spelling)
        if text == original:
            continue
        found = outcome_of(load, text)
        assert found != "accepted", f"{words}, {seal.__name__}"
        outcomes[found] += 1
    return outcomes


def test_no_edited_result_is_accepted(store):
    storage, chains = store
    documents = [one.to_json() for one in chains]
    outcomes = attack(documents, RESULTS, [as_it_is, sealed_outside, sealed_everywhere],
                      lambda text: RecoveryResult.from_json(text, storage=storage))  # fmt: skip
    # The forger gets as far as a consistent document, and it is worth nothing here.
    assert outcomes["not verified"] > RESULTS // 40 and outcomes["InvalidRecord"] > RESULTS // 4
    assert outcomes["TrustError"] > 0


def test_no_edited_plan_is_accepted(store):
    storage, chains = store
    documents = [one.plan.to_json() for one in chains]
    outcomes = attack(documents, PLANS, [as_it_is, sealed_outside, sealed_plan],
                      lambda text: RecoveryPreparation.from_json(text, storage=storage))  # fmt: skip
    assert outcomes["NotOnRecord"] > PLANS // 20 and outcomes["InvalidRecord"] > PLANS // 4


def test_a_verdict_of_another_version_of_the_verifier_is_held_to_its_outcome(tmp_path):
    """As after an upgrade: the record stands if the present checks come to the same outcome, and only then."""
    storage = Storage(tmp_path / ".watcherml")
    older, wrong = (
        record_by(storage, f"older-{number}", changes)
        for number, changes in enumerate(
            [{"verifier_version": 1, "sentence": "Verified, as it was said then."}, {"reason_code": "other"}]
        )
    )
    found = RecoveryResult.from_json(older.to_json(), storage=storage)
    assert found.verified and found.sentence != "Verified, as it was said then."  # what is shown is computed now
    with pytest.raises(TrustError, match="does not follow"):
        RecoveryResult.from_json(wrong.to_json(), storage=storage)
    later = older.replace(verdict=older.verdict.replace(verifier_version=VERIFIER_VERSION + 1))
    with pytest.raises(TrustError, match="later version"):
        RecoveryResult.from_json(later.to_json(), storage=storage)
    lie = older.replace(verdict=older.verdict.replace(status="stopped", config=None))
    with pytest.raises(TrustError, match=r"verdict\.status"):
        RecoveryResult.from_json(lie.to_json(), storage=storage)


@pytest.mark.parametrize("change", [{"approved_by": "somebody"}, {"reason": "no"}, {"approved_at": 1.0}])
def test_an_edited_approval_does_not_run(store, change):
    storage, chains = store
    preparation = RecoveryPreparation.from_json(chains[0].plan.to_json(), storage=storage)
    given = preparation.authorize("sequence-64", approved_by="a@example.org", reason="reviewed")
    before = storage.audit.campaigns()
    with pytest.raises(WatcherError, match="not on record"):
        watcherml.run_prepared_recovery(preparation, [given.replace(**change)])
    assert storage.audit.campaigns() == before
