"""Python, platform and installed packages, with one fingerprint over them."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from watcherml.sealed.canonical import digest

if TYPE_CHECKING:
    from importlib import metadata

_MAX_NAMES = 50
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,200}[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,200}")
_FIELD = re.compile(r"^(Name|Version):[ \t]*(.*?)\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass
class _Installed:
    packages: dict[str, str] = field(default_factory=dict)
    # How a package came here if not by name and version: "editable", "vcs git COMMIT", "archive HASH", "folder".
    sources: dict[str, str] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, list[str]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


_cached: tuple[object, _Installed] | None = None


def collect() -> dict[str, Any]:
    """Return interpreter, platform and package versions, and ``fingerprint`` (``sha256:<hex>``) over them.

    Two environments with the same fingerprint have the same Python version, the same system and machine type,
    the same versions of all installed distributions, and of those installed from a repository or an archive the same
    commit or hash. Paths, addresses and host names are not part of it. ``sources`` and ``urls`` name the packages
    that did not come by name and version, ``local_versions`` those built apart from the public release,
    ``duplicates`` every version of a package that is there more than once, ``broken`` damaged installations.
    """
    installed = _installed()
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": packages(),
        "sources": dict(installed.sources),
    }
    facts["fingerprint"] = digest("environment", 2, facts)
    facts["urls"] = dict(installed.urls)
    facts["local_versions"] = {
        name: version.partition("+")[2] for name, version in facts["packages"].items() if "+" in version
    }
    facts["duplicates"] = {name: list(versions) for name, versions in installed.duplicates.items()}
    facts["broken"] = list(installed.broken)
    return facts


def packages() -> dict[str, str]:
    """Return installed distributions by normalized name; a broken one is left out."""
    return dict(_installed().packages)


def requirements(facts: Mapping[str, Any]) -> str:
    """Return a requirements.txt for what ``collect`` returned: pinned versions, sorted by name.

    What an index cannot give is a comment: editable installs, repositories, archives, and names or versions that are
    none (facts may come from somebody else's archive, and a line of a requirements file can be an option).
    """
    lines = [f"# Python {_plain(facts.get('python'))} on {_plain(facts.get('system'))} {_plain(facts.get('machine'))}"]
    sources, urls = _mapping(facts.get("sources")), _mapping(facts.get("urls"))
    for name, version in sorted(_mapping(facts.get("packages")).items()):
        pin = f"{name}=={version}"
        if not (_NAME.fullmatch(str(name)) and _VERSION.fullmatch(str(version))):
            lines.append(f"# {_plain(pin)}  (no valid name and version)")
        elif name in urls:
            lines.append(f"# {name} @ {_plain(urls[name])}  ({_plain(version)}, {_plain(sources.get(name))})")
        elif name in sources:
            lines.append(f"# {pin}  ({_plain(sources[name])})")
        else:
            lines.append(f"{pin}  # local version, from an index of its own" if "+" in str(version) else pin)
    return "\n".join(lines) + "\n"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(value: object) -> str:
    return "".join(one if one.isprintable() else "?" for one in str(value))[:300]


def _installed() -> _Installed:
    """Return what is installed, read again only after a folder on ``sys.path`` has changed."""
    global _cached
    key = _state_of_path()
    if _cached is None or _cached[0] != key:
        _cached = (key, _read())
    return _cached[1]


def _state_of_path() -> object:
    found = []
    for entry in sys.path:
        try:
            status = Path(entry or os.curdir).stat()
            found.append((entry, status.st_dev, status.st_ino, status.st_mtime_ns))
        except (OSError, TypeError, ValueError):
            found.append((str(entry), 0, 0, 0))
    return tuple(found), tuple(map(id, sys.meta_path))


def _read() -> _Installed:
    found = _Installed()
    versions: dict[str, list[tuple[str, str, metadata.Distribution]]] = {}
    for distribution, name, version in _distributions(found):
        key = re.sub(r"[-_.]+", "-", name).lower()
        versions.setdefault(key, []).append((version, _place(distribution), distribution))
    for key in sorted(versions):
        there = versions[key]
        # The first folder on sys.path is the one that an import would take; in one folder the order is chance.
        version, _, distribution = max((one for one in there if one[1] == there[0][1]), key=lambda one: one[0])
        found.packages[key] = version
        if len({one[0] for one in there}) > 1:
            found.duplicates[key] = sorted({one[0] for one in there})[:_MAX_NAMES]
        source, url = _direct(distribution)
        if source:
            found.sources[key] = source
        if url:
            found.urls[key] = url
    found.broken.sort()
    return found


def _distributions(found: _Installed) -> Iterator[tuple[metadata.Distribution, str, str]]:
    """Yield each distribution with name and version, and note the broken ones."""
    from importlib import metadata  # slow to import, and the facts are collected in the background

    for distribution in metadata.distributions():
        try:
            # The header's two lines; to parse the whole text as a message costs ten times as much.
            text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or _egg_info(distribution)
            fields = {key.lower(): value for key, value in reversed(_FIELD.findall(text.partition("\n\n")[0]))}
            name, version = fields.get("name", ""), fields.get("version", "")
        except Exception:  # noqa: BLE001 - a damaged dist-info folder raises anything
            name = version = ""
        if name and version:
            yield distribution, name, version
        elif len(found.broken) < _MAX_NAMES:
            found.broken.append(Path(str(getattr(distribution, "_path", "unknown"))).name)


def _egg_info(distribution: metadata.Distribution) -> str:
    """Return the text of the oldest kind, where the metadata is one file."""
    return distribution.read_text("") or ""


def _place(distribution: metadata.Distribution) -> str:
    return str(distribution.locate_file(""))


def _direct(distribution: metadata.Distribution) -> tuple[str, str]:
    """Return how a distribution was installed by direct reference, and its address without secrets and paths.

    The source is ``direct_url.json``, which an installer writes for what did not come from an index.
    """
    try:
        text = distribution.read_text("direct_url.json")
        if not text:
            return "", ""
        data = json.loads(text)
        url = _public(str(data.get("url", "")))
        if data.get("dir_info", {}).get("editable"):
            return "editable", ""
        if "vcs_info" in data:
            commit, kind = str(data["vcs_info"].get("commit_id", "")), str(data["vcs_info"].get("vcs", ""))
            return f"vcs {kind} {commit}"[:200], f"{kind}+{url}@{commit}" if url else ""
        if "archive_info" in data:
            hashes = data["archive_info"].get("hashes") or {}
            content = "=".join(max(hashes.items())) if hashes else str(data["archive_info"].get("hash", ""))
            return f"archive {content}".strip()[:200], url
        return "folder", ""
    except Exception:  # noqa: BLE001 - anything may stand in the file
        return "unreadable direct_url.json", ""


def _public(url: str) -> str:
    """Return an address without user, password, query and fragment; "" for a path of this machine."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file") or not parts.hostname:
        return ""
    host = parts.hostname + (f":{parts.port}" if parts.port else "")
    return urlunsplit((parts.scheme, host, parts.path, "", ""))[:300]
