"""Configurations of any kind, secrets, git, packages, data sets."""

import argparse
import dataclasses
import enum
import math
import os
import subprocess
from pathlib import Path

import pytest

import watcherml
from watcherml.errors import InvalidValue
from watcherml.recorder import dataset, environment, source
from watcherml.recorder.jsonable import to_jsonable
from watcherml.recorder.redact import redact_config, redact_text
from watcherml.sealed.canonical import canonical_bytes


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    where: Path = Path("x")


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")


def test_any_configuration_becomes_json_with_its_losses_named():
    cycle: dict = {}
    cycle["self"] = cycle
    value = {
        "plain": {"a": [1, 2.5, None, True, "x"], "t": (1, 2)},
        "args": argparse.Namespace(batch_size=8),
        "settings": Settings(),
        "nan": math.nan,
        "huge": 10**30,
        "colour": Colour.RED,
        "set": {3, 1},
        "function": print,
        "hostile": Hostile(),
        "cycle": cycle,
        3: "int key",
        "surrogate": "\ud800",
    }
    found, lossy = to_jsonable(value)
    canonical_bytes(found)  # it is JSON now
    assert found["plain"] == {"a": [1, 2.5, None, True, "x"], "t": [1, 2]}
    assert found["args"] == {"batch_size": 8} and found["settings"]["lr"] == 0.1
    assert set(lossy) == {
        "settings.where", "nan", "huge", "colour", "set", "function", "hostile", "cycle.self", "3", "surrogate",
    }  # fmt: skip


def test_numpy_and_torch_values_in_a_configuration():
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    found, lossy = to_jsonable({"a": numpy.int32(4), "b": numpy.float64(0.5), "d": torch.float16, "s": torch.tensor(2)})
    assert (found["a"], found["b"], found["s"], found["d"]) == (4, 0.5, 2, "torch.float16")
    assert lossy == ["d"]


def test_a_configuration_that_is_no_mapping_is_refused(storage):
    with pytest.raises(InvalidValue, match="config"):
        watcherml.Run("demo", [1, 2], storage)


SECRETS = {
    "openai": "sk-" + "a1B2" * 8,
    "hugging face": "hf_" + "Ab12" * 8,
    "github": "ghp_" + "Ab12" * 9,
    "aws": "AKIA" + "ABCD1234" * 2,
    "slack": "xoxb-" + "12345-abcde",
}


@pytest.mark.parametrize("name", SECRETS)
def test_provider_keys_are_taken_out(name):
    secret = SECRETS[name]
    text = redact_text(f"using key {secret} for run")
    assert secret not in text and "[redacted:" in text and text.startswith("using key ")


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("Authorization: Bearer abcdef0123456789", "Bearer", "abcdef0123456789"),
        ("postgres://user:hunter22@host/db", "postgres://user:", "hunter22"),
        ("password = 'hunter22hunter'", "password", "hunter22hunter"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "", "MIIabc"),
    ],
)
def test_other_shapes_of_secrets(text, kept, gone):
    cleaned = redact_text(text)
    assert kept in cleaned and gone not in cleaned


def test_ordinary_names_are_not_secrets():
    config = {"tokenizer": "bert", "max_tokens": 512, "pad_token": "<pad>", "token_dropout": 0.1, "secretary": "x"}
    assert redact_config(config) == (config, [])


def test_secret_names_lose_their_value_and_are_listed(storage):
    run = watcherml.Run("demo", {"hub": {"api_key": "plain-words"}, "lr": 1}, storage, quiet=True)
    assert run.redacted_paths == ["hub.api_key"] and "plain-words" not in str(run.config)


def test_the_same_secret_has_the_same_placeholder():
    key = SECRETS["openai"]
    first, second = redact_text(f"a {key}"), redact_text(f"b {key}")
    assert first.split()[1] == second.split()[1]


def git(folder, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=folder, check=True, capture_output=True
    )


def test_git_state_with_the_exact_patch(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    assert source.collect(tmp_path).facts["commit"] is None
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    clean = source.collect(tmp_path)
    assert clean.facts["branch"] == "main" and not clean.facts["dirty"] and clean.patch == b""
    (tmp_path / "a.bin").write_bytes(bytes(range(255, -1, -1)))
    (tmp_path / "note.ipynb").write_text("{}")
    dirty = source.collect(tmp_path)
    assert dirty.facts["dirty"] and b"GIT binary patch" in dirty.patch and b"ipynb" not in dirty.patch
    (tmp_path / "patch").write_bytes(dirty.patch)
    git(tmp_path, "checkout", "-q", "a.bin")
    git(tmp_path, "apply", "patch")
    assert (tmp_path / "a.bin").read_bytes() == bytes(range(255, -1, -1))


def test_no_repository_is_a_reason_not_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert source.collect(tmp_path).facts["status"] == "unavailable"


def test_environment_fingerprint_is_stable_and_follows_the_packages(monkeypatch):
    first, second = environment.collect(), environment.collect()
    assert first["fingerprint"] == second["fingerprint"]
    monkeypatch.setattr(environment, "packages", lambda: {"psutil": "0.0"})
    assert environment.collect()["fingerprint"] != first["fingerprint"]


def test_dataset_fingerprint_follows_content_not_place(tmp_path):
    one = tmp_path / "one"
    (one / "sub").mkdir(parents=True)
    (one / "a.txt").write_text("a")
    (one / "sub" / "b.txt").write_text("b")
    before = dataset.fingerprint(one)
    os.utime(one / "a.txt", (1, 1))
    assert dataset.fingerprint(one) == before
    one.rename(tmp_path / "two")
    two = tmp_path / "two"
    assert dataset.fingerprint(two) == before
    (two / "link.txt").symlink_to(two / "a.txt")
    linked = dataset.fingerprint(two)
    assert linked["files"] == 3
    (two / "loop").symlink_to(two)
    assert dataset.fingerprint(two)["fingerprint"] == linked["fingerprint"]
    (two / "sub" / "b.txt").write_text("B")
    assert dataset.fingerprint(two)["fingerprint"] != linked["fingerprint"]


def test_missing_and_empty_data_are_errors(tmp_path):
    with pytest.raises(InvalidValue, match="existing file"):
        dataset.fingerprint(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidValue, match="at least one file"):
        dataset.fingerprint(tmp_path / "empty")
