"""A ZIP from outside: what is refused, with the reason, and what a manifest finds."""

import hashlib
import io
import json
import random
import re
import stat
import struct
import zipfile
import zlib
from contextlib import nullcontext

import pytest

from watcherml.errors import InvalidRecord, InvalidValue, WatcherError
from watcherml.store import archive
from watcherml.store.archive import Archive

TEXT = b'{"some": "text"}' * 20


def packed(members, method=zipfile.ZIP_DEFLATED, change=None):
    """Return a ZIP's bytes; ``change`` gets each ZipInfo before it is written."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as target:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.filename = name  # ZipInfo cuts at NUL and turns separators; an attacker does not
            info.compress_type = method
            if change:
                change(info)
            target.writestr(info, data)
    return stream.getvalue()


def opened(data):
    return Archive(io.BytesIO(data), "bundle.zip")


def read_all(data):
    found = opened(data)
    found.check()
    return {name: found.read(name) for name in found.names}


def manifest_of(members, **changes):
    files = {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in members}
    files.update(changes)
    return ("manifest.json", json.dumps({"files": files, "made_by": "a test"}).encode())


def refused(data, words):
    with pytest.raises(InvalidValue) as caught:
        read_all(data)
    error = caught.value
    assert re.search(words, f"{error.message} {error.expected} {error.got}"), str(error)
    assert error.expected and error.got and error.remedy and error.message.startswith("bundle.zip")


def test_files_come_back_as_they_were_and_folders_are_left_out():
    data = packed([("a/", b""), ("a/one.json", TEXT), ("zwei-ü.bin", b""), ("stored", b"x")])
    assert read_all(data) == {"a/one.json": TEXT, "zwei-ü.bin": b"", "stored": b"x"}
    assert read_all(packed([])) == {}
    assert read_all(packed([("a", TEXT)], zipfile.ZIP_STORED)) == {"a": TEXT}


def test_a_comment_is_no_obstacle():
    stream = io.BytesIO(packed([("a", TEXT)]))
    with zipfile.ZipFile(stream, "a") as target:
        target.comment = b"0123456789abcdef"
    assert read_all(stream.getvalue()) == {"a": TEXT}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../escape", "way out"),
        ("a/../../escape", "way out"),
        ("a/..", "way out"),
        ("..", "way out"),
        ("/etc/passwd", "absolute"),
        ("//server/share", "absolute"),
        ("C:/windows", "drive letter"),
        ("c:relative", "drive letter"),
        ("..\\escape", "backslash"),
        ("a\\b", "backslash"),
        ("a//b", "empty part"),
        ("./a", "empty part"),
        ("a\nb", "control character"),
        ("a\x1b[31m", "control character"),
        ("x" * 1_001, "1000 bytes"),
    ],
)
def test_a_name_that_leaves_the_archive_is_refused(name, words):
    refused(packed([("good", TEXT), (name, TEXT)]), words)


def test_a_name_with_a_nul_byte_is_judged_whole():
    data = packed([("aXevil", TEXT)]).replace(b"aXevil", b"a\0evil")
    refused(data, "control character|differ")


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a", "A"), ("stra\u00dfe", "STRASSE"), ("a", "a/"),
                                               ("\u00e9", "e\u0301")])  # fmt: skip
def test_a_name_that_stands_twice_is_refused(first, second):
    with pytest.warns(UserWarning, match="Duplicate") if first == second else nullcontext():
        data = packed([(first, TEXT), (second, b"")])
    refused(data, "each name once")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
@pytest.mark.parametrize("system", [0, 3])
def test_links_and_special_files_are_refused(mode, system):
    def change(info):
        info.external_attr = (mode | 0o777) << 16
        info.create_system = system

    refused(packed([("link", b"/etc/passwd")], change=change), "symbolic link|special file")


def test_an_encrypted_member_is_refused():
    data = bytearray(packed([("a", TEXT)]))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    refused(bytes(data), "encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_than_stored_and_deflated_are_refused(method):
    refused(packed([("a", TEXT)], method), "stored or deflated")


def test_too_many_members_are_refused_before_any_is_looked_at(monkeypatch):
    refused(packed([(str(number), b"") for number in range(archive.MAX_MEMBERS + 1)]), "10000 members")
    assert len(read_all(packed([(str(number), b"") for number in range(archive.MAX_MEMBERS)]))) == archive.MAX_MEMBERS
    data = bytearray(packed([(str(number), b"") for number in range(40)]))
    monkeypatch.setattr(archive, "MAX_MEMBERS", 30)
    end = data.rindex(b"PK\x05\x06")
    struct.pack_into("<HH", data, end + 8, 3, 3)  # an end that lies about the count
    refused(bytes(data), "30 members")


def test_a_directory_too_large_to_build_is_refused(monkeypatch):
    monkeypatch.setattr(archive, "MAX_DIRECTORY_BYTES", 100)
    refused(packed([(str(number), b"") for number in range(5)]), "directory of at most 100")


def test_a_bomb_is_refused_by_its_ratio():
    refused(packed([("zeros", bytes(20 * 2**20))]), "1000 times")


def test_a_member_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 1_000)
    refused(packed([("a", random.Random(1).randbytes(1_001))]), "at most 1000 bytes")
    assert len(read_all(packed([("a", random.Random(1).randbytes(1_000))]))["a"]) == 1_000


def test_too_much_in_all_is_refused(monkeypatch):
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 2_500)
    noise = random.Random(1).randbytes(1_000)
    assert len(read_all(packed([("a", noise), ("b", noise)]))) == 2
    refused(packed([("a", noise), ("b", noise), ("c", noise)]), "2500 bytes in all")


def test_an_archive_too_large_is_refused_unread(monkeypatch):
    monkeypatch.setattr(archive, "MAX_ARCHIVE_BYTES", 100)
    refused(packed([("a", random.Random(1).randbytes(200))]), "at most 100 bytes")


def lie(data, **sizes):
    """Change what both headers of the only member say: crc, compress, size."""
    data = bytearray(data)
    for signature, start in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        at = data.index(signature) + start
        for number, key in enumerate(("crc", "compress", "size")):
            if key in sizes:
                struct.pack_into("<L", data, at + 4 * number, sizes[key])
    return bytes(data)


def test_sizes_in_headers_are_not_believed(monkeypatch):
    noise = random.Random(1).randbytes(5_000)
    data = packed([("a", noise)])
    refused(lie(data, size=10), "10 bytes, as its header says")
    # A checksum made for the part that a trusting reader would see.
    refused(lie(data, size=10, crc=zlib.crc32(noise[:10])), "undamaged|as its header says")
    refused(lie(data, size=6_000), "6000 bytes, as its header says")
    refused(lie(data, compress=2**31), "fit in|packed bytes")
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 1_000)
    refused(lie(data, size=10), "at most 1000 bytes")
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 10_000)
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 1_000)
    refused(lie(data, size=10), "1000 bytes in all")


def test_a_bomb_that_claims_to_be_small_is_stopped_while_it_unfolds():
    data = packed([("zeros", bytes(64 * 2**20))])
    found = opened(lie(data, size=10))
    produced = 0
    with pytest.raises(InvalidValue, match="1000 times"):
        for chunk in found.chunks("zeros"):
            produced += len(chunk)
    assert produced <= archive.MAX_RATIO * len(data) + 2**16


def test_damage_is_refused():
    data = bytearray(packed([("a", random.Random(1).randbytes(2_000))], zipfile.ZIP_STORED))
    data[100] ^= 1
    refused(bytes(data), "CRC")
    refused(lie(packed([("a", TEXT)]), crc=1), "CRC")


@pytest.mark.parametrize("data", [b"", b"PK", b"PK\x05\x06", b"PK\x03\x04" + bytes(50), b"x" * 70_000, b"{}"])
def test_what_is_no_archive_is_refused(data):
    refused(data, "ZIP archive")


def test_a_torn_archive_and_one_with_something_behind_it_are_refused():
    data = packed([("a", TEXT)])
    for end in range(len(data)):
        with pytest.raises(InvalidValue):
            read_all(data[:end])
    refused(data + b"more", "nothing after|directory")


def test_a_zip64_directory_is_refused(monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    refused(packed([("a", TEXT), ("b", TEXT)]), "ZIP64")


def test_whatever_one_byte_is_changed_to_only_our_errors_come_out():
    chance = random.Random(7)
    members = [("a/one.json", TEXT), ("two", b"x" * 300)]
    whole = packed([*members, manifest_of(members)])
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            read_all(bytes(data))
        except WatcherError:
            pass


# -- the manifest ---------------------------------------------------------------------------------------------------

MEMBERS = [("a/one.json", TEXT), ("two.bin", b"12345")]


def test_a_manifest_that_fits_finds_nothing_and_none_at_all_neither():
    assert opened(packed([*MEMBERS, manifest_of(MEMBERS)])).check() == []
    assert opened(packed(MEMBERS)).check() == [] and opened(packed(MEMBERS)).manifest() is None


def test_a_member_that_is_missing_more_longer_or_other_is_named():
    listed = manifest_of(MEMBERS)
    assert opened(packed([MEMBERS[0], listed])).check() == [
        ("two.bin", "a member that the manifest lists", "no such member")
    ]
    assert opened(packed([*MEMBERS, ("three", b"3"), listed])).check() == [
        ("three", "only members that the manifest lists", "one more")
    ]
    ((name, expected, got),) = opened(packed([MEMBERS[0], ("two.bin", b"123456"), listed])).check()
    assert (name, expected, got) == ("two.bin", "5 bytes", "6 bytes")
    ((name, expected, got),) = opened(packed([MEMBERS[0], ("two.bin", b"12346"), listed])).check()
    assert name == "two.bin" and hashlib.sha256(b"12345").hexdigest() in expected
    assert got == hashlib.sha256(b"12346").hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"files": []}',
        b'{"files": {"a": "b"}}',
        b'{"files": {"a": {"sha256": "00", "size": 1}}}',
        b'{"files": {"a": {"size": 1}}}',
        b'{"files": {"a": {"sha256": "' + b"0" * 64 + b'", "size": true}}}',
        b'{"files": {"a": {"sha256": "' + b"0" * 64 + b'", "size": -1}}}',
        b'{"files": {"a": {"sha256": "' + b"0" * 64 + b'", "size": 1, "more": 2}}}',
        b'{"files": {}, "files": {}}',
        b"\xff\xfe",
    ],
)
def test_a_manifest_of_another_shape_is_refused(text):
    with pytest.raises(InvalidRecord, match=r"manifest\.json"):
        opened(packed([("manifest.json", text)])).check()
