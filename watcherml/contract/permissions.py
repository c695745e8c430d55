"""``InterventionPermissions``: the ceiling of what a campaign may try."""

from __future__ import annotations

from dataclasses import dataclass

from watcherml.sealed.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class InterventionPermissions(Record):
    """What may run at all. A permission is a ceiling, never an approval of one proposal."""

    allow_approval_required: bool = False
    allow_semantic_changes: bool = False
    allow_high_risk: bool = False

    def missing_for(self, *, approval: bool, semantic: bool, high_risk: bool) -> str:
        """Return the first permission that a change would need and does not have, or an empty string."""
        if approval and not self.allow_approval_required:
            return "allow_approval_required"
        if semantic and not self.allow_semantic_changes:
            return "allow_semantic_changes"
        if high_risk and not self.allow_high_risk:
            return "allow_high_risk"
        return ""
