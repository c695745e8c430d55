"""Secrets leave a patch; binary parts, line endings and the number of lines stay."""

import os
import re
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watcherml.recorder.patch import redact_patch

SECRET = "hf_" + "Ab12" * 8
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\nMIIdef\n-----END RSA PRIVATE KEY-----\n"


def redact(text):
    """A stand-in of the same shape as the real rules: one within a line, one over several."""
    text = re.sub(r"-----BEGIN .*?(?:-----END [A-Z ]*KEY-----|\Z)", "[redacted:00000001]", text, flags=re.DOTALL)
    return text.replace(SECRET, "[redacted:00000002]")


def git(folder, *arguments, **options):
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
        cwd=folder, check=True, capture_output=True, **options,
    ).stdout  # fmt: skip


def patch_between(folder, before, after):
    """The patch that git makes between two sets of files, in a repository that holds the first."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    for files in (before, after):
        for name, data in files.items():
            (folder / name).write_bytes(data)
        git(folder, "add", "-A")
        if files is before:
            git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return git(folder, "diff", "--cached", "HEAD", "--binary", "--full-index")


def applied(folder, patch):
    git(folder, "reset", "-q", "--hard")
    git(folder, "apply", "--whitespace=nowarn", "-", input=patch)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_patch_without_secrets_is_the_same_bytes(tmp_path):
    patch = patch_between(
        tmp_path,
        {"a.py": b"one\r\ntwo\n\nthree", "b.bin": bytes(range(256)), "l.txt": b"caf\xe9\n\x0b\x85\x0c\n"},
        {"a.py": b"one\r\n-- two\n++ x\n\nthree\r", "b.bin": bytes(range(255)), "l.txt": b"th\xe9\n\x0b\x85\x1d\n"},
    )
    assert redact_patch(patch, redact) == (patch, 0)
    assert redact_patch(b"", redact) == (b"", 0)


def test_a_secret_in_a_line_is_replaced_and_the_patch_applies(tmp_path):
    patch = patch_between(tmp_path, {"a.py": b"x\r\n"}, {"a.py": f"x\r\nkey = {SECRET}\r\ny\xe9".encode("latin-1")})
    cleaned, changed = redact_patch(patch, redact)
    assert changed == 1 and SECRET.encode() not in cleaned and cleaned.count(b"\n") == patch.count(b"\n")
    assert applied(tmp_path, cleaned)["a.py"] == b"x\r\nkey = [redacted:00000002]\r\ny\xe9"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_secret_of_many_lines_keeps_its_lines(tmp_path, end):
    text = f"a\n{KEY}b\n{KEY}{SECRET}\nc\n".replace("\n", end).encode()
    patch = patch_between(tmp_path, {}, {"key.txt": text})
    cleaned, changed = redact_patch(patch, redact)
    assert changed == 9 and b"MII" not in cleaned and SECRET.encode() not in cleaned
    lines = applied(tmp_path, cleaned)["key.txt"].decode().split(end)
    assert len(lines) == text.decode().count(end) + 1 and [lines[0], lines[5], lines[11]] == ["a", "b", "c"]


def test_a_secret_at_the_end_of_a_hunk_with_added_and_removed_lines(tmp_path):
    before = "a\nb\nc\nold 1\nold 2\nd\ne\n"
    after = "a\nb\nc\n" + "new\n" * 12 + f"d\n{KEY}e\n"
    patch = patch_between(tmp_path, {"t": before.encode()}, {"t": after.encode()})
    cleaned, changed = redact_patch(patch, redact)
    assert changed == 4 and b"MII" not in cleaned
    assert applied(tmp_path, cleaned)["t"].decode().splitlines()[-6:-4] == ["d", "[redacted:00000001]"]


def test_a_removed_secret_at_the_end_of_a_file(tmp_path):
    patch = patch_between(tmp_path, {"t": f"a\n{KEY}".encode()}, {"t": b"new\n" * 8 + b"a\n"})
    cleaned, _ = redact_patch(patch, redact)
    assert b"MII" not in cleaned and cleaned.count(b"\n") == patch.count(b"\n")


def test_a_key_with_one_changed_line_is_seen_in_the_old_and_the_new_file(tmp_path):
    patch = patch_between(tmp_path, {"k": KEY.encode()}, {"k": KEY.replace("abc", "xyz").encode()})
    cleaned, _ = redact_patch(patch, redact)
    assert b"MII" not in cleaned and cleaned.count(b"\n") == patch.count(b"\n")


def test_binary_parts_stay_even_where_they_look_like_a_secret(tmp_path):
    patch = patch_between(tmp_path, {}, {"b.bin": os.urandom(5000), "t.txt": SECRET.encode()})
    cleaned, changed = redact_patch(patch, lambda text: re.sub(r"[A-Za-z0-9]{6,}", "[redacted]", text))
    start, end = patch.index(b"GIT binary patch"), patch.index(b"diff --git a/t.txt")
    assert patch[start:end] in cleaned and changed >= 1
    applied(tmp_path, cleaned)


def test_secrets_in_names_and_in_the_heading_of_a_hunk_are_replaced(tmp_path):
    body = f"def f_{SECRET}():\n" + "".join(f"    x{n}\n" for n in range(30))
    patch = patch_between(tmp_path, {"a.py": body.encode()}, {"a.py": (body + "    y\n").encode(), SECRET: b"x"})
    assert patch.count(SECRET.encode()) >= 4
    assert SECRET.encode() not in redact_patch(patch, redact)[0]


def test_the_names_of_blobs_are_no_secrets(tmp_path):
    patch = patch_between(tmp_path, {"a": b"x\n"}, {"a": b"y\n"})
    index = next(line for line in patch.split(b"\n") if line.startswith(b"index "))
    assert index in redact_patch(patch, lambda text: re.sub(r"[0-9a-f]{40}", "[redacted]", text))[0]


WORDS = st.sampled_from(["a", "", SECRET, "-- b", "++ c", "@@ -1 +1 @@", "diff --git a/x b/x", "\r", *KEY.splitlines()])
TEXT = st.lists(WORDS, max_size=14).map(lambda words: "\n".join(words).encode())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TEXT, after=TEXT)
def test_whatever_the_text_the_patch_stays_well_formed(before, after, tmp_path_factory):
    patch = patch_between(tmp_path_factory.mktemp("repo"), {"a": before, "b": b"x"}, {"a": after, "b": b"y"})
    cleaned, changed = redact_patch(patch, redact)
    assert cleaned.count(b"\n") == patch.count(b"\n") and SECRET.encode() not in cleaned
    assert (changed == 0) == (cleaned == patch)
    # git reads it to the end: the counts in every header are right.
    assert git(tmp_path_factory.getbasetemp(), "apply", "--numstat", "-", input=cleaned).count(b"\n") >= 1
