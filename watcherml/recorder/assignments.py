"""Values that are assigned to secret names: in code, YAML, JSON, shells, command lines, headers and XML.

A name is found first, then judged, then its value is read and judged. Code that only names where a secret comes from
(``password=getpass()``, ``token: str``) is no secret, and taking it out would make a patch useless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcherml.recorder import redact_rules as rules
from watcherml.recorder import secret_names as names
from watcherml.recorder.literals import Value, rest_of_line, values_at

PLACEHOLDER = re.compile(r"\[redacted(?::[0-9a-f]{8})?\]")
_MAX_NAME = 80

# For lower case: to ignore the case in the pattern costs three times as much.
_ASSIGNED = re.compile(
    r"(?:p(?:ass|wd|sw|w(?![a-z])|at(?![a-z])|hrase)|s(?:ecret|alt|ession_?id|enha)|tok|k(?:ey|ennwort)|auth|bearer"
    r"|c(?:red(?:ential|s(?![a-z]))|ookie|srf|ontrase[n\u00f1]a)|otp(?![a-z])|jwt(?![a-z])|dsn|hmac|wachtwoord)"
    r"[A-Za-z0-9_-]{0,40}(?P<close>(?:\\?[\"'`\]]){0,3})"
    r"(?P<sep>[ \t]{0,4}:[ \t]{0,4}[A-Za-z][A-Za-z0-9_.|\[\] ]{0,30}?[ \t]{0,4}=[ \t]{0,4}"  # annotated
    r"(?=\\?[\"'(\[]|(?:[a-z_]{1,20}\.){0,2}(?:field|secretstr)\()"
    r"|[ \t]{0,8}(?:[!=]==?|:=|=>|[:=])[ \t]{0,8}|,[ \t]{0,4}(?=\\?[\"'])|>|[ \t]{1,4}|\((?=[rbfu]{0,2}\\?[\"']))"
)
# {"name": "HF_TOKEN", "value": ...}, in JSON, YAML, Python and XML; nothing of another entry may stand between.
_ENTRY = re.compile(
    r"(?i)(?<![a-z0-9_.-])(?:name|key|variable|header)\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?"
    r"(?P<name>[a-z_][\w.-]{1,79})\\?[\"']?(?=[\s,;])(?:(?!\b(?:name|key)\b|[{}]).){0,120}?(?<![a-z0-9_.-])value"
    r"\\?[\"']?[ \t]{0,4}(?P<sep>[:=])[ \t]{0,8}",
    re.DOTALL,
)
# The default of an option of a command line.
_OPTION = re.compile(
    r"(?:add_argument|add_option|[oO]ption|Argument)\(\s{0,20}(?:\\?[\"'][-\w/]{1,40}\\?[\"']\s?,\s?){0,3}"
    r"\\?[\"'](?P<name>[-\w]{2,80})\\?[\"'],(?:(?!default)[^()]){0,200}\bdefault\s?(?P<sep>=)\s?(?=[rbfu]{0,2}\\?[\"'])"
)
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.\u00f1\u00d1")
_SETTERS = re.compile(r"(?:setdefault|putenv|setenv|set_key|getenv|get|set_secret|set_password|set|ENV|SETX|setx)\($")
_SPACED = re.compile(r"(?:^|[\s;(])(?:setenv|ENV|setx|export|set|%env|%set_env)[ \t]{1,4}$")
_SETS = ("set_", "set", "with_", "use_", "add_", "add-")  # a function that is given a secret


def assignments(text: str) -> Iterator[tuple[int, int]]:
    """Yield values that are assigned to secret names, in any of the usual spellings."""
    low = text.lower()
    if len(low) != len(text):  # a few letters become two
        low = "".join(char.lower() if char.isascii() else char for char in text)
    yield from _in_entries(text, low)
    position = 0
    while (match := _ASSIGNED.search(low, position)) is not None:
        position = match.end()
        name, before = _name_at(text, match.start(), match.start("close"))
        said = names.naming(name)
        form = _form(match, text, before, name) if said else ""
        if not form:
            continue
        for start, end in _values(name, text, match.end(), form, before):
            yield start, end
            position = max(position, end)


def _in_entries(text: str, low: str) -> Iterator[tuple[int, int]]:
    for word, pattern in (("value", _ENTRY), ("default", _OPTION)):
        for match in pattern.finditer(text) if word in low else ():
            # As if the name stood where "value" stands: first on its line, or not.
            before = match.start("sep") - len(word) - (text[match.start("sep") - 1] in "\"'")
            form = ":" if match["sep"] == ":" and text[match.start("sep") - 1] not in "\"'" else "entry"
            if names.naming(match["name"]):
                yield from _values(match["name"], text, match.end(), form, before)


def _values(name: str, text: str, start: int, form: str, before: int) -> Iterator[tuple[int, int]]:
    strong = names.naming(name) == "strong"
    by_name = name.lower().endswith("secrets")  # services list their secrets by name
    for value in values_at(text, start, form, strong):
        if value.end <= value.start or PLACEHOLDER.match(text, value.start):
            continue
        if by_name and value.whole and text[max(0, value.start - 9) : value.start].rstrip(" \t").endswith("-"):
            continue
        if _assigned(name, text, value, form, before):
            first_on_line = strong and not value.quoted and form in (":", "entry") and _is_first(text, before)
            yield value.start, rest_of_line(text, value.start, value.end) if first_on_line else value.end


def _name_at(text: str, start: int, end: int) -> tuple[str, int]:
    first = start
    while first > 0 and start - first < _MAX_NAME and text[first - 1] in _NAME_CHARACTERS:
        first -= 1
    return text[first:end], first


def _form(match: re.Match[str], text: str, before: int, name: str) -> str:
    """Return how the name is tied to what follows, "" for not at all.

    "=" and ":" speak for themselves; " = " has blanks around it, as in code; "==" compares; an "entry" is a ":" after
    a name in quotes; a "flag" of a command line, a "pair" of arguments of a setter, a "call" of a function that is
    named after what it is given, a "tag" of XML.
    """
    separator, closed = match.group("sep"), match.group("close")
    bare = separator.strip()
    is_flag = text.startswith("-", before)
    if bare in ("==", "!=", "===", "!=="):
        return "=="
    if bare.endswith(("=", "=>")):
        return "flag" if is_flag else " = " if separator[:1] == separator[-1:] == " " else "="
    if bare.startswith(":"):
        return "entry" if closed else ":"
    if bare == ">":
        return "tag" if not closed and text[before - 1 : before] == "<" else ""
    if bare == "(":
        return "call" if not closed and name.rpartition(".")[2].lower().startswith(_SETS) else ""
    if bare == ",":
        opened = text[max(0, before - 30) : before].rstrip("\\\"'rbuf")
        return "flag" if is_flag else "pair" if closed and _SETTERS.search(opened) else ""
    if closed:
        return ""
    return "flag" if is_flag or _SPACED.search(text[max(0, before - 12) : before]) else ""


_INTERPOLATED = re.compile(
    r"\$\{.*\}|\$[A-Za-z_]\w*|\$\(.*|%\(\w+\)s|%[A-Za-z_]\w*%|\{\{.*\}\}|\{[\w.!:]*\}|<[^<>]*>|%[sr]|\W{0,3}\*+|[xX]{3,}|\.{2,}|…"
    r"|\[[A-Za-z_ ]{1,30}[0-9]{0,4}\]"
    r"|env:[A-Za-z_]\w*|\?\?\?|@.*@"
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_NOTHING = names.words_of("true false yes no on off none null nil undefined nan unset")
_PROSE = names.words_of(
    "str string int float bool bytes any optional type object required missing invalid incorrect wrong expired empty"
    " unknown hidden masked password passwd token key secret api_key default auto bearer basic digest negotiate must"
    " please not is was are has the a an and or for to in of your my enter field error failed prompt self this that"
    " with from if when which be can will should may reset changed protected encrypted hash hashed provided given set"
    " used stored only does do did option options flag flags argument arguments oauth oauth2 kerberos ldap iam saml"
)
_EXPRESSION = re.compile(
    r"(?:self|cls|args|cfg|config|conf|os|settings|env|environ|opts|options|params|kwargs|request|req|ctx|context"
    r"|secrets|st|flags|FLAGS|hparams|app|current_app|userdata|keyring|getpass|data|json|Secret\w*|SecretStr|field"
    r"|Field|None|lambda|not|await|typing|Optional|Union|Literal)(?:[.\[\s].*)?",
    re.DOTALL,
)
_SUBSCRIPT = re.compile(r"[A-Za-z_][\w.]*\[")
_IN_PROSE = re.compile(r" [A-Za-z]")
_SNAKE = re.compile(r"[a-z]+(?:_[a-z]+)+")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*")


def _assigned(name: str, text: str, place: Value, form: str, before: int) -> bool:
    start, end, quoted = place.start, place.end, place.quoted or place.whole
    value = text[start:end]
    if not quoted:
        value = value.rstrip(".:!?)]") or value
    if stands_for_nothing(value) or names.is_setting(name, value):
        return False
    if place.keyed:  # under a name of its own, which may be the name of anything
        return is_mixed(value) or (rules.is_random(value) and not rules.is_digest(value))
    if not quoted and _is_no_value(name, text, place, form, before, value):
        return False
    if form == "tag" and not text.startswith("</", end):
        return False
    if form == "flag":
        return not value.startswith("-") and follows_flag(name, value)
    if names.naming(name) == "weak":
        return looks_secret(name, value)
    if name.lower().endswith("keys") and _SNAKE.fullmatch(value):
        return False  # those of a mapping, under a name such as master_keys
    if value.replace(".", "", 1).replace("-", "", 1).isdigit():
        return names.may_be_number(name, value) and len(value) >= 4
    return not is_path(value) and (quoted or len(value) >= 4) and len(value) >= 2


def _is_no_value(name: str, text: str, place: Value, form: str, before: int, value: str) -> bool:
    """Tell whether a value without quotes is prose or code."""
    if form == "==" or value.lower() in _PROSE:
        return True
    if _is_expression(value, text[place.end : place.end + 2], form):
        return True
    prose = form == ":" and value.isalpha() and _IN_PROSE.match(text, place.end)
    return bool(prose) and not _is_first(text, before)


def follows_flag(name: str, value: str) -> bool:
    """Tell whether the word after an option of a command line is a secret."""
    if names.naming(name) == "strong":
        return not names.is_setting(name, value) and (names.may_be_number(name) or not is_path(value))
    number = value.replace(".", "", 1).isdigit()
    return looks_secret(name, value) or (names.is_token(name) and not number and value.lower() not in _PROSE)


def _is_first(text: str, start: int) -> bool:
    """Tell whether nothing but blanks and marks of lists, comments and patches stands before on the line."""
    earliest = max(0, start - _MAX_NAME)
    line = text.rfind("\n", earliest, start) + 1
    return bool(line or not earliest) and not text[line:start].strip(" \t>*|+#-")


def _is_expression(value: str, following: str, form: str) -> bool:
    """Tell whether a value without quotes is code that only names where the secret comes from, or its type."""
    after = following[:1]
    if after == "(" or _SUBSCRIPT.match(value):
        return True
    if form == "flag":
        return False
    plain = bool(_IDENTIFIER.fullmatch(value)) and not any(char.isdigit() for char in value)
    if plain and form == " = " and following in (" +", " %"):
        return True
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
    return (names.is_token(name) and is_mixed(value)) or (rules.is_random(value) and not rules.is_digest(value))


def is_mixed(value: str) -> bool:
    """Tell whether a word of 8 characters or more has letters and digits, and is not put together from words."""
    digits = sum(char.isdigit() for char in value)
    mixed = len(value) >= 8 and 0 < digits < len(value) and not rules.is_wordy(value)
    return mixed and " " not in value and not value.startswith(("<", "[", "sha256:"))


def stands_for_nothing(value: str) -> bool:
    """Tell whether a value is none: empty, a word such as ``false``, a placeholder, a reference."""
    bare = value.strip().strip("\"'")
    return not bare or bare.lower() in _NOTHING or bool(PLACEHOLDER.fullmatch(bare)) or refers(bare)


def refers(value: str) -> bool:
    """Tell whether a value only says where the secret comes from, such as ``${NAME}``, ``<your key>``, ``A_KEY``."""
    if len(value) > 200:
        return False
    if _INTERPOLATED.fullmatch(value):
        return True
    if "{" in value and len(re.sub(r"\$?\{\{?[^{}]{0,100}\}?\}|\W", "", value)) < 4:
        return True  # literal parts of a formatted text that only join others
    return bool(_VARIABLE.fullmatch(value)) and names.naming(value) != ""


_PLACES = ("./", "../", "~/", "file:", "http://", "https://", "s3://", "gs://")


def is_path(value: str) -> bool:
    """Tell whether a value names a file or a place; base64 has no dots or tildes and rarely begins with a slash."""
    if value.startswith(_PLACES) or re.match(r"[A-Za-z]:[\\/]", value):
        return True
    return value.startswith("/") and not rules.is_random(value.lstrip("/"), 24)
