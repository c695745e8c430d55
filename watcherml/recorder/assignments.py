"""Values that are assigned to secret names: in code, YAML, JSON, shells, command lines, headers and XML.

A name is found first, then judged, then its value is read and judged. Code that only names where a secret comes from
(``password=getpass()``, ``token: str``) is no secret, and taking it out would make a patch useless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcherml.recorder import redact_rules as rules
from watcherml.recorder import secret_names as names

PLACEHOLDER = re.compile(r"\[redacted(?::[0-9a-f]{8})?\]")
_MAX_QUOTED = 20_000
_MAX_NAME = 80

_ASSIGNED = re.compile(
    r"(?i)(?:pass|pwd|psw|secret|token|key|auth|credential|cookie|\bpat\b|\botp\b|\bjwt\b|dsn)"
    r"[A-Za-z0-9_-]{0,40}(?P<close>(?:\\?[\"'`\]]){0,3})"
    r"(?P<sep>[ \t]{0,4}:[ \t]{0,4}[A-Za-z][A-Za-z0-9_.|\[\] ]{0,30}?[ \t]{0,4}=[ \t]{0,4}(?=\\?[\"'])"  # annotated
    r"|[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}|,[ \t]{0,4}(?=\\?[\"'])|>|[ \t]{1,4})"
)
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_BARE = re.compile(r"[^\s\"'`,;<>(){}&|\\]{1,4000}")
_BARE_SHORT = re.compile(r"[^\s\"'`,;<>(){}&|\\]{1,300}")
_REST_OF_LINE = re.compile(r"[^\s\"'`][^\r\n]{0,4000}?(?=[ \t]+#|[ \t]*[,;]?[ \t]*(?:\r?\n|\Z))")
_PREFIX = re.compile(r"(?:[rbfuRBFU]{1,2})?(?=[\"'])")
_SETTERS = re.compile(r"(?:setdefault|putenv|setenv|set_key|getenv|get|set_secret|set_password|set|ENV|SETX|setx)\($")
_SPACED = re.compile(r"(?:^|[\s;(])(?:setenv|ENV|setx|export|set)[ \t]{1,4}$")


def assignments(text: str) -> Iterator[tuple[int, int]]:
    """Yield values that are assigned to secret names, in any of the usual spellings."""
    position = 0
    while (match := _ASSIGNED.search(text, position)) is not None:
        position = match.end()
        name, before = _name_at(text, match.start(), match.start("close"))
        said = names.naming(name)
        if not said:
            continue
        form = _form(match, text, before)
        if not form:
            continue
        start, end, quoted = _value_at(text, match.end(), said)
        position = max(position, start)
        if PLACEHOLDER.match(text, start):
            continue
        if end > start and _assigned(name, text, (start, end), quoted, form, before):
            if form == ":" and not quoted and said == "strong":
                end = _whole_line(text, before, start, end)
            yield start, end
            position = end


def _name_at(text: str, start: int, end: int) -> tuple[str, int]:
    first = start
    while first > 0 and start - first < _MAX_NAME and text[first - 1] in _NAME_CHARACTERS:
        first -= 1
    return text[first:end], first


def _form(match: re.Match[str], text: str, before: int) -> str:
    """Return how the name is tied to what follows, "" for not at all.

    "=" and ":" speak for themselves; " = " has blanks around it, as in code; an "entry" is a ":" after a name in
    quotes; a "flag" of a command line, a "pair" of arguments of a setter, a "tag" of XML.
    """
    separator, closed = match.group("sep"), match.group("close")
    bare = separator.strip()
    is_flag = text.startswith("--", before)
    if bare.endswith(("=", "=>")):
        return "flag" if is_flag else " = " if separator[:1] == separator[-1:] == " " else "="
    if bare.startswith(":"):
        return "entry" if closed else ":"
    if bare == ">":
        return "tag" if not closed and text[before - 1 : before] == "<" else ""
    if bare == ",":
        opened = text[max(0, before - 30) : before].rstrip("\\\"'rbuf")
        return "flag" if is_flag else "pair" if closed and _SETTERS.search(opened) else ""
    if closed:
        return ""
    return "flag" if is_flag or _SPACED.search(text[max(0, before - 12) : before]) else ""


def _value_at(text: str, start: int, said: str) -> tuple[int, int, bool]:
    """Return where the value starts and ends, and whether it is in quotes."""
    prefix = _PREFIX.match(text, start)
    start = prefix.end() if prefix else start
    quote = next((one for one in ('"""', "'''", '\\"', "\\'", '"', "'") if text.startswith(one, start)), "")
    if quote:
        first = start + len(quote)
        end = text.find(quote, first, first + _MAX_QUOTED)
        while len(quote) == 1 and end > 0 and text[end - 1] == "\\" and end > first:
            end = text.find(quote, end + 1, first + _MAX_QUOTED)
        line = text.find("\n", first, end if end >= 0 else first + _MAX_QUOTED)
        if end >= 0 and (line < 0 or len(quote) == 3):
            return first, end, True
        start = first  # a quote that is never closed: the excerpt ends before it does
    found = (_BARE if said == "strong" else _BARE_SHORT).match(text, start)
    return (start, found.end(), False) if found else (start, start, False)


def _whole_line(text: str, before: int, start: int, end: int) -> int:
    """Return the end of a value of YAML, which may hold blanks, if its name is the first on its line."""
    if _is_first(text, before):
        rest = _REST_OF_LINE.match(text, start)
        return max(end, rest.end()) if rest else end
    return end


_INTERPOLATED = re.compile(
    r"\$\{.*\}|\$[A-Za-z_]\w*|\$\(.*|%\(\w+\)s|%[A-Za-z_]\w*%|\{\{.*\}\}|\{[\w.!:]*\}|<[^<>]*>|%[sr]|\W{0,3}\*+|[xX]{3,}|\.{2,}|…"
    r"|env:[A-Za-z_]\w*|\?\?\?|@.*@"
)
_NOTHING = names.words_of("true false yes no on off none null nil undefined nan unset")
_PROSE = names.words_of(
    "str string int float bool bytes any optional type object required missing invalid incorrect wrong expired empty"
    " unknown hidden masked password passwd token key secret api_key default auto bearer basic digest negotiate must"
    " please not is was are has the a an and or for to in of your my enter field error failed prompt self this that"
    " with from if when which be can will should may reset changed protected encrypted hash hashed provided given set"
    " used stored only does do did option options flag flags argument arguments"
)
_EXPRESSION = re.compile(
    r"(?:self|cls|args|cfg|config|conf|os|settings|env|environ|opts|options|params|kwargs|request|req|ctx|context"
    r"|secrets|st|flags|FLAGS|hparams|app|current_app|userdata|keyring|getpass|data|json|Secret\w*|SecretStr|field"
    r"|Field|None|lambda|not|await|typing|Optional|Union|Literal)(?:[.\[\s].*)?",
    re.DOTALL,
)
_SUBSCRIPT = re.compile(r"[A-Za-z_][\w.]*\[")
_IN_PROSE = re.compile(r" [A-Za-z]")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*")


def _assigned(name: str, text: str, place: tuple[int, int], quoted: bool, form: str, before: int) -> bool:
    start, end = place
    value = text[start:end]
    if not quoted:
        value = value.rstrip(".:!?)]") or value
    if stands_for_nothing(value):
        return False
    if not quoted and (value.lower() in _PROSE or _is_expression(name, value, text[end : end + 2], form)):
        return False
    if not quoted and form == ":" and value.isalpha() and _IN_PROSE.match(text, end) and not _is_first(text, before):
        return False
    if form == "tag" and not text.startswith("</", end):
        return False
    if form == "flag":
        return not value.startswith("-") and (names.naming(name) == "strong" or names.is_token(name)
                                              or looks_secret(name, value))  # fmt: skip
    if names.naming(name) == "weak":
        return looks_secret(name, value)
    if value.replace(".", "", 1).replace("-", "", 1).isdigit():
        return names.may_be_number(name) and len(value) >= 4
    return not is_path(value) and (quoted or len(value) >= 4) and len(value) >= 2


def _is_first(text: str, start: int) -> bool:
    """Tell whether nothing but blanks and marks of lists, comments and patches stands before on the line."""
    earliest = max(0, start - _MAX_NAME)
    line = text.rfind("\n", earliest, start) + 1
    return bool(line or not earliest) and not text[line:start].strip(" \t>*|+#-")


def _is_expression(name: str, value: str, following: str, form: str) -> bool:
    """Tell whether a value without quotes is code that only names where the secret comes from, or its type."""
    after = following[:1]
    if after == "(" or _SUBSCRIPT.match(value):
        return True
    if form == "flag":
        return False
    plain = bool(_IDENTIFIER.fullmatch(value)) and not any(char.isdigit() for char in value)
    joined = "_" in value or "." in value
    if form == ":":
        # A value of YAML or of a header, the type of an argument, or an entry of a dict.
        typed = value[:1].isupper() and (following in (" |", " =") or after in (",", ")"))
        return plain and (typed or (joined and after in (",", ")")))
    if _EXPRESSION.fullmatch(value):
        return True
    # A variable is named after what it holds; an argument is followed by a comma or a parenthesis.
    return plain and (form == "entry" or after in (",", ")") or bool(names.naming(value)) or (form == " = " and joined))


def looks_secret(name: str, value: str) -> bool:
    """Judge a value beside a name that alone does not make it a secret."""
    if " " in value or "=" in value.rstrip("=") or stands_for_nothing(value) or is_path(value):
        return False
    if names.is_token(name):
        digits = sum(char.isdigit() for char in value)
        mixed = len(value) >= 8 and 0 < digits < len(value) and not rules.is_wordy(value)
        return mixed and not value.startswith(("<", "[", "sha256:"))
    return rules.is_random(value) and not rules.is_digest(value)


def stands_for_nothing(value: str) -> bool:
    """Tell whether a value is none: empty, a word such as ``false``, a placeholder, a reference."""
    bare = value.strip().strip("\"'")
    return not bare or bare.lower() in _NOTHING or bool(PLACEHOLDER.fullmatch(bare)) or refers(bare)


def refers(value: str) -> bool:
    """Tell whether a value only says where the secret comes from, such as ``${NAME}`` or ``<your key>``."""
    return len(value) <= 200 and bool(_INTERPOLATED.fullmatch(value))


def is_path(value: str) -> bool:
    """Tell whether a value names a file; base64 has no dots or tildes and rarely begins with a slash."""
    if value.startswith(("./", "../", "~/", "file:")) or re.match(r"[A-Za-z]:[\\/]", value):
        return True
    return value.startswith("/") and not rules.is_random(value.lstrip("/"), 24)
