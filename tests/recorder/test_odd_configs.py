"""``init`` accepts any configuration: how each odd kind is stored, what is marked, and that training goes on."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import watcherml
from watcherml.recorder.jsonable import to_jsonable
from watcherml.sealed.canonical import canonical_bytes

pytest.importorskip("numpy")
pytest.importorskip("torch")
import odd_values

TABLE = odd_values.table()


@pytest.mark.parametrize("name", TABLE)
def test_an_odd_value_is_stored_as_json_and_marked_where_it_lost_something(name):
    value, stored, lossy = TABLE[name]
    found, paths = to_jsonable({"before": 1, "odd": value, "after": 2})
    canonical_bytes({**found, "odd": None if name == "100 levels" else found["odd"]})
    assert (found["before"], found["after"] if name != "endless mapping" else 2) == (1, 2)
    if stored is not None:
        assert found["odd"] == stored and type(found["odd"]) is type(stored)
    assert bool(paths) == lossy
    assert all(path.startswith(("odd", "<left out>")) for path in paths)


def test_depth_and_number_of_values_are_bounded():
    found, lossy = to_jsonable(odd_values.nested(100))
    depth = 0
    while isinstance(found, dict):
        found, depth = found["d"], depth + 1
    assert found == "<too deep>" and depth < 64 and lossy == ["d" + ".d" * (depth - 1)]
    for endless in (odd_values.Endless(), {"list": [0] * 300_000}, list(range(300_000))):
        found, lossy = to_jsonable(endless)
        assert lossy and len(json.dumps(found)) < 5_000_000


def test_a_table_that_is_shared_is_no_cycle():
    shared = {"a": 1}
    assert to_jsonable({"x": shared, "y": [shared, shared]}) == ({"x": {"a": 1}, "y": [{"a": 1}, {"a": 1}]}, [])


def test_reading_a_configuration_changes_nothing_in_it():
    import collections

    config = collections.defaultdict(dict, {"a": {"b": [1, {2}]}})
    generator = (i for i in range(3))
    config["g"] = generator
    to_jsonable(config)
    assert dict(config) == {"a": {"b": [1, {2}]}, "g": generator} and list(generator) == [0, 1, 2]


def test_the_same_object_gives_the_same_text_in_every_process():
    """An address in a configuration would make each run another one."""
    found, _ = to_jsonable({name: value for name, (value, *_) in TABLE.items()})
    assert "0x7f" not in json.dumps(found)


def test_training_goes_on_with_every_one_of_them(tmp_path):
    code = (
        "import json, sys, watcherml, odd_values\n"
        "for name, (value, *_) in odd_values.table().items():\n"
        "    with watcherml.Run('odd', {'odd': value}, sys.argv[1], quiet=True) as run:\n"
        "        run.log_metric('loss', 0.5, step=1)\n"
        "    print(json.dumps([name, run.run_id, run.problems]))\n"
    )
    here = str(Path(__file__).parent)
    child = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", f"import sys; sys.path.insert(0, {here!r})\n{code}",
         str(tmp_path / "store")], capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    assert [name for name, _, problems in lines if problems] == [] and len(lines) == len(TABLE)
    storage = watcherml.Storage(tmp_path / "store")
    for name, run_id, _ in lines:
        row = storage.get_run(run_id)
        assert row["status"] == "success" and bool(row["lossy_paths"]) == TABLE[name][2], name
        assert storage.get_metrics(run_id)[0]["value"] == 0.5


@pytest.mark.parametrize(
    "name", ["dataclass", "namespace", "pydantic", "omegaconf", "config dict", "mapping that breaks"]
)
def test_the_configuration_itself_may_be_of_these_kinds(storage, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = watcherml.Run("demo", TABLE[name][0], storage, quiet=True).start()
        run.finish()
    assert storage.get_run(run.run_id)["config"] == TABLE[name][1]


def test_a_secret_in_a_lossy_key_or_value_is_taken_out_too(storage):
    secret = "hf_" + "a1B2c3D4" * 4
    run = watcherml.Run("demo", {"p": Path("/data") / secret, ("k", secret): {1}, "b": secret.encode()}, storage)
    assert secret not in json.dumps([run.config, run.lossy_paths, run.redacted_paths])
    assert len(run.lossy_paths) == 3 and len(run.redacted_paths) == 3
