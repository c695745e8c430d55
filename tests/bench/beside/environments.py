"""A virtual environment for each tool that is measured: none of them moves another one's packages."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "watcherml": [str(ROOT)],
    "mlflow": ["mlflow"],
    "wandb": ["wandb"],
    "tensorboard": ["tensorboard"],
    "aim": ["aim"],
    "trackio": ["trackio"],
    # The cap keeps the download small, as in README.
    "finders": [str(ROOT), "torch<2.14", "numpy", "accelerate", "lightning"],
}


def python_of(name: str, folder: Path) -> str:
    """Return the interpreter of a tool's environment, which is made on first use; the bare loop has ours."""
    if name == "bare":
        return sys.executable
    python = folder / name / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        print(f"installing {' '.join(PACKAGES[name])}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES[name]], check=True)
    elif str(ROOT) in PACKAGES[name]:  # the code may have changed since
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(ROOT)], check=True
        )
    return str(python)
