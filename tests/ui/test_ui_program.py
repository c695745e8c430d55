"""`watcher ui` as people start and end it: the real program, real sockets, Ctrl-C."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import watcherml
from watcherml.contract.budget import RecoveryBudget

FORM = "application/x-www-form-urlencoded"
BLOCKED = """
import sys
sys.modules["{name}"] = None
from watcherml.cli.main import main
sys.exit(main(["ui", "--no-browser"]))
"""


def ask(served, path, method="GET", body=None, **headers):
    """Ask with the path exactly as it is; returns status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def run(*words, **environment):
    command = [sys.executable, "-m", "watcherml", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **environment})  # fmt: skip


def test_it_prints_its_address_serves_and_ends_with_130_at_ctrl_c(template, ids, serve):
    served = serve(template[0].path)
    assert served.said["kind"] == "ui" and served.said["store"] == str(template[0].path)
    assert served.said["pid"] == served.process.pid
    status, text = ask(served, f"/runs/{ids['rich']}")
    assert status == 200 and "baseline, cosine schedule" in text
    for path, expected in (
        ("/../../etc/passwd", 404), ("/static/../app.py", 404), ("/static/%2e%2e/app.py", 404),
        ("/static//etc/passwd", 404),
        ("/static/..\\app.py", 404), ("/runs/../../watcherml.db", 400), ("/runs/%2e%2e/%2e%2e/watcherml.db", 400),
        ("//etc/passwd", 404), ("/failures/....//x", 400), ("http://evil.example/", 403),
    ):  # fmt: skip
        status, text = ask(served, path)
        assert status == expected and "root:" not in text and "SQLite format" not in text, path
    assert ask(served, "/", host="evil.example")[0] == 403
    assert ask(served, "/runs", origin="http://evil.example")[0] == 403
    assert ask(served, "/rename", "POST", b"", content_length="0")[0] == 403
    # Who goes away in the middle of a form is no error of the server: at its end it says nothing but that it ended.
    head = f"POST /rename HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Type: {FORM}\r\n"
    with socket.create_connection(("127.0.0.1", served.port)) as gone:
        gone.sendall(f"{head}Content-Length: 100\r\n\r\ntitle=".encode())
    # Another server on the same port: a clear error, not a trace.
    taken = run("ui", "--port", str(served.port), "--no-browser")
    assert taken.returncode == 1 and f"{served.port}, which another program uses" in taken.stderr
    assert "--port 0 picks a free one" in taken.stderr and "Traceback" not in taken.stderr
    code, errors = served.interrupt()
    assert code == 130 and json.loads(errors)["error"]["code"] == "interrupted"
    with pytest.raises(ConnectionRefusedError):
        ask(served, "/")


def test_a_person_is_told_the_address_and_how_it_ends(tmp_path):
    command = [
        sys.executable,
        "-m",
        "watcherml",
        "ui",
        "--data-dir",
        str(tmp_path / "s"),
        "--port",
        "0",
        "--no-browser",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = "".join(process.stdout.readline() for _ in range(5))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "http://127.0.0.1:" in said and str(tmp_path / "s") in said and "Ctrl-C ends it." in said
    assert process.returncode == 130 and errors == "watcher: Interrupted.\n"
    assert not (tmp_path / "s").exists()  # showing makes no store


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--host", "0.0.0.0"), 2, "--allow-remote"),
        (("--host", "no such host"), 1, "a name or address of this machine"),
        (("--host", "198.51.100.7", "--allow-remote"), 1, "an address of this machine"),
        (("--port", "70000"), 2, "0 to 65535"),
        (("--port", "http"), 2, "0 to 65535"),
    ],
)
def test_wrong_flags_are_refused_with_the_remedy(words, code, told, capsys):
    from watcherml.cli.main import main

    assert main(["ui", "--no-browser", *words]) == code
    said = capsys.readouterr()
    assert told in said.err and "Traceback" not in said.err and said.out == ""


@pytest.mark.parametrize("name", ["starlette", "uvicorn", "jinja2"])
def test_without_its_packages_it_says_how_to_install_them(name, tmp_path):
    command = [sys.executable, "-c", BLOCKED.format(name=name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1 and f"no {name}" in done.stderr and 'pip install ".[ui]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_listing_runs_loads_nothing_of_the_ui():
    code = (
        "import sys; from watcherml.cli.main import main; main(['runs']); main(['--help'])\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('starlette', 'uvicorn', 'jinja2') or '.ui' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")


class Stream:
    """Server-sent events as they arrive."""

    def __init__(self, served, path):
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=40)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def until(self, words, seconds=60):
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, self.text[-2_000:]
            found = self.socket.recv(65_536)
            assert found, self.text[-2_000:]
            self.text += found.decode("utf-8", "replace")
        return self.text


def start_campaign(storage, failed_run, requirements, **changes):
    """Start a campaign without torch whose trials take a moment each; returns its handle."""
    run_id, requirements = failed_run(batch_size=32, seconds=0.2, **changes), requirements.replace(confirmation_runs=1)
    budget = RecoveryBudget(max_trials=4, max_probe_trials=2, max_full_trials=1)
    plan = watcherml.prepare_oom_recovery(run_id, "ent:train", requirements, budget, storage=storage)
    return watcherml.start_recovery(plan)


def test_a_campaign_is_followed_live_to_its_verdict(storage, failed_run, requirements, serve):
    served = serve(storage.path)
    campaign = start_campaign(storage, failed_run, requirements)
    with Stream(served, f"/live/{campaign.campaign_id}?after=0") as stream:
        text = stream.until("event: trail")
        assert "text/event-stream" in text and "content-security-policy" in text.lower() and "event: end" not in text
        text = stream.until("event: end")
    numbers = [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 11  # each line once and in order
    assert "trial started" in text and "campaign ended" in text
    last = json.loads([line[6:] for line in text.splitlines() if line.startswith('data: {"html"')][-1])
    verdict = campaign.wait(30).verdict
    assert last["state"] == "ended" and f"Checks: {len(verdict.checks)} of" in last["html"]
    # A browser that lost the connection says what it saw last, and gets nothing twice.
    with Stream(served, f"/live/{campaign.campaign_id}?after={len(numbers) - 1}") as stream:
        assert stream.until("event: end").count("event: trail") == 1


def test_an_open_stream_does_not_hold_the_server_up(storage, failed_run, requirements, serve):
    served = serve(storage.path)
    from stored import recorded_plan

    plan = recorded_plan(storage, {"batch_size": 64, "gradient_accumulation_steps": 1, "training_steps": 50})
    row = {"campaign_id": "waits", "project": "demo", "source_run_id": plan.source.run_id, "plan_digest": plan.digest,
           "created_at": storage.clock()}  # fmt: skip
    body = {"project_root": "/nowhere", "python": "python", "dataset_path": None, "secrets": {}}
    storage.audit.open_campaign(row, [], [("prepared", body)], lambda _: False)
    with Stream(served, "/live/waits") as stream:
        stream.until("event: face")
        began = time.monotonic()
        code, errors = served.interrupt()
        # It ended by itself: nothing had to be cut off, which uvicorn would have said.
        assert code == 130 and json.loads(errors)["error"]["code"] == "interrupted", errors
        assert time.monotonic() - began < 20
