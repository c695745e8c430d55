"""Entrypoints that write what only worker and guard may write. Copied into a project of its own and run there."""

import atexit
import ctypes
import gc
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

GOOD = {"steps_completed": 50, "val_loss": 0.25}
HERE = Path(sys.orig_argv[-1]).parent  # the command line that the function finds has it no more


def forged(**changes):
    """A report that is valid in itself, sealed by the package's own code."""
    from watcherml.protocol.request import TrialRequest
    from watcherml.protocol.result import MeasuredIdentity, Progress, WorkerReport
    from watcherml.sealed.device import Device

    values = {
        "request_digest": TrialRequest.from_json((HERE / "request.json").read_bytes()).digest,
        "execution_id": (HERE / "claim").read_text(), "outcome": "completed", "failure": None,
        "metrics": {"steps_completed": 10.0**6, "val_loss": 0.0}, "progress": Progress(10**6, "marks", 10.0**6),
        "peak": None, "identity": MeasuredIdentity(None, None, None, None, None), "knobs": (), "traits": (),
        "device": Device("none"), "gpu_count": 1, "seconds": 1.0,
    }  # fmt: skip
    return WorkerReport(**{**values, **changes}).to_json()


def an_end(report):
    return json.dumps({
        "reason": "exited", "exit_code": 0, "signal": None, "started_at": 1.0, "wall_seconds": 1.0, "oom_kills": 0,
        "report": report, "report_sha256": None,
    })  # fmt: skip


def forges_everything(config, max_steps=None):
    for name in ("report.json", "report.0000000000000000.json"):
        (HERE / name).write_text(forged())
    (HERE / "exit.json").write_text(an_end("report.json"))
    os._exit(0)


def words():
    """Every text of 16 hexadecimal digits that frames, objects, environment and arguments show."""
    texts = [*os.environ.values(), *sys.orig_argv, Path("/proc/self/cmdline").read_text()]
    frame = sys._getframe()
    while frame is not None:
        texts += [value for value in frame.f_locals.values() if isinstance(value, str)]
        frame = frame.f_back
    for one in gc.get_objects():
        values = one.values() if type(one) is dict else one if type(one) in (list, tuple) else ()
        texts += [value for value in list(values) if isinstance(value, str)]
    return {found for text in texts for found in re.findall(r"\b[0-9a-f]{16}\b", text)}


def looks_for_the_name(config, max_steps=None):
    for word in words():
        (HERE / f"report.{word}.json").write_text(forged())
    os._exit(0)


def reads_every_file(config, max_steps=None):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_blocking(int(name), False)
                word = os.read(int(name), 100).decode().strip()
            except (OSError, ValueError):
                continue
            if re.fullmatch("[0-9a-f]{16}", word):
                (HERE / f"report.{word}.json").write_text(forged())
    os._exit(0)


def kills_the_guard_and_forges_its_end(config, max_steps=None):
    (HERE / "report.mine.json").write_text(forged())
    (HERE / "exit.json").write_text(an_end("report.mine.json"))
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.5)
    (HERE / "exit.json").write_text(an_end("report.mine.json"))
    time.sleep(30)


def written():
    found = [path for path in HERE.glob("report.*.json") if not path.name.startswith(".")]
    return found[0] if found else None


def later(change):
    """Have something done to the report once it is there."""
    atexit.register(lambda: change(written()))
    return dict(GOOD)


def changes_the_report(config, max_steps=None):
    return later(lambda path: path.write_text(forged()))


def changes_the_report_in_a_thread(config, max_steps=None):
    def change():
        while written() is None:
            time.sleep(0)
        written().write_text(forged())

    threading.Thread(target=change).start()
    return dict(GOOD)


def truncates_the_report(config, max_steps=None):
    return later(lambda path: os.truncate(path, 300))


def blows_up_the_report(config, max_steps=None):
    return later(lambda path: os.truncate(path, 2**30))


def report_becomes_a_link(config, max_steps=None):
    def change(path):
        (HERE / "elsewhere").write_text(path.read_text())
        path.unlink()
        path.symlink_to(HERE / "elsewhere")

    return later(change)


def report_becomes_a_pipe(config, max_steps=None):
    def change(path):
        path.unlink()
        os.mkfifo(path)

    return later(change)


def report_becomes_a_folder(config, max_steps=None):
    def change(path):
        path.unlink()
        path.mkdir()

    return later(change)


def end_is_a_pipe(config, max_steps=None):
    os.mkfifo(HERE / "exit.json")
    return dict(GOOD)


def end_is_a_folder(config, max_steps=None):
    (HERE / "exit.json").mkdir()
    (HERE / "exit.json" / "x").write_text("x")
    return dict(GOOD)


def end_is_a_link(config, max_steps=None):
    (HERE / "exit.json").symlink_to("/dev/full")
    return dict(GOOD)


def another_request(config, max_steps=None):
    request = json.loads((HERE / "request.json").read_text())
    (HERE / "request.json").write_text(json.dumps({**request, "trial_id": "another"}))
    return dict(GOOD)


def takes_the_claim(config, max_steps=None):
    (HERE / "claim").unlink()
    (HERE / "claim").write_text("mine")
    return dict(GOOD)


def child_comes_home(config, max_steps=None):
    if os.fork() == 0:
        return {"steps_completed": 10**6, "val_loss": 0.0}
    os.wait()
    return dict(GOOD)
