"""What README says of privacy: where a recorded run writes, and that it talks to nobody."""

import os
import subprocess
import sys
from pathlib import Path

import watcherml

ROOT = Path(watcherml.__file__).resolve().parents[1]

# The interpreter's audit hook hears every thread, but of SQLite's files only what it connects to.
PROGRAM = """
import os, sys
seen = set()
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def watch(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES and arguments[0] is not None:
        if not isinstance(arguments[0], int):
            seen.add(("writes", os.path.abspath(os.fsdecode(arguments[0]))))
    elif event == "os.mkdir":
        seen.add(("writes", os.path.abspath(os.fsdecode(arguments[0]))))
    elif event == "sqlite3.connect":
        seen.add(("writes", os.path.abspath(os.fsdecode(arguments[0]).removeprefix("file:").split("?")[0])))
    elif event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        seen.add(("talks", str(arguments[1:])))

sys.addaudithook(watch)
import watcherml
try:
    with watcherml.init("p", {"batch_size": 4}) as run:
        run.set_dataset("data")
        run.log_metric("loss", 1.0, step=1)
        run.log_artifact("data/a")
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
except RuntimeError:
    pass
print(*sorted(f"{kind} {what}" for kind, what in seen), sep="\\n")
"""


def test_a_recorded_failure_writes_to_the_store_and_the_named_cache_and_talks_to_nobody(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("x")
    places = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path / "home"),
    }
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if name != "WATCHERML_DIR"}
    environment = {**kept, **places, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert not [line for line in told if line.startswith("talks")]
    wrote = {Path(line.removeprefix("writes ")) for line in told if line.startswith("writes")}
    allowed = (tmp_path / ".watcherml", tmp_path / "cache" / "watcherml", tmp_path / "tmp", Path(os.devnull))
    assert {path for path in wrote if not any(path.is_relative_to(one) for one in allowed)} <= {tmp_path / "cache"}
    assert tmp_path / ".watcherml" / "watcherml.db" in wrote and not list((tmp_path / "tmp").iterdir())
    # The only file beside the store is the one that README names.
    assert [one.name for one in (tmp_path / "cache").rglob("*") if one.is_file()] == ["fingerprints.db"]
    readme = (ROOT / "README.md").read_text("utf-8").split("## Where things are, and privacy")[1]
    assert "watcherml/fingerprints.db" in readme and not (tmp_path / "home").exists()
