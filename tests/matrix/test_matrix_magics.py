"""In a real kernel of each generation: cells as runs, await in them, Tab, and code that is copied above a body."""

OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is free."
)


def offered(kernel, line):
    """Return what Tab offers at the end of a line, in the kernel's own answer to its front end."""
    reply = kernel.client.complete(line, len(line), reply=True, timeout=60)["content"]
    assert reply["status"] == "ok"
    return reply["matches"]


def test_a_cell_is_a_run_of_its_own_and_may_await(clean):
    cell = clean.run(
        "%%watcher run --name mine --config settings\nimport asyncio\nfor step in range(3):\n"
        "    await asyncio.sleep(0)\n    mine.log_metric('loss', 1.0, step)\n%time x = 1\n'the end'"
    )
    assert cell.status == "error" and "settings" in cell.text  # there is no such variable yet
    clean.run("settings = {'batch_size': 4}")
    again = clean.run(
        "%%watcher run --name mine --config settings\nimport asyncio\nfor step in range(3):\n"
        "    await asyncio.sleep(0)\n    mine.log_metric('loss', 1.0, step)\n%time x = 1\n'the end'"
    )
    assert again.status == "ok" and "'the end'" in again.text, again.text
    status, config, points, cells = clean.value(
        "(session.flush(), [mine.status, mine.config, len(mine.storage.get_metrics(mine.run_id)),"
        " len(mine.storage.evidence.cells(run_id=mine.run_id))])[1]"
    )
    assert (status, config, points, cells) == ("success", {"batch_size": 4}, 3, 1)


def test_a_run_cell_that_fails_is_shown_and_released_once(clean):
    cell = clean.run("%%watcher run --name mine --config settings\nx = 1\nouter()")
    assert cell.status == "error"
    assert cell.error.count("CUDA out of memory") >= 1 and cell.text.count("Gave back") == 1
    assert sum("wml-failure" in one.get("text/html", "") for one in cell.shown) == 1
    assert clean.value("[mine.status, alive(), len(refs) > 1, session.problems]") == ["failed", 0, True, []]
    assert "run_cell.py" not in cell.error and "outer()" in cell.text
    refused = clean.run("code = 'import asyncio\\nawait asyncio.sleep(0)'\n"
                        "get_ipython().run_cell_magic('watcher', 'run --name mine', code)")  # fmt: skip
    assert refused.status == "error" and "without await" in refused.text


def test_an_earlier_def_is_offered_and_copied(clean):
    clean.run("import math\ndef limit():\n    return math.floor(16.5)")
    body = (
        "def train(config, max_steps=None):\n    if config['batch_size'] > limit():\n"
        f"        raise RuntimeError({OOM!r})\n    return {{'steps_completed': 1}}"
    )
    cell = clean.run(f"%%watcher entrypoint copied.py\n{body}")
    assert cell.status == "ok" and "def limit():" in cell.text and "offer.accept()" in cell.text
    assert not (clean.work / "copied.py").exists()
    assert "copied:train" in clean.run("offer.accept()").text
    assert "def limit():" in (clean.work / "copied.py").read_text()
    assert clean.value("'copied' in sys.modules") is False


def test_tab_offers_words_flags_and_runs(clean):
    run_id = clean.value("mine.run_id")
    assert {"status", "stop"} <= set(offered(clean, "%watcher st"))
    assert offered(clean, "%%watcher entr") == ["entrypoint"]
    assert "--limit" in offered(clean, "x = 1\n%watcher runs --l")
    assert run_id in offered(clean, "%watcher inspect ")
