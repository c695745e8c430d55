"""Secrets in the command lines of common programs, in calls that log in, and in sentences about them.

The options here have one letter, so that only the program before them says what they are: ``-p`` is a password for
``sshpass`` and a port for others. Between words stand blanks, as in a shell, or quotes and a comma, as in a list.
"""

from __future__ import annotations

import re

from watcherml.recorder.assignments import is_mixed, is_path
from watcherml.recorder.redact_rules import Rule, is_digest, is_random

_GAP = r"(?:[ \t]{1,8}|\\?[\"'],[ \t\r\n]{0,8}\\?[\"'])"
_ALONE = r"(?:\.exe)?(?=[ \t]|\\?[\"'])"  # the program is a word, not the scheme of http://...
_WORDS = r"[^\n;|&]{0,300}?"  # of the same command
_WORD = r"\\?[\"']?(?P<s>(?<=')[^'\n\\]{1,300}(?=')|(?<=\")[^\"\n\\]{1,300}(?=\")|[^\s\"'\\]{1,300})"
_AFTER_COLON = r"\\?[\"']?[^\s:\"'\\/]{0,100}:(?P<s>[^\s\"'\\]{1,300})"


def _option(programs: str, option: str, value: str = _WORD, before: str = "") -> Rule:
    words = ("login",) if "login" in before else tuple(programs.split("|"))
    return Rule("command_line", words, rf"(?<![\w.-])(?:{programs}){_ALONE}{before}{_WORDS}{_GAP}{option}{value}")


COMMANDS = (
    _option("curl", rf"(?:-u|-U|--user|--proxy-user)(?:{_GAP}|=)?", _AFTER_COLON),
    _option("curl", rf"(?:-b|--cookie)(?:{_GAP}|=)?",
            r"(?:(?<=')(?P<s>[^'\n=]{1,100}=[^'\n]{4,})|\\?[\"']?(?P<t>[^\s\"'\\=]{1,100}=[^\s\"'\\]{4,1000}))"),
    _option("http|https", rf"(?:-a|--auth)(?:{_GAP}|=)?", _AFTER_COLON),
    _option("mysql|mysqldump|mysqladmin|mysqlimport|mysqlcheck|mysqlsh|mycli|mariadb|mariadb-dump", "-p"),
    _option("sshpass", rf"-p{_GAP}?"),
    _option("docker|podman|buildah|skopeo|crane|helm|nerdctl|oras|az|oc|singularity|apptainer|cf",
            rf"-p(?:{_GAP}|=)?", before=r"(?:(?!login)[^\n;|&]){0,60}login\b"),
    _option("redis-cli", rf"(?:-a|--pass){_GAP}"),
    _option("htpasswd", rf"-[a-zA-Z]{{0,5}}b[a-zA-Z]{{0,5}}{_GAP}[^\s\"']{{1,200}}{_GAP}[^\s\"']{{1,200}}{_GAP}"),
    _option("zip|unzip", rf"-P{_GAP}?"),
    _option("7z|7za|7zz|rar|unrar", "-p"),
    _option("openssl", rf"(?:-k|-K){_GAP}"),
    _option("openssl", rf"-pass(?:in|out)?{_GAP}pass:"),
    _option("sqlcmd|bcp", rf"-P{_GAP}?"),
    _option("mongo|mongosh|mongodump|mongorestore|mongoimport|mongoexport", rf"-p{_GAP}?"),
    _option("ldapsearch|ldapmodify|ldapadd|ldapdelete|ldappasswd|ldapwhoami", rf"-w{_GAP}?"),
    _option("smbclient", rf"-U{_GAP}?\\?[\"']?[^\s%\"']{{1,100}}%"),
    _option("net", rf"/user:[^\s\"']{{1,100}}{_GAP}"),
    _option("ngrok", rf"(?:add-)?authtoken{_GAP}"),
    Rule("command_line", ("echo",),
         r"\becho[ \t]{1,4}(?:-[ne]{1,2}[ \t]{1,4})?[\"']?(?P<s>[^\s\"'|]{1,300})[\"']?[ \t]{0,4}\|[ \t]{0,4}"
         r"(?:sudo[ \t][^|\n]{0,40}?-[a-z]{0,3}S|passwd\b|[a-z]{1,20}[ \t][^|\n]{0,200}?"
         r"--(?:password-stdin|with-token))"),
    Rule("command_line", ("chpasswd",),
         r"\b[\w.-]{1,40}:(?P<s>[^\s\"'|]{1,300})[\"']?[ \t]{0,4}(?:\||>)[ \t]{0,4}(?:sudo[ \t]{1,4})?chpasswd\b"),
)  # fmt: skip


def _is_key(value: str) -> bool:
    return is_random(value, 20) and not is_digest(value)


def _is_mixed(value: str) -> bool:
    return is_mixed(value) and not is_path(value) and "://" not in value and "(" not in value


def _is_mixed_or_word(value: str) -> bool:
    return len(value) >= 4 and value.lower() not in ("password", "passwd", "pass")


def _has_digit(value: str) -> bool:
    return any(char.isdigit() for char in value) and not value.isdigit() and not is_path(value)


_TEXT = r"[rbfu]{0,2}\\?[\"']"
_CLIENTS = (
    "OpenAI|AsyncOpenAI|Anthropic|AsyncAnthropic|Groq|Mistral|MistralClient|Cohere|Pinecone|InferenceClient|HfApi|Github"
    "|Gitlab|Replicate|Together|Client|AsyncClient|ClientV2|WebClient|Experiment|Api|WandbApi|TelegramBot|Bot"
)
CALLS = (
    Rule("login_call", ("login(", "auth(", "auth="),
         rf"(?:\blogin|BasicAuth|DigestAuth|ProxyAuth|\bauth\s?=\s?)\(\s{{0,8}}[^,()\n]{{1,100}},\s{{0,8}}{_TEXT}"
         r"(?P<s>[^\"'\\\n]{1,300})\\?[\"']", _is_mixed_or_word),
    Rule("login_call", ("connect(",),
         rf"\bconnect\(\s{{0,8}}(?:{_TEXT}[^\"'\\\n]{{1,200}}\\?[\"'],\s{{0,8}}){{2}}{_TEXT}"
         r"(?P<s>[^\"'\\\n]{1,300})\\?[\"']", _is_mixed_or_word),
    Rule("login_call", ("login(", "authenticate(", "init("),
         rf"\b(?:login|authenticate|init)\(\s{{0,8}}(?:[a-z_]{{1,20}}\s?=\s?)?{_TEXT}(?P<s>[A-Za-z0-9_.~+/=-]{{16,300}})"
         r"\\?[\"']", _is_key),
    Rule("client_call", ("ai(", "anthropic(", "groq(", "mistral", "cohere(", "pinecone(", "client(", "api(", "github(",
                         "gitlab(", "replicate(", "together(", "clientv2(", "experiment(", "bot("),
         rf"\b(?:{_CLIENTS})\(\s{{0,8}}{_TEXT}(?P<s>[A-Za-z0-9_.~+/=-]{{20,300}})\\?[\"']", _is_key),
)  # fmt: skip

_SAID = r"(?: (?:is|was|used|given|provided|of|value|for [\w@.-]{1,40}))?:? "
SENTENCES = (
    Rule("said_password", ("password", "passwd", "passphrase"),
         rf"(?i)\b(?:password|passwd|passphrase){_SAID}[\"'`]?"
         r"(?P<s>[^\s\"'`,;()<>]{7,200}[^\s\"'`,;()<>.:?])", _is_mixed),
    Rule("said_password", ("password", "passwd", "passphrase"),
         rf"(?i)\b(?:password|passwd|passphrase){_SAID}(?P<q>[\"'`])(?P<s>[^\s\"'`]{{6,200}})(?P=q)", _has_digit),
    Rule("said_key", ("token", "key", "secret", "credential"),
         rf"(?i)\b(?:token|api[ _-]?key|access key|secret key|secret|credentials?){_SAID}"
         r"[\"'`]?(?P<s>[A-Za-z0-9_.~+/=-]{15,500}[A-Za-z0-9_~+/=-])", _is_key),
)  # fmt: skip
RULES = (*COMMANDS, *CALLS, *SENTENCES)


def secret_words(words: list[str]) -> list[tuple[int, int, int]]:
    """Return (index of the word, start, end) of the secrets in a command line of the programs that are known here."""
    line = " ".join(re.sub(r"[\s;|&]", "_", word) for word in words)
    low = line.lower()
    found: list[tuple[int, int, int]] = []
    for rule in COMMANDS:
        if not any(word in low for word in rule.words):
            continue
        for match in rule.pattern.finditer(line):
            position = 0
            start, end = match.span(secret_group(match))
            for index, word in enumerate(words):
                first, last = max(start - position, 0), min(end - position, len(word))
                if first < last:
                    found.append((index, first, last))
                position += len(word) + 1
    return found


def secret_group(match: re.Match[str]) -> str | int:
    """Return the group of a match that holds the secret; a shape with none is one as a whole."""
    return next((group for group in ("s", "t") if match.groupdict().get(group) is not None), 0)
