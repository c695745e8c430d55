"""The receipt: everything that the description lists, calm and aligned, and the parts of repeating a run by name."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import watcherml
from watcherml.recorder import receipt
from watcherml.recorder.peak import DeviceWatch

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CLEAN = {"status": "available", "commit": COMMIT, "branch": "main", "dirty": False}
FACTS = {
    "git": CLEAN,
    "environment": {"packages": {"psutil": "7"}},
    "dataset": {"fingerprint": "sha256:" + "ab" * 32},
    "machine": {"machine": "x86_64"},
}


def row(**changes):
    found = {
        "run_id": "demo-1", "project": "demo", "started_at": 100.0, "ended_at": 112.34, "heartbeat_at": 110.0,
        "config": {"seed": 1}, "lossy_paths": [], "redacted_paths": [], "device": None, "facts": dict(FACTS),
    }  # fmt: skip
    found.update(changes)
    return found


def facts(**changes):
    return {**FACTS, **changes}


def part(name, **changes):
    return next(one for one in receipt.parts(row(**changes)) if one.name == name)


def test_a_complete_receipt_reads_like_this():
    made = receipt.make(
        row(), {"loss": 1 / 3, "accuracy": 0.9}, {"bytes": 3 * 2**30, "source": "torch, reserved"}, artifacts=2
    )
    assert receipt.text(made) == (
        "  run         demo-1\n"
        "  took        12.3 s\n"
        "  metrics     accuracy 0.9  loss 0.333333\n"
        "  peak VRAM   3.00 GiB (torch, reserved)\n"
        "  git         0123456789ab on main\n"
        "  dataset     sha256:abababababab\n"
        "  artifacts   2\n"
        "  repeatable  6 of 6 parts: config, code, environment, dataset, device, seed"
    )


def test_what_is_missing_is_named_with_the_way_to_add_it():
    made = receipt.make(row(config={}, facts={"git": {"status": "unavailable", "reason": "no repository here"}}), {})
    assert receipt.text(made).splitlines()[2:] == [
        "  repeatable  1 of 6 parts: config",
        "              code is missing (no repository here): run it from a git repository",
        "              environment is missing (packages were not collected): see the problems of this run",
        "              dataset is missing (no fingerprint): call run.set_dataset(path)",
        "              device is missing (nothing is known of the machine): see the problems of this run",
        '              seed is missing (config names none): put it into config, as {"seed": 1}',
    ]


@pytest.mark.parametrize(
    ("changes", "there", "words"),
    [
        ({}, True, "exact"),
        ({"lossy_paths": ["a", "b.c"]}, False, "kept as text: a, b.c"),
        ({"lossy_paths": list("abcde")}, False, "a, b, c and 2 more"),
        ({"redacted_paths": ["key"]}, False, "secrets taken out: key"),
        ({"lossy_paths": ["a"], "redacted_paths": ["key"]}, False, "kept as text: a; secrets taken out: key"),
    ],
)
def test_a_configuration_is_exact_or_says_what_is_not(changes, there, words):
    found = part("config", **changes)
    assert found.there is there and words in found.says and bool(found.remedy) is not there


@pytest.mark.parametrize(
    ("git", "there", "words"),
    [
        (CLEAN, True, "commit"),
        ({**CLEAN, "dirty": True, "patch": "sha256:x", "patch_is": "exact"}, True, "commit and exact patch"),
        ({**CLEAN, "dirty": True, "patch": "sha256:x", "patch_is": "3 lines redacted"}, False, "3 lines redacted"),
        ({**CLEAN, "dirty": True, "patch_omitted": "larger than 20 bytes"}, False, "larger than 20 bytes"),
        ({**CLEAN, "dirty": True}, False, "without content"),
        ({**CLEAN, "dirty": None, "patch_omitted": "git did not answer"}, False, "git did not answer"),
        ({**CLEAN, "dirty": True, "patch_is": "exact", "left_out_files": 2}, False, "2 files are not in the patch"),
        ({**CLEAN, "untracked_omitted": "showUntrackedFiles is no"}, False, "untracked files: showUntracked"),
        ({**CLEAN, "commit": None, "dirty": True, "patch_is": "exact"}, True, "exact patch, no commit yet"),
        ({**CLEAN, "commit": None}, False, "no commit"),
        ({"status": "unavailable", "reason": "git is not installed"}, False, "git is not installed"),
        ({}, False, "no repository"),
    ],
)
def test_code_is_there_as_commit_and_exact_patch_only(git, there, words):
    found = part("code", facts=facts(git=git))
    assert found.there is there and words in found.says and bool(found.remedy) is not there


@pytest.mark.parametrize(
    ("device", "machine", "there", "words"),
    [
        (None, {"machine": "arm64"}, True, "CPU, arm64"),
        ({"kind": "cuda", "name": "NVIDIA A100"}, None, True, "NVIDIA A100"),
        ({"kind": "simulated", "name": "simulated-cpu-budget"}, None, True, "simulated device"),
        (None, None, False, "nothing is known"),
    ],
)
def test_the_device_is_a_part(device, machine, there, words):
    found = part("device", device=device, facts=facts(machine=machine))
    assert found.there is there and words in found.says


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"seed": 3}, "seed = 3"),
        ({"train": {"random_seed": 7}}, "train.random_seed = 7"),
        ({"data_seed": "11"}, "data_seed = 11"),
        ({"random_state": 0}, "random_state = 0"),
        ({"SEED": 0}, "SEED = 0"),
        ({"seed": None}, None),
        ({"seed": True}, None),
        ({"seeding": 3}, None),
        ({"seed_everything": 3}, None),
        ({}, None),
    ],
)
def test_a_seed_is_looked_for_in_the_configuration(config, says):
    found = part("seed", config=config)
    assert (found.there, found.says) == ((True, says) if says else (False, "config names none"))


def test_many_metrics_and_odd_names_stay_on_their_lines():
    metrics = {f"m{number}": float(number) for number in range(12)}
    shown, one = receipt.text(receipt.make(row(), metrics)), receipt.text(receipt.make(row(), {"a": 1.0}))
    assert "and 4 more" in shown and len(shown.splitlines()) == len(one.splitlines())
    shown = receipt.text(receipt.make(row(), {"evil\x1b[2J\rname": float("nan")}))
    assert "\x1b" not in shown and "\r" not in shown and "\\x1b[2J\\rname nan" in shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (60, "1 min 00 s"), (3_599.6, "1 h 00 min 00 s"), (90_061, "25 h 01 min 01 s")],
)
def test_durations(seconds, words):
    assert f"took        {words}\n" in receipt.text(receipt.make(row(ended_at=100.0 + seconds), {}))


def test_what_could_not_be_recorded_is_said():
    shown = receipt.text(receipt.make(row(), {}, problems={"count": 7, "first": "OSError: disk full"}))
    assert "  unrecorded  7, the first: OSError: disk full\n" in shown


# -- where it is printed ----------------------------------------------------------------------------------------

SCRIPT = (
    "import sys, watcherml\nwith watcherml.Run('caf\\u00e9', {{}}, sys.argv[1], quiet={quiet}) as run:\n    {body}\n"
)


def script(storage, body="run.log_metric('gr\\u00f6\\u00dfe', 1)", quiet=False, **options):
    code = SCRIPT.format(quiet=quiet, body=body)
    return subprocess.run(
        [sys.executable, "-c", code, str(storage.path)], capture_output=True, cwd=storage.path.parent, **options
    )


def test_without_a_terminal_it_is_plain_text_on_standard_output_only(storage):
    done = script(storage)
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.count(b"WatcherML recorded this run.") == 1
    assert b"\x1b" not in done.stdout and b"\r" not in done.stdout.replace(b"\r\n", b"\n")


def test_quiet_prints_nothing(storage):
    done = script(storage, quiet=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert storage.get_run(storage.list_runs()[0]["run_id"])["receipt"]["run_id"]


def test_a_stream_that_cannot_spell_it_gets_escapes(storage):
    done = script(storage, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and done.stderr == b"" and b"gr\\xf6\\xdfe 1" in done.stdout


@pytest.mark.parametrize("body", ["sys.stdout.close()", "sys.stdout = None", "sys.stdout = open('/dev/full', 'w')"])
def test_a_stream_that_is_gone_harms_nothing(storage, body):
    done = script(storage, body)
    assert b"recorder" not in done.stderr
    (shown,) = storage.list_runs()
    assert shown["status"] == "success" and "recording_problems" not in storage.get_run(shown["run_id"])["facts"]


TEE = (
    "class Tee:\n        def __init__(self, stream): self.stream = stream\n"
    "        def write(self, text): {write}\n        def flush(self): self.stream.flush()\n"
    "    sys.{name} = Tee(sys.{name})"
)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize("ending", ["", "raise KeyError('mine')"])
@pytest.mark.parametrize("write", ["self.stream.write(text)", "raise AttributeError('no file')"])
def test_a_stream_with_nothing_but_write_and_flush_harms_nothing(storage, name, ending, write):
    done = script(storage, TEE.format(name=name, write=write) + f"\n    {ending}")
    (shown,) = storage.list_runs()
    assert shown["status"] == ("failed" if ending else "success")
    assert done.returncode == (1 if ending else 0) and b"recorder" not in done.stderr
    found = storage.get_run(shown["run_id"])
    assert "recording_problems" not in found["facts"] and bool(found["receipt"]) is not bool(ending)
    if not ending:
        assert (b"recorded this run" in done.stdout) is (name == "stderr" or "raise" not in write)


@pytest.mark.parametrize("body", ["sys.stderr = None", "sys.stdout = sys.stderr = None", "del sys.argv"])
def test_what_a_program_without_a_console_lacks_harms_nothing(storage, body):
    assert script(storage, "path = sys.argv; " + body).returncode == 0
    (shown,) = storage.list_runs()
    assert shown["status"] == "success" and "recording_problems" not in storage.get_run(shown["run_id"])["facts"]


@pytest.mark.parametrize(("error", "printed"), [(SystemExit(0), True), (SystemExit(1), False), (ValueError(), False)])
def test_only_success_has_a_receipt(storage, capsys, error, printed):
    with pytest.raises(type(error)):
        with watcherml.Run("demo", {}, storage) as run:
            raise error
    assert ("recorded this run" in capsys.readouterr().out) is printed
    assert (storage.get_run(run.run_id)["receipt"] is not None) is printed


def test_a_notebook_prints_it_once_however_often_the_cell_says_finish(storage):
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell()
    cells = [
        "%load_ext watcherml",
        f"import watcherml; run = watcherml.init('nb', {{}}, {str(storage.path)!r})",
        "run.finish()\nrun.finish()",
        "with run:\n    pass\nrun.finish()",
        "%unload_ext watcherml",
    ]
    with capture_output() as seen:
        for cell in cells:
            shell.run_cell(cell, store_history=True)
    everything = seen.stdout + "".join(str(one.data) for one in seen.outputs)
    assert everything.count("recorded this run") == 1


def test_a_closed_stream_object_is_left_alone(monkeypatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    receipt.show(receipt.make(row(), {}))
    assert sys.stdout is stream and stream.closed


# -- the peak ---------------------------------------------------------------------------------------------------


class Counter:
    """What the simulated device shows of itself."""

    device_id, budget_bytes = "simulated-cpu-budget", 1_000

    def __init__(self, peak_bytes):
        self.peak_bytes = peak_bytes


@pytest.mark.parametrize(
    ("before", "after", "sampled", "peak"),
    [
        ({}, {}, {}, None),
        ({}, {"cuda:0": 50}, {"device_bytes": 40}, {"bytes": 50, "source": "torch, reserved"}),
        ({"cuda:0": 90}, {"cuda:0": 90}, {"device_bytes": 40}, {"bytes": 40, "source": "samples, at least"}),
        (
            {"cuda:0": 90},
            {"cuda:0": 90, "cuda:1": 10},
            {"device_bytes": 40},
            {"bytes": 40, "source": "torch, reserved"},
        ),
        ({}, {}, {"own_bytes": 7, "device_bytes": None}, {"bytes": 7, "source": "NVML samples, at least"}),
    ],
)
def test_the_peak_is_the_runs_own_or_says_how_it_is_known(monkeypatch, before, after, sampled, peak):
    from watcherml.recorder import framework

    monkeypatch.setattr(framework, "peaks", lambda: before)
    watch = DeviceWatch()
    monkeypatch.setattr(framework, "peaks", lambda: after)
    assert watch.peak(sampled) == peak


def test_a_simulated_device_of_an_earlier_run_is_not_this_runs_peak(monkeypatch):
    from watcherml.simulated import active

    device = Counter(500)
    monkeypatch.setattr(active, "last", lambda: device)
    watch = DeviceWatch()
    assert watch.peak({}) is None and watch.device() is None
    device.peak_bytes = 600
    assert watch.peak({}) == {"bytes": 600, "source": "simulated device"}
    monkeypatch.setattr(active, "last", lambda: Counter(10))
    assert watch.peak({}) == {"bytes": 10, "source": "simulated device"}
    assert watch.news().kind == "simulated" and watch.news() is None


def test_a_real_simulated_device_shows_its_peak(storage, capsys):
    torch = pytest.importorskip("torch")
    with watcherml.Run("demo", {"seed": 1}, storage) as run:
        with watcherml.simulated_device("64 MiB") as device:
            torch.ones(1 << 20).sum()
    shown = capsys.readouterr().out
    made = storage.get_run(run.run_id)["receipt"]
    assert made["peak_device_bytes"] == device.peak_bytes >= 4 << 20 and made["device_kind"] == "simulated"
    assert "MiB (simulated device)" in shown
    assert SimpleNamespace(**made).completeness[4] == {
        "part": "device", "there": True, "says": "simulated device", "remedy": "",
    }  # fmt: skip
