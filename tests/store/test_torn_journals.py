"""A journal that a power cut tore, or that was damaged: each point comes back, or its file is named and kept."""

import shutil

import pytest

import watcherml
from watcherml.api import surroundings
from watcherml.store.sound import DamagedRowWarning
from watcherml.store.spool import MappedSpool
from watcherml.store.storage import Storage

LINES = b'"loss"\n"accuracy"\n"lr"\n'


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A store with a run that has ended, and the run's id."""
    storage = Storage(tmp_path_factory.mktemp("torn") / ".watcherml")
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        pass
    return storage.path, run.run_id


@pytest.fixture
def torn(ended, tmp_path):
    """Return a call that leaves in a copy what a killed process does: six points of three metrics, with the names and
    the beginning that are given."""
    folder, run_id = tmp_path / ".watcherml", ended[1]
    shutil.copytree(ended[0], folder)
    storage = Storage(folder)

    def leave(names, beginning=b""):
        spool = MappedSpool(storage.runs.spool_folder, run_id)
        for name in ("loss", "accuracy", "lr"):
            for step in range(2):
                spool.put(spool.key_of(name), float(step), step, 1e9 + step)
        spool.close()
        (file,) = storage.runs.spool_folder.glob(f"{run_id}.*.names")
        assert file.read_bytes() == LINES
        file.unlink()
        if names is not None:
            file.write_bytes(names)
        (points,) = storage.runs.spool_folder.glob(f"{run_id}.*.points")
        points.write_bytes(beginning + points.read_bytes()[len(beginning) :])
        return storage, run_id

    return leave


@pytest.mark.parametrize(
    ("left", "names"),
    [
        (LINES, ["loss", "accuracy", "lr"]),
        (LINES[:-1], ["loss", "accuracy", "name-lost-2"]),
        (LINES[:3], ["name-lost-0", "name-lost-1", "name-lost-2"]),
        (bytes(len(LINES)), ["name-lost-0", "name-lost-1", "name-lost-2"]),
        (b"", ["name-lost-0", "name-lost-1", "name-lost-2"]),
        (None, ["name-lost-0", "name-lost-1", "name-lost-2"]),
    ],
    ids=["whole", "last line torn", "first line torn", "zeros", "empty", "gone"],
)
def test_points_whose_names_were_lost_come_back_apart_from_each_other(torn, left, names):
    storage, run_id = torn(left)
    for _ in range(2):  # also when they were folded in before
        found = [(one["name"], one["value"]) for one in storage.get_metrics(run_id)]
        assert found == [(name, value) for name in names for value in (0.0, 1.0)]


@pytest.mark.parametrize(
    ("names", "beginning", "told"),
    [
        (b"x" + LINES[1:], b"", "expected a name a line in"),
        (LINES.replace(b"\n", b"*", 1), b"", "expected a name a line in"),
        (LINES, b"w", "expected a file that begins as a journal does"),
    ],
    ids=["a name flipped", "two lines joined", "beginning flipped"],
)
def test_a_journal_that_cannot_be_read_is_named_wherever_its_run_is_shown(torn, monkeypatch, names, beginning, told):
    storage, run_id = torn(names, beginning)
    for plain in ("", "1"):  # read in place, and as a reader does who may not write
        monkeypatch.setenv("WATCHERML_PLAIN_IO", plain)
        with pytest.warns(DamagedRowWarning, match=told):
            assert Storage(storage.path).get_metrics(run_id) == []
    (finding,) = surroundings.rows(storage)
    assert finding.status == "warn" and run_id in finding.sentence and told in finding.sentence
    assert len(list(storage.runs.spool_folder.glob(f"{run_id}.*"))) == 2
