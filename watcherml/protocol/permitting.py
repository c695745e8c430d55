"""How a person gives a plan the permissions that changes lack: the flags, and the same in Python."""

from __future__ import annotations

from collections.abc import Collection

# What a plan of automatic proposals only was not given, beside the contract's permissions.
ASKED = "include_approval_required"


def flag(name: str) -> str:
    """Return the flag that gives a permission of a contract."""
    return f"--{name.replace('_', '-')}"


def permitting(names: Collection[str]) -> str:
    """Return, as the end of a sentence, what gives these permissions to a plan that is prepared again."""
    allowed, asked = [name for name in names if name != ASKED], ASKED in names
    words = (["without --automatic-only"] if asked else []) + (
        [f"with {' '.join(map(flag, allowed))}"] if allowed else []
    )
    fields = ", ".join(f"{name}=True" for name in allowed)
    python = [f"permissions=InterventionPermissions({fields})"] if fields else []
    python += [f"{ASKED}=True"] if asked else []
    return f"{' and '.join(words)} (in Python {', '.join(python)})"
