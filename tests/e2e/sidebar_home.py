"""The sidebar as this tree has it, in the folders of a JupyterLab: one that is installed may be older."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def provide(config_folder, data_folder):
    """Put assets and server extension where a JupyterLab with these folders looks first."""
    extensions = Path(data_folder, "labextensions")
    extensions.mkdir(parents=True, exist_ok=True)
    (extensions / "watcherml-lab").symlink_to(ROOT / "watcherml" / "labextension", target_is_directory=True)
    settings = Path(config_folder, "jupyter_server_config.d")
    settings.mkdir(parents=True, exist_ok=True)
    given = json.loads((ROOT / "extension" / "jupyter-config" / "watcherml.json").read_text("utf-8"))
    (settings / "watcherml.json").write_text(json.dumps(given))
