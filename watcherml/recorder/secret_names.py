"""Which names hold secrets, in the many spellings that people give them.

A name is judged by its last words: ``max_tokens`` and ``password_reset_enabled`` end in something else, ``eos_token``
is a tokenizer's, ``aws_secret_access_key`` and ``dbPassword`` are what they say.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

# "strong": any value is a secret. "weak": one that looks like a secret is.
Naming = Literal["strong", "weak", ""]


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MAX_NAME = 200
_PLAIN = str.maketrans("\u00f1\u00d1", "nN")  # contrasena is written with a tilde where it is at home

_ALONE = words_of(
    "password passwd passphrase passcode pwd psw secret apikey authtoken accesstoken secretkey accesskey privatekey"
    " clientsecret authkey storagekey accountkey pgpassword pgpass dbpass userpass rootpass adminpass mysqlpass"
    " storepass keypass passwort kennwort motdepasse contrasena wachtwoord senha"
)
_BEFORE_KEY = words_of(
    "api access secret private signing encryption decryption auth account master deploy neptune"
    " subscription admin app openai anthropic azure wandb comet kaggle hf huggingface gemini google"
    " groq mistral cohere together replicate stripe twilio sendgrid mailgun datadog langsmith langfuse pinecone"
    " deepspeed_api rapid nvidia ngc fernet ssh pgp gpg"
)
_BEFORE_TOKEN = words_of(
    "auth access refresh bearer session api hf hub huggingface wandb github gitlab gh gl bot security npm pypi slack"
    " discord telegram deploy personal neptune replicate databricks csrf vault jwt oauth registration service private"
    " secret client git ci identity docker kaggle comet aim mlflow clearml aws gcp azure sas sts cloudflare vercel"
    " netlify sentry circleci travis codecov jupyter notebook twine"
)
# Also behind a password: ``password_db``.
_SYSTEMS = words_of(
    "db database smtp mail ftp redis mysql postgres pg mongo mongodb admin root sql proxy ssh rabbitmq amqp ldap sudo"
)
_BEFORE_PASS = _SYSTEMS | words_of("user email login auth http my service old new")
_PASSWORDS = words_of("password passwd passphrase passcode")
# Words that make a token one of text, not of access.
_OF_TEXT = words_of(
    "eos bos pad unk mask cls sep image img start end special stop eot eod begin prefix suffix middle fim audio video"
    " placeholder boi eoi task lang language prompt user assistant system tool extra additional new added decoder"
    " encoder forced next last first num max min total per input output vocab no word sub text context query sos sot"
    " padding unknown masked separator blank newline null empty dummy space title think thinking ignore index answer"
    " question train target batch seq sequence chunk register sink summary class patch vision speech generated reserved"
)
_OF_DATA = words_of("public primary foreign cache sort partition row group index dict state attention num")
_TAIL = words_of("value val b64 base64 plain plaintext")
# What people write behind a secret's name to tell one from another.
_VARIANTS = words_of(
    "v old new prod production dev test staging live sandbox backup main default read write ro rw string tmp temp"
    " primary secondary original current previous local remote legacy"
)
# A word that ends so is one, whatever it is run together with: mysecret, DBPASSWORD, rootpw.
_ENDINGS = (
    "password", "passwd", "passphrase", "secret", "apikey", "encryptionkey", "dbpw", "rootpw", "userpw", "adminpw",
    "mysqlpw",
)  # fmt: skip
_PLURAL = {
    "passwords": "password", "secrets": "secret", "tokens": "token", "keys": "key", "credentials": "credential",
    "creds": "credential",
    "cookies": "cookie", "passphrases": "passphrase", "apikeys": "apikey",
}  # fmt: skip
_WEAK = words_of(
    "key token tokens tok auth authorization credential cookie sas sig signature dsn otp pat jwt pin salt pass pw"
    " bearer csrf hmac sessionid webhook"
)
# Two words that are a weak name together.
_WEAK_PAIRS = {("session", "id"), ("secret", "id"), ("secret", "text"), ("access", "code"), ("security", "code")}
_STRONG_PAIRS = {("de", "passe"), ("seed", "phrase"), ("recovery", "phrase")}
_ACCESS = words_of("token auth authorization credential pass pw pat otp bearer")
_NUMERIC = words_of("password passwd passphrase passcode")
_SHORT = words_of("pwd psw pw")  # names of hyperparameters as well
_FRACTION = re.compile(r"[-+]?(?:[0-9]{0,20}\.[0-9]{0,20}(?:[eE][-+]?[0-9]{1,3})?|[0-9]{1,3}(?:[eE][-+]?[0-9]{1,3})?)")
_PARTS = words_of("key api")  # of a mapping that is named after a service
# A name that asks or counts has an answer for its value: ``has_password``, ``num_secrets``.
_QUESTIONS = words_of(
    "is has use uses needs need require requires allow show hide num n max min count ask prompt check"
)
# Mappings under these names hold nothing but secrets.
_CONTAINERS = frozenset(("secrets", "passwords", "api_keys", "apikeys"))


@functools.lru_cache(maxsize=4096)
def naming(name: str) -> Naming:
    """Return how much a name says that its value is a secret."""
    words = _words(name)
    if not words:
        return ""
    said = _judged(words, name)
    return "weak" if said == "strong" and len(words) > 1 and words[0] in _QUESTIONS else said


def _judged(words: list[str], name: str) -> Naming:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _ALONE or (before, last) in _STRONG_PAIRS or words == ["pw"]:
        return "strong"
    if last == "base" and words[-3:-1] == ["secret", "key"]:
        return "strong"
    if (
        (last == "key" and before in _BEFORE_KEY)
        or (last == "token" and before in _BEFORE_TOKEN)
        or (last in ("pass", "pw") and before in _BEFORE_PASS)
    ):
        return "strong"
    if last not in _WEAK:
        return "weak" if (before, last) in _WEAK_PAIRS else ""
    if last == "key" and before in _OF_DATA:
        return ""
    # A variable of the environment that ends so holds one, whoever it is for.
    upper = last == "token" and len(words) > 1 and name.isupper() and not _is_of_text(words)
    return "strong" if upper else "weak"


def is_token(name: str) -> bool:
    """Tell whether a name ends in a word for a token of access; a key is more often one of a mapping."""
    words = _words(name)
    return bool(words) and words[-1] in _ACCESS and not _is_of_text(words)


def header_of(name: str) -> str:
    """Return the HTTP header that a name is for, if its value has a form of its own; else nothing."""
    last = (_words(name) or [""])[-1]
    return "Authorization" if last in ("auth", "authorization") else "Cookie" if last == "cookie" else ""


def may_be_number(name: str, number: str = "") -> bool:
    """Tell whether a number under this name is a secret; ``pwd`` and ``psw`` are for whole ones of 4 digits or more."""
    words = _words(name)
    if not words:
        return False
    return words[-1] in _NUMERIC or (words[-1] in ("pwd", "psw") and number.isdigit() and len(number) >= 4)


def is_setting(name: str, value: str) -> bool:
    """Tell whether a value is what a hyperparameter with the name of a secret has: ``pwd`` 0.5, ``psw`` 2.0."""
    return name.lstrip("-").lower() in _SHORT and _FRACTION.fullmatch(value) is not None


def of_entry(parent: str, key: str) -> str:
    """Return what an entry of a mapping is called with its parent's name, if together they name a key; else nothing."""
    joined = f"{parent}_key"
    return joined if key.lower() in _PARTS and naming(joined) == "strong" else ""


def holds_secrets_only(name: str) -> bool:
    """Tell whether a mapping under this name holds secrets under any keys."""
    return name.lower() in _CONTAINERS


def _is_of_text(words: list[str]) -> bool:
    return words[-1] == "token" and bool(_OF_TEXT & set(words[:-1]))


@functools.lru_cache(maxsize=4096)
def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORDS.findall(name[-_MAX_NAME:].translate(_PLAIN))]
    while words and (words[-1].isdigit() or (words[-1] in _TAIL and len(words) > 1)):
        words.pop()
    behind = len(words)
    while behind > 1 and (words[behind - 1] in _VARIANTS | _SYSTEMS or words[behind - 1].isdigit()):
        behind -= 1
    if 0 < behind < len(words):
        core = _plain(words[behind - 1])
        allowed = _VARIANTS | _SYSTEMS if core in _PASSWORDS else _VARIANTS
        if core in _ALONE | {"token", "key"} and all(word in allowed or word.isdigit() for word in words[behind:]):
            words = words[:behind]
    if words and (words[-1] != "tokens" or not _BEFORE_TOKEN.isdisjoint(words[-2:-1])):
        words[-1] = _plain(words[-1])  # tokens of nobody are those of a text
    return words


def _plain(word: str) -> str:
    """Return a word in the singular, and a run-together one as the secret that it ends in."""
    word = _PLURAL.get(word, word)
    return "secret" if word not in _ALONE and word.endswith(_ENDINGS) else word
