"""Secrets are taken out of everything that is written, in many kinds and spellings; what only looks like one stays."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secret_samples import HEX, IN_CONTEXT, INNOCENT, KEYS, A, B

from watcherml.recorder import find_secrets
from watcherml.recorder.redact import PLACEHOLDER, placeholder, redact_argv, redact_config, redact_text


@pytest.fixture(autouse=True)
def _nothing_is_known():
    """What one case made this process know must not help the next one."""
    find_secrets._known.clear()
    yield
    find_secrets._known.clear()


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("around", ["{}", "using {} here", "'{}'", "x={},", "a\\n{}\\n", "({})", "https://h/{}/x"])
def test_keys_of_providers_are_taken_out_wherever_they_stand(name, around):
    secret = KEYS[name]
    cleaned = redact_text(around.format(secret))
    assert secret not in cleaned and secret[4:-4] not in cleaned
    assert PLACEHOLDER.search(cleaned)


@pytest.mark.parametrize("name", IN_CONTEXT)
def test_what_is_next_to_a_secret_gives_it_away(name):
    text, secret = IN_CONTEXT[name]
    assert secret in text
    cleaned = redact_text(text)
    assert secret not in cleaned, cleaned
    assert cleaned[:3] == text[:3] or name in ("ssh key", "pgp key", "key that is cut")


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_like_a_secret_stays(text):
    assert redact_text(text) == text


def test_only_the_value_is_taken_out():
    assert redact_text("""f("password: 'swordfish' ", "other")""") == """f("password: '[redacted]' ", "other")"""
    assert redact_text("mysql -u me -pswordfish runs") == "mysql -u me -p[redacted] runs"
    assert redact_text("secret: |\n  a\n  b\nport: 1") == "secret: |\n  [redacted]\nport: 1"


CONFIGS = {
    "by its name": ({"hub": {"api_key": "plain-words"}}, ["hub.api_key"]),
    "in a list of that name": ({"api_keys": ["one two", "three"]}, ["api_keys[0]", "api_keys[1]"]),
    "in a mapping of secrets": ({"secrets": {"db": "swordfish", "n": 3}}, ["secrets.db"]),
    "as a number": ({"db": {"password": 12345678}}, ["db.password"]),
    "by the name beside it": ({"env": [{"name": "HF_TOKEN", "value": "swordfish"}]}, ["env[0].value"]),
    "after its flag": ({"argv": ["--token", "swordfish", "--lr", "1"]}, ["argv[1]"]),
    "by its shape": ({"note": f"uses {KEYS['github']}"}, ["note"]),
    "in a key": ({KEYS["github"]: 1}, [placeholder(KEYS["github"])]),
    "in a URL": ({"url": "postgres://u:swordfish@h/db"}, ["url"]),
    "taken out before": ({"url": "x [redacted] y", "k": "[redacted:0011aabb]"}, ["url", "k"]),
    "a random value of a weak name": ({"auth": {"token": A + B}}, ["auth.token"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_secrets_of_a_configuration_are_listed_by_their_paths(name):
    config, paths = CONFIGS[name]
    cleaned, found = redact_config(config)
    assert found == paths
    text = json.dumps(cleaned)
    assert not any(secret in text for secret in ("swordfish", "plain-words", "12345678", "three", KEYS["github"], A))
    assert redact_config(cleaned) == (cleaned, paths)  # once more changes nothing, and the paths stay marked


def test_a_configuration_without_secrets_stays():
    config = {
        "tokenizer": "bert", "max_tokens": 512, "pad_token": "<pad>", "token_dropout": 0.1, "secretary": "x",
        "use_auth_token": True, "token": None, "key": "value", "private_key": "~/.ssh/id_rsa", "n_tokens": [1, 2],
        "password": "${oc.env:DB_PASSWORD}", "api_key": "<API_KEY>", "sha": HEX * 4, "model": "meta-llama/Llama-3.1-8B",
        "eos_token_id": 50256, "num_key_value_heads": 8, "betas": [0.9, 0.999], "auth": "none",
    }  # fmt: skip
    assert redact_config(config) == (config, [])


def test_a_command_line_loses_the_word_after_its_flag():
    words = ["train.py", "--api-key", "swordfish", "--token=swordfish", "--lr", "0.1", "--password", "-v", KEYS["npm"]]
    cleaned = redact_argv(words)
    assert cleaned == [
        "train.py", "--api-key", "[redacted]", "--token=[redacted]", "--lr", "0.1", "--password", "-v",
        placeholder(KEYS["npm"]),
    ]  # fmt: skip


def test_equal_keys_have_equal_placeholders_and_a_password_shows_nothing():
    first, second = redact_text(f"a {KEYS['openai']}"), redact_config({"api_key": KEYS["openai"]})[0]["api_key"]
    assert first.split()[1] == second and PLACEHOLDER.fullmatch(second) and len(second) == len("[redacted:01234567]")
    assert redact_text(KEYS["npm"]) != redact_text(KEYS["github"])
    # A hash of these could be found by hashing likely ones.
    for guessable in (
        "hunter2",
        "correct horse battery staple",
        "Summer2024Summer2024",
        "MyDogRexWasBorn1998",
        "1" * 20,
    ):
        assert placeholder(guessable) == "[redacted]"


def test_a_value_that_this_process_knows_is_taken_out_of_plain_words_too(monkeypatch):
    redact_config({"db": {"password": "tuna-fish"}})
    monkeypatch.setenv("MY_SERVICE_TOKEN", "not-a-token")
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "cod_and_chips")
    monkeypatch.setenv("APP_SECRET", "development")  # a word: it would be found in texts about something else
    text = "login as bob with tuna-fish, cod_and_chips failed in development"
    assert redact_text(text) == "login as bob with [redacted], [redacted] failed in development"


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([*KEYS.values(), *(text for text, _ in IN_CONTEXT.values()), *INNOCENT]),
            st.text(max_size=12),
            st.sampled_from(
                [
                    "password=",
                    "token: ",
                    '"api_key": "',
                    "--secret ",
                    "://",
                    "@",
                    "&key=",
                    "[redacted]",
                    "=",
                    "curl -u a:",
                    "name: pw, value: ",
                    "(",
                    "['",
                    "'",
                    "\n  ",
                    "|\n",
                    "login(",
                ]
            ),
        ),
        max_size=6,
    )
)
def test_redaction_changes_nothing_the_second_time(parts):
    once = redact_text("".join(parts))
    assert redact_text(once) == once


HOSTILE = """
import sys, time
from watcherml.recorder.redact import redact_text
size = int(sys.argv[1])
parts = ["password=", "key=key=", "a", "A", "0", "://", "://a:", "sk-", "eyJ.", "-----BEGIN PRIVATE KEY-----", "AKIA",
    "-----END PRIVATE KEY-----\\n", "token='", "/+=", '"auth": "', "machine x login ", "A.A-", "Bearer ", "-", "x_",
    "AKIAABCDEFGHIJKLMNOP ", "cookie: ", "[redacted]", "[redacted:", "user:pass@", "=?&key=", "0123456789abcdef",
    "secret: a(", "token: str = ", 'username":"a","key":', "M" * 25 + ".", "api_key" + chr(92) + '"', "sig=", " ",
    chr(10), chr(92) + "n", "wandb ", "pass", '{"', "key key ", "Authorization: Bearer a", "data:image/png;base64,",
    "docker login ", "curl -u ", "http ", "mysql ", "name: token ", "name: secret, value", "auth=(a", "login(a,",
    "password is ", "passwords = ['a', ", "secret: |" + chr(10) + "  a" + chr(10), "cookie: a=", "'cookie': '", "a:b|",
    "add_argument('--password', ", "echo a | ", "password = ((", "keys:" + chr(10) + " - a", "redis-cli -a",
    "<password>", "secret" + chr(9) + ":" + chr(9), "password: x ", "password: x" + chr(10)]
worst = 0
for part in parts:
    text = (part * (size // len(part) + 1))[:size]
    began = time.monotonic()
    redact_text(text)
    worst = max(worst, time.monotonic() - began)
print(worst)
"""


@pytest.mark.parametrize("size", [200_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_hostile_text_takes_seconds_at_most(size):
    command = [sys.executable, "-c", HOSTILE, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    # Quadratic time would be many minutes for some of these; the limit leaves room for a slow and busy machine.
    assert float(done.stdout) < 30
