"""What a confirmation must be a run *of*: dataset, environment, commit, model, code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from watcherml.sealed.fields import Digest, Identity, Items
from watcherml.sealed.record import Record

# How the names of a trial's code begin: of a file outside the project, of one that was made while the trial ran, and
# of a module that was imported from there or while training ran, wherever its file lies.
OUTSIDE, MADE, MODULE = "../", "made: ", "module "


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadIdentity(Record):
    """Identities that each trial must measure and match exactly; None asks for nothing."""

    dataset_fingerprint: Identity | None = None
    environment_fingerprint: Identity | None = None
    git_commit: Identity | None = None
    model_identifier: Identity | None = None

    def declared(self) -> dict[str, str]:
        """Return the fields that are set, by name."""
        return {key: value for key, value in self.to_data().items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class CodeIdentity(Record):
    """The entrypoint's own code: digests of the files under the project root that importing it loads.

    Keys are paths relative to the project root with forward slashes; values are SHA-256 of the bytes. A trial also
    names what it loaded from elsewhere and no package brought; such keys begin with ``../``, and ``module NAME`` says
    what was imported under a name, there or while training ran: another folder, or a package, may come first.
    ``made: PATH`` is a file that was written while the trial ran, by the trial or by somebody else: only the trials
    together tell which.
    """

    files: Annotated[Mapping[str, Digest], Items(1, 5_000)]
