"""The body of a cell magic on its way into a file: which function trains, what is copied above it, who runs it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.errors import CampaignError
from watcherml.notebook import body
from watcherml.notebook.names import Completed, complete
from watcherml.notebook.others import going_on
from watcherml.options import Parser
from watcherml.platform import expanded, interpreter
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.notebook.session import Session


@dataclass(frozen=True)
class Module:
    """A cell's body as the module that it is going to be. Nothing is written before ``written``."""

    path: Path
    entrypoint: TrainingEntrypoint
    completed: Completed

    @contextmanager
    def written(self, storage: Storage) -> Iterator[TrainingEntrypoint]:
        """Write the file; if the block fails, it is again what it was before.

        Raises ``UsageError`` for a file of the person's, ``CampaignError`` where a campaign runs what is in it.
        """
        _refuse_in_use(self.path, self.completed.source, storage)
        with body.written(self.path, self.completed.source):
            yield self.entrypoint


def add_body_flags(parser: Parser) -> None:
    """Add what ``module_of`` asks for."""
    parser.add_argument("--function", metavar="NAME",
                        help="the body's training function (default: the one with config and max_steps)")  # fmt: skip
    parser.add_argument("--copy-names", action="store_true",
                        help="copy the imports, defs and classes of earlier cells that the body lacks, without asking"
                        )  # fmt: skip


def pin_folders(values: Namespace) -> None:
    """Make what was typed relative to this folder absolute: what goes on later must not follow a ``%cd``."""
    values.project_root = str(expanded(values.project_root).absolute())
    values.python_executable = values.python_executable and interpreter(values.python_executable)


def module_of(session: Session, values: Namespace, source: str, file: str, field: str = "--file") -> Module:
    """Read a cell's body; nothing is written, imported or run.

    Raises ``InvalidEntrypoint`` for a body that cannot be a module or needs values of the notebook, ``UsageError`` for
    a name that no module can have.
    """
    function = body.training_function(source, values.function)
    completed = complete(source, session.cells.sources(), session.shell.user_ns)
    folder = getattr(values, "working_directory", ".")
    path = body.file_path(file, values.project_root, folder, field)
    return Module(path, TrainingEntrypoint(f"{path.stem}:{function}", folder), completed)


def _refuse_in_use(path: Path, source: str, storage: Storage) -> None:
    """A running campaign's trials must find the code that was sealed; another body would break all of them."""
    if body.present(path) in (None, body.marked(source).encode()):
        return
    for campaign in going_on(storage):
        entrypoint, settings = campaign.plan.contract.entrypoint, campaign.events()[0]["body"]
        folder = Path(settings.get("project_root", "")) / entrypoint.working_directory
        if entrypoint.module == path.stem and folder.resolve() == path.parent.resolve():
            raise CampaignError(
                f"campaign {campaign.campaign_id} is running the code in {path.name}",
                remedy=f"Wait for it, stop it with `%watcher stop {campaign.campaign_id}`, or give another file name.",
            )
