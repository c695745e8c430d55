"""A real kernel: the panel is clicked through its comm, the kernel is killed, and the campaign does not care."""

import asyncio
import subprocess
import sys
import time

from e2e_tools import texts

from watcherml import Storage
from watcherml.api import data

OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of the allocated memory 7.10 GiB"
    " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)
CONFIG = {"batch_size": 1, "sequence_length": 256, "training_steps": 6}
INIT = f"%load_ext watcherml\nimport watcherml\nrun = watcherml.init('kernel-demo', {CONFIG!r})"
FAIL = f"def train():\n    buffer = bytearray(50_000_000)\n    raise RuntimeError({OOM!r})\ntrain()"
FLAGS = "--allow-approval-required --allow-semantic-changes --confirmation-runs 1 --max-full-trials 1"
RECOVER = f"""%%watcher recover {FLAGS}
import time

def train(config, max_steps=None):
    time.sleep(0.5)
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    if config["sequence_length"] > 128:
        raise RuntimeError({OOM!r})
    return {{"steps_completed": steps}}
"""
VIEW = "application/vnd.jupyter.widget-view+json"


def has_view(cell):
    return any(VIEW in output.get("data", {}) for output in cell.outputs)


async def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


def test_a_campaign_outlives_the_kernel_that_started_it(kernel, tmp_path):
    async def scenario(k):
        await k.run(INIT)
        failed = await k.run(FAIL)
        assert "CUDA ran out of memory" in texts(failed)
        assert 'class="wml-failure"' in texts(failed, "text/html")
        assert failed.outputs[0].output_type == "error"  # the panel stands below it

        planned = await k.run(RECOVER)
        assert has_view(planned) and 'recovery.approve("sequence-128"' in texts(planned)
        (approve,), (name,) = k.widgets("wml-approve-sequence-128"), k.widgets("wml-approved-by")
        k.change(name, value="Ada")
        k.change(k.widgets("wml-reason-sequence-128")[0], value="half is enough")
        k.click(approve)
        assert "[approved]" in texts(await k.run("print(recovery.text())"))
        k.click(k.widgets("wml-start")[0])
        storage = Storage(tmp_path / ".watcherml")
        await until(lambda: len(storage.audit.trials()) >= 1)
        (campaign,) = data.campaigns(storage)
        assert campaign["lifecycle"] == "running"

        await k.restart()
        assert data.campaign(storage, campaign["campaign_id"])["lifecycle"] == "running"
        before = len(storage.audit.trials())
        await until(lambda: len(storage.audit.trials()) > before)

        await k.run("%load_ext watcherml")
        attached = await k.run(f"%watcher recovery {campaign['campaign_id']}")
        assert has_view(attached) and "kernel-demo" in texts(attached)
        waited = await k.run("recovery.wait()")
        assert "Verified" in texts(waited) and "wml-verdict" in texts(waited, "text/html")
        assert '"sequence_length": 128' in texts(await k.run("print(recovery.text())"))
        assert data.campaign(storage, campaign["campaign_id"])["status"] == "verified"

    kernel(scenario)


def test_interrupting_the_wait_detaches(kernel, tmp_path):
    async def scenario(k):
        await k.run(INIT)
        await k.run(FAIL)
        await k.run(RECOVER.replace("time.sleep(0.5)", "time.sleep(60)"))
        await k.run("recovery.approve('sequence-128', approved_by='Ada', reason='half is enough')")
        await k.run("recovery.start()")
        waiting = asyncio.ensure_future(k.run("recovery.wait()"))
        await asyncio.sleep(1)
        await k.client.km.interrupt_kernel()
        told = texts(await waiting)
        assert "Detached" in told and "Traceback" not in told and "KeyboardInterrupt" not in told
        (campaign,) = data.campaigns(Storage(tmp_path / ".watcherml"))
        assert campaign["lifecycle"] == "running"
        # The kernel is busy with the wait; the command line stops the campaign all the same.
        waiting = asyncio.ensure_future(k.run("print(recovery.wait(timeout=60).status)"))
        stop = [sys.executable, "-m", "watcherml", "--data-dir", str(tmp_path / ".watcherml"), "stop"]
        subprocess.run([*stop, campaign["campaign_id"]], check=True, capture_output=True)
        assert "stopped" in texts(await waiting)

    kernel(scenario)
