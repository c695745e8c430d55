"""The public names as a type checker sees them: each comes from where it is loaded from, and is exported."""

import ast
from pathlib import Path

import watcherml

SOURCE = Path(watcherml.__file__).read_text("utf-8")


def seen_by_a_type_checker():
    """Return (name, module it is imported from) for each re-export: ``from X import name as name`` and nothing else."""
    (block,) = [
        node for node in ast.parse(SOURCE).body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    for node in block.body:
        assert isinstance(node, ast.ImportFrom), f"line {node.lineno} exports nothing: use from X import name as name"
        for one in node.names:
            assert one.asname == one.name, f"line {node.lineno}: {one.name} is not exported"
            yield one.name, node.module


def test_every_public_name_is_exported_to_type_checkers_from_its_home():
    homes = {**watcherml._HOMES, **dict.fromkeys(watcherml._MODULES, "watcherml")}
    assert dict(seen_by_a_type_checker()) == homes
