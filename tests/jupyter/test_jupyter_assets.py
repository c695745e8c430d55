"""The built sidebar: up to date, without a trace of where it was built, in the wheel, and seen by JupyterLab."""

import json
import os
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import watcherml

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "watcherml" / "labextension"
SHARED = f"watcherml-{watcherml.__version__}.data/data/share/jupyter/labextensions/watcherml-lab"
CONFIG = f"watcherml-{watcherml.__version__}.data/data/etc/jupyter/jupyter_server_config.d/watcherml.json"
FILES = [path for folder in (ASSETS, ROOT / "extension" / "src") for path in folder.rglob("*") if path.is_file()]


def test_the_assets_are_built_from_the_sources_beside_them():
    sources = runpy.run_path(str(ROOT / "extension" / "sources.py"))
    of_sources, of_assets = sources["kept"]()
    assert sources["digest"]() == of_sources, "the sources of the sidebar have changed: CONTRIBUTING.md has its build"
    assert sources["assets"]() == of_assets, "the assets were edited or are of another build"


@pytest.mark.parametrize(
    "change", ["src/model.ts", "style/base.css", "package.json", "yarn.lock", "tsconfig.json", "new"]
)
def test_any_change_of_a_source_shows(tmp_path, change):
    for name in ("src", "style"):
        shutil.copytree(ROOT / "extension" / name, tmp_path / name)
    for name in ("package.json", "yarn.lock", "tsconfig.json", "sources.py"):
        shutil.copy(ROOT / "extension" / name, tmp_path)
    digest = runpy.run_path(str(tmp_path / "sources.py"))["digest"]
    before = digest()
    assert before == (ASSETS / "sources.sha256").read_text("ascii").split()[0]
    path = tmp_path / "src" / "new.ts" if change == "new" else tmp_path / change
    with path.open("a") as stream:
        stream.write("\n")
    assert digest() != before


def test_the_assets_are_whole_and_name_no_machine():
    package = json.loads((ASSETS / "package.json").read_text("utf-8"))
    source = json.loads((ROOT / "extension" / "package.json").read_text("utf-8"))
    assert package["name"] == source["name"] == watcherml._jupyter_labextension_paths()[0]["dest"]
    assert package["version"] == watcherml.__version__
    assert (ASSETS / package["jupyterlab"]["_build"]["load"]).is_file()
    assert "http" not in (ROOT / "extension" / "yarn.lock").read_text("utf-8")
    home = str(ROOT.parent).encode()
    assert len(FILES) > 10
    for path in FILES:
        content = path.read_bytes()
        assert len(home) < 3 or home not in content, path
        assert b"node_modules/@" not in content, path


def test_the_server_finds_the_extension_by_the_names_that_are_installed():
    given = json.loads((ROOT / "extension" / "jupyter-config" / "watcherml.json").read_text("utf-8"))
    assert given == {"ServerApp": {"jpserver_extensions": {"watcherml": True}}}
    (point,) = watcherml._jupyter_server_extension_points()
    from watcherml import jupyter

    assert point == {"module": jupyter.__name__} and callable(jupyter._load_jupyter_server_extension)
    install = json.loads((ROOT / "extension" / "install.json").read_text("utf-8"))
    assert install["packageName"] == "watcherml" and install["packageManager"] == "python"


# -- the wheel -------------------------------------------------------------------------------------------------------


def clean_copy(folder):
    """Copy what git has and what is new and not ignored, as a fresh clone would be after the next commit."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", ".", ":!tests", ":!notebooks"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(folder, kind="wheel"):
    """Build with the backend itself: no index is asked, and there is no node for it to find."""
    pytest.importorskip("hatchling", reason="the build backend is part of the extra `test`")
    out = folder / "built"
    code = f"import sys\nfrom hatchling import build\nprint(build.build_{kind}(sys.argv[1]))"
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    return build(clean_copy(tmp_path_factory.mktemp("clone")))


def check(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        for name in ("package.json", "install.json", "static/style.js"):
            assert f"{SHARED}/{name}" in names
        assert [one for one in names if one.startswith(f"{SHARED}/static/remoteEntry.")]
        assert json.loads(opened.read(CONFIG))["ServerApp"]["jpserver_extensions"] == {"watcherml": True}
        assert "watcherml/jupyter/handlers.py" in names and "watcherml/store/schema.sql" in names
        assert "watcherml/py.typed" in names, "type checkers ignore the annotations of a package without it"
        about = f"watcherml-{watcherml.__version__}.dist-info"
        assert f"{about}/licenses/LICENSE" in names
        scripts = opened.read(f"{about}/entry_points.txt").decode().split()
        assert "watcher=watcherml.cli.main:main" in "".join(scripts) and scripts[0] == "[console_scripts]"
        here = [str(path).encode() for path in (ROOT, Path.home(), Path(sys.prefix)) if len(path.parts) > 2]
        assert not [one for one in names for place in here if place in opened.read(one)]
    assert {one.split("/")[0] for one in names} == {"watcherml", about, about.replace("dist-info", "data")}
    assert not [
        one for one in names if one.startswith(("watcherml/labextension", "extension/")) or "node_modules" in one
    ]


def test_a_wheel_built_from_a_clean_clone_without_node_holds_the_sidebar_once(wheel):
    check(wheel)


@pytest.mark.long
def test_a_wheel_built_from_the_source_archive_holds_it_too(tmp_path):
    archive = build(clean_copy(tmp_path), "sdist")
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    check(build(next((tmp_path / "unpacked").iterdir())))


@pytest.mark.long
def test_jupyter_lists_the_extension_as_ok_after_the_wheel_is_installed(wheel, tmp_path):
    pytest.importorskip("jupyterlab")
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "JUPYTER"))}
    environment.update(HOME=str(tmp_path), JUPYTER_CONFIG_DIR=str(tmp_path / "config"))

    def run(*words):
        done = subprocess.run([python, *words], env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    run("-m", "pip", "install", "--no-deps", "--no-index", str(wheel))
    # JupyterLab is that of the tests; only what the wheel brought is new.
    place = run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    here = [one for one in sys.path if "site-packages" in one]
    Path(place, "of-the-tests.pth").write_text("\n".join(here))
    assert str(tmp_path) in run("-c", "import watcherml; print(watcherml.__file__)")

    listed = run("-c", "from jupyterlab.labextensions import main; main()", "list")
    line = next(one for one in listed.splitlines() if "watcherml-lab" in one)
    assert "enabled" in line and "OK" in line and f"v{watcherml.__version__}" in line, listed
    assert str(tmp_path / "fresh" / "share" / "jupyter" / "labextensions") in listed
    served = run("-m", "jupyter_server.extension.serverextension", "list")
    told = [line for line in served.splitlines() if line.split() and "watcherml" in line.split()[0]]
    assert len(told) == 2 and "enabled" in told[0] and "OK" in told[1], served
