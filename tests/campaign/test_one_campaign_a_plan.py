"""One plan is run by one campaign at a time, however many try to start it at once."""

import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import FAILED_CONFIG, good_trials
from stored import recorded_plan, rename

from watcherml.campaign import events, supervisor
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.errors import CampaignError
from watcherml.platform import ProcessId, this_process
from watcherml.store.storage import Storage
from watcherml.trials.paths import TrialPaths

GONE = ProcessId(4711, 1.0, "a boot long ago")


class Clock:
    now = 1_772_366_400.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    return folder, recorded_plan(Storage(folder, clock=Clock()), FAILED_CONFIG)


@pytest.fixture
def plan_on_record(recorded, tmp_path):
    clock, plan = Clock(), recorded[1]
    shutil.copytree(recorded[0], tmp_path / ".watcherml")
    storage = Storage(tmp_path / ".watcherml", clock=clock)

    def start(name):
        return Ledger.open_new(storage, name, plan, (), {}, Settings(str(tmp_path), sys.executable))

    return storage, clock, start


def test_of_many_who_start_a_plan_at_once_one_does(plan_on_record):
    storage, _, start = plan_on_record
    together = threading.Barrier(6)

    def go(number):
        together.wait()
        try:
            return start(f"campaign-{number}").campaign_id
        except CampaignError as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        came = list(pool.map(go, range(6)))
    started = [one for one in came if isinstance(one, str)]
    assert len(started) == 1 and [row["campaign_id"] for row in storage.audit.campaigns()] == started
    for one in came:
        if isinstance(one, CampaignError):
            assert started[0] in one.message and started[0] in one.remedy


@pytest.mark.parametrize(
    ("happened", "seconds", "free"),
    [
        ([], 1, False),  # about to get its supervisor
        ([], 61, True),  # it never came
        ([(events.START_FAILED, {"got": "no output"})], 1, True),
        ([(events.STARTED, this_process()._asdict())], 10**6, False),
        ([(events.START_FAILED, {"got": ""}), (events.RESUMED, this_process()._asdict())], 61, False),
        ([(events.RESUMED, this_process()._asdict()), (events.START_FAILED, {"got": "a second one"})], 61, False),
        ([(events.STARTED, this_process()._asdict()), (events.RESUMED, GONE._asdict())], 1, True),
    ],
)
def test_a_plan_is_free_once_nobody_runs_it(plan_on_record, happened, seconds, free):
    _, clock, start = plan_on_record
    first = start("first")
    for kind, body in happened:
        first.event(kind, body)
    clock.now += seconds
    if free:
        start("second")
    else:
        with pytest.raises(CampaignError, match="campaign first runs this plan already"):
            start("second")


def test_an_interrupted_campaign_is_not_resumed_beside_another_of_its_plan(plan_on_record):
    storage, _, start = plan_on_record
    start("lost").event(events.STARTED, GONE._asdict())
    start("living").event(events.STARTED, this_process()._asdict())
    with pytest.raises(CampaignError, match="campaign living runs this plan already"):
        supervisor.spawn(storage, "lost")
    assert [one["type"] for one in storage.audit.events("lost")] == ["prepared", "started", "start_failed"]


def test_a_lost_trial_stands_behind_those_before_it_although_the_clock_was_set_back(plan_on_record):
    storage, clock, start = plan_on_record
    ledger = start("campaign-1")
    first, second = rename(good_trials(ledger.plan()), "campaign-1")[:2]
    ledger.start_trial(first.request, 1)
    ledger.end_trial(first.request, first.result)
    clock.now = first.result.started_at / 2
    ledger.start_trial(second.request, 2)
    paths = TrialPaths.of(storage.path, second.request.trial_id)
    paths.make()
    (paths.outputs / "checkpoints").mkdir(parents=True)
    paths.write_exit(b"{}")
    supervisor.settle_lost_trials(ledger)
    starts = [one.result.started_at for one in ledger.trials()]
    assert len(starts) == 2 and starts == sorted(starts)
    assert not paths.outputs.exists()
