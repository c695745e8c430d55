"""A dataset's fingerprint beside ``sha256sum`` over the same warm files, and the packages of an environment.

    python tests/bench/fingerprint.py [--folder DIR] [--small 20000] [--large-bytes 2000000000] [--check]

Every ratio is between two things measured in the same round, in turns; what is printed is the median of the rounds.
With ``--check`` the exit code is 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
BOUNDS = {"small first": 2.5, "large first": 1.2, "small second": 0.5, "large second": 0.5}
FINGERPRINT = """
import sys, time
from watcherml.recorder import dataset
began = time.perf_counter()
dataset.fingerprint(sys.argv[1])
print(time.perf_counter() - began)
"""
PACKAGES = """
import sys, time
sys.path[:] = [path for path in sys.path if not path.endswith("-packages")] + [sys.argv[1]]
from watcherml.recorder import environment
times = []
for _ in range(2):
    began = time.perf_counter()
    facts = environment.collect()
    times.append(time.perf_counter() - began)
print(*times, len(facts["packages"]))
"""


def make_small(folder: Path, count: int) -> None:
    """Files of 1 to 16 KiB in folders of 200, as a set of small images or texts has them."""
    chance = random.Random(7)
    block = os.urandom(1 << 20)
    for number in range(count):
        if number % 200 == 0:
            here = folder / f"{number // 200:04}"
            here.mkdir(parents=True)
        size, start = chance.randint(1 << 10, 1 << 14), chance.randint(0, 1 << 19)
        (here / f"{number:06}.bin").write_bytes(block[start : start + size])


def make_large(folder: Path, total: int) -> None:
    """Eight files of the same size."""
    folder.mkdir()
    block = os.urandom(1 << 24)
    for number in range(8):
        with (folder / f"shard-{number}.bin").open("wb") as stream:
            left = total // 8
            while left:
                left -= stream.write(block[: min(left, len(block))])


def make_packages(folder: Path, count: int) -> None:
    """Installed distributions with a description of some length."""
    for number in range(count):
        info = folder / f"package_{number}-1.{number}.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: package-{number}\nVersion: 1.{number}\nRequires-Dist: numpy\n\n"
        (info / "METADATA").write_text(text + "A line of its description.\n" * 400)
        (info / "RECORD").write_text("x" * 4000)


def sha256sum(folder: Path) -> float:
    """Seconds of one sha256sum process over all files."""
    names = b"\0".join(os.fsencode(path) for path in sorted(folder.rglob("*")) if path.is_file())
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-0", "-n", "1000000", "-s", "2000000", "sha256sum"],
        input=names,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def fingerprint(folder: Path, cache: Path) -> float:
    """Seconds of the call in a process of its own, without the start of Python."""
    done = subprocess.run(
        [sys.executable, "-c", FINGERPRINT, str(folder)],
        env={**os.environ, "PYTHONPATH": ROOT, "XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def compare(name: str, folder: Path, place: Path, rounds: int) -> dict[str, float]:
    """Print seconds and return the ratios."""
    sha256sum(folder)  # warm
    rows = []
    for number in range(rounds):
        cache = place / f"cache-{name}-{number}"
        rows.append((sha256sum(folder), fingerprint(folder, cache), fingerprint(folder, cache)))
    ratios = {
        f"{name} first": statistics.median(first / base for base, first, _ in rows),
        f"{name} second": statistics.median(second / first for _, first, second in rows),
    }
    for base, first, second in rows:
        print(f"  sha256sum {base:.3f} s   first pass {first:.3f} s   second pass {second:.3f} s")
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where the files are made and removed again")
    parser.add_argument("--small", type=int, default=20_000)
    parser.add_argument("--large-bytes", type=int, default=2_000_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        place = Path(name)
        ratios: dict[str, float] = {}
        make_small(place / "small", options.small)
        make_large(place / "large", options.large_bytes)
        make_packages(place / "packages", 300)
        time.sleep(2.5)  # a younger file is never remembered
        print(f"{options.small} small files")
        ratios.update(compare("small", place / "small", place, options.rounds))
        print(f"{options.large_bytes / 1e9:.1f} GB in large files")
        ratios.update(compare("large", place / "large", place, options.rounds))
        command = [sys.executable, "-c", PACKAGES, str(place / "packages")]
        environment = {**os.environ, "PYTHONPATH": ROOT}
        rows = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
            for _ in range(options.rounds)
        ]
    first, again = (1000 * statistics.median(float(row[column]) for row in rows) for column in (0, 1))
    print(f"{rows[0][2]} distributions: {first:.1f} ms, again in the same process {again:.2f} ms")
    for key, ratio in ratios.items():
        print(f"{key:<13} {ratio:6.3f}x   bound {BOUNDS[key]}x   {'ok' if ratio <= BOUNDS[key] else 'BROKEN'}")
    return int(options.check and any(ratio > BOUNDS[key] for key, ratio in ratios.items()))


if __name__ == "__main__":
    sys.exit(main())
