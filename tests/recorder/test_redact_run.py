"""One real failing run with a secret in every place that is recorded: none is found in any byte of the store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from secret_samples import AWS_SECRET, HEX, KEYS, A, B, b64

pytest.importorskip("IPython")

# What each place holds. A fixed tail keeps the values of one kind apart.
CONFIG = {
    "openai": KEYS["openai"], "note": f"uses {KEYS['anthropic']} here", "db": {"password": "cfg-tuna-fish-1", "pin": 3},
    "url": "postgres://u:cfg-swordfish-2@db/x", "hub": {"token": "cfgtoken0a1b2c3d4"}, "secrets": {"any": "cfg-eel-3"},
    "env": [{"name": "COMET_API_KEY", "value": "cfg-carp-4"}], KEYS["npm"]: "as key", "argv": ["--token", "cfg-cod-5"],
    "aws": {"id": KEYS["aws id"], "secret_access_key": AWS_SECRET}, "mysecret": "cfg-crab-6",
    "vars": [{"Name": "DB_PASSWORD", "Value": "cfg-shad-7"}], "cmd": ["mysql", "-u", "root", "-pcfg-pike-8"],
    "curl": "curl -u bob:cfg-bass-9 https://h", "headers": {"Cookie": "sid=cfg-dace-10; a=b"},
    "password_db": "cfg-rudd-11",
    "pods": "env:\n  - name: DB_PASSWORD\n    value: cfg-bream-12\n", "pair": ["password", "cfg-Tench13!"],
}  # fmt: skip
ARGV = [
    "--api-key", "argv-tuna-1", "--token=argv-swordfish-2", KEYS["gitlab"], "--db-url", "mysql://u:argv-eel-3@h/d",
    "password=argv-carp-4", "--header", "Authorization: Bearer argv0123456789abcd",
    "sshpass", "-p", "argv-perch-5", "-token", "argv-roach-6", "curl", "-H", "X-Api-Key: argv-smelt-7",
]  # fmt: skip
ENVIRONMENT = {
    "SERVICE_PASSWORD": "env-tuna-fish-1", "WANDB_API_KEY": HEX * 2 + HEX[:8], "HF_TOKEN": KEYS["hugging face"],
    "MY_SECRET": "env-swordfish-2",
}  # fmt: skip
MESSAGE = [
    KEYS["slack"], "password: msg-tuna-1", "https://x:msg-swordfish-2@h/p", "?access_token=msgtoken0a1b2c3d",
    "Cookie: sid=msg-eel-3-0123", f"Basic {b64('me:msg-carp-4')}", "docker login -u me -p msg-crab-5 h",
    "redis-cli -a msg-shad-6 ping", "denied with password 'msg-Pike7'", "PGPASSWORD=msg-bass-8 psql",
]  # fmt: skip
TRACEBACK = [
    'secret_key="trace-tuna-1"',
    f'"{KEYS["replicate"]}"',
    'login(password="trace-eel-3")',
    f'"{KEYS["jwt"]}"',
    'login("me", "trace-crab-2")',
    'dict(headers={"Cookie": "sid=trace-shad-3"})',
]
CELL = [
    f'client = "{KEYS["google"]}"', 'password = "cell-tuna-1"', 'os.environ["X_TOKEN"] = "cell-swordfish-2"',
    f'url = "https://hooks.slack.com/services/T0/B0/{A}cellcellcell"', f"# {KEYS['telegram']}",
    f'kaggle = {{"username":"me","key":"{HEX[::-1] * 2}"}}',
    "password = (\n    'cell-crab-3'\n)", "SECRET = b'cell-shad-4'", "secret_v2 = f'cell-pike-5{1}'",
    "passwords = ['cell-bass-6', 'cell-dace-7']", 'env = """\nA=1\nDB_PASSWORD=cell-rudd-8\n"""',
    "if client == 0 and password == 'cell-tench-9': pass", "cmd = ['curl', '-u', 'me:cell-perch-10']",
]  # fmt: skip
PATCH = [
    "password = 'patch-tuna-1'", f"KEY = '{KEYS['stripe']}'", "DB = 'redis://:patch-eel-3@h:1/0'",
    f"PEM = '''-----BEGIN PRIVATE KEY-----\n{B}{A}{B}{A}\n{A}{A}pp==\n-----END PRIVATE KEY-----'''",
    "export API_KEY=patch-carp-4", f"SG = '{KEYS['sendgrid']}'",
    "  - name: DB_PASSWORD\n    value: patch-crab-5", "rootpw: patch-shad-6", "secret: |\n  patch-pike-7",
    "parser.add_argument('--password', default='patch-bass-8')", "!echo root:patch-dace-9 | chpasswd",
    "auth=('me', 'patch-rudd-10')", '{"key": "password", "value": "patch-tench-11"}',
]  # fmt: skip
SECRETS = {
    "config": [KEYS["openai"], KEYS["anthropic"], "cfg-tuna-fish-1", "cfg-swordfish-2", "cfgtoken0a1b2c3d4",
               "cfg-eel-3", "cfg-carp-4", KEYS["npm"], "cfg-cod-5", KEYS["aws id"], AWS_SECRET,
               "cfg-crab-6", "cfg-shad-7", "cfg-pike-8", "cfg-bass-9", "cfg-dace-10", "cfg-rudd-11", "cfg-bream-12",
               "cfg-Tench13!"],
    "argv": ["argv-tuna-1", "argv-swordfish-2", KEYS["gitlab"], "argv-eel-3", "argv-carp-4", "argv0123456789abcd",
             "argv-perch-5", "argv-roach-6", "argv-smelt-7"],
    "environment": list(ENVIRONMENT.values()),
    "message": [KEYS["slack"], "msg-tuna-1", "msg-swordfish-2", "msgtoken0a1b2c3d", "msg-eel-3-0123",
                b64("me:msg-carp-4"), "msg-crab-5", "msg-shad-6", "msg-Pike7", "msg-bass-8"],
    "traceback": ["trace-tuna-1", KEYS["replicate"], "trace-eel-3", KEYS["jwt"], "trace-crab-2", "trace-shad-3"],
    "cell": [KEYS["google"], "cell-tuna-1", "cell-swordfish-2", f"{A}cellcellcell", KEYS["telegram"], HEX[::-1] * 2,
             "cell-crab-3", "cell-shad-4", "cell-pike-5", "cell-bass-6", "cell-dace-7", "cell-rudd-8", "cell-tench-9",
             "cell-perch-10"],
    "patch": ["patch-tuna-1", KEYS["stripe"], "patch-eel-3", f"{B}{A}{B}{A}", f"{A}{A}pp==", "patch-carp-4",
              KEYS["sendgrid"], "patch-crab-5", "patch-shad-6", "patch-pike-7", "patch-bass-8", "patch-dace-9",
              "patch-rudd-10", "patch-tench-11"],
    "names": [KEYS["github"], KEYS["databricks"], KEYS["xai"]],
}  # fmt: skip
INNOCENT = {
    "config": ["max_tokens", "gpt2-medium-2024", "</s>", "8e191e6f0b8e191e6f0b8e191e6f0b8e191e6f0b",
               "meta-llama/Llama-3.1", "550e8400-e29b-41d4-a716-446655440000", "wikitext-103-raw-v1",
               "OPENAI_API_KEY", "oauth2", "train_tokens=300B"],
    "argv": ["--learning-rate=2e-4", "--max-tokens", "http://localhost:8080/users/@me",
             "--tokens", "4096"],
    "message": ["tokens_per_second: 1234.5", "password_reset_enabled: true", "num_key_value_heads=8"],
    "traceback": ["pad_token_id=50256", "0x7f12ab34cd56"],
    "cell": ["getpass.getpass(", "api_key=api_key", "token_embedding.weight"],
    "patch": ["betas=(0.9, 0.999)", "tokenizer = load('bert-base-uncased')", "f0e1d2c3b4a59687" * 4],
}  # fmt: skip

DRIVER = """
import json, shutil, sqlite3, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
import watcherml

given = json.loads(Path("given.json").read_text())
given_argv, config = sys.argv, given["config"]
Path("given.json").unlink()
shell = InteractiveShell.instance()
watcherml.load_ipython_extension(shell)
shell.user_ns["config"] = config
shell.run_cell("\\n".join(given["cell"]), store_history=True)
shell.run_cell("import watcherml, os; run = watcherml.init('demo', config)", store_history=True)
run = shell.user_ns["run"]
reader = sqlite3.connect(".watcherml/watcherml.db")  # while somebody reads, the write-ahead log stays
reader.execute("SELECT count(*) FROM runs").fetchall()
run.log_metric("loss/" + given["names"][0], 1.0, step=1)
model = Path("model-" + given["names"][1] + ".pt")
model.write_bytes(b"weights")
run.log_artifact(model)
run.log_metric("loss", 0.5, step=2)
run.join_facts()
shutil.copytree(".watcherml", "copy-while-training")
shell.user_ns["message"] = given["message"]
shell.run_cell(given["failing"], store_history=True)
assert run.status != "success"
shutil.copytree(".watcherml", "copy-after-failure")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a project after its run has failed."""
    folder = tmp_path_factory.mktemp("project")
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q", "-b", f"fix-{KEYS['xai']}"], check=True)
    (folder / "model.py").write_text("import os\n\nx = 1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    (folder / ".gitignore").write_text("*.json\n*.pt\ncopy-*\ndriver.py\n")
    (folder / "model.py").write_text("import os\n\n" + "\n".join([*PATCH, *INNOCENT["patch"]]) + "\n")
    lines = [f"def step_{n}(f=lambda *a, **k: None):\n    f({line}); step_{n + 1}()" for n, line in
             enumerate([*(line if "=" not in line or "(" in line else f"dict({line})" for line in TRACEBACK),
                        "dict(pad_token_id=50256)", "'<Tensor object at 0x7f12ab34cd56>'"])]  # fmt: skip
    failing = "def login(*a, **k): pass\n" + "\n".join(lines)
    failing += f"\ndef step_{len(lines)}():\n    raise RuntimeError(message)\nstep_0()"
    config = {**CONFIG, "plain": dict(zip("abcdefghij", INNOCENT["config"], strict=True)), "max_tokens": 4096}
    message = "\n".join([*MESSAGE, *INNOCENT["message"], ENVIRONMENT["SERVICE_PASSWORD"], "with cfg-tuna-fish-1"])
    given = {"config": config, "names": SECRETS["names"], "message": message, "failing": failing,
             "cell": ["import os, getpass", *CELL, "def f(api_key=None):\n    return g(api_key=api_key)",
                      "x = 'token_embedding.weight'", "if 0: password = getpass.getpass('?')"]}  # fmt: skip
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "driver.py").write_text(DRIVER)
    environment = {**os.environ, **ENVIRONMENT, "IPYTHONDIR": str(folder.parent / "ipython")}
    environment.pop("WATCHERML_DIR", None)
    done = subprocess.run(
        [sys.executable, "driver.py", *ARGV, *INNOCENT["argv"]], cwd=folder, env=environment, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


STORES = (".watcherml", "copy-while-training", "copy-after-failure")


def test_there_are_enough_secrets_of_different_kinds(recorded):
    assert sum(map(len, SECRETS.values())) >= 70 and sum(map(len, INNOCENT.values())) >= 25
    names = {path.name for path in (recorded / "copy-while-training").rglob("*")}
    assert any(name.endswith(".points") for name in names) and any(name.endswith("-wal") for name in names)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("place", SECRETS)
def test_no_secret_is_in_any_byte_of_the_store(recorded, place, store):
    found = [
        (secret, path)
        for path, data in contents(recorded / store).items()
        for secret in SECRETS[place]
        if secret.encode() in data or secret.encode() in path.encode()
    ]
    assert found == []


@pytest.mark.parametrize("place", INNOCENT)
def test_what_only_looks_like_one_is_in_the_store(recorded, place):
    data = b"".join(contents(recorded / ".watcherml").values())
    assert [text for text in INNOCENT[place] if json.dumps(text)[1:-1].encode() not in data] == []


def test_the_run_says_what_was_taken_out(recorded):
    from watcherml.store.storage import Storage

    storage = Storage(recorded / ".watcherml")
    row = storage.list_runs()[0]
    run = storage.get_run(row["run_id"])
    assert run["status"] != "success" and {"openai", "db.password", "env[0].value", "argv[1]"} <= set(
        run["redacted_paths"]
    )
    assert run["facts"]["git"]["patch_is"].endswith("lines redacted")
    capsule = storage.get_capsule(row["run_id"])
    assert capsule["failure"]["message"].count("[redacted") >= len(MESSAGE)
    assert "step_3" in capsule["failure"]["traceback"]
    assert any("[redacted" in cell["source"] for cell in storage.evidence.cells())
    assert any("[redacted" in word for word in run["facts"]["argv"])


def test_scanning_the_store_finds_nothing(recorded, monkeypatch):
    from watcherml.api.scan import scan
    from watcherml.store.storage import Storage

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert [finding for store in STORES for finding in scan(Storage(recorded / store))] == []
