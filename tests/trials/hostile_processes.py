"""Entrypoints that hang, fork, hide, and attack their watchers. Copied into a project of its own and run there."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

GOOD = {"steps_completed": 50, "val_loss": 0.25}
TAG = os.environ.get("WATCHERML_TRIAL", "")
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)", TAG]


def ancestors():
    """The pids of the two halves of the guard, the nearer one first. No third one: that is the tests' own process."""
    inner = os.getppid()
    with open(f"/proc/{inner}/stat") as stat:
        return inner, int(stat.read().rpartition(")")[2].split()[1])


def bare():
    """A grandchild in a session of its own, without a parent, a marker or an open file."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 4096)
            os.execve(sys.executable, SLEEPER, {})
        os._exit(0)
    os.wait()
    time.sleep(0.3)


def daemons(config, max_steps=None):
    subprocess.Popen(SLEEPER, start_new_session=True)
    for _ in range(5):
        bare()
    return dict(GOOD)


def fork_bomb(config, max_steps=None):
    for _ in range(50):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:  # each dies into a child of its own
                time.sleep(0.1)
                if os.fork():
                    os._exit(0)
    return dict(GOOD)


def kills_its_group(config, max_steps=None):
    bare()
    os.killpg(0, signal.SIGKILL)


def kills_its_guard(config, max_steps=None):
    bare()
    os.kill(ancestors()[0], signal.SIGKILL)
    time.sleep(60)


def kills_the_outer_guard(config, max_steps=None):
    bare()
    os.kill(ancestors()[1], signal.SIGKILL)
    time.sleep(60)


def kills_both_guards(config, max_steps=None):
    bare()
    inner, outer = ancestors()
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # and does not die with its parent
    os.kill(outer, signal.SIGKILL)
    os.kill(inner, signal.SIGKILL)
    time.sleep(60)


def stops_its_guard(config, max_steps=None):
    bare()
    os.kill(ancestors()[0], signal.SIGSTOP)
    time.sleep(60)


def waits(config, max_steps=None):
    bare()
    open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ready"), "w").close()
    time.sleep(600)


def ignores_signals(config, max_steps=None):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    ctypes.CDLL(None).sleep(600)


def threads_without_end(config, max_steps=None):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return dict(GOOD)


def exit_handler_hangs(config, max_steps=None):
    atexit.register(time.sleep, 600)
    return dict(GOOD)


def exit_handler_raises(config, max_steps=None):
    atexit.register(lambda: 1 / 0)
    return dict(GOOD)


def exit_handler_leaves(config, max_steps=None):
    atexit.register(os._exit, 3)
    return dict(GOOD)


def closes_files(config, max_steps=None):
    os.closerange(0, 256)
    return dict(GOOD)


def closes_all_files(config, max_steps=None):
    os.closerange(0, 4096)
    return dict(GOOD)


class Broken:
    def write(self, text):
        raise OSError("no output")

    flush = fileno = isatty = write


def output_raises(config, max_steps=None):
    sys.stdout = sys.stderr = Broken()
    return dict(GOOD)


def output_is_redirected(config, max_steps=None):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    return dict(GOOD)


def one_line_of_200_mb(config, max_steps=None):
    piece = b"x" * 2**20
    for _ in range(200):
        os.write(1, piece)
    return dict(GOOD)


def binary_output(config, max_steps=None):
    piece = bytes(range(256)) * 4096
    for _ in range(20):
        os.write(1, piece)
        os.write(2, piece)
    return dict(GOOD)
