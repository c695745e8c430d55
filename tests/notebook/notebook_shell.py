"""What the notebook tests share: the words of a failure, cells, and a shell that catches what is displayed."""

import time
from dataclasses import dataclass, field

OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of the allocated memory 7.10 GiB"
    " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)
CONFIG = {"batch_size": 32, "gradient_accumulation_steps": 1, "training_steps": 6}
# As a cell: a run in the notebook's style, open until it is finished.
INIT = f"import watcherml\nrun = watcherml.init('demo', {CONFIG!r})"
# As the body of a recovery: runs out of memory above batch 16, as far as its text goes.
TRAIN = f"""
import time

def train(config, max_steps=None):
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    time.sleep(config.get("seconds", 0))
    if config["batch_size"] > 16:
        raise RuntimeError({OOM!r})
    return {{"steps_completed": steps, "loss": 0.4}}
"""
SHORT = "--confirmation-runs 1 --max-probe-trials 2 --max-full-trials 1"


def wait_for(condition, seconds=30):
    """Wait until a condition holds; the seconds only end a test that fails."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@dataclass
class Outcome:
    """What a cell did: IPython's result, and the data of everything it displayed."""

    result: object
    shown: list = field(default_factory=list)

    @property
    def value(self):
        return self.result.result

    @property
    def error(self):
        return self.result.error_before_exec or self.result.error_in_exec

    @property
    def text(self):
        return "\n".join(data.get("text/plain", "") for data in self.shown)

    @property
    def html(self):
        return "\n".join(data.get("text/html", "") for data in self.shown)


class Notebook:
    """The shell of one test."""

    def __init__(self, shell):
        self.shell = shell

    def run(self, source):
        from IPython.core.displaypub import CapturingDisplayPublisher

        publisher, before = CapturingDisplayPublisher(), self.shell.display_pub
        self.shell.display_pub = publisher
        try:
            result = self.shell.run_cell(source, store_history=True)
            self.flush()
        finally:
            self.shell.display_pub = before
        return Outcome(result, [one["data"] for one in publisher.outputs])

    def flush(self):
        """Wait until the cell is on record."""
        from watcherml.notebook.session import Session

        session = Session.of(self.shell)
        assert session is None or session.flush()

    def __getitem__(self, name):
        return self.shell.user_ns[name]

    def __setitem__(self, name, value):
        self.shell.user_ns[name] = value

    @property
    def store(self):
        from watcherml import Storage

        return Storage()
