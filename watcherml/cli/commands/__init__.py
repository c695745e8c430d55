"""One module a command: ``add_arguments`` declares its flags, ``run`` does it and returns the exit code."""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast

from watcherml.cli.console import Console

# In the order of the story: set up, look, recover, look again. Modules are imported when their command is called.
COMMANDS = {
    "demo": "See a recovery end to end on this machine, without a GPU",
    "init": "Create the store",
    "doctor": "Check that recording and trials work here",
    "runs": "List recorded runs",
    "inspect": "Show a run, or why it failed",
    "failures": "List failures",
    "prepare-recovery": "Seal a recovery plan without running anything",
    "recover": "Observe, plan, authorize, execute and verify a recovery",
    "recoveries": "List recovery campaigns",
    "recovery": "Show a campaign with its trials and verdict",
    "verify": "Check what a result, a plan or a campaign is worth in this store",
    "stop": "Stop a running campaign",
    "resume": "Take up a campaign that lost its supervisor",
}


class Command(Protocol):
    """What a command module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's flags."""

    def run(self, values: argparse.Namespace, console: Console) -> int:
        """Do it and return the exit code."""
        ...


def load(name: str) -> Command:
    """Import one command's module."""
    return cast(Command, importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
