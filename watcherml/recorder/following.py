"""A rank other than 0 from its start to its end: part of the run that rank 0 records, or a run of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from watcherml.recorder import life, ranks
from watcherml.store.journal import discard

if TYPE_CHECKING:
    from watcherml.recorder.recording import Recording
    from watcherml.recorder.run import Run


class Following:
    """Belongs to one run of a rank other than 0. Errors are problems of that run.

    ``found`` is called with the id of rank 0's run, at most once; ``alone`` where this rank is recorded as a run of its
    own, after its row is on record.
    """

    def __init__(
        self,
        run: Run,
        recording: Recording,
        place: ranks.Place,
        safely: life.Safely,
        found: Callable[[str], None],
        alone: Callable[[], None],
    ) -> None:
        self._run, self._recording, self._safely = run, recording, safely
        self._found, self._alone = found, alone
        self._follower = ranks.Follower(run.storage, place)
        self._is_alone = False

    def start(self) -> None:
        """Look for rank 0's run, for ``ranks.MEET_SECONDS`` now and in the background from then on."""
        self._recording.began()
        self._find(ranks.MEET_SECONDS)
        if self._follower.leader is None:
            if not ranks.is_certain():
                self._follower.tell()
            self._safely(lambda: self._follower.look_on(lambda alone: self.settle(alone=alone)))

    def keep(self, action: Callable[[], object]) -> None:
        """Do it if this becomes a run of its own; rank 0 does the same for the run of the job."""
        with self._follower.lock:
            if self._is_alone:
                self._safely(action)
            else:
                self._follower.keep(action)

    def settle(self, *, alone: bool) -> None:
        """Decide, if rank 0 is to be found now; with ``alone`` it is a run of its own if not."""
        follower = self._follower
        with follower.lock:
            if self._is_alone or follower.leader is not None:
                return
            self._find(0.0)
            if follower.leader is None and alone:
                self._stand_alone()

    def attach_failure(self, error: BaseException) -> None:
        """Find the run that this rank's failure belongs to, and say there that it has failed."""
        follower = self._follower
        with follower.lock:
            if follower.leader is None and not self._is_alone:
                self._find(ranks.MEET_AFTER_FAILURE_SECONDS)
            self.settle(alone=True)
        self._safely(lambda: follower.note_failure(self._run.run_id, life.judge(error)[1]))

    def _find(self, seconds: float) -> None:
        follower, own = self._follower, self._run.run_id
        found = self._safely(lambda: follower.find(seconds))
        if found is not None:
            follower.settled()
            self._found(found)
            self._safely(lambda: discard(self._run.storage.runs.spool_folder, own))

    def _stand_alone(self) -> None:
        follower, run = self._follower, self._run
        follower.settled()
        follower.tell()
        self._recording.start(None)
        facts = {**follower.place.to_data(), "rank_0": "not found"}
        self._safely(lambda: run.storage.runs.note(run.run_id, {"job": facts}))
        for action in follower.kept:
            self._safely(action)
        self._is_alone = True
        self._alone()
