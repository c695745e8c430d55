"""What happens where a cell is run again while its campaign goes on."""

import pytest
from notebook_shell import CONFIG, OOM, SHORT, TRAIN

from watcherml.api import data
from watcherml.errors import CampaignError

SLOW = dict(CONFIG, seconds=60)
RECOVER = f"%%watcher recover {SHORT}\n{TRAIN}"


@pytest.fixture
def running(notebook):
    """A notebook with a campaign whose trials take longer than any test; it is stopped in the end."""
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {SLOW!r})")
    notebook.run(f"raise RuntimeError({OOM!r})")
    first = notebook.run(RECOVER).value
    first.start()
    yield notebook, first
    first.stop()
    first.wait(60)


def test_a_recovery_cell_run_again_names_the_campaign_that_goes_on_and_starts_no_second_one(running):
    notebook, first = running
    wanted = first.campaign.campaign_id
    again = notebook.run(RECOVER)
    assert again.error is None
    second = notebook["recovery"]
    for face in (" ".join(second.text().split()), second.html()):
        assert f"Campaign {wanted} of this run goes on already" in face
    for call in (second.start, second.wait):
        with pytest.raises(CampaignError, match=f"%watcher recovery {wanted}"):
            call()
    assert [row["campaign_id"] for row in data.campaigns(first.campaign.storage)] == [wanted]
    first.stop()
    first.wait(60)
    assert wanted not in second.text()
    second.start()
    second.stop()
    assert second.wait(60).campaign_id != wanted


def test_stop_without_an_id_ends_the_campaign_that_runs_and_not_the_newest_that_has_ended(running):
    notebook, first = running
    notebook.run(f"run = watcherml.init('demo', {SLOW!r})")
    notebook.run(f"raise RuntimeError({OOM!r})")
    other = notebook.run(RECOVER.replace("recover ", "recover --name other --file other_entrypoint.py ", 1)).value
    other.start()
    with pytest.MonkeyPatch.context() as patch:
        # Both run: the last one is meant.
        patch.setattr(type(first.campaign), "stop", lambda campaign, by: asked.append(campaign.campaign_id))
        asked = []
        notebook.run("%watcher stop")
        assert asked == [other.campaign.campaign_id]
    other.stop()
    other.wait(60)
    told = notebook.run("%watcher stop").value.text()
    assert first.campaign.campaign_id in told and "asked" in told
    assert first.wait(60).status == "stopped"
    assert "nothing to stop" in notebook.run("%watcher stop").value.text()


def test_a_start_that_failed_keeps_no_other_start_of_that_run_waiting(notebook, monkeypatch):
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {SLOW!r})")
    notebook.run(f"raise RuntimeError({OOM!r})")
    panel = notebook.run(RECOVER).value
    with monkeypatch.context() as broken:
        broken.setenv("PYTHONHOME", str(notebook.store.path / "nowhere"))  # no interpreter comes up with it
        with pytest.raises(CampaignError, match="did not start"):
            panel.start()
    assert "goes on already" not in panel.text()
    panel.start()
    panel.stop()
    assert panel.wait(60).status == "stopped"
