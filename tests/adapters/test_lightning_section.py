"""A section ``trainer`` of a configuration reaches the Trainer, or what a recovery changed in it would be lost."""

import pytest

from watcherml.adapters.lightning import trainer_options
from watcherml.errors import InvalidValue

SECTION = {"accumulate_grad_batches": 4, "max_steps": 6, "precision": "32-true", "devices": 1}
HANDED = {"accumulate_grad_batches": 4, "max_steps": 6, "precision": "32-true"}


@pytest.mark.parametrize(
    ("config", "max_steps", "options"),
    [
        ({"trainer": SECTION, "data": {"batch_size": 8}}, None, HANDED),
        ({"trainer": SECTION}, 2, {**HANDED, "max_steps": 2}),
        ({"trainer": SECTION, "max_steps": 6}, 30, HANDED),
        (
            {"trainer": {**SECTION, "precision": None}, "precision": "bf16-mixed"},
            None,
            {**HANDED, "precision": "bf16-mixed"},
        ),
        ({"trainer": "ddp", "max_steps": 3}, None, {"max_steps": 3}),
        (SECTION, None, HANDED),
    ],
)
def test_the_options_of_a_section_are_handed_over(config, max_steps, options):
    assert trainer_options(config, max_steps) == options


def test_two_values_for_one_option_are_refused_by_name():
    with pytest.raises(
        InvalidValue, match=r"config\.precision: expected that of trainer\.precision, '32-true'; got '16-mixed'"
    ):
        trainer_options({"trainer": SECTION, "precision": "16-mixed"})
