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
        return next(iter(self.lacking(approval=approval, semantic=semantic, high_risk=high_risk)), "")

    def lacking(self, *, approval: bool, semantic: bool, high_risk: bool) -> tuple[str, ...]:
        """Return every permission that a change would need and does not have."""
        needed = (
            ("allow_approval_required", approval and not self.allow_approval_required),
            ("allow_semantic_changes", semantic and not self.allow_semantic_changes),
            ("allow_high_risk", high_risk and not self.allow_high_risk),
        )
        return tuple(name for name, lacks in needed if lacks)
