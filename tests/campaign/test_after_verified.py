"""What a campaign tells while it runs, and what a verified one leaves for the next failure."""

import importlib.util

import pytest
from builders import FAILED_CONFIG, OOM_TEXT, good_trials, planned
from stored import record, rename

import watcherml
from watcherml.api import data
from watcherml.api.resolve import resolve
from watcherml.campaign.prepare import source_of
from watcherml.cli.main import main
from watcherml.errors import InvalidValue
from watcherml.report.documents import failure_document
from watcherml.report.html import html_failure
from watcherml.report.text import text_failure
from watcherml.store.resolution import resolution

SMALL = watcherml.RecoveryBudget(max_trials=4, max_probe_trials=2, max_full_trials=1)
WANTED = watcherml.VerificationRequirements(minimum_progress_steps=50, confirmation_runs=1)


def failure(storage, message=OOM_TEXT, **config):
    run = watcherml.Run("demo", {**FAILED_CONFIG, **config}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(message)
    return run.run_id


def plan_on_record(storage):
    run_id = failure(storage)
    capsule = data.capsule(storage, run_id)
    made = planned(source_of(storage.get_run(run_id), capsule), capsule.device)
    storage.audit.put_record(made.digest, made.KIND, made.to_json(), storage.clock())
    return made


def test_every_event_is_told_once_in_order_and_a_verified_recovery_resolves_its_failure(storage, failed_run):
    told = []
    result = watcherml.recover_from_oom(
        failed_run(batch_size=32), "ent:train", WANTED, SMALL, storage=storage, on_event=told.append
    )
    assert result.verified, result.sentence
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    kinds = [one["type"] for one in told]
    assert kinds[:2] == ["prepared", "started"] and kinds[-1] == "ended" and kinds.count("trial_ended") == 4
    assert {one["campaign_id"] for one in told} == {result.campaign_id} and all(one["words"] for one in told)
    assert [{key: one[key] for key in ("seq", "at", "type", "body")} for one in told] == (
        storage.audit.events(result.campaign_id)
    )
    mark = resolution(storage, result.chain.plan.source.run_id)
    assert mark.by == "watcherml" and result.campaign_id in mark.note and "batch_size" in mark.note
    assert data.failures(storage, unresolved=True) == []
    # Trials stay out of the lists unless they are asked for, and so do their failures.
    assert len(storage.list_runs()) == len(data.runs(storage)) == len(data.failures(storage)) == 1
    assert len(storage.list_runs(trials=True)) == len(data.runs(storage, trials=True)) == 5
    if importlib.util.find_spec("pandas") is not None:
        assert len(watcherml.frames.runs(storage)) == 1 and len(watcherml.frames.runs(storage, trials=True)) == 5


def test_a_callback_that_raises_is_one_warning_and_the_campaign_goes_on(storage, failed_run):
    calls = []

    def broken(event):
        calls.append(event["type"])
        raise ZeroDivisionError("a progress bar")

    with pytest.warns(RuntimeWarning, match="on_event raised ZeroDivisionError: a progress bar") as warned:
        result = watcherml.recover_from_oom(failed_run(), "ent:constant", WANTED, SMALL, storage=storage,
                                            on_event=broken)  # fmt: skip
    assert result.reason_code == "source_failure_not_reproduced"
    assert calls == ["prepared"] and len(warned) == 1
    assert data.failures(storage, unresolved=True)  # nothing was recovered, so nothing is resolved


def test_what_cannot_be_called_is_refused_before_anything_runs(storage, failed_run):
    run_id = failed_run()
    plan = watcherml.prepare_oom_recovery(run_id, "ent:train", WANTED, SMALL, storage=storage)
    calls = [
        lambda: watcherml.recover_from_oom(run_id, "ent:train", WANTED, SMALL, storage=storage, on_event="print"),
        lambda: watcherml.run_prepared_recovery(plan, on_event="print"),
    ]
    for call in calls:
        with pytest.raises(InvalidValue, match=r"on_event: expected a function.*got str\. .*on_event=print"):
            call()
    assert data.campaigns(storage) == []


@pytest.fixture
def verified(storage):
    """A store with a verified campaign of an earlier failure, on record without running a process."""
    made = plan_on_record(storage)
    record(storage, "camp-first", made, rename(good_trials(made), "camp-first"))
    return made


def test_a_verified_recovery_is_offered_first_for_a_similar_failure(storage, verified):
    for _ in range(6):
        failure(storage)  # nearer in time and as much alike, and none of them recovered
    run_id = failure(storage)
    capsule = data.capsule(storage, run_id)
    first = capsule.neighbours.similar[0]
    assert (first.run_id, first.verified_campaign_id) == (verified.source.run_id, "camp-first")
    assert first.verified_changes == "batch_size: 64 → 32; gradient_accumulation_steps: 1 → 2"
    said = "A verified recovery exists for a similar failure"
    for face in (text_failure(capsule), html_failure(capsule)):
        assert said in " ".join(face.split()) and "camp-first" in face and "batch_size: 64 → 32" in face
    assert failure_document(capsule)["recovered_before"].startswith(said)


def test_inspect_offers_it(storage, verified, capsys):
    assert main(["inspect", failure(storage)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "campaign camp-first, which changed batch_size: 64 → 32" in out
    assert main(["inspect", verified.source.run_id]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "recovery camp-first" in out and "by watcherml: A recovery was verified" in out


def test_a_failure_of_another_class_or_unlike_it_is_offered_nothing(storage, verified):
    other = data.capsule(storage, failure(storage, "mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)"))
    assert other.neighbours.similar == () and "verified recovery" not in text_failure(other)


def test_a_persons_own_mark_stays_and_can_be_taken_away(storage):
    made = plan_on_record(storage)
    resolve(made.source.run_id, by="ann", note="other batch", storage=storage)
    record(storage, "camp-later", made, rename(good_trials(made), "camp-later"))
    assert resolution(storage, made.source.run_id)[3:] == ("ann", "other batch")
    resolve(made.source.run_id, reopen=True, storage=storage)
    assert resolution(storage, made.source.run_id).at is None


def test_a_campaign_that_verified_nothing_resolves_nothing(storage):
    made = plan_on_record(storage)
    record(storage, "camp-none", made, rename(good_trials(made)[:3], "camp-none"))
    assert resolution(storage, made.source.run_id).at is None
    capsule = data.capsule(storage, failure(storage))
    assert capsule.neighbours.similar[0].verified_campaign_id is None
    assert "verified_campaign_id" not in capsule.neighbours.similar[0].to_data()  # as it was sealed before


def test_every_state_of_a_campaign_has_a_sentence(storage, verified):
    from watcherml.campaign.ledger import Ledger, Settings

    Ledger.open_new(storage, "camp-new", verified, (), {}, Settings("/nowhere", "python"))
    rows = {row["campaign_id"]: row for row in data.campaigns(storage)}
    assert rows["camp-new"]["lifecycle"] == "prepared" and "not started yet" in rows["camp-new"]["sentence"]
    assert rows["camp-first"]["lifecycle"] == "ended" and rows["camp-first"]["sentence"].startswith("Verified on")
