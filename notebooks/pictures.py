"""Draw README's pictures from what notebook 01 shows: ``python notebooks/pictures.py``.

The panels are those of a real run, as ``notebooks/execute.py`` left them in the notebook. Needs Chromium and playwright.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "01_recover_an_oom.ipynb"
# What is cut out of the notebook, by its class, and how much of it fits into a page of README, in pixels.
PICTURES = {"failure": 470, "verdict": 470}
WIDTH, MARGIN = 900, 16
PAGE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: %dpx; width: %dpx; background: #fff; color: #1c1c1c;
       font: 14px/1.45 "DejaVu Sans", system-ui, sans-serif; }
</style>%s"""


def face(css: str) -> str:
    """Return the HTML of the notebook's panel with a class; ``SystemExit`` if the notebook has none."""
    import nbformat

    notebook = nbformat.read(str(NOTEBOOK), as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            html = output.get("data", {}).get("text/html", "")
            if f'class="wml-{css}"' in html:
                return str(html)
    raise SystemExit(f"{NOTEBOOK.name} shows no {css} panel: run `python notebooks/execute.py 01` first")


def main() -> None:
    """Write one PNG a panel into ``notebooks/pictures/``."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("there is no Chromium: apt-get install chromium fonts-dejavu-core")
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, height in PICTURES.items():
            page = browser.new_page(viewport={"width": WIDTH + 2 * MARGIN, "height": height}, device_scale_factor=1.5)
            page.set_content(PAGE % (MARGIN, WIDTH, face(name)))
            page.screenshot(path=str(folder / f"{name}.png"))
            sys.stdout.write(f"{folder / name}.png\n")
        browser.close()


if __name__ == "__main__":
    main()
