"""Entrypoints that change what is around them. Copied into a project of its own and run there."""

import builtins
import hashlib
import json
import locale
import os
import shutil
import sqlite3
import sys
import tempfile
import types
from pathlib import Path

GOOD = {"steps_completed": 50, "val_loss": 0.25}
FORGED = {"steps_completed": 10**6, "val_loss": 0.0}


def deletes_its_folder(config, max_steps=None):
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)
    return dict(GOOD)


def empties_the_environment(config, max_steps=None):
    os.environ.clear()
    os.environ["PATH"] = os.environ["HOME"] = "/nowhere"
    return dict(GOOD)


def another_locale(config, max_steps=None):
    for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_ALL, name)
            break
        except locale.Error:
            continue
    return dict(GOOD)


def umask_for_nobody(config, max_steps=None):
    os.umask(0o777)
    return dict(GOOD)


def umask_for_everybody(config, max_steps=None):
    os.umask(0)
    return dict(GOOD)


def no_file_may_grow(config, max_steps=None):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return dict(GOOD)


def no_file_may_ever_grow(config, max_steps=None):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    return dict(GOOD)


def traces(config, max_steps=None):
    def spoil(*_):
        raise RuntimeError("traced")

    sys.setprofile(spoil)
    return dict(GOOD)


def edits_itself(config, max_steps=None):
    own = Path(__file__)
    own.write_text(own.read_text() + "\n# another function by now\n")
    return dict(GOOD)


def imports_late(config, max_steps=None):
    import hostile_late

    (Path(__file__).parent / "hostile_late.py").write_text("VALUE = 2\n")
    return {**GOOD, "late": hostile_late.VALUE}


def database():
    return sqlite3.connect(Path(sys.orig_argv[-1]).parents[2] / "watcherml.db", timeout=20, isolation_level=None)


def locks_the_store(config, max_steps=None):
    builtins.kept_locked = connection = database()
    connection.execute("BEGIN EXCLUSIVE")
    return dict(GOOD)


def empties_the_store(config, max_steps=None):
    connection = database()
    connection.execute("PRAGMA foreign_keys = OFF")
    for table in ("runs", "metrics", "samples"):
        try:
            connection.execute(f"DELETE FROM {table}")
        except sqlite3.Error as error:
            print(error)
    connection.close()
    return dict(GOOD)


def patches_the_measure(config, max_steps=None):
    from watcherml.trials import measure

    measure.metrics_of = lambda returned: dict(FORGED)
    return dict(GOOD)


def patches_the_code(config, max_steps=None):
    from watcherml.trials import measure

    measure.progress_of.__code__ = (lambda counter, claimed: None).__code__
    return dict(GOOD)


def patches_the_counter(config, max_steps=None):
    from watcherml.recorder.steps import StepCounter

    StepCounter.optimizer_steps = property(lambda self: 10**6)
    return dict(GOOD)


def patches_the_record(config, max_steps=None):
    from watcherml.protocol.result import WorkerReport

    WorkerReport.to_json = lambda self: "{}"
    return dict(GOOD)


def shadows_a_builtin(config, max_steps=None):
    from watcherml.trials import measure

    measure.isinstance = lambda *_: True
    return dict(GOOD)


def replaces_a_module(config, max_steps=None):
    sys.modules["watcherml.trials.measure"] = types.ModuleType("watcherml.trials.measure")
    return dict(GOOD)


def patches_and_raises(config, max_steps=None):
    patches_the_measure(config)
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of"
                       " which 3.00 MiB is free.")  # fmt: skip


def patches_the_library(config, max_steps=None):
    json.dumps = lambda *_, **__: "{}"
    os.replace = os.rename = os.fsync = lambda *_, **__: None
    os.write = lambda *_: 0
    hashlib.sha256 = hashlib.md5
    builtins.isinstance = lambda *_: True
    builtins.dict = builtins.float = builtins.max = None
    return {"steps_completed": 50, "val_loss": 0.25}


def deletes_the_trial(config, max_steps=None):
    shutil.rmtree(Path(sys.orig_argv[-1]).parent)
    return dict(GOOD)


def forbids_the_trial(config, max_steps=None):
    Path(sys.orig_argv[-1]).parent.chmod(0)
    return dict(GOOD)
