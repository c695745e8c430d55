"""Names: which ones hide their value, which ones hide one that looks like a secret, and which are hyperparameters."""

import pytest
from secret_samples import A, B

from watcherml.recorder import find_secrets
from watcherml.recorder.redact import findings, redact_argv, redact_config, redact_text
from watcherml.recorder.secret_names import words_of


@pytest.fixture(autouse=True)
def _nothing_is_known():
    find_secrets._known.clear()
    yield
    find_secrets._known.clear()


WORD, RANDOM = "swordfish", A + B

HIDE_WORDS = words_of(
    "password passwd pwd pw secret mysecret MYSECRET mypassword DBPASSWORD dbpw db_pw rootpw root_pw sudo_pw dbpass"
    " user_pass smtp_pass passphrase passwort kennwort mot_de_passe contrasena contraseña CONTRASEÑA"
    " old_password password_old password_old_2 PASSWORD_PROD prod_password_1 password1 PASSWORD_2024 password_db"
    " passwd_root secret_dev_v2 client_secret_v2 dbPassword password-main SecretString"
    " api_key api_key_2 apikey2 apiKey x-api-key APIKEY encryptionkey encryption_key secretkey secret_key_base ssh_key"
    " aws_secret_access_key accessKeySecret private_key storepass"
    " api_token apiToken hf_token hf_token_read refreshToken access_token id_client_secret login_password MY_TOKEN"
    " seed_phrase bot_token"
)
HIDE_KEYS = words_of(
    "token token2 token_value tokens auth authorization credential key keys tok user_token input_token mask_token"
    " my_token session_id sessionid csrf hmac salt sas signature bearer webhook secret_id secret_text cookie"
    " creds gcp_creds root_key shared_key conv_pw has_password num_secrets"
)
HIDE_NOTHING = words_of(
    "token_embedding key_padding_mask password_field_size secret_santa_dataset tokenizer max_new_tokens_name"
    " api_key_name author data public_key cache_key sort_key primary_key attention_key_dim lr secretary token_dropout"
    " private_key_id passes bypass compass lowpass keyboard monkey hotkey password_length secret_number tokens_per_step"
    " session access license"
)


@pytest.mark.parametrize("name", sorted(HIDE_WORDS))
def test_a_name_of_a_password_hides_any_value(name):
    cleaned, paths = redact_config({"outer": {name: WORD}})
    assert paths == [f"outer.{name}"] and WORD not in str(cleaned)
    for text in (f"{name} = '{WORD}'", f'"{name}": "{WORD}"', f"--{name}={WORD}"):
        assert WORD not in redact_text(text), text
    assert redact_argv(["train.py", f"--{name}", WORD])[2] == "[redacted]"


@pytest.mark.parametrize("name", sorted(HIDE_KEYS))
def test_a_name_of_many_meanings_hides_a_random_value_only(name):
    assert redact_config({name: WORD}) == ({name: WORD}, [])
    assert RANDOM not in str(redact_config({name: RANDOM})[0])
    assert redact_text(f"{name} = '{WORD}'") == f"{name} = '{WORD}'"


@pytest.mark.parametrize("name", sorted(HIDE_NOTHING))
@pytest.mark.parametrize("value", [WORD, RANDOM])
def test_a_name_that_ends_in_something_else_hides_nothing(name, value):
    assert redact_config({name: value}) == ({name: value}, [])
    assert redact_text(f"{name} = '{value}'") == f"{name} = '{value}'"


CONFIGS = {
    "names and values": ([{"name": "DB_PASSWORD", "value": WORD}], ["[0].value"]),
    "with capitals": ([{"Name": "DB_PASSWORD", "Value": WORD}], ["[0].Value"]),
    "keys and values": ([{"key": "password", "value": WORD}], ["[0].value"]),
    "a pair": ({"extra": ["password", "Sw0rdfish!"]}, ["extra[1]"]),
    "a header": ({"Authorization": f"token {WORD}"}, ["Authorization"]),
    "a cookie": ({"headers": {"Cookie": f"sid={WORD}; a=b"}}, ["headers.Cookie"]),
    "a command": ({"cmd": ["mysql", "-u", "root", f"-p{WORD}"]}, ["cmd[3]"]),
    "a command with a blank": ({"cmd": ["sshpass", "-p", f"a {WORD}", "ssh"]}, ["cmd[2]"]),
    "a command with a user": ({"cmd": ["curl", "-u", f"bob:{WORD}", "https://h"]}, ["cmd[2]"]),
    "a command as a text": ({"cmd": f"curl -u bob:{WORD} https://h"}, ["cmd"]),
    "an environment file": ({"env": f"A=1\nDB_PASSWORD={WORD}\n"}, ["env"]),
    "a key of a service": ({"wandb": {"entity": "me", "key": "0123456789abcdef" * 2 + "01234567"}}, ["wandb.key"]),
    "a key beside its user": ({"kaggle": {"username": "me", "key": "0123456789abcdef" * 2}}, ["kaggle.key"]),
    "an api of a service": ({"neptune": {"api": RANDOM}}, ["neptune.api"]),
    "an ini file": ({"ini": f"[db]\npassword = {WORD}\n"}, ["ini"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_structures_give_their_secrets_away(name):
    config, paths = CONFIGS[name]
    assert list(findings(config))  # a scan finds it in what an older version wrote
    cleaned, found = redact_config(config)
    assert found == paths and WORD not in str(cleaned) and "Sw0rdfish!" not in str(cleaned)
    assert redact_config(cleaned) == (cleaned, paths)


PLAIN = {
    "hyperparameters": {
        "num_tokens": 128, "train_tokens": "300B", "pw": 3, "tokens": ["the", "word2vec1"], "pin_memory": True,
        "eos_token": "</s>", "sos_token": "[SOS]", "has_password": "partly", "pass": 2, "key": "dataset_v1_train_2024",
        "sort_key": "length", "signature": "f32[8,128]", "salt": "resnet50", "auth": "oauth2", "dsn": "sqlite:///x.db",
        "api_key": "OPENAI_API_KEY", "session": "train-2024-01-01", "token": "bert-base-uncased-2",
    },
    "columns": {"labels": ["password", "username"], "keys": ["input_ids", "labels"], "pair": ["secret", "public"]},
    "named values": [{"name": "learning_rate", "value": "swordfish1"}, {"key": "data", "value": "a1b2"}, {"value": 1}],
    "commands": [["ssh", "-p", "2222", "h"], ["train.py", "-p", "3"], ["mysql", "-u", "root", "-p", "db"],
                 ["curl", "-u", "$USER:$PASSWORD"], ["curl", "-o", "a:b"], ["train.py", "--tokens", "4096"]],
    "numbers under short names": {"psw": 2.0, "pwd": 0.5, "pw": "0.5", "psw2": 3},
    "a licence": {"license_key": "apache-2.0"},
    "keys of mappings": {"model": {"key": "0123456789abcdef"}, "wandb": {"key": "run_name"}, "aim": {"api": "v1"}},
    "counts beside secrets": {"secrets": {"n": 3}},
    "options after addresses": [
        ["train.py", "--endpoint", "http://localhost:8000", "-a", "model:resnet50"], ["train.py", "--pw", "0.5"],
        ["train.py", "--http", "-a", "b:resnet50"], ["train.py", "--pwd=0.25"],
    ],
    "headers": {"Authorization": "basic", "Cookie": "none", "auth": "Bearer"},
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_hyperparameters_stay(name):
    assert redact_config(PLAIN[name]) == (PLAIN[name], [])
    assert list(findings(PLAIN[name])) == []


def test_numbers_are_secrets_under_the_names_of_passwords_and_in_lists_of_secrets():
    for config in ({"passwords": {"a": 123456}}, {"password": 1234}, {"pwd": 123456}):
        cleaned, paths = redact_config(config)
        assert len(paths) == 1 and "1234" not in str(cleaned), config


FALLBACKS = [
    "api_key = os.environ.get('MY_KEY') or '{}'",
    'api_key = os.environ.get("MY_KEY") or "{}"; raise ValueError(1)',
    "api_key = 'x' if os.environ.get('QQ') else '{}'",
    "API_KEY = load(open('f')) if mode == 'prod' else '{}'",
    "api_keys = {{'a': '{}'}}",
    "api_keys = {{\n    'a': 'swordfish', 'b': '{}',\n}}",
    '"api_keys": {{"a": "{}"}}',
    "password = input('pw') or '{}'",
    "password = input('pw') or f(g('x')) or '{}'",
]


@pytest.mark.parametrize("line", FALLBACKS)
def test_what_an_expression_falls_back_to_is_read_too(line):
    assert RANDOM not in redact_text(line.format(RANDOM))


@pytest.mark.parametrize(
    "line",
    [
        "api_key = None\nmode = args.mode or 'train'",
        "f(api_key=key, mode=args.mode or 'train')",
        '{"api_key": config.key, "mode": mode or "train_2024"}',
        "secrets = {'method': 'shamir', 'folder': 'data_2024'}",
        "api_key = os.environ.get('MY_KEY') or ''",
        "psw = 2.0",
        "pwd: 0.25",
    ],
)
def test_what_another_name_falls_back_to_stays(line):
    assert redact_text(line) == line


@pytest.mark.parametrize(
    ("config", "text", "stays"),
    [
        ({"dataset": {"access_key": "image_id"}}, "recall/image_id", True),
        ({"access_key": "resnet50"}, "model resnet50", True),
        ({"access_key": "x7Kq9-Lm2"}, "denied for x7Kq9-Lm2", False),
        ({"password": "tuna-fish"}, "denied for tuna-fish", False),
    ],
)
def test_only_what_is_surely_a_secret_is_taken_out_of_other_texts(config, text, stays):
    assert len(redact_config(config)[1]) == 1
    assert (redact_text(text) == text) is stays
