"""Children and ranks: forked processes, data loader workers and jobs of several processes make one run."""

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings

import pytest

import watcherml
from watcherml.recorder import ranks
from watcherml.recorder.ranks import Place

JOB = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "TORCHELASTIC_RUN_ID": "none"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Place(1, 4, 1)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Place(0, 2, None)),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "NODE_RANK": "1"}, Place(5, 8, 1)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, Place(1, 2, 1)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1"}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "4", "WORLD_SIZE": "4"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, None),
        ({"RANK": "one", "WORLD_SIZE": "4"}, None),
        ({"RANK": "1"}, None),
        ({"WORLD_SIZE": "4"}, None),
        ({"RANK": "", "WORLD_SIZE": ""}, None),
    ],
)
def test_where_a_process_stands(environment, place):
    assert ranks.here(environment) == place


# -- children ---------------------------------------------------------------------------------------------------


def in_child(action):
    """Run the action in a forked child; returns its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def run(storage):
    run = watcherml.Run("demo", {"lr": 1}, storage).start()
    run.log_metric("parent", 0.0, step=0)
    yield run
    run.finish()


def test_a_forked_child_adds_metrics_and_nothing_else(storage, run, tmp_path, capfd):
    (tmp_path / "a.txt").write_text("a")
    written = tmp_path / "written"

    def child():
        warnings.simplefilter("ignore")
        run.log_metric("child", 1.0, step=5)
        run.set_dataset(tmp_path / "a.txt")
        run.log_artifact(tmp_path / "a.txt")
        run.record_failure(ValueError("x"))
        run.interrupt("no")
        run.finish()
        names = [one.name for one in threading.enumerate() if one.name.startswith("watcherml")]
        written.write_text(json.dumps([names, run.status, run.problem_count]))

    assert in_child(child) == 0
    assert json.loads(written.read_text()) == [[], "running", 2]
    assert storage.get_run(run.run_id)["status"] == "running"
    run.log_metric("parent", 1.0, step=1)
    run.finish()
    row = storage.get_run(run.run_id)
    assert row["status"] == "success" and "dataset" not in row["facts"] and not storage.runs.artifacts(run.run_id)
    points = {(point["name"], point["value"], point["step"]) for point in storage.get_metrics(run.run_id)}
    assert points == {("parent", 0.0, 0), ("child", 1.0, 5), ("parent", 1.0, 1)}
    with pytest.raises(LookupError):
        storage.get_capsule(run.run_id)
    assert capfd.readouterr().out.count("WatcherML recorded") == 1


def test_a_forked_child_that_raises_through_the_with_leaves_the_run_open(storage):
    with watcherml.Run("demo", {}, storage, quiet=True) as run:

        def child():
            with run:
                run.log_metric("child", 1.0)
                raise ValueError("only the child's")

        assert in_child(child) == 1
        assert storage.get_run(run.run_id)["status"] == "running"
    assert storage.get_run(run.run_id)["status"] == "success"
    assert len(storage.get_metrics(run.run_id)) == 1


def test_a_child_may_record_a_run_of_its_own(storage, run):
    def child():
        with watcherml.Run("own", {}, storage, quiet=True) as own:
            own.log_metric("x", 1.0)

    assert in_child(child) == 0
    assert {row["project"]: row["status"] for row in storage.list_runs()} == {"demo": "running", "own": "success"}


def test_a_copy_in_the_same_process_is_the_run_itself(run):
    assert pickle.loads(pickle.dumps(run)) is run
    assert copy.deepcopy({"model": [run]})["model"][0] is run and copy.copy(run) is run


WORKERS = """
import sys, multiprocessing, watcherml

def work(run, number):
    again = __import__('pickle').loads(__import__('pickle').dumps(run))
    assert again is run
    for step in range(50):
        run.log_metric(f'worker {number}', float(number), step=step)
    run.finish()

if __name__ == '__main__':
    with watcherml.Run('p', {}, sys.argv[1], quiet=True) as run:
        context = multiprocessing.get_context(sys.argv[2])
        with context.Pool(2) as pool:
            pool.starmap(work, [(run, number) for number in range(6)])
            pool.close()
            pool.join()
        assert run.status == 'running'
    print(run.run_id)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_run_given_to_a_pool_gets_the_metrics_of_all_tasks(storage, tmp_path, method):
    (tmp_path / "work.py").write_text(WORKERS)
    done = subprocess.run(
        [sys.executable, "work.py", str(storage.path), method], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    points = storage.get_metrics(run_id)
    assert sorted((point["name"], point["step"]) for point in points) == sorted(
        (f"worker {number}", step) for number in range(6) for step in range(50)
    )
    assert all(point["value"] == float(point["name"].split()[1]) for point in points)
    assert [row["run_id"] for row in storage.list_runs()] == [run_id]


AGAIN = """
import gc, pickle, sys
for number, name in enumerate(("first", "second", "first")):
    run = pickle.load(open(sys.argv[1], "rb"))
    run.log_metric(name, number)
    del run
    gc.collect()
"""


def test_a_process_that_is_given_a_run_again_keeps_its_names_apart(storage, run, tmp_path):
    (tmp_path / "run.pickle").write_bytes(pickle.dumps(run))
    storage.runs.fold(run.run_id)  # one fold takes journals in the order of process numbers, which start over
    subprocess.run([sys.executable, "-c", AGAIN, str(tmp_path / "run.pickle")], check=True, cwd=tmp_path)
    run.finish()
    points = [(point["name"], point["value"]) for point in storage.get_metrics(run.run_id)]
    assert points == [("parent", 0.0), ("first", 0.0), ("second", 1.0), ("first", 2.0)]


LOADER = """
import sys, torch, watcherml
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, run, bad): self.run, self.bad = run, bad
    def __len__(self): return 32
    def __getitem__(self, index):
        self.run.log_metric('loaded', float(index))
        if index == self.bad: raise ValueError(f'bad sample {index}')
        return torch.tensor(index)

if __name__ == '__main__':
    run = watcherml.Run('p', {}, sys.argv[1], quiet=True)
    print(run.run_id, flush=True)
    with run:
        data = Data(run, int(sys.argv[3]))
        for batch in DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=sys.argv[2]):
            run.log_metric('seen', float(batch.sum()))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("bad", [-1, 21])
def test_data_loader_workers_log_and_fail_without_touching_the_run(storage, tmp_path, method, bad):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(LOADER)
    done = subprocess.run(
        [sys.executable, "train.py", str(storage.path), method, str(bad)], capture_output=True, text=True, cwd=tmp_path
    )
    run_id = done.stdout.strip()
    row = storage.get_run(run_id)
    assert [one["run_id"] for one in storage.list_runs()] == [run_id]
    names = [point["name"] for point in storage.get_metrics(run_id)]
    if bad < 0:
        assert done.returncode == 0, done.stderr
        assert row["status"] == "success" and (names.count("loaded"), names.count("seen")) == (32, 8)
        return
    assert done.returncode == 1 and row["status"] == "failed" and names.count("loaded") >= 21
    capsule = storage.get_capsule(run_id)
    assert capsule["failure"]["exception_type"] == "ValueError" and "bad sample 21" in capsule["failure"]["message"]
    with storage.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM capsules").fetchone()[0] == 1


# -- ranks ------------------------------------------------------------------------------------------------------

RANK = """
import os, sys, time, watcherml
rank, plan = int(os.environ['RANK']), dict(part.split('=') for part in sys.argv[2:])
def wait(name):
    while not os.path.exists(name): time.sleep(0.01)
if plan.get('late') == str(rank): time.sleep(0.4)
run = watcherml.init('job', {'lr': 0.1}, sys.argv[1])
print(run.run_id, flush=True)
open(f'ready{rank}', 'w').close()
for other in range(int(os.environ['WORLD_SIZE'])): wait(f'ready{other}')
with run:
    run.log_metric('loss', rank, step=1)
    run.set_dataset(sys.argv[0])
    if str(rank) in plan.get('fail', '').split(','): raise ValueError(f'rank {rank} fails')
    if 'hang' in plan and str(rank) == plan['hang']: open(f'hangs{rank}', 'w').close(); time.sleep(60)
"""


def start_ranks(storage, folder, *plan, world=3, ranks=None, job=JOB):
    (folder / "rank.py").write_text(RANK)
    base = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return [
        subprocess.Popen(
            [sys.executable, "rank.py", str(storage.path), *plan],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**base, **job, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
        )
        for rank in (range(world) if ranks is None else ranks)
    ]


def collect(children):
    outputs = [child.communicate(timeout=60) for child in children]
    return [child.returncode for child in children], outputs


def capsules(storage):
    with storage.database.reading() as connection:
        rows = connection.execute("SELECT run_id, document FROM capsules ORDER BY capsule_id").fetchall()
    return [(row["run_id"], json.loads(row["document"])["value"]) for row in rows]


def rank_of(capsule):
    facts = next(piece["data"] for piece in capsule["evidence"] if piece["id"] == "EV-3")
    return facts["rank"], facts["world_size"]


@pytest.mark.parametrize("late", [0, 2])
def test_three_ranks_are_one_run_that_rank_0_writes(storage, tmp_path, late):
    codes, outputs = collect(start_ranks(storage, tmp_path, f"late={late}"))
    assert codes == [0, 0, 0], outputs
    assert len({out.splitlines()[0] for out, _ in outputs}) == 1
    assert [("recorded this run" in out) for out, _ in outputs] == [True, False, False]
    (row,) = storage.list_runs()
    assert row["status"] == "success"
    assert [(one["name"], one["value"]) for one in storage.get_metrics(row["run_id"])] == [("loss", 0.0)]
    assert not list(storage.runs.spool_folder.glob("*"))
    facts = storage.get_run(row["run_id"])["facts"]
    assert facts["job"] == {"rank": 0, "world_size": 3, "local_rank": 0} and facts["dataset"]["files"] == 1


def test_a_failing_rank_attaches_its_capsule_to_the_run_of_rank_0(storage, tmp_path):
    codes, outputs = collect(start_ranks(storage, tmp_path, "fail=2"))
    assert codes == [0, 0, 1], outputs
    assert "ValueError: rank 2 fails" in outputs[2][1] and "watcherml" not in outputs[2][1].lower()
    (row,) = storage.list_runs()
    ((run_id, capsule),) = capsules(storage)
    assert run_id == row["run_id"] and rank_of(capsule) == (2, 3) and capsule["failure"]["message"] == "rank 2 fails"
    assert storage.get_run(run_id)["facts"]["rank 2"]["error"] == "ValueError"
    assert row["status"] == "success"


def test_rank_0_and_others_may_fail_together(storage, tmp_path):
    codes, outputs = collect(start_ranks(storage, tmp_path, "fail=0,1,2"))
    assert codes == [1, 1, 1], outputs
    (row,) = storage.list_runs()
    assert row["status"] == "failed"
    assert sorted(rank_of(capsule) for _, capsule in capsules(storage)) == [(0, 3), (1, 3), (2, 3)]
    assert {run_id for run_id, _ in capsules(storage)} == {row["run_id"]}


def test_a_launcher_that_ends_rank_0_after_another_failed_leaves_a_failed_run(storage, tmp_path):
    children = start_ranks(storage, tmp_path, "fail=1", "hang=0")
    assert children[1].wait(60) == 1
    while not (tmp_path / "hangs0").exists():
        time.sleep(0.01)
    children[0].terminate()
    collect(children)
    storage.settle()
    (row,) = storage.list_runs()
    assert row["status"] == "failed" and row["end_reason"].startswith("rank 1 failed: ValueError; rank 0: ")
    assert rank_of(storage.get_capsule(row["run_id"])) == (1, 3)


def test_a_failure_without_rank_0_has_a_run_of_its_own(storage, tmp_path):
    (tmp_path / "ready0").touch()
    codes, outputs = collect(start_ranks(storage, tmp_path, "fail=1", world=2, ranks=[1]))
    assert codes == [1], outputs
    (row,) = storage.list_runs()
    ((run_id, capsule),) = capsules(storage)
    assert row["status"] == "failed" and run_id == row["run_id"] and rank_of(capsule) == (1, 2)


def test_ranks_of_an_earlier_job_with_the_same_port_are_not_followed(storage, tmp_path):
    collect(start_ranks(storage, tmp_path, world=2))
    (earlier,) = storage.list_runs()
    for name in ("ready0", "ready1"):
        (tmp_path / name).unlink()
    codes, outputs = collect(start_ranks(storage, tmp_path, "fail=1", "late=0", world=2))
    assert codes == [0, 1], outputs
    later = [row for row in storage.list_runs() if row["run_id"] != earlier["run_id"]]
    assert len(later) == 1 and capsules(storage)[0][0] == later[0]["run_id"]


def test_runs_one_after_the_other_are_told_apart(storage, tmp_path, monkeypatch):
    for name, value in {**JOB, "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "_runs_started", iter(range(10)))
    leaders = [watcherml.Run("p", {}, storage, quiet=True).start() for _ in range(2)]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(ranks, "_runs_started", iter(range(10)))
    followers = [watcherml.Run("p", {}, storage, quiet=True).start() for _ in range(2)]
    assert [run.run_id for run in followers] == [run.run_id for run in leaders]
    followers[0].finish()
    assert storage.get_run(leaders[0].run_id)["status"] == "running"
    for run in (*leaders, followers[1]):
        run.finish()


LAUNCHED = """
import os, subprocess, sys, watcherml
rank = os.environ.get('LOCAL_RANK', '0')
run = watcherml.init('job', {}, sys.argv[1])
if rank == '0':
    env = {**os.environ, 'LOCAL_RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29513'}
    child = subprocess.run([sys.executable, *sys.argv], env=env, capture_output=True, text=True)
    print(child.stderr)
    run.finish()
else:
    raise ValueError('the launched rank fails')
"""


def test_ranks_that_rank_0_starts_itself_attach_to_its_open_run(storage, tmp_path):
    (tmp_path / "launch.py").write_text(LAUNCHED)
    done = subprocess.run(
        [sys.executable, "launch.py", str(storage.path)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "the launched rank fails" in done.stdout, done
    (row,) = storage.list_runs()
    ((run_id, capsule),) = capsules(storage)
    assert run_id == row["run_id"] and rank_of(capsule) == (1, 2)


GLOO = """
import sys, torch.distributed as dist, torch.multiprocessing as mp, watcherml

def work(rank, folder, meet):
    dist.init_process_group('gloo', init_method=f'file://{meet}', rank=rank, world_size=2)
    with watcherml.init('gloo', {}, folder) as run:
        dist.barrier()
        run.log_metric('rank', rank)
        if rank == 1: raise ValueError('rank 1 of a real group')

if __name__ == '__main__':
    try: mp.spawn(work, args=(sys.argv[1], sys.argv[2]), nprocs=2)
    except Exception as error: print('joined', type(error).__name__)
"""


def test_a_real_process_group_says_the_rank(storage, tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    (tmp_path / "job.py").write_text(GLOO)
    done = subprocess.run(
        [sys.executable, "job.py", str(storage.path), str(tmp_path / "meet")],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "joined ProcessRaisedException" in done.stdout, done
    (row,) = storage.list_runs()
    ((run_id, capsule),) = capsules(storage)
    assert run_id == row["run_id"] and rank_of(capsule) == (1, 2)
