"""One tracker, in its own environment: log a training loop, or count what a loop left behind.

    python trackers.py TRACKER log FOLDER STEPS [PACE_SECONDS]
    python trackers.py TRACKER count FOLDER

Each tracker is used as its own first page shows it, offline, with its defaults: two metrics a step in one call where it
has one. Prints JSON. With a pace the loop is for being killed: it prints each hundredth step that was logged.
"""

import importlib.metadata
import json
import os
import struct
import sys
import time
from pathlib import Path
from statistics import median, quantiles

METRICS = ("loss", "accuracy")


class Bare:
    """No tracker: what the loop itself costs."""

    def __init__(self, folder):
        self.rows = []

    def log(self, step, loss, accuracy):
        self.rows.append((step, loss, accuracy))

    def finish(self):
        pass

    @staticmethod
    def count(folder):
        return 0


class WatcherML(Bare):
    def __init__(self, folder):
        import watcherml

        self.run = watcherml.init("bench", {"lr": 0.1}, folder)

    def log(self, step, loss, accuracy):
        self.run.log_metric("loss", loss, step=step)
        self.run.log_metric("accuracy", accuracy, step=step)

    def finish(self):
        self.run.finish()

    @staticmethod
    def count(folder):
        import watcherml

        storage = watcherml.Storage(folder)
        return sum(len(storage.get_metrics(row["run_id"])) for row in storage.list_runs())


class MLflow(Bare):
    def __init__(self, folder):
        import mlflow

        self.mlflow = mlflow
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.set_experiment("bench")
        mlflow.start_run()
        mlflow.log_params({"lr": 0.1})

    def log(self, step, loss, accuracy):
        self.mlflow.log_metrics({"loss": loss, "accuracy": accuracy}, step=step)

    def finish(self):
        self.mlflow.end_run()

    @staticmethod
    def count(folder):
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
        runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
        return sum(len(client.get_metric_history(run.info.run_id, name)) for run in runs for name in METRICS)


class Wandb(Bare):
    def __init__(self, folder):
        os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
        import wandb

        self.run = wandb.init(project="bench", config={"lr": 0.1}, dir=str(folder))

    def log(self, step, loss, accuracy):
        self.run.log({"loss": loss, "accuracy": accuracy}, step=step)

    def finish(self):
        self.run.finish()

    @staticmethod
    def count(folder):
        from wandb.proto.wandb_internal_pb2 import Record

        found = 0
        for path in Path(folder).rglob("*.wandb"):
            for data in log_records(path.read_bytes()):
                record = Record()
                record.ParseFromString(data)
                keys = {item.key or ".".join(item.nested_key) for item in record.history.item}
                found += len(keys & set(METRICS))
        return found


class TensorBoard(Bare):
    def __init__(self, folder):
        from tensorboard.summary import Writer

        self.writer = Writer(str(folder))

    def log(self, step, loss, accuracy):
        self.writer.add_scalar("loss", loss, step)
        self.writer.add_scalar("accuracy", accuracy, step)

    def finish(self):
        self.writer.close()

    @staticmethod
    def count(folder):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        tags = events.Tags()
        found = [name for name in METRICS if name in tags["tensors"]]
        return sum(len(events.Tensors(name)) for name in found)


class Aim(Bare):
    def __init__(self, folder):
        from aim import Run

        self.run = Run(repo=str(folder), experiment="bench")
        self.run["config"] = {"lr": 0.1}

    def log(self, step, loss, accuracy):
        self.run.track({"loss": loss, "accuracy": accuracy}, step=step)

    def finish(self):
        self.run.close()

    @staticmethod
    def count(folder):
        from aim import Repo, Run

        repo, found = Repo(str(folder)), 0
        for name in repo.list_all_runs():
            run = Run(name, repo=repo, system_tracking_interval=None)  # opened read-only it lists no sequence
            for metric, context, _ in list(run.iter_metrics_info()):
                found += len(run.get_metric(metric, context).values.sparse_numpy()[0]) if metric in METRICS else 0
        return found


class Trackio(Bare):
    def __init__(self, folder):
        os.environ.update(TRACKIO_DIR=str(folder), HF_HUB_OFFLINE="1")
        import trackio

        self.trackio = trackio
        trackio.init(project="bench", config={"lr": 0.1})

    def log(self, step, loss, accuracy):
        self.trackio.log({"loss": loss, "accuracy": accuracy}, step=step)

    def finish(self):
        self.trackio.finish()

    @staticmethod
    def count(folder):
        import sqlite3

        found = 0
        for path in Path(folder).glob("*.db"):
            connection = sqlite3.connect(path)
            for (row,) in connection.execute("SELECT metrics FROM metrics"):
                found += len(set(METRICS) & set(json.loads(row)))
        return found


def log_records(data):
    """Yield the whole records of a file in LevelDB's log format, behind its own header of 7 bytes."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:  # no room for a header: the block is padded
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if not kind:
            return
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4) and at <= len(data):  # whole, or the last part
            yield record
            record = b""


TRACKERS = {
    "bare": Bare, "watcherml": WatcherML, "mlflow": MLflow, "wandb": Wandb, "tensorboard": TensorBoard, "aim": Aim,
    "trackio": Trackio,
}  # fmt: skip


def timed_loop(kind, folder, steps):
    """Return seconds and microseconds of a whole run; between the calls is a little work, as a step would be."""
    begin = time.perf_counter()
    tracker = kind(folder)
    started = time.perf_counter()
    calls, cpu = [], time.process_time()
    for step in range(steps):
        loss = 1 / (step + 1)
        sum(range(2_000))
        before = time.perf_counter()
        tracker.log(step, loss, 1 - loss)
        calls.append(1e6 * (time.perf_counter() - before))
    logged, cpu = time.perf_counter(), 1e6 * (time.process_time() - cpu) / steps
    tracker.finish()
    return {
        "start_s": started - begin,
        "call_us": median(calls),
        "call_p99_us": quantiles(calls, n=100)[98],
        "cpu_us": cpu,
        "finish_s": time.perf_counter() - logged,
    }


def paced_loop(kind, folder, steps, pace):
    """Log at a pace and say how far it came; the parent kills this process."""
    tracker = kind(folder)
    for step in range(steps):
        tracker.log(step, 1 / (step + 1), step / steps)
        if step % 100 == 99:
            print(step + 1, flush=True)
        time.sleep(pace)


def main():
    name, what, folder, *rest = sys.argv[1:]
    kind = TRACKERS[name]
    if what == "version":
        print(json.dumps("" if name == "bare" else importlib.metadata.version(name)))
    elif what == "count":
        print(json.dumps(kind.count(folder)))
    elif len(rest) == 2:
        paced_loop(kind, folder, int(rest[0]), float(rest[1]))
    else:
        print(json.dumps(timed_loop(kind, folder, int(rest[0]))))


if __name__ == "__main__":
    main()
