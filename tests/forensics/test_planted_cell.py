"""From a notebook's cell to the capsule: what an earlier cell left on the device is what the failing cell is told."""

import atexit

import planted
import pytest

from watcherml.forensics.capsule import Capsule

CELLS = [
    "import planted, watcherml\nfrom watcherml.simulated.device import simulated_device",
    "inside = simulated_device('32 MiB')\ndevice = inside.__enter__()",
    "first = watcherml.init('demo', {'batch_size': 64})\nplanted.earlier_cell(device)\nfirst.finish()",
    "second = watcherml.init('demo', {'batch_size': 64})",
    "planted.earlier_cell(device)",
    "inside.__exit__(None, None, None)",
]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A plain IPython shell with the extension, in an empty folder."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("WATCHERML_DIR", raising=False)
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell.instance(config=config)
    made.run_line_magic("load_ext", "watcherml")
    yield made
    made.run_line_magic("unload_ext", "watcherml")
    planted.EARLIER.clear()
    atexit.unregister(made.atexit_operations)
    made.atexit_operations()
    InteractiveShell.clear_instance()


def test_the_failing_cell_is_told_of_what_the_earlier_cell_left(shell, capsys):
    for cell in CELLS:
        shell.run_cell(cell, store_history=True)
    run = shell.user_ns["second"]
    assert run.status == "failed" and not run.problems
    capsule = Capsule.from_json(run.storage.evidence.capsule(run.run_id)["document"])
    assert [one.id for one in capsule.diagnosis.sufficient] == ["C5"], capsule.diagnosis.to_data()
    assert "let go of what earlier cells hold" in capsule.headline
    cells = {piece.id: piece.data for piece in capsule.evidence}["EV-11"]
    assert [cell["source"] for cell in cells][-1] == CELLS[4]
    assert "SIMULATED" in capsys.readouterr().out
