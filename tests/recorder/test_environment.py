"""Installed packages: what counts, what is named, what it costs, and the requirements file made from it."""

import json
import os
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from watcherml.recorder import environment
from watcherml.sealed.canonical import canonical_bytes


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path that stands in for site-packages, and nothing else on it but the standard library."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *(path for path in sys.path if "packages" not in path)])
    monkeypatch.chdir(tmp_path)
    return folder


def install(folder, name, version, *, info=None, direct=None, metadata=None):
    path = folder / (info or f"{name.replace('-', '_')}-{version}.dist-info")
    path.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: x\n\nName: none\nVersion: of these\n"
    (path / "METADATA").write_text(text if metadata is None else metadata)
    if direct is not None:
        (path / "direct_url.json").write_text(direct if isinstance(direct, str) else json.dumps(direct))
    # A folder's time of change may be as coarse as a tick of the clock.
    os.utime(folder, ns=(0, os.stat(folder).st_mtime_ns + 1_000_000))
    return path


COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIRECT = {
    "editable": ({"url": "file:///home/somebody/code", "dir_info": {"editable": True}}, "editable", None),
    "folder": ({"url": "file:///home/somebody/code", "dir_info": {}}, "folder", None),
    "vcs": (
        {"url": "https://user:pass@host.example/a/b?token=x#y", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        f"vcs git {COMMIT}",
        f"git+https://host.example/a/b@{COMMIT}",
    ),
    "ssh": (
        {"url": "ssh://git@host.example:22/a/b", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        f"vcs git {COMMIT}",
        f"git+ssh://host.example:22/a/b@{COMMIT}",
    ),
    "local repository": (
        {"url": "file:///home/somebody/code", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        f"vcs git {COMMIT}",
        None,
    ),
    "archive": (
        {"url": "https://host.example/a.whl", "archive_info": {"hashes": {"sha256": "ab" * 32}}},
        "archive sha256=" + "ab" * 32,
        "https://host.example/a.whl",
    ),
    "old archive": ({"url": "file:///tmp/a.whl", "archive_info": {"hash": "sha256=ab"}}, "archive sha256=ab", None),
    "broken": ("{not json", "unreadable direct_url.json", None),
    "a list": ([], "unreadable direct_url.json", None),
    "nulls": ({"url": None, "vcs_info": None}, "unreadable direct_url.json", None),
}


@pytest.mark.parametrize("case", DIRECT)
def test_what_did_not_come_from_an_index_is_named_without_paths_and_passwords(case, site):
    direct, source, url = DIRECT[case]
    install(site, "thing", "1.0", direct=direct)
    facts = environment.collect()
    assert facts["packages"] == {"thing": "1.0"} and facts["sources"] == {"thing": source}
    assert facts["urls"].get("thing") == url
    text = canonical_bytes(facts).decode() + environment.requirements(facts)
    assert "somebody" not in text and "pass" not in text and "token" not in text


def test_names_are_normalized_and_local_versions_named(site):
    install(site, "Some_Thing.Else--x", "2.0")
    install(site, "torch", "2.4.0+cu121")
    facts = environment.collect()
    assert facts["packages"] == {"some-thing-else-x": "2.0", "torch": "2.4.0+cu121"}
    assert facts["local_versions"] == {"torch": "cu121"} and environment.packages() == facts["packages"]


def test_of_two_versions_the_first_on_the_path_counts_and_both_are_named(site, tmp_path, monkeypatch):
    other = tmp_path / "other-site"
    other.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(other)])
    install(site, "thing", "1.0")
    install(other, "thing", "2.0")
    install(other, "same", "1.0")
    install(site, "same", "1.0")
    facts = environment.collect()
    assert facts["packages"] == {"same": "1.0", "thing": "1.0"} and facts["duplicates"] == {"thing": ["1.0", "2.0"]}


def test_leftovers_in_one_folder_have_the_same_answer_on_every_file_system(site):
    names = ("a", "b", "c", "d", "e", "f")
    for name in names:
        for version in ("1.0", "3.0", "2.0"):
            install(site, name, version)
    facts = environment.collect()
    assert facts["packages"] == dict.fromkeys(names, "3.0")
    assert facts["duplicates"] == {name: ["1.0", "2.0", "3.0"] for name in names}


def test_broken_installations_are_named_and_do_no_harm(site):
    install(site, "good", "1.0")
    (site / "~umpy-1.0.dist-info").mkdir()
    (site / "file-1.0.dist-info").write_text("")
    install(site, "x", "1", info="nameless-1.0.dist-info", metadata="Version: 1.0\n\n")
    install(site, "x", "1", info="binary-1.0.dist-info", metadata="\0\1\2")
    (install(site, "x", "1", info="folder-1.0.dist-info") / "METADATA").unlink()
    (site / "folder-1.0.dist-info" / "METADATA").mkdir()
    latin = install(site, "latin", "1.0")
    (latin / "METADATA").write_bytes(b"Name: latin\nVersion: 1.0\nAuthor: caf\xe9\n\n")
    facts = environment.collect()
    assert facts["packages"]["good"] == "1.0"
    assert {"~umpy-1.0.dist-info", "nameless-1.0.dist-info", "binary-1.0.dist-info"} <= set(facts["broken"])
    assert not any("/" in name for name in facts["broken"])


def test_eggs_and_old_metadata_count(site):
    egg = site / "older.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: older\nVersion: 0.1\n")
    (site / "oldest-0.2.egg-info").write_text("Metadata-Version: 1.0\r\nName: oldest\r\nVersion: 0.2\r\n\r\nText\r\n")
    os.utime(site, ns=(0, 1))
    assert environment.packages() == {"older": "0.1", "oldest": "0.2"}


def test_the_same_as_the_standard_library_finds():
    from importlib import metadata

    found = environment.packages()
    assert len(found) > 5
    assert {name: metadata.version(name) for name in found} == found


def test_a_new_package_is_seen_by_the_same_process(site):
    install(site, "one", "1.0")
    before = environment.collect()
    assert environment.collect() == before
    install(site, "two", "1.0")
    after = environment.collect()
    assert after["packages"] == {"one": "1.0", "two": "1.0"} and after["fingerprint"] != before["fingerprint"]


def test_what_is_returned_may_be_changed_by_its_reader(site):
    install(site, "one", "1.0", direct=DIRECT["vcs"][0])
    for key in ("packages", "sources", "urls"):
        environment.collect()[key].clear()
    assert environment.collect()["packages"] == environment.packages() == {"one": "1.0"}
    assert environment.collect()["sources"]


def test_the_fingerprint_follows_commit_and_version_and_not_the_place(site):
    def after(**change):
        install(site, "thing", **{"version": "1.0", **change})
        return environment.collect()["fingerprint"]

    base = after(direct=DIRECT["vcs"][0])
    mirror = {**DIRECT["vcs"][0], "url": "https://mirror.example/b"}
    assert after(direct=mirror) == base
    assert after(direct={**mirror, "vcs_info": {"vcs": "git", "commit_id": "f" * 40}}) != base
    assert after(direct=DIRECT["editable"][0]) != base
    moved = {"url": "file:///elsewhere", "dir_info": {"editable": True}}
    assert after(direct=DIRECT["editable"][0]) == after(direct=moved)


def test_a_fresh_process_has_the_same_fingerprint():
    code = "from watcherml.recorder import environment; print(environment.collect()['fingerprint'])"
    done = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert done[0].stdout == done[1].stdout != ""


# -- requirements ---------------------------------------------------------------------------------------------


def test_requirements_are_pinned_sorted_and_references_are_comments(site):
    install(site, "zeta", "1.0")
    install(site, "Alpha", "2.0")
    install(site, "torch", "2.4.0+cpu")
    install(site, "mine", "0.1", direct=DIRECT["editable"][0])
    install(site, "theirs", "0.2", direct=DIRECT["vcs"][0])
    lines = environment.requirements(environment.collect()).splitlines()
    assert lines[0].startswith("# Python 3.") and lines[1:] == [
        "alpha==2.0",
        "# mine==0.1  (editable)",
        f"# theirs @ git+https://host.example/a/b@{COMMIT}  (0.2, vcs git {COMMIT})",
        "torch==2.4.0+cpu  # local version, from an index of its own",
        "zeta==1.0",
    ]


def test_requirements_from_foreign_facts_cannot_hold_an_option():
    bad = {
        "--index-url": "https://evil.example", "a\n--extra-index-url=x": "1", "ok": "1\n-r /etc/passwd", "good": "1.0",
        "x @ https://evil.example/x.whl": "1", "e": "1 ; python_version<'4'", "": "", "-r": "x",
    }  # fmt: skip
    facts = {"packages": bad, "sources": {"good": "a\nb"}, "urls": {"good": "x\n-e ."}, "python": "3\n-r x"}
    text = environment.requirements(facts)
    assert [line for line in text.splitlines() if not line.startswith("#")] == []
    assert len(text.splitlines()) == len(bad) + 1


def test_requirements_of_facts_of_an_earlier_version():
    text = environment.requirements({"python": "3.11.2", "packages": {"b": "1", "a": "2"}})
    assert text.splitlines()[1:] == ["a==2", "b==1"]
    assert environment.requirements({}).startswith("# Python")
    assert environment.requirements({"packages": None, "sources": 3}).count("\n") == 1


def test_pip_reads_the_requirements(site):
    for name, version in {"a-b": "1.0.post1", "c": "2!1.0rc1+local.1"}.items():
        install(site, name, version)
    lines = environment.requirements(environment.collect()).splitlines()
    read = {str(Requirement(line.partition("  #")[0])) for line in lines if not line.startswith("#")}
    assert {"a-b==1.0.post1", "c==2!1.0rc1+local.1"} <= read
