"""Secrets are taken out where data is written, not where it is shown.

A placeholder carries a short hash, so that two places with the same secret can be told to be the same
without the secret. The patterns are the public shapes of provider keys.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

_KEYS = (
    r"sk-[A-Za-z0-9_-]{20,}",
    r"hf_[A-Za-z0-9]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{30,}",
    r"glpat-[A-Za-z0-9_-]{20,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"xox[abprs]-[A-Za-z0-9-]{10,}",
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}",
)
_KEY = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_KEYS) + r")")
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_BEARER = re.compile(r"(?i)(\bbearer\s+)([A-Za-z0-9._~+/=-]{12,})")
_URL = re.compile(r"([a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,200}:)([^\s/@]{1,200})(@)")
_ASSIGNED = re.compile(
    r"(?i)((?:api[_-]?key|access[_-]?key|secret[_-]?key|auth[_-]?token|access[_-]?token|passwd|password|secret)"
    r"[\"']?\s{0,4}[=:]\s{0,4}[\"']?)([^\s\"',;]{6,200})"
)
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_.\- ])(?:api_?key|access_?key|secret(?:_?key)?|password|passwd|credentials?|auth_?token|access_?token"
    r"|(?:hf|wandb|github|hub|api)_?token)$"
)


def placeholder(secret: str) -> str:
    """Return ``[redacted:xxxxxxxx]`` with a short hash of the secret."""
    return f"[redacted:{hashlib.sha256(secret.encode('utf-8', 'replace')).hexdigest()[:8]}]"


def redact_text(text: str) -> str:
    """Return the text with keys, bearer tokens, URL passwords, private keys and assigned secrets taken out."""
    text = _PRIVATE.sub(lambda match: placeholder(match.group()), text)
    text = _KEY.sub(lambda match: placeholder(match.group()), text)
    text = _BEARER.sub(lambda match: match.group(1) + placeholder(match.group(2)), text)
    text = _URL.sub(lambda match: match.group(1) + placeholder(match.group(2)) + match.group(3), text)
    return _ASSIGNED.sub(_assigned, text)


def redact_config(value: Any) -> tuple[Any, list[str]]:
    """Return a JSON value with secrets taken out and the paths where that happened."""
    paths: list[str] = []
    return _walk(value, "", "", paths), paths


def _walk(value: Any, path: str, name: str, paths: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _walk(item, f"{path}.{key}" if path else key, key, paths) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, f"{path}[{index}]", name, paths) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    if _SECRET_NAME.search(name) and value and not value.startswith("[redacted:"):
        paths.append(path)
        return placeholder(value)
    cleaned = redact_text(value)
    if cleaned != value:
        paths.append(path)
    return cleaned


def _assigned(match: re.Match[str]) -> str:
    value = match.group(2)
    return match.group() if value.startswith("[redacted:") else match.group(1) + placeholder(value)
