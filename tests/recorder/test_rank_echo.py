"""A rank that learns that another one is gone tells no cause: the capsule of the rank that failed stays shown."""

import json
import os
import subprocess
import sys

import pytest

from watcherml.forensics.peers import is_echo

GLOO = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4245. This is"
    " typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error."
)
OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.00 GiB of which 1.00 GiB is free."
)


@pytest.mark.parametrize(
    ("kind", "message", "echo"),
    [
        ("RuntimeError", GLOO, True),
        ("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection reset by peer [10.0.0.2]:1", True),
        ("RuntimeError", "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv", True),
        ("torch.distributed.DistBackendError", "NCCL communicator was aborted on rank 1.", True),
        ("torch.distributed.DistBackendError", "NCCL error in: x.cpp:1, remote process exited or there was a network"
         " error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error", True),
        ("torch.distributed.DistNetworkError", "failed to recv, got 0 bytes", True),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", True),
        ("RuntimeError", "rank 1 broke", False),
        ("ValueError", GLOO, False),
        ("torch.OutOfMemoryError", OOM, False),
    ],
)  # fmt: skip
def test_the_words_of_a_rank_that_was_left_alone(kind, message, echo):
    assert is_echo(kind, message) is echo


RANK = """
import os, sys, time, watcherml
rank, (store, cause, cause_text, echo) = int(os.environ['RANK']), sys.argv[1:]
class OutOfMemoryError(RuntimeError): __module__ = 'torch'
def wait(name):
    while not os.path.exists(name): time.sleep(0.01)
try:
    with watcherml.init('job', {'batch_size': 8}, store) as run:
        open(f'ready{rank}', 'w').close()
        wait(f'ready{1 - rank}')
        if str(rank) == cause: raise OutOfMemoryError(cause_text)
        wait('failed')
        raise RuntimeError(echo)
finally:
    open('failed', 'w').close()
    if rank == 0: wait('ended1')
    open(f'ended{rank}', 'w').close()
"""


def run_job(storage, folder, *plan):
    (folder / "rank.py").write_text(RANK)
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29514", "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "rank.py", str(storage.path), *plan], cwd=folder, stderr=subprocess.PIPE, text=True,
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [one.communicate(timeout=60)[1] for one in started]
    assert [one.returncode for one in started] == [1, 1], said
    (row,) = storage.list_runs()
    return storage.get_run(row["run_id"]), said


@pytest.mark.parametrize("cause", [pytest.param(0, marks=pytest.mark.long), 1])
def test_the_rank_that_failed_is_shown_and_what_the_other_was_told_is_kept(storage, tmp_path, cause):
    run, said = run_job(storage, tmp_path, str(cause), OOM, GLOO)
    assert OOM in said[cause] and GLOO in said[1 - cause]
    failure = storage.get_capsule(run["run_id"])["failure"]
    assert (run["status"], failure["class"]) == ("failed", "cuda_out_of_memory")
    assert GLOO in json.dumps(run["facts"][f"another rank is gone, says rank {1 - cause}"])


@pytest.mark.long
def test_an_echo_without_a_cause_on_record_is_a_capsule(storage, tmp_path):
    run, _ = run_job(storage, tmp_path, "0", GLOO, GLOO)  # the rank that failed was killed before it could tell
    assert "Connection closed by peer" in storage.get_capsule(run["run_id"])["failure"]["message"]
