"""``watcher demo``: a failure, its reason, and its verified recovery, on this machine in about a minute.

A small GPT is trained for real on a CPU whose memory is declared to be 96 MiB. Everything it shows is on record in
the demo's own store and can be looked at afterwards with the commands printed at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from watcherml.cli.console import Console
from watcherml.cli.demo_folder import MODULE, DemoFolder
from watcherml.cli.shared import add_format, as_json, command_line, deliver
from watcherml.errors import CampaignError, InvalidValue, MissingDependency
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.api.recover import Campaign, RecoveryPreparation
    from watcherml.api.result import RecoveryResult
    from watcherml.report.palette import Tone

BUDGET = "96 MiB"
STEPS = 12
PROBE_STEPS = 2
# In nats per character. Guessing evenly among the text's 103 different characters costs ln(103) = 4.6.
UNTRAINED_LOSS = 4.6
LOSS_BOUND = 3.0
CHANGES = {"batch_size": 64, "gradient_accumulation_steps": 1, "gradient_checkpointing": False, "training_steps": STEPS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--dir", default="watcherml-demo", metavar="DIR", help="default: ./%(default)s")
    parser.add_argument("--keep", action="store_true", help="run with a char_gpt.py that was edited since")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Tell the story; returns 0 if the recovery is verified, else 4."""
    began = time.monotonic()
    _arrange_process()
    folder = DemoFolder(Path(values.dir))
    edited = folder.make(keep=values.keep)
    values.data_dir = values.data_dir or str(folder.store)
    story = _Story(values, console, folder)
    story.opening(edited)
    run_id = story.fail()
    story.explain(run_id)
    preparation = story.prepare(run_id)
    campaign, result = story.recover(preparation)
    return story.ending(run_id, campaign, result, time.monotonic() - began)


def _arrange_process() -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingDependency(
            "the demo trains a model with PyTorch, which is not installed here",
            remedy='Install it from the clone: pip install ".[demo]"',
        )
    # The simulated device counts CPU tensors, so a real GPU has to stay out of sight of the demo's processes.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Threads of OpenMP spin while they wait; on a busy machine that makes a step ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


class _Story:
    def __init__(self, values: argparse.Namespace, console: Console, folder: DemoFolder) -> None:
        self.values, self.console, self.folder = values, console, folder
        self.storage = Storage(values.data_dir)

    def head(self, title: str) -> None:
        from watcherml.report import plain

        self.console.say("\n" + plain.bold(title, self.console.color))

    def tell(self, text: str) -> None:
        from watcherml.report import plain

        self.console.say("\n".join(plain.wrap(text, "  ", "  ")))

    def opening(self, edited: bool) -> None:
        self.head("A simulated device")
        self.tell(
            f"A small GPT is trained on this CPU, whose memory is declared to be {BUDGET}. The training and its memory"
            " are real, the limit is simulated: nothing here says anything about a GPU."
        )
        self.tell(f"Code: {self.folder.code}{' (as you edited it)' if edited else ''}. Store: {self.storage.path}.")

    def fail(self) -> str:
        """Train with the batch that does not fit, until it dies; returns the run's id."""
        self.console.status("loading PyTorch")
        import torch

        import watcherml

        module = _load(self.folder.code)
        config = {**getattr(module, "DEFAULTS", {}), **CHANGES}
        self.head(f"1. Training with batch_size {config['batch_size']}")
        try:
            with watcherml.simulated_device(BUDGET), watcherml.init("char-gpt-demo", config, self.storage) as run:
                module.train(config, log=run.log_metric)
        except torch.OutOfMemoryError as error:
            self._show_error(error)
            return run.run_id
        raise CampaignError(
            f"{self.folder.code.name} trained to its end within {BUDGET}",
            expected="a batch that does not fit",
            remedy="The demo needs a failure to recover from; undo the changes to its code or configuration.",
        )

    def _show_error(self, error: BaseException) -> None:
        """The device's mark on one line, what was asked for on the next."""
        from watcherml.report.safe import one_line

        mark, _, words = str(error).partition("] ")
        sentences = words.split(". ")[:3]
        for line in (f"{type(error).__name__}: {mark}]", ". ".join(sentences) + "."):
            self.console.say(f"  {one_line(line, 140)}")

    def explain(self, run_id: str) -> None:
        """Show what the capsule says."""
        from watcherml.api import data

        capsule = data.capsule(self.storage, run_id)
        if capsule is None:
            raise CampaignError(f"run {run_id} left no capsule", remedy="See the warnings above.")
        self.head("2. Why it failed")
        self.tell(capsule.headline)
        self.tell(f"{capsule.completeness.present} of {capsule.completeness.total} pieces of evidence were captured.")

    def prepare(self, run_id: str) -> RecoveryPreparation:
        """Seal contract and plan, and show them in short."""
        import watcherml
        from watcherml.report import terms
        from watcherml.report.units import format_seconds, plural

        self.head("3. The contract and the plan, before any compute")
        self.console.status("checking the training function and predicting its memory in a fresh process")
        guard = watcherml.MetricGuard("val_loss", "minimize", LOSS_BOUND, 0.0)
        preparation = watcherml.prepare_oom_recovery(
            run_id,
            f"{MODULE}:train",
            watcherml.VerificationRequirements(STEPS, (guard,), confirmation_runs=1),
            watcherml.RecoveryBudget(
                max_trials=6, max_probe_trials=4, max_full_trials=1, probe_steps=PROBE_STEPS,
                trial_timeout_seconds=600, campaign_timeout_seconds=1800,
            ),
            project_root=self.folder.path,
            storage=self.storage,
            include_approval_required=False,
        )  # fmt: skip
        plan = preparation.plan
        self.tell(
            f"Success: {plural(STEPS, 'optimizer step')}, and a validation loss of at most {LOSS_BOUND:.1f}. A model"
            f" that learned nothing scores about {UNTRAINED_LOSS:.1f}, so only one that was trained can pass."
        )
        device = plan.contract.device
        first = ", ".join(f"{one.proposal_id} ({terms.predicted(one, device)})" for one in plan.proposals[:2])
        for note in plan.notes:
            self.tell(note)
        self.tell(f"{plural(len(plan.proposals), 'change')} proposed, the first by predicted peak: {first}.")
        self.tell(
            f"At worst {plural(terms.worst_case_trials(plan), 'trial')} of at most"
            f" {format_seconds(plan.contract.budget.trial_timeout_seconds)}; expected: about a minute in all."
        )
        return preparation

    def recover(self, preparation: RecoveryPreparation) -> tuple[Campaign, RecoveryResult]:
        """Run the campaign; its compute is confirmed by having called the demo."""
        from watcherml.api.recover import start_recovery
        from watcherml.cli.follow import run_campaign

        self.head("4. Trials, each a fresh process; first the unchanged configuration, which has to fail again")
        return run_campaign(
            self.console,
            lambda: start_recovery(preparation, project_root=self.folder.path),
            "Ctrl-C at watcher demo",
        )

    def ending(self, run_id: str, campaign: Campaign, result: RecoveryResult, seconds: float) -> int:
        """Show the verdict, the change and the next commands."""
        from watcherml.cli.verdicts import NOT_VERIFIED, result_document
        from watcherml.report import plain
        from watcherml.report.changes import differences
        from watcherml.report.units import format_seconds

        def text(color: bool) -> str:
            tone: Tone = "good" if result.verified else "bad"
            lines = [plain.paint(line, tone, color) for line in plain.wrap(result.sentence, "  ", "  ")]
            if result.verified:
                for one in differences(result.chain.plan.source.config, result.verified_config):
                    lines += plain.wrap(f"{one.path}: {one.before} → {one.after}", "    ", "    ")
            return plain.finish(lines)

        document = {**result_document(result, campaign.trials()), "run_id": run_id, "seconds": round(seconds, 1)}
        self.head("5. Verdict")
        deliver(self.values, self.console, {"text": text, "json": as_json(document, one_line=True)})
        self.tell(f"Took {format_seconds(seconds)}.")
        self.head("Look at it yourself")
        for words in (
            ("inspect", run_id),
            ("recovery", campaign.campaign_id),
            ("recoveries", "--verified"),
            ("runs", "--trials"),
        ):
            self.console.say(f"  {command_line(self.values, *words)}")
        return 0 if result.verified else NOT_VERIFIED


def _load(path: Path) -> ModuleType:
    """Import the folder's code under its own name, once."""
    if MODULE in sys.modules:
        return sys.modules[MODULE]
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise InvalidValue(str(path), expected="an importable file", got="none")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module
