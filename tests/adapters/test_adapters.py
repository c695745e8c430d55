"""What the adapters have in common, without the libraries: absence, names in README, no control named twice."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from watcherml.adapters.recording import UNENDED, Recording
from watcherml.adapters.told import flat
from watcherml.api.controls import complete
from watcherml.errors import InvalidValue

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "watcherml" / "adapters"
# Each adapter with what its absence says.
INSTALL = {
    "transformers": "pip install transformers accelerate",
    "lightning": "pip install lightning",
    "mlflow": "pip install mlflow",
    "wandb": "pip install wandb",
}


def test_an_absent_library_is_told_with_its_install_command():
    code = (
        "import importlib, json, sys\n"
        f"names = {list(INSTALL)!r}\n"
        "for name in [*names, 'pytorch_lightning']:\n"
        "    sys.modules[name] = None\n"
        "said = {}\n"
        "for name in names:\n"
        "    try:\n"
        "        importlib.import_module(f'watcherml.adapters.{name}')\n"
        "    except ImportError as error:\n"
        "        said[name] = [error.code, error.remedy]\n"
        "print(json.dumps([said, 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    said, torch = json.loads(done.stdout)
    assert said == {name: ["missing_dependency", f"Install it with: {text}"] for name, text in INSTALL.items()}
    assert not torch


def test_the_adapters_that_readme_shows_exist():
    section = (ROOT / "README.md").read_text("utf-8").split("## With Transformers, Lightning, MLflow, W&B")[1]
    section = section.split("\n## ")[0]
    shown = re.findall(r"from watcherml\.adapters\.(\w+) import ([\w, ]+)", section)
    assert {module for module, _ in shown} == set(INSTALL)
    for module, names in shown:
        defined = set()
        for node in ast.parse((FOLDER / f"{module}.py").read_text("utf-8")).body:
            defined |= {one.asname or one.name for one in getattr(node, "names", ())}
            defined.add(getattr(node, "name", ""))
        assert set(names.split(", ")) <= defined, module
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        ast.parse(block)


@pytest.mark.parametrize(
    ("own", "found", "whole"),
    [
        ({}, {"batch_size": 8}, {"batch_size": 8}),
        ({"batch_size": 4}, {"batch_size": 8}, {"batch_size": 4}),
        ({"micro_batch_size": 4}, {"per_device_train_batch_size": 8, "seed": 1}, {"micro_batch_size": 4, "seed": 1}),
        ({"train": {"batch_size": 4}}, {"batch_size": 8}, {"train": {"batch_size": 4}}),
        ({"eval": {"batch_size": 4}}, {"batch_size": 8}, {"batch_size": 8, "eval": {"batch_size": 4}}),
        ({"bf16": True}, {"bf16": False, "fp16": False}, {"bf16": True}),
        ({"model_name": "mine"}, {"model": "gpt2"}, {"model_name": "mine"}),
        ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, {"deepspeed": {}},
         {"deepspeed": {}, "zero_optimization": {"offload_param": {"device": "cpu"}}}),
    ],
)  # fmt: skip
def test_a_persons_key_wins_and_no_control_is_named_twice(own, found, whole):
    assert complete(own, found) == whole


@pytest.mark.parametrize("config", [3, "text", [1], None])
def test_a_configuration_of_a_callback_is_a_mapping_or_nothing(config):
    if config is None:
        assert Recording(None, None, None).run is None
        return
    with pytest.raises(InvalidValue, match="config: expected a mapping of names to values; got"):
        Recording(None, config, None)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, {}),
        ({"a": 1, "b": {"c": [1, 2], "d": {}}}, {"a": "1", "b.c": "[1, 2]", "b.d": "{}"}),
        ({"s": "text", "n": None, "t": True, "f": 0.1}, {"s": "text", "n": "null", "t": "true", "f": "0.1"}),
    ],
)
def test_a_configuration_is_told_as_flat_texts(config, told):
    assert flat(config) == told


def test_a_deep_configuration_ends_as_json():
    deep = {}
    for _ in range(40):
        deep = {"k": deep}
    ((path, text),) = flat(deep).items()
    assert path.count(".") == 15 and json.loads(text)


def test_a_metric_that_a_run_does_not_take_costs_no_other_metric(storage):
    class Broken:
        def item(self):
            raise RuntimeError("gone")

    recording = Recording("demo", {}, storage)
    recording.open({})
    logged = {"a\nb": 1.0, "": 2.0, "x" * 300: 3.0, "broken": Broken(), "text": "no", "kept": 4.0}
    with pytest.warns(RuntimeWarning, match="training goes on, its recording is incomplete") as told:
        recording.log(logged, 1)
    recording.finish()
    assert len(told) == 1
    points = storage.get_metrics(recording.run.run_id)
    assert [(one["name"], one["value"]) for one in points] == [("kept", 4.0)]


def test_a_training_whose_exception_the_script_caught_is_no_success_at_the_script_s_end(tmp_path, storage):
    code = (
        "import sys\n"
        "from watcherml.adapters.recording import Recording\n"
        "recording = Recording('caught', {'batch_size': 4}, sys.argv[1])\n"
        "try:\n"
        "    recording.open({})\n"
        "    recording.step(3, 0.5)\n"
        "    raise ValueError('no callback is told of it')\n"
        "except ValueError:\n"
        "    pass\n"
    )
    subprocess.run([sys.executable, "-c", code, str(storage.path)], check=True, cwd=tmp_path, capture_output=True)
    storage.settle()
    run = storage.list_runs()[0]
    assert (run["status"], run["last_step"], run["end_reason"]) == ("interrupted", 3, UNENDED)
