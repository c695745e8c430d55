"""Entrypoints that end in awkward ways. Copied into a project of its own and run there."""

import os
import signal
import sys
import time
import warnings


class Base(BaseException):
    pass


def base_exception(config, max_steps=None):
    raise Base("not an Exception")


def keyboard_interrupt(config, max_steps=None):
    raise KeyboardInterrupt


def generator_exit(config, max_steps=None):
    raise GeneratorExit


def exit_with_text(config, max_steps=None):
    raise SystemExit("all is well, steps_completed=50")


class Mute(Exception):
    def __str__(self):
        raise Base("no text")

    __repr__ = __str__


def str_raises(config, max_steps=None):
    raise Mute


class Leaves(Exception):
    def __str__(self):
        os._exit(0)


def str_leaves(config, max_steps=None):
    raise Leaves


class Hangs(Exception):
    def __str__(self):
        time.sleep(600)


def str_hangs(config, max_steps=None):
    raise Hangs


class Wide(Exception):
    def __str__(self):
        return "wide " + "x" * 10_000_000


def wide_text(config, max_steps=None):
    raise Wide


class Closed(Exception):
    def __getattribute__(self, name):
        raise Base(name)


def looking_raises(config, max_steps=None):
    raise Closed


def cyclic_cause(config, max_steps=None):
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


def nested_groups(config, max_steps=None):
    error = ValueError("innermost")
    if sys.version_info >= (3, 11):
        for _ in range(1_000):
            error = ExceptionGroup("more", [error])  # noqa: F821
    raise error


def recursion(config, max_steps=None):
    return recursion(config, max_steps)


def little_recursion(config, max_steps=None):
    sys.setrecursionlimit(60)
    return {"steps_completed": 50, "val_loss": 0.25}


def memory(config, max_steps=None):
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (600_000_000, resource.getrlimit(resource.RLIMIT_AS)[1]))
    bytearray(1_000_000_000)


def warnings_are_errors(config, max_steps=None):
    warnings.simplefilter("error")
    return {"steps_completed": 50, "val_loss": 0.25}


def aborts(config, max_steps=None):
    os.abort()


def segv(config, max_steps=None):
    os.kill(os.getpid(), signal.SIGSEGV)


def kills_itself(config, max_steps=None):
    os.kill(os.getpid(), signal.SIGKILL)


def stops_itself(config, max_steps=None):
    os.kill(os.getpid(), signal.SIGSTOP)


def leaves_with_7(config, max_steps=None):
    os._exit(7)


def leaves_with_0(config, max_steps=None):
    os._exit(0)


def alarm_rings(config, max_steps=None):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    time.sleep(5)


def looks_like_oom_in_a_path(config, max_steps=None):
    raise FileNotFoundError("/data/CUDA out of memory/train.bin")
