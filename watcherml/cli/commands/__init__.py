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
    "resolve": "Mark a failure as resolved, or as open again",
    "compare": "Show what differs between two runs, most suspicious first",
    "prepare-recovery": "Seal a recovery plan without running anything",
    "recover": "Observe, plan, authorize, execute and verify a recovery",
    "recoveries": "List recovery campaigns",
    "recovery": "Show a campaign with its trials and verdict",
    "verify": "Check what a result, a plan or a campaign is worth in this store",
    "export": "Write a run with its evidence into a checksummed ZIP",
    "import": "Bring an exported run into this store, as somebody else's claim",
    "pack": "Copy the whole store into one ZIP, while it is in use",
    "delete": "Take a run or a campaign out of the store",
    "prune": "Take old runs, the working data of trials and leftovers out of the store",
    "scan": "List what in this store still looks like a secret",
    "stop": "Stop a running campaign",
    "resume": "Take up a campaign that lost its supervisor",
    "ui": "Look at the store in a browser, on this machine",
    "schema": "Show what a sealed document is made of, or its JSON Schema",
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
    module = "import_" if name == "import" else name.replace("-", "_")  # a keyword of the language
    return cast(Command, importlib.import_module(f"{__name__}.{module}"))
