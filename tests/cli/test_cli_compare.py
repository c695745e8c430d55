"""``watcher compare`` and the static pages of ``watcher inspect``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import watcherml
from watcherml.cli.main import main

CONFIG = {"model": "net", "batch_size": 8, "optimizer": {"lr": 0.1}}


@pytest.fixture
def pair(storage):
    """A success and a failure after it."""

    def go(config, words=None):
        run = watcherml.Run("demo", config, storage, quiet=True)
        try:
            with run:
                run.log({"loss": 1.0}, step=3)
                if words:
                    raise RuntimeError(words)
        except RuntimeError:
            pass
        return run.run_id

    changed = {**CONFIG, "batch_size": 64, "optimizer": {"lr": 0.2}}
    return go(CONFIG), go(changed, "CUDA out of memory. Tried to allocate 2.00 GiB.")


def watcher(capsys, *words):
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_text_begins_with_what_to_look_at_first(capsys, pair):
    code, out, _ = watcher(capsys, "compare", *pair)
    flat = " ".join(out.split())
    assert code == 0 and "From the first to the second changed: batch_size 8 → 64" in flat
    assert out.index("90  batch_size") < out.index("optimizer.lr")


def test_json_is_one_document_with_nested_paths(capsys, pair):
    code, out, _ = watcher(capsys, "compare", *pair, "--format", "json")
    document = json.loads(out)
    assert code == 0 and (document["first"]["run_id"], document["second"]["run_id"]) == pair
    by_path = {one["path"]: one for one in document["changes"]}
    assert (by_path["optimizer.lr"]["before"], by_path["optimizer.lr"]["after"]) == (0.1, 0.2)
    assert [one["suspicion"] for one in document["changes"]] == sorted(
        (one["suspicion"] for one in document["changes"]), reverse=True
    )


@pytest.mark.parametrize("words", [("compare",), ("inspect",)])
def test_a_page_is_written_whole(capsys, pair, tmp_path, words):
    ids = pair if words == ("compare",) else pair[1:]
    target = tmp_path / "page.html"
    code, out, _ = watcher(capsys, *words, *ids, "--format", "html", "--output", str(target))
    assert code == 0 and str(target) in out
    text = target.read_text("utf-8")
    assert text.startswith("<!doctype html>") and "batch_size" in text and text.rstrip().endswith("</html>")


def test_a_page_of_a_run_that_worked_is_written_too(capsys, pair):
    code, out, _ = watcher(capsys, "inspect", pair[0], "--format", "html")
    assert code == 0 and "finished" in out


def test_markdown_is_a_table(capsys, pair):
    code, out, _ = watcher(capsys, "compare", *pair, "--format", "markdown")
    assert code == 0 and "| 90 | batch\\_size | 8 | 64 | configuration |" in out


def test_mistakes_are_answered_with_what_to_do(capsys, pair):
    code, _, err = watcher(capsys, "compare", pair[0], "nobody")
    assert code == 3 and "nobody" in err and "watcher runs" in err
    code, _, err = watcher(capsys, "compare", pair[0], pair[0])
    assert code == 1 and "RUN_B" in err and "another run" in err
    code, _, err = watcher(capsys, "compare", pair[0])
    assert code == 2 and "RUN_B" in err


def test_inspect_shows_when_it_last_worked(capsys, pair):
    _, out, _ = watcher(capsys, "inspect", pair[1])
    assert f"It last worked in run {pair[0]}" in " ".join(out.split())
    _, out, _ = watcher(capsys, "inspect", pair[1], "--format", "json")
    assert json.loads(out)["failure"]["capsule"]["neighbours"]["nearest"]["run_id"] == pair[0]


def test_runs_of_a_0_1_store_are_compared_and_named_as_such(capsys, tmp_path):
    shutil.copytree(Path(__file__).resolve().parents[1] / "data" / "store-0.1", tmp_path / "old")
    where = ("--data-dir", str(tmp_path / "old"))
    code, out, _ = watcher(capsys, *where, "compare", "demo-a10a6d", "demo-79632f")
    flat = " ".join(out.split())
    assert code == 0 and "batch_size 16 → 32" in flat and flat.count("recorded by WatcherML 0.1") == 2
    code, out, _ = watcher(capsys, *where, "compare", "demo-a10a6d", "demo-79632f", "--format", "json")
    assert code == 0 and json.loads(out)["first"]["origin"] == "0.1"
