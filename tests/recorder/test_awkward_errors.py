"""What the user's own values do while they are recorded: texts of megabytes, and exceptions that have no text."""

import builtins
import time

import pytest

import watcherml
from watcherml.errors import InvalidValue
from watcherml.recorder import life

LARGE = "epoch 3, password=abc123, loss 0.5\n" * 270_000  # 9 MB
# A slow machine that does much else; looking for secrets in all of it takes a minute.
SECONDS = 15.0


class Leaves(Exception):
    """Its text cannot be had: asking for it raises ``reason``."""

    def __init__(self, reason):
        super().__init__()
        self.reason = reason

    def __str__(self):
        raise self.reason


@pytest.mark.parametrize("reason", [SystemExit(3), SystemExit(0), KeyboardInterrupt(), RuntimeError("no")], ids=repr)
@pytest.mark.parametrize("bare", [False, True])
def test_an_exception_whose_text_raises_is_what_the_user_sees(storage, reason, bare):
    error = Leaves(reason)
    run = watcherml.Run("demo", {}, storage, quiet=True, **({"on_failure": None} if bare else {}))
    with pytest.raises(Leaves) as caught:
        with run:
            raise error
    assert caught.value is error and run.problems == []
    row = storage.get_run(run.run_id)
    assert row["status"] == "failed" and row["end_reason"].endswith("Leaves")
    if bare:
        assert row["facts"]["failure"] == {"type": "Leaves", "message": "it cannot be put in words"}
    else:
        assert storage.get_capsule(run.run_id)["failure"]["exception_type"].endswith("Leaves")


def _leave(self, *_):
    raise SystemExit(9)


# What a class may answer for itself; asking it for any of these ends the program.
LEAVING = ["__cause__", "exceptions", "__getattribute__"]
OTHERS = ["__context__", "__suppress_context__", "__traceback__", "__notes__", "simulated", "code"]


@pytest.mark.parametrize("name", [*LEAVING, *(pytest.param(one, marks=pytest.mark.long) for one in OTHERS)])
def test_an_exception_that_leaves_when_it_is_looked_at_is_what_the_user_sees(storage, name):
    group = getattr(builtins, "ExceptionGroup", Exception)  # from Python 3.11 on
    base = {"exceptions": group, "code": SystemExit}.get(name, Exception)
    made = type("Trap", (base,), {name: _leave if name == "__getattribute__" else property(_leave)})
    error = made("CUDA out of memory", [ValueError()]) if base not in (Exception, SystemExit) else made("CUDA error")
    run = watcherml.Run("demo", {}, storage, quiet=True)
    caught = None
    try:
        with run:
            raise error
    except BaseException as found:
        caught = found
    assert caught is error and run.problems == []
    assert storage.get_run(run.run_id)["status"] == "failed"
    assert storage.get_capsule(run.run_id)["failure"]["exception_type"].endswith("Trap")


@pytest.mark.parametrize("reason", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_internal_error_whose_text_raises_is_one_problem(reason):
    problems = life.Problems("r")
    with pytest.warns(RuntimeWarning, match="cannot be put in words"):
        problems.note(Leaves(reason))
    assert problems.count == 1


def test_a_text_of_megabytes_delays_nothing(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.join_facts()
    began = time.monotonic()
    for wrong in (lambda: run.log_metric(LARGE, 1.0), lambda: run.log_metric("x", LARGE),
                  lambda: run.log_metric("x", 1.0, LARGE)):  # fmt: skip
        with pytest.raises(InvalidValue) as caught:
            wrong()
        assert len(str(caught.value)) < 1_000
    with pytest.warns(RuntimeWarning):
        run.log_artifact(LARGE)
    run.fail(ValueError(LARGE))
    assert time.monotonic() - began < SECONDS
    assert len(run.problems[0]) < 3_000
    failure = storage.get_capsule(run.run_id)["failure"]
    assert 100_000 < len(failure["message"]) <= 200_000 and "abc123" not in failure["message"] + failure["traceback"]


def test_a_reason_of_megabytes_is_cut_and_holds_no_secret(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.interrupt(LARGE)
    reason = storage.get_run(run.run_id)["end_reason"]
    assert len(reason) == 400 and "abc123" not in reason and reason.startswith("epoch 3")


class Unequal:
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None


class Zero(int):
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None


class Shy(type):
    def __getattribute__(cls, name):
        if name in ("__module__", "__name__", "__qualname__"):
            raise RuntimeError("no name")
        return type.__getattribute__(cls, name)


class Nameless(Exception, metaclass=Shy):
    pass


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (lambda: SystemExit(Unequal()), ("failed", "SystemExit")),
        (lambda: SystemExit(Zero()), ("success", "sys.exit(0)")),
        (lambda: SystemExit(0.0), ("failed", "SystemExit")),
        (lambda: SystemExit([]), ("failed", "SystemExit")),
        (lambda: Nameless("x"), ("failed", "Nameless")),
    ],
)
def test_what_does_not_like_to_be_looked_at_reaches_the_user_and_ends_the_run(storage, error, ending, bare):
    mine = error()
    run = watcherml.Run("demo", {}, storage, quiet=True, **({} if bare else {"on_failure": lambda *_: None}))
    with pytest.raises(BaseException) as caught:
        with run:
            raise mine
    assert caught.value is mine
    row = storage.get_run(run.run_id)
    assert (row["status"], row["end_reason"]) == ending


@pytest.mark.parametrize("kind", ["int64", "array"])
def test_an_exit_with_a_number_of_numpy_is_judged_as_the_process_ends(storage, kind):
    numpy = pytest.importorskip("numpy")
    mine = SystemExit(numpy.int64(0) if kind == "int64" else numpy.array([0, 1]))
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(SystemExit) as caught:
        with run:
            raise mine
    assert caught.value is mine and storage.get_run(run.run_id)["status"] == "failed"
