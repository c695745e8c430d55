"""Secrets that only their place tells: the third argument of a connection, a line of .pgpass, a number, a path."""

import pytest

from watcherml.recorder.redact import redact_argv, redact_config, redact_text

TEXTS = {
    "connect('h', 'u', 'hunter22')": "connect('h', 'u', '[redacted]')",
    'pymysql.connect("db", "root", "tr0ub4dor", "app")': 'pymysql.connect("db", "root", "[redacted]", "app")',
    "db.example.org:5432:app:me:hunter22": "db.example.org:5432:app:me:[redacted]",
    "# mine\n*:*:*:me:s3cret:x\nend": "# mine\n*:*:*:me:[redacted]\nend",
    "python train.py --pwd hunter22x": "python train.py --pwd [redacted]",
}
AS_THEY_ARE = (
    "fig.canvas.mpl_connect('button_press_event', on_click)", "socket.connect(('host', 80))", "sqlite3.connect('a.db')",
    "python train.py --pwd /home/me/run", "at 10:5432:11:3", "*:*:*:*:*", "slice[:, :*:]", "host:5432:app",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_place_that_only_a_secret_has_is_taken_out(text):
    assert redact_text(text) == TEXTS[text]


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_what_only_resembles_it_stays(text):
    assert redact_text(text) == text


def test_a_number_under_a_secrets_name_is_one_if_nothing_counts_that_far():
    config = {"api_key": 12345678901234567890, "secret_key": 8, "max_tokens": 10**15, "api_key_count": 3}
    cleaned, paths = redact_config(config)
    assert (cleaned, paths) == ({**config, "api_key": "[redacted]"}, ["api_key"])


def test_a_folder_after_pwd_is_no_password():
    words = ["train.py", "--pwd", "/home/me/run", "--password", "/hunter22"]
    assert redact_argv(words) == [*words[:-1], "[redacted]"]
