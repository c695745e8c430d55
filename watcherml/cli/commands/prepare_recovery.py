"""``watcher prepare-recovery RUN_ID``: a sealed plan on record, and no compute."""

from __future__ import annotations

import argparse

from watcherml.cli.console import Console
from watcherml.cli.contracts import add_flags, prepared
from watcherml.cli.shared import add_format, as_json, command_line, refuse_other_file, storage_of, write_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run_id", metavar="RUN_ID", help="the failed run")
    add_flags(parser, entrypoint_required=True)
    parser.add_argument("--out", "--output", metavar="FILE", dest="out", help="write the sealed plan to a file")
    add_format(parser, output=False)


def run(values: argparse.Namespace, console: Console) -> int:
    """Prepare the plan, put it on record, and write its sealed document where ``--out`` says."""
    from watcherml.report import plain
    from watcherml.report.documents import plan_document
    from watcherml.report.text import text_plan

    refuse_other_file(values.out, "--out")
    preparation = prepared(values, storage_of(values))
    if values.out is not None:
        write_file(values.out, preparation.to_json(), "--out")
    if values.format == "json":
        console.out(as_json(plan_document(preparation.plan))(False))
        return 0
    console.out(text_plan(preparation.plan, color=console.color))
    if values.out is not None:
        secrets = [word for one in values.secret for word in ("--secret", one)]
        command = command_line(values, "recover", "--plan", values.out, *secrets)
        console.say(f"\nWrote the sealed plan. To run it: {command}")
    else:
        told = "Nothing was run. --out FILE writes the plan, and `watcher recover --plan FILE` runs it."
        console.say(plain.finish(["", *plain.wrap(told)]))
    return 0
