"""What Tab offers after ``%watcher``: words, flags, ids of the store; never an error and never a long wait."""

import threading

from watcherml.notebook import completion, magics
from watcherml.notebook.session import Session


def offered(notebook, line):
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        return [one.text for one in notebook.shell.Completer.completions(line, len(line))]


# (line, what is offered at its end, what is not)
LINES = [
    ("%watcher ", set(magics.COMMANDS), {"entrypoint"}),
    ("%%watcher ", set(magics.CELL_COMMANDS), {"status"}),
    ("%watcher re", {"recover", "recoveries", "recovery", "resolve", "resume"}, {"runs"}),
    ("%watcher help ", {"status", "entrypoint"}, set()),
    ("%watcher runs --", {"--project", "--limit", "--trials", "--help"}, {"--metric"}),
    ("%watcher recover --m", {"--metric", "--max-trials"}, {"--project-root"}),
    ("%%watcher recover --metric loss:minimize:1:1 --", {"--metric", "--max-trials"}, set()),
    ("%%watcher run --name x --", {"--config", "--project"}, {"--name"}),
    ("%%watcher entrypoint my.py --", {"--copy-names", "--project-root"}, {"--metric"}),
    ("%watcher nonsense ", set(), {"--help", "status"}),
    ("%%watcher status ", set(), {"--help"}),
    ("%watcher project ", set(), {"status"}),
]


def test_words_and_flags_are_offered(notebook):
    for line, there, missing in LINES:
        found = set(offered(notebook, line))
        assert there <= found and not missing & found, line


def test_ids_are_offered_newest_first_where_they_fit(failed):
    failed.run("other = watcherml.init('other')\nother.finish()")
    failing, other = failed["run"].run_id, failed["other"].run_id
    asking = completion.Asking(Session.of(failed.shell))
    assert asking.candidates("%watcher inspect ", "")[:2] == [other, failing]
    assert asking.candidates("%watcher resolve ", "")[:1] == [failing]
    assert asking.candidates("%%watcher recover --run ", "")[:1] == [failing]
    assert failing in asking.candidates(f"%watcher compare {other} ", "")
    assert failing not in asking.candidates(f"%watcher inspect {other} ", "")
    assert offered(failed, f"%watcher inspect {failing[:6]}") == [failing]
    assert asking.candidates("%watcher recovery ", "") == ["--help"]


def test_a_store_that_does_not_answer_delays_nothing_and_raises_nothing(failed, monkeypatch):
    session, waiting = Session.of(failed.shell), threading.Event()
    asking = completion.Asking(session)

    def slow(storage, kind):
        waiting.wait(60)
        return ["late"]

    monkeypatch.setattr(completion, "ids", slow)
    assert asking.candidates("%watcher inspect ", "") == ["--help"]
    assert asking.candidates("%watcher inspect ", "") == ["--help"]  # no second question beside the first
    waiting.set()
    monkeypatch.setattr(completion, "ids", lambda storage, kind: 1 / 0)
    assert offered(failed, "%watcher inspect ") == ["--help"]
    monkeypatch.setattr(completion.Asking, "candidates", lambda self, line, symbol: 1 / 0)
    assert not set(magics.COMMANDS) & set(offered(failed, "%watcher "))


def test_nothing_is_made_or_written_by_completing(notebook, tmp_path):
    offered(notebook, "%watcher inspect ")
    assert not (tmp_path / ".watcherml").exists()


def test_unloading_leaves_no_completer_and_other_peoples_alone(notebook):
    other = lambda shell, event: ["mine"]  # noqa: E731
    notebook.shell.set_hook("complete_command", other, str_key="%watcher")
    notebook.run("%reload_ext watcherml")
    assert len(notebook.shell.strdispatchers["complete_command"].strs["%watcher"].chain) == 2
    notebook.run("%unload_ext watcherml")
    assert offered(notebook, "%watcher m") == ["mine"]
    assert "%%watcher" not in notebook.shell.strdispatchers["complete_command"].strs
