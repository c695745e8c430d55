"""WatcherML beside what people use today: ``python -m tests.bench [record] [recover] [--readme]``.

Each tool is installed into an environment of its own below ``--envs`` (several GB of disk, about ten minutes the first
time). Prints Markdown tables; ``--readme`` puts them between README's markers. Absolute times are this machine's; what
may be compared are the rows of one table. The ratios that we hold ourselves to are in the scripts beside this one.
"""

import argparse
import datetime
import os
import platform
import re
import tempfile
from pathlib import Path

from tests.bench.beside import recording, recovering

README = Path(__file__).resolve().parents[2] / "README.md"


def put(name, table):
    """Put a table between its markers in README."""
    text = README.read_text("utf-8")
    found = re.compile(rf"(<!-- bench {name} -->\n).*?(<!-- end of bench {name} -->)", re.S)
    if not found.search(text):
        raise SystemExit(f"README has no markers `<!-- bench {name} -->` and `<!-- end of bench {name} -->`")
    README.write_text(found.sub(lambda one: f"{one[1]}{table}\n{one[2]}", text), "utf-8")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=["record", "recover", []], default=[])
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir(), "watcherml-bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readme", action="store_true")
    values = parser.parse_args()
    for name in values.what or ["record", "recover"]:
        table = recording.run(values.envs, values.rounds) if name == "record" else recovering.run(values.envs)
        date = datetime.datetime.now(datetime.timezone.utc).date()
        table += f"\n\n{date}, {platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores."
        print(f"\n{table}\n")
        if values.readme:
            put(name, table)


if __name__ == "__main__":
    main()
