"""Python, platform and installed packages, with one fingerprint over them."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

from watcherml.sealed.canonical import digest


def collect() -> dict[str, Any]:
    """Return interpreter, platform and package versions, and ``fingerprint`` (``sha256:<hex>``) over all three.

    Two environments with the same fingerprint have the same Python version, the same system and machine type,
    and the same versions of all installed distributions. Paths and host names are not part of it.
    """
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": packages(),
    }
    facts["fingerprint"] = digest("environment", 1, facts)
    return facts


def packages() -> dict[str, str]:
    """Return installed distributions by normalized name; a broken one is left out."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # noqa: BLE001 - a damaged dist-info folder raises anything
            continue
        if name and version:
            # The first on sys.path is the one that an import would take.
            found.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)
    return dict(sorted(found.items()))
