"""A baseline with redacted values is refused until each is resupplied, and its secrets are stored nowhere."""

import json
import subprocess
import sys

import pytest

import watcherml
from watcherml import RecoveryBudget, RecoveryPreparation
from watcherml.api.scan import scan
from watcherml.cli.main import main
from watcherml.errors import InvalidConfig, InvalidValue
from watcherml.recorder import find_secrets
from watcherml.recorder.resupply import resupply

SMALL = RecoveryBudget(max_trials=6, max_probe_trials=3, max_full_trials=1)
SECRET, TOKEN = "tuna-and-swordfish-1", "hf_" + "a1B2c3D4" * 4
URL = "postgres://me:cod.and.chips.2@db/runs"
CONFIG = {"db": {"password": SECRET}, "url": URL, "hub": [{"token": TOKEN}]}
WANTED = {"db.password": "env:TEST_ONE", "url": "env:TEST_TWO", "hub[0].token": "env:TEST_THREE"}
VALUES = {"TEST_ONE": SECRET, "TEST_TWO": URL, "TEST_THREE": TOKEN}

# Trains only with the real values, and says them wherever a program can say something.
ENTRYPOINT = """
import hashlib, sys
import ent

GIVEN = {digest!r}

def train(config, max_steps=None):
    words = (config["db"]["password"], config["url"], config["hub"][0]["token"])
    print("connecting with", *words)
    print(words[0], file=sys.stderr, end="")
    sys.stdout.write(words[1][:9]); sys.stdout.flush(); sys.stdout.write(words[1][9:] + "\\n")
    if hashlib.sha256("|".join(words).encode()).hexdigest() != GIVEN:
        raise ValueError("not the secrets: " + repr(words))
    try:
        return ent.train(config, max_steps)
    except RuntimeError as error:
        raise RuntimeError(str(error) + " as " + " ".join(words)) from None
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    find_secrets._known.clear()
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    yield
    find_secrets._known.clear()


@pytest.fixture
def secret_run(failed_run, tmp_path):
    """A failed run whose configuration held three secrets."""
    import hashlib

    digest = hashlib.sha256(f"{SECRET}|{URL}|{TOKEN}".encode()).hexdigest()
    (tmp_path / "vault.py").write_text(ENTRYPOINT.format(digest=digest))
    return failed_run(**CONFIG)


def prepare(storage, run_id, requirements, **options):
    return watcherml.prepare_oom_recovery(run_id, "vault:train", requirements, SMALL, storage=storage, **options)


def found_in(folder):
    """Every file of a folder that holds one of the secrets, byte by byte."""
    secrets = (SECRET, "cod.and.chips.2", TOKEN)
    return [
        (str(path.relative_to(folder)), secret)
        for path in folder.rglob("*")
        if path.is_file()
        for secret in secrets
        if secret.encode() in path.read_bytes()
    ]


def test_a_redacted_baseline_is_refused_and_the_error_says_how_to_resupply_each_value(
    storage, secret_run, requirements
):
    with pytest.raises(InvalidConfig) as caught:
        prepare(storage, secret_run, requirements)
    error = caught.value
    assert error.got == "db.password, url, hub[0].token"
    for part in ('"db.password": "env:DB_PASSWORD"', "--secret db.password=env:DB_PASSWORD", '"hub[0].token"',
                 "--secret 'hub[0].token=env:HUB_0_TOKEN'"):  # fmt: skip
        assert part in error.remedy
    with pytest.raises(InvalidConfig) as caught:
        prepare(storage, secret_run, requirements, secrets={"url": "env:TEST_TWO"})
    assert caught.value.got == "db.password, hub[0].token"


def test_a_lossy_baseline_is_refused_whatever_is_resupplied(storage, failed_run, requirements, tmp_path):
    run_id = failed_run(where=tmp_path, ratio=float("nan"))
    with pytest.raises(InvalidConfig, match="not JSON") as caught:
        watcherml.prepare_oom_recovery(run_id, "ent:train", requirements, SMALL, storage=storage)
    assert caught.value.got == "where, ratio"
    with pytest.raises(InvalidValue, match="redacted path"):
        prepare(storage, run_id, requirements, secrets={"where": "env:TEST_ONE"})


BAD = {
    "not redacted": {**WANTED, "batch_size": "env:TEST_ONE"},
    "unknown": {**WANTED, "db.user": "env:TEST_ONE"},
    "a value": {**WANTED, "url": URL},
    "another scheme": {**WANTED, "url": "file:/etc/passwd"},
    "no name": {**WANTED, "url": "env:"},
    "a bad name": {**WANTED, "url": "env:A B"},
    "a number": {**WANTED, "url": 3},
    "no mapping": ["url=env:A"],
}


@pytest.mark.parametrize("name", BAD)
def test_only_redacted_paths_are_resupplied_and_only_from_the_environment(storage, secret_run, requirements, name):
    with pytest.raises(InvalidValue) as caught:
        prepare(storage, secret_run, requirements, secrets=BAD[name])
    text = str(caught.value)
    assert "secrets" in text and URL not in text and "cod.and.chips" not in text
    if isinstance(BAD[name], dict):
        assert any(path in text for path in ("batch_size", "db.user", "url"))


def test_a_campaign_with_resupplied_secrets_is_verified_and_they_are_stored_nowhere(storage, secret_run, requirements):
    preparation = prepare(storage, secret_run, requirements, secrets=WANTED)
    result = watcherml.run_prepared_recovery(preparation)
    assert result.verified and result.standing == "on_record", result.sentence
    assert result.verified_config["db"]["password"] == "[redacted]"
    assert result.verified_config["hub"][0]["token"].startswith("[redacted:")
    assert found_in(storage.path) == []
    folders = sorted((storage.path / "trials").iterdir())
    launch = json.loads((folders[0] / "launch.json").read_text())["value"]
    assert launch["secrets"] == WANTED
    said = (folders[-1] / "stdout.log").read_text()
    assert said.count("[redacted") >= 3 and "connecting with" in said  # it really printed them
    assert storage.audit.events(result.campaign_id)[0]["body"]["secrets"] == WANTED
    row = storage.get_run(result.trials[-1].request.run_id)
    assert set(row["redacted_paths"]) == set(WANTED) and row["status"] == "success"
    assert list(scan(storage)) == []
    assert watcherml.RecoveryResult.from_json(result.to_json(), storage=storage).verified


def test_a_variable_that_is_not_set_ends_the_trial_before_training(storage, secret_run, requirements, monkeypatch):
    preparation = prepare(storage, secret_run, requirements, secrets=WANTED)
    monkeypatch.delenv("TEST_TWO")
    result = watcherml.run_prepared_recovery(preparation)
    assert not result.verified
    first = result.trials[0].result
    assert first.outcome == "contract_error" and len(result.trials) == 1
    assert "secret for url" in first.sentence and "TEST_TWO" in first.sentence
    assert "connecting" not in (storage.path / "trials" / first.trial_id / "stdout.log").read_text()


def test_a_plan_from_a_file_needs_its_secrets_named_again(storage, secret_run, requirements):
    text = prepare(storage, secret_run, requirements, secrets=WANTED).to_json()
    assert "TEST_ONE" not in text and SECRET not in text
    loaded = RecoveryPreparation.from_json(text, storage=storage)
    with pytest.raises(InvalidConfig, match="redacted"):
        watcherml.run_prepared_recovery(loaded)
    assert storage.audit.campaigns() == []


def test_the_command_line_resupplies_with_a_flag(storage, secret_run, tmp_path, capsys):
    words = ["--entrypoint", "vault:train", "--max-probe-trials", "3", "--max-full-trials", "1",
             "--confirmation-runs", "1"]  # fmt: skip
    flags = [word for path, reference in WANTED.items() for word in ("--secret", f"{path}={reference}")]
    assert main(["prepare-recovery", secret_run, *words]) == 1
    assert "--secret db.password=env:DB_PASSWORD" in " ".join(capsys.readouterr().err.split())
    plan = str(tmp_path / "plan.json")
    assert main(["prepare-recovery", secret_run, *words, *flags, "--out", plan]) == 0
    assert "--secret url=env:TEST_TWO" in capsys.readouterr().out
    assert main(["recover", "--plan", plan, "--yes", "--quiet"]) == 1
    assert "redacted" in capsys.readouterr().err
    assert main(["recover", "--plan", plan, "--yes", *flags]) == 0
    assert "verified_recovery" in capsys.readouterr().out
    assert found_in(storage.path) == []


@pytest.mark.parametrize("flag", [f"url={URL}", URL, "=env:A", "url=env:", "url"])
def test_a_flag_of_another_form_is_refused_and_not_repeated(secret_run, capsys, flag):
    words = ["prepare-recovery", secret_run, "--entrypoint", "vault:train", "--secret", flag]
    assert main(words) == 2
    said = capsys.readouterr()
    assert "PATH=env:NAME" in said.err and "cod.and.chips" not in said.err + said.out


def test_values_go_to_their_own_places_only():
    config = {"a.b": "x", "a": {"b": "[redacted]", "c": ["[redacted:0011aabb]", "keep"]}, "u": "http://[redacted]@h"}
    put = resupply(config, {"a.c[0]": "env:X", "u": "env:Y"}, {"X": "one", "Y": "two"})
    assert put == {"a.b": "x", "a": {"b": "[redacted]", "c": ["one", "keep"]}, "u": "two"}


def test_a_path_that_two_values_share_is_refused(storage, failed_run, requirements):
    run_id = failed_run(**{"a.password": SECRET, "a": {"password": TOKEN}})
    with pytest.raises(InvalidValue, match="2 values"):
        prepare(storage, run_id, requirements, secrets={"a.password": "env:TEST_ONE"})


LOG = """
import io, os, sys
from pathlib import Path
from watcherml.trials.logs import CappedLog
read, write = os.pipe()
log = CappedLog(os.fdopen(read, "rb"), Path(sys.argv[1]), 4000)
secret = b"api_key = 'tuna-fish-and-chips'"
for _ in range(2):
    os.write(write, secret[:20]); os.write(write, secret[20:] + b"\\n")
for number in range(2000):
    os.write(write, b"step %d \\r" % number)
os.write(write, b"token hf_" + b"a1B2c3D4" * 4 + b" \\xff\\n" + secret)
os.close(write)
log.finish()
"""


def test_a_log_is_written_without_secrets_in_its_head_its_tail_and_across_pieces(tmp_path):
    path = tmp_path / "stdout.log"
    subprocess.run([sys.executable, "-c", LOG, str(path)], check=True, timeout=60)
    data = path.read_bytes()
    assert b"tuna" not in data and b"a1B2" not in data and b"\xff" in data
    assert data.count(b"api_key = '[redacted]'") == 3 and b"bytes left out" in data and b"step 1999" in data
