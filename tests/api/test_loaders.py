"""Loading a result or a plan: what a real campaign's record lets count, and what it does not."""

import json
import os
import shutil
import sqlite3

import builders
import pytest
from builders import DECIDED, FAILED_CONFIG, approve, good_trials
from stored import recorded_plan, rename

import watcherml
from watcherml import RecoveryPreparation, RecoveryResult
from watcherml.campaign import source
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.errors import InvalidRecord, NotOnRecord, TrustError
from watcherml.forensics.capsule import Capsule
from watcherml.protocol.verdict import Ending, RecoveryChain
from watcherml.sealed.record import thaw
from watcherml.store.storage import Storage
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

SMALL = watcherml.RecoveryBudget(max_trials=5, max_probe_trials=3, max_full_trials=1)


class Recovered:
    """Two real campaigns of one plan, and another plan of the same failure."""

    def __init__(self, folder):
        (folder / "ent.py").write_text(builders.TEXT_ENTRYPOINT)
        self.storage = Storage(folder / ".watcherml")
        run = watcherml.Run("demo", builders.FAILED_CONFIG, self.storage, quiet=True)
        with pytest.raises(RuntimeError), run:
            raise RuntimeError(builders.OOM_TEXT)
        self.run_id = run.run_id
        wanted = watcherml.VerificationRequirements(
            minimum_progress_steps=50,
            metric_guards=(watcherml.MetricGuard("val_loss", "minimize", 0.42, 0.03),),
            confirmation_runs=1,
        )
        self.preparation = self._prepare(wanted, folder)
        self.other_plan = self._prepare(wanted.replace(minimum_progress_steps=40), folder).plan
        self.first, self.second = (
            watcherml.run_prepared_recovery(self.preparation, project_root=folder, campaign_id=name)
            for name in ("first", "second")
        )
        self.capsule = Capsule.from_json(self.storage.evidence.capsule(self.run_id)["document"])

    def _prepare(self, wanted, folder):
        return watcherml.prepare_oom_recovery(
            self.run_id, "ent:train", wanted, SMALL, project_root=folder, storage=self.storage
        )

    def load(self, chain, storage=None):
        return RecoveryResult.from_json(chain.to_json(), storage=storage or self.storage)


@pytest.fixture(scope="module")
def recovered(tmp_path_factory):
    return Recovered(tmp_path_factory.mktemp("recovered"))


@pytest.fixture
def copied(recovered, tmp_path):
    """A copy of the store that a test may damage."""
    shutil.copytree(recovered.storage.path, tmp_path / "copy")
    return Storage(tmp_path / "copy")


def sealed(chain, **changes):
    """Return the chain with parts changed, and ranking, verdict and every digest made to fit again."""
    made = chain.replace(**changes)
    parts = (made.plan, made.authorizations, made.trials)
    return made.replace(ranking=rank(*parts), verdict=verify(made.campaign_id, *parts, made.ending))


def damage(storage, statement, *values):
    connection = sqlite3.connect(storage.database.path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_a_result_on_record_says_what_it_is(recovered):
    for result in (recovered.first, recovered.load(recovered.first.chain)):
        assert result.verified and (result.standing, result.status) == ("on_record", "verified")
        assert result.sentence == result.verdict.sentence
        assert repr(result) == "<RecoveryResult first verified: verified_recovery>"


def test_elsewhere_the_same_result_is_a_claim_and_says_so(recovered, tmp_path):
    empty = Storage(tmp_path / "empty")
    empty.create()
    for storage in (empty, Storage(tmp_path / "nowhere")):
        result = recovered.load(recovered.first.chain, storage)
        assert (result.standing, result.status, result.verified) == ("unrecorded", "unrecorded", False)
        assert result.sentence == f"Verified elsewhere, not by this store: {result.verdict.sentence}"
        assert repr(result) == "<RecoveryResult first unrecorded: claims verified_recovery>"
        assert result.verdict.status == "verified"
        assert (result.verified_config, result.verified_candidate_id, result.verified_run_ids) == (None, None, ())
    assert not (tmp_path / "nowhere").exists()


def test_elsewhere_a_result_that_was_not_verified_keeps_its_sentence(recovered, tmp_path):
    stopped = sealed(recovered.first.chain, ending=Ending("stopped_by_user"))
    result = recovered.load(stopped, Storage(tmp_path / "nowhere"))
    assert (result.status, result.sentence) == ("unrecorded", result.verdict.sentence)


def test_genuine_parts_in_another_order_or_number_are_not_the_chain_on_record(recovered):
    chain, other = recovered.first.chain, recovered.second.chain
    assert [one.result.outcome for one in chain.trials] == ["oom", "oom", "completed", "completed", "completed"]
    approval = builders.approve(chain.plan, chain.plan.proposals[0].proposal_id)
    made = {
        "a failing trial left out": sealed(chain, trials=(chain.trials[0], *chain.trials[2:])),
        "all trials left out": sealed(chain, trials=()),
        "another order": sealed(chain, trials=tuple(reversed(chain.trials))),
        "a trial of another campaign": sealed(chain, trials=(*chain.trials, other.trials[1])),
        "only trials of another campaign": sealed(chain, trials=other.trials),
        "the name of another campaign": sealed(other, campaign_id="first"),
        "an approval that nobody gave": sealed(chain, authorizations=(approval,)),
        "another ending": sealed(chain, ending=Ending("stopped_by_user")),
        "an ending in other words": sealed(chain, ending=Ending("decided", "really")),
        "another plan on record": sealed(chain, plan=recovered.other_plan),
    }
    for name, one in made.items():
        result = recovered.load(one)
        assert result.standing == "unrecorded" and not result.verified, name


def test_what_does_not_follow_from_the_trials_is_refused_with_its_place(recovered):
    chain = recovered.first.chain
    ranked = chain.ranking.order[0]
    better = ranked.replace(key=(ranked.key[0].replace(value=7.0), *ranked.key[1:]))
    made = {
        "verdict.sentence": chain.replace(verdict=chain.verdict.replace(sentence="Verified.")),
        "verdict.checks": chain.replace(verdict=chain.verdict.replace(checks=chain.verdict.checks[1:])),
        "verdict.status": chain.replace(verdict=chain.verdict.replace(status="not_recovered")),
        "verdict.confirmation_run_ids": chain.replace(verdict=chain.verdict.replace(confirmation_run_ids=())),
        "ranking.order": chain.replace(ranking=chain.ranking.replace(order=(ranked, ranked))),
        "ranking.order[0].key[0].value": chain.replace(ranking=chain.ranking.replace(order=(better,))),
        # 1 is not true, although Python finds them equal.
        "verdict.config.gradient_checkpointing": chain.replace(
            verdict=chain.verdict.replace(config={**chain.verdict.config, "gradient_checkpointing": 1})
        ),
    }
    for path, one in made.items():
        with pytest.raises(TrustError, match="does not follow") as caught:
            recovered.load(one)
        assert f"($.value.{path})" in caught.value.message and caught.value.expected != caught.value.got


def test_a_part_that_is_not_on_record_takes_the_standing(recovered, copied):
    damage(copied, "DROP TRIGGER records_never_go")
    connection = sqlite3.connect(copied.database.path)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM records WHERE digest = ?", (recovered.first.chain.ranking.digest,))
    connection.commit()
    connection.close()
    assert recovered.load(recovered.first.chain, copied).standing == "unrecorded"


def test_a_trial_that_the_store_has_beside_the_chain_takes_the_standing(recovered, copied):
    damage(copied, "DROP TRIGGER trials_never_change")
    damage(copied, "UPDATE trials SET campaign_id = 'first', seq = 99 WHERE trial_id = 'second-t02'")
    assert recovered.load(recovered.first.chain, copied).standing == "unrecorded"
    assert recovered.load(recovered.second.chain, copied).standing == "unrecorded"


# -- the failure that the plan was made for -----------------------------------------------------------------------


def test_a_plan_of_a_real_failure_tells_it_as_its_capsule_does(recovered):
    assert source.disagreements(recovered.preparation.plan, recovered.capsule) == []


def _evidence(capsule, config):
    first = capsule.evidence[0]
    return (first.replace(data={**thaw(first.data), "config": config}), *capsule.evidence[1:])


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("plan.source.run_id", lambda one: {"run_id": "another"}),
        ("plan.source.project", lambda one: {"project": "another"}),
        ("plan.source.failure_class", lambda one: {"failure": one.failure.replace(class_="unclassified")}),
        ("plan.source.requested_bytes", lambda one: {"memory": one.memory.replace(requested_bytes=None)}),
        ("plan.source.phase", lambda one: {"failure": one.failure.replace(phase="backward")}),
        ("plan.source.last_step", lambda one: {"failure": one.failure.replace(step=7)}),
        ("plan.source.config.batch_size", lambda one: {
            "evidence": _evidence(one, {**builders.FAILED_CONFIG, "batch_size": 65})}),
        ("plan.source.config.gradient_checkpointing", lambda one: {
            "evidence": _evidence(one, {**builders.FAILED_CONFIG, "gradient_checkpointing": 0})}),
        ("plan.source.config.more", lambda one: {"evidence": _evidence(one, {**builders.FAILED_CONFIG, "more": 1})}),
        ("plan.contract.device.kind", lambda one: {"device": builders.DEVICE}),
    ],
)  # fmt: skip
def test_each_way_to_tell_another_failure_is_named(recovered, path, change):
    other = recovered.capsule.replace(**change(recovered.capsule))
    found = source.disagreements(recovered.preparation.plan, other)
    assert {one.path for one in found} >= {path, "plan.source.capsule_digest"}
    assert all(one.expected != one.got for one in found)


def test_a_capsule_without_the_configuration_supports_no_plan(recovered):
    first = recovered.capsule.evidence[0].replace(status="missing", data=None, reason="It could not be captured.")
    completeness = recovered.capsule.completeness
    other = recovered.capsule.replace(
        evidence=(first, *recovered.capsule.evidence[1:]),
        completeness=completeness.replace(present=completeness.present - 1),
    )
    found = source.disagreements(recovered.preparation.plan, other)
    assert ("plan.source.config", "nothing") in [(one.path, one.expected) for one in found]


def _refused_everywhere(recovered, storage, words):
    for call in (
        lambda: recovered.load(recovered.first.chain, storage),
        lambda: RecoveryResult.of_campaign("first", storage),
        lambda: RecoveryPreparation.from_json(recovered.preparation.to_json(), storage=storage),
        lambda: watcherml.start_recovery(RecoveryPreparation(recovered.preparation.plan, storage)),
    ):
        with pytest.raises(TrustError, match=words) as caught:
            call()
        assert caught.value.expected and caught.value.got and caught.value.remedy
    assert len(storage.audit.campaigns()) == 2


def test_nothing_is_on_record_about_a_failure_whose_capsule_is_gone(recovered, copied):
    damage(copied, "DELETE FROM capsules")
    _refused_everywhere(recovered, copied, "plan.source.capsule_digest")


def test_a_capsule_that_was_edited_in_the_store_is_noticed(recovered, copied):
    edited = recovered.capsule.to_json().replace('"batch_size":64', '"batch_size":65', 1)
    damage(copied, "UPDATE capsules SET document = ?", edited)
    _refused_everywhere(recovered, copied, "digest")
    other = recovered.capsule.replace(failure=recovered.capsule.failure.replace(phase="backward"))
    damage(copied, "UPDATE capsules SET document = ?", other.to_json())
    _refused_everywhere(recovered, copied, "capsule_digest|phase")
    damage(copied, "UPDATE capsules SET run_id = 'another'")
    _refused_everywhere(recovered, copied, "capsule_digest")


def test_a_later_failure_of_the_same_run_takes_nothing_away(recovered, copied):
    later = recovered.capsule.replace(headline="It failed once more.")
    copied.evidence.add_capsule(
        recovered.run_id, digest=later.digest, failure_class="cuda_out_of_memory", subkind="", sentence="",
        document=later.to_json(), at=1.0,
    )  # fmt: skip
    assert recovered.load(recovered.first.chain, copied).verified
    assert RecoveryPreparation.from_json(recovered.preparation.to_json(), storage=copied).plan.source.run_id


def test_a_plan_from_elsewhere_and_an_altered_one_are_told_apart(recovered, tmp_path):
    text = recovered.preparation.to_json()
    with pytest.raises(NotOnRecord):
        RecoveryPreparation.from_json(text, storage=Storage(tmp_path / "nowhere"))
    with pytest.raises(NotOnRecord):
        RecoveryPreparation.from_json(recovered.preparation.plan.replace(notes=("more",)).to_json(),
                                      storage=recovered.storage)  # fmt: skip
    with pytest.raises(InvalidRecord):
        RecoveryPreparation.from_json(text.replace("max_full_trials", "max_full_trial"), storage=recovered.storage)


def test_the_store_is_named_by_a_path_too_and_is_left_as_it_was(recovered):
    document = json.loads(recovered.first.to_json())
    before = sorted(os.listdir(recovered.storage.path))
    assert RecoveryResult.from_json(recovered.first.to_json(), storage=str(recovered.storage.path)).verified
    assert sorted(os.listdir(recovered.storage.path)) == before
    assert RecoveryChain.from_json(recovered.first.to_json()).digest == document["digest"]


def test_a_chain_whose_approvals_or_verdict_the_campaign_does_not_have_is_unrecorded(tmp_path):
    """The chain's own document is on record, but the campaign never had this approval, or this verdict."""
    storage = Storage(tmp_path / ".watcherml")
    plan = recorded_plan(storage, FAILED_CONFIG)
    for number, given in enumerate([(approve(plan, "batch-32x2"),), ()]):
        name = f"campaign-{number}"
        storage.clock = lambda at=1_000.0 * number: at  # long after the one before was left without a supervisor
        ledger = Ledger.open_new(storage, name, plan, (), {}, Settings("/nowhere", "python"))
        trials = rename(good_trials(plan), name)
        for at, one in enumerate(trials, 1):
            ledger.start_trial(one.request, at)
            ledger.end_trial(one.request, one.result)
        parts = (plan, given, ledger.trials())
        made = RecoveryChain(name, *parts, DECIDED, rank(*parts), verify(name, *parts, DECIDED))
        kept = (made, made.ranking, *given) if not given else (made, made.ranking, made.verdict, *given)
        for one in kept:
            storage.audit.put_record(one.digest, one.KIND, one.to_json(), 1.0, name)
        result = RecoveryResult.from_json(made.to_json(), storage=storage)
        assert result.standing == "unrecorded" and not result.verified
