"""Classes of the notebook that do not even tell their name: their failures are on record, and their memory goes."""

import gc
import weakref

from notebook_shell import CONFIG, OOM

from watcherml.api import data
from watcherml.notebook.session import Session

# A metaclass is the person's own; ones of remote objects and of mocks answer like this.
CLASSES = f"""
import watcherml
from array import array

def shy(asked, problem):
    def answer(cls, name):
        if name in asked:
            raise problem(name)
        return type.__getattribute__(cls, name)
    kind = type("Shy", (type,), {{"__getattribute__": answer}})
    return kind("Quiet", (RuntimeError,), {{"__module__": "__main__"}}), kind("Held", (), {{"__module__": "__main__"}})

class Big:
    pass

def fail(kind, words):
    big = Big()
    refs.append(weakref.ref(big))
    raise kind(words)

config = {CONFIG!r}
"""
# Not __name__: IPython asks for it to show the traceback, and the cell then ends with what that raised.
NAMES = ("__module__", "__qualname__", "__mro__", "__dict__", "__doc__")


CASES = [(OOM, NAMES, "cuda_out_of_memory"), (OOM, NAMES[:1], "cuda_out_of_memory"), ("no", NAMES, "unclassified")]


def test_a_failure_of_a_class_that_does_not_tell_its_name_is_on_record_and_gives_its_memory_back(notebook):
    notebook.run(CLASSES)
    refs = notebook.shell.user_ns["refs"] = []
    notebook.shell.user_ns["weakref"] = weakref
    for words, asked, kind in CASES:
        notebook.run("run = watcherml.init('demo', config)")
        notebook.run(f"Quiet, Held = shy({asked!r}, ValueError)\nheld = Held()\nheld.data = array('d', [0] * 9)")
        outcome = notebook.run(f"fail(Quiet, {words!r})")
        assert outcome.error is not None and "could not follow" not in outcome.text, asked
        assert Session.of(notebook.shell).problems == [], asked
        run = notebook["run"]
        assert data.capsule(run.storage, run.run_id).failure.class_ == kind, asked
        if words == OOM:
            del outcome
            gc.collect()
            assert [one() for one in refs] == [None] * len(refs), asked
        run.finish()
