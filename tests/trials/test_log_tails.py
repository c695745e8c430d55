"""What is shown of a trial's logs is what a terminal would show of their end."""

import pytest

from watcherml.trials.logs import both_tails, tail_of
from watcherml.trials.paths import TrialPaths

BAR = "".join(f"\r\x1b[32m{at}%\x1b[0m |####| {at}/100" for at in range(101))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (BAR, ["100% |####| 100/100"]),
        (f"warning: slow\n{BAR}\n", ["warning: slow", "100% |####| 100/100"]),
        (f"{BAR}\nTraceback:\nRuntimeError: no", ["100% |####| 100/100", "Traceback:", "RuntimeError: no"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        (f"outer\n{BAR}\x1b[A\r", ["outer", "100% |####| 100/100"]),
        ("", []),
        (" \n\n", []),
    ],
)
def test_a_line_that_was_written_over_is_its_last_state(tmp_path, written, shown):
    paths = TrialPaths(tmp_path)
    paths.stderr.write_bytes(written.encode())
    assert tail_of(paths) == both_tails(paths) == shown


@pytest.mark.parametrize(("printed", "complained", "expected"), [
    (30, 0, (12, 0)), (0, 30, (0, 12)), (30, 30, (6, 6)), (2, 30, (2, 10)), (30, 1, (11, 1)), (0, 0, (0, 0)),
])  # fmt: skip
def test_neither_output_hides_the_other_while_a_trial_runs(tmp_path, printed, complained, expected):
    paths = TrialPaths(tmp_path)
    paths.stdout.write_text("".join(f"loss {at}\n" for at in range(printed)))
    paths.stderr.write_text("".join(f"warning {at}\n" for at in range(complained)))
    found = both_tails(paths)
    assert (sum("loss" in one for one in found), sum("warning" in one for one in found)) == expected
    assert not printed or f"loss {printed - 1}" in found
    assert not complained or f"warning {complained - 1}" in found
