"""A section ``trainer`` of a configuration reaches the Trainer, or what a recovery changed in it would be lost."""

import pytest

from watcherml.adapters.lightning import trainer_options

SECTION = {"accumulate_grad_batches": 4, "max_steps": 6, "precision": "32-true", "devices": 1}
HANDED = {"accumulate_grad_batches": 4, "max_steps": 6, "precision": "32-true"}


@pytest.mark.parametrize(
    ("config", "max_steps", "options"),
    [
        ({"trainer": SECTION, "data": {"batch_size": 8}}, None, HANDED),
        ({"trainer": SECTION}, 2, {**HANDED, "max_steps": 2}),
        ({"trainer": SECTION, "max_steps": 3}, 30, {**HANDED, "max_steps": 3}),
        ({"trainer": "ddp", "max_steps": 3}, None, {"max_steps": 3}),
        (SECTION, None, HANDED),
    ],
)
def test_the_options_of_a_section_are_handed_over(config, max_steps, options):
    assert trainer_options(config, max_steps) == options
