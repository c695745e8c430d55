"""Host memory around a failure: a worker that is really killed, control groups of both versions."""

import os
import signal

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import watcherml
from watcherml.recorder import host_memory


class Fatal(Dataset):
    """Its worker is killed as the kernel kills one for memory."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals of this kind")
def test_a_killed_worker_is_named_with_its_signal(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True)
    with pytest.raises(RuntimeError, match="DataLoader worker"), run:
        list(DataLoader(Fatal(), num_workers=1))
    process = {piece["id"]: piece["data"] for piece in storage.get_capsule(run.run_id)["evidence"]}["EV-3"]
    assert process["killed_child"]["signal"] == "Killed" and process["killed_child"]["pid"] > 0
    assert process["host_memory"]["cgroup_oom_kills"] in (0, None)


@pytest.mark.parametrize(
    ("files", "kills", "limit"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 2\n", "memory.max": "1000", "memory.current": "900"}, 2, 1000),
        ({"memory.events": "oom_kill 7\n", "memory.max": "max"}, 7, None),
        ({"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
          "memory/memory.limit_in_bytes": "9223372036854771712"}, 4, None),
        ({"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, None, None),
        ({"memory.events": "nonsense", "memory.max": "nonsense"}, None, None),
        ({}, None, None),
    ],
    ids=["version 2", "no limit", "version 1", "old kernel", "nonsense", "no control groups"],
)  # fmt: skip
def test_control_groups_of_both_versions(tmp_path, files, kills, limit):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host_memory.oom_kills(tmp_path) == kills
    assert host_memory.cgroup_limit(tmp_path).get("cgroup_limit_bytes") == limit


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DataLoader worker (pid 123) is killed by signal: Killed. ", {"pid": 123, "signal": "Killed"}),
        ("DataLoader worker (pid 9) is killed by signal: Bus error. It is possible", {"pid": 9, "signal": "Bus error"}),
        ("DataLoader worker (pid(s) 12, 13) exited unexpectedly", None),
        ("nothing of the kind", None),
    ],
)
def test_the_words_of_a_dead_worker(text, found):
    assert host_memory.killed_child(text) == found
