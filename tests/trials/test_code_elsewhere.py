"""What a trial names as its code: whatever it loaded and no package brought, wherever that lies and however it came."""

import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import plan as make_plan
from builders import request as make_request

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.protocol.request import Launch
from watcherml.sealed.device import Device
from watcherml.trials.check_entrypoint import check_entrypoint
from watcherml.trials.runner import LocalExecutor

PLAN = make_plan(device=Device("none"))
ENTRYPOINT = TrainingEntrypoint("ent:train")
ENT = """
import importlib.machinery, importlib.util, pathlib, sys, types
import linked.inner, one_link, json, colorsys

ROOT = pathlib.Path(__file__).parent
sys.path += [str(ROOT / "code.zip"), str(ROOT.parent / "shared"), str(ROOT.parent / "target")]
import zipped, editable, brought, dated_ahead, own_beside_packages

class Unready:
    def __getattr__(self, name):
        raise RuntimeError(f"not ready to tell {name}")

spec = importlib.util.find_spec("needs_a_display")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["needs_a_display"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["needs_a_display"])
sys.modules["unready"] = Unready()
sys.path += [str(ROOT.parent / "current"), str(ROOT.parent / "odd\\udcff")]
import by_a_link, in_an_odd_folder

def run(name):
    spec = importlib.util.spec_from_file_location("conf", ROOT / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

def train(config, max_steps=None):
    (ROOT.parent / "shared" / "generated.py").write_text("VALUE = %d" % config["batch_size"])
    import generated
    (ROOT / "made_inside.py").write_text("VALUE = %d" % config["batch_size"])
    import made_inside
    sys.path.append(str(ROOT.parent / "late_packages"))
    import late_package
    run("by_path.py")
    loader = importlib.machinery.SourceFileLoader("odd", str(ROOT / "odd.txt"))
    loader.exec_module(types.ModuleType("odd"))
    late = ROOT.parent / "shared" / "late.py"
    import late as _
    late.write_text("VALUE = 2")
    return {"steps_completed": 5}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A trial of such an entrypoint, and what was sealed of it before."""
    home = tmp_path_factory.mktemp("code")
    project, shared, target = home / "project", home / "shared", home / "target"
    for folder in (project, shared / "inner_of_a_link", target / "brought-1.0.dist-info",
                   home / "release-1", home / "late_packages" / "late-1.0.dist-info"):  # fmt: skip
        folder.mkdir(parents=True)
    files = {
        "project/ent.py": ENT, "project/by_path.py": "", "project/odd.txt": "", "shared/editable.py": "",
        "shared/inner_of_a_link/inner.py": "", "shared/for_a_link.py": "", "shared/late.py": "VALUE = 1",
        "shared/dated_ahead.py": "", "target/brought.py": "",
        "project/needs_a_display.py": "raise ImportError('no display')", "release-1/by_a_link.py": "",
        "late_packages/late_package.py": "",
        "late_packages/late-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: late\nVersion: 1.0\n",
        "target/own_beside_packages.py": "", "target/brought-1.0.dist-info/RECORD": "brought.py,,\n",
    }  # fmt: skip
    for name, text in files.items():
        (home / name).write_text(text)
    odd = os.fsdecode(os.fsencode(home) + b"/odd\xff")
    os.mkdir(odd)
    (Path(odd) / "in_an_odd_folder.py").write_text("")
    (home / "current").symlink_to(home / "release-1")
    (project / "linked").symlink_to(shared / "inner_of_a_link")
    (project / "one_link.py").symlink_to(shared / "for_a_link.py")
    with zipfile.ZipFile(project / "code.zip", "w") as archive:
        archive.writestr("zipped.py", "")
    ahead = time.time() + 3_600  # an archive that was unpacked in another time zone
    os.utime(shared / "dated_ahead.py", (ahead, ahead))
    sealed = check_entrypoint(ENTRYPOINT, project)
    request = make_request(PLAN, "probe", 1, "batch-32x2", entrypoint=ENTRYPOINT)
    executor = LocalExecutor(home / "store")
    executor.submit(request, Launch(request.digest, "demo", str(project), str(home / "store"), sys.executable, None))
    while (result := executor.poll(request.trial_id)) is None:
        time.sleep(0.02)
    assert result.outcome == "completed", result.sentence
    packages = (sealed.environment_fingerprint, result.identity.environment_fingerprint)
    return SimpleNamespace(sealed=set(sealed.code.files), files=dict(result.identity.code.files), packages=packages)


@pytest.mark.parametrize(
    "name",
    ["ent.py", "by_path.py", "odd.txt", "linked/inner.py", "one_link.py", "code.zip", "../shared/editable.py",
     "../shared/late.py", "../shared/dated_ahead.py", "../target/own_beside_packages.py", "module late",
     "made: ../shared/generated.py", "made: made_inside.py", "../current/by_a_link.py", "module by_a_link",
     "../late_packages/late_package.py", r"../odd\udcff/in_an_odd_folder.py"],
)  # fmt: skip
def test_what_was_loaded_and_no_package_brought_is_compared_between_trials(ran, name):
    assert name in ran.files


def test_packages_the_library_and_what_the_trial_made_itself_are_not(ran):
    assert [name for name in ran.files if name.endswith(("brought.py", "colorsys.py", "__init__.py"))] == []
    assert [name for name in ran.files if "generated" in name] == ["made: ../shared/generated.py", "module generated"]
    assert [name for name in ran.files if "site-packages" in name or "watcherml" in name] == []


def test_a_file_outside_counts_as_it_was_when_it_was_loaded(ran):
    assert ran.files["../shared/late.py"] == f"sha256:{hashlib.sha256(b'VALUE = 1').hexdigest()}"


def test_what_lies_outside_is_compared_and_not_sealed(ran):
    # A plan may be started where another editor, debugger or notebook has other helpers on its path.
    assert ran.sealed == {"ent.py", "linked/inner.py", "one_link.py", "code.zip", "needs_a_display.py"}


def test_packages_that_training_adds_to_its_path_change_no_fingerprint(ran):
    # To import setuptools does so; where a control dies before, it would have other packages than the rest.
    assert ran.packages[0] == ran.packages[1]


def test_a_project_inside_a_folder_of_packages_is_a_project(tmp_path):
    project = tmp_path / "site-packages" / "project"
    project.mkdir(parents=True)
    (project / "ent.py").write_text("def train(config, max_steps=None): return {}")
    assert set(check_entrypoint(ENTRYPOINT, project).code.files) == {"ent.py"}
