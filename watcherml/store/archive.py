"""Reading a ZIP that somebody else made, trusting nothing that it says about itself.

A name may lead out of a folder, an entry may be a link, a header may lie about sizes, and a few kilobytes may unfold
into gigabytes. What the directory of the archive says is checked when it is opened; what is really there is counted
while it is read.

An archive may hold a ``manifest.json``: ``{"files": {NAME: {"sha256": 64 hexadecimal digits, "size": bytes}}}``, which
lists every other member. Keys beside ``files`` are the exporter's own.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.sealed.canonical import parse_json

MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 256 * 2**20
MAX_TOTAL_BYTES = 2**30
MAX_RATIO = 1_000  # unpacked bytes for one packed byte
MAX_DIRECTORY_BYTES = 16 * 2**20
MAX_NAME_BYTES = 1_000
MAX_MANIFEST_BYTES = 16 * 2**20
MANIFEST = "manifest.json"
STARTS = (b"PK\x03\x04", b"PK\x05\x06")  # of an archive, and of an empty one

_CHUNK_BYTES = 2**16
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE, _ZIP64_SIGNATURE = b"PK\x05\x06", b"PK\x06\x07"
_ZIP64_BYTES = 20
_MOST_COMMENT_BYTES = 2**16
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile and zlib raise over bytes that are not as the format wants them.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError)
_REMEDY = "Nothing of it was used; get a fresh copy from whoever made it."


class Listed(NamedTuple):
    """What a manifest says of one member: SHA-256 as 64 hexadecimal digits, size in bytes."""

    sha256: str
    size: int


class Archive:
    """The members of a ZIP, by name. ``stream`` has to be seekable and stay open; ``title`` stands in messages.

    Opening raises ``InvalidValue`` for what the directory already shows: names that leave the archive or stand twice,
    links, encryption, other methods than stored and deflated, and sizes, counts or ratios above the limits here.
    """

    def __init__(self, stream: BinaryIO, title: str = "the archive") -> None:
        self.title = title
        size = stream.seek(0, os.SEEK_END)
        self._check_end(stream, size)
        try:
            self._zip = zipfile.ZipFile(stream)
        except _BROKEN as error:
            raise self._refusal("", "a ZIP archive", str(error)) from None
        self._members = self._checked(self._zip.infolist(), size)
        self._counted: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The files in the archive, in their order; folders are left out."""
        return tuple(self._members)

    @property
    def infos(self) -> tuple[zipfile.ZipInfo, ...]:
        """What the directory says of every entry, folders included, in its order."""
        return tuple(self._zip.infolist())

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of one of ``names``, counted as they come.

        Raises ``InvalidValue`` where they are more or fewer than the directory says, beyond a limit, or damaged.
        """
        info = self._members[name]
        unlimited = copy.copy(info)
        # zipfile stops at the size that the header claims; this way it shows what is really there.
        unlimited.file_size = MAX_MEMBER_BYTES + 2 * _CHUNK_BYTES
        others = sum(self._counted.values()) - self._counted.get(name, 0)
        count = 0
        try:
            with self._zip.open(unlimited) as packed:
                while chunk := packed.read(_CHUNK_BYTES):
                    count += len(chunk)
                    self._check_size(name, count, info.compress_size)
                    self._check_total(others + count)
                    yield chunk
        except InvalidValue:
            raise
        except _BROKEN as error:
            raise self._refusal(name, "undamaged content", str(error) or type(error).__name__) from None
        if count != info.file_size:
            raise self._refusal(name, f"{info.file_size} bytes, as its header says", f"{count} bytes")
        self._counted[name] = count

    def read(self, name: str, limit: int = MAX_MEMBER_BYTES) -> bytes:
        """Return a member's bytes; raises as ``chunks`` does, and for more than ``limit`` bytes."""
        found = bytearray()
        for chunk in self.chunks(name):
            found += chunk
            if len(found) > limit:
                raise self._refusal(name, f"at most {limit} bytes", "more")
        return bytes(found)

    def manifest(self) -> dict[str, Listed] | None:
        """Return what ``manifest.json`` lists, None where there is none; ``InvalidRecord`` for another shape."""
        if MANIFEST not in self._members:
            return None
        files = self.document().get("files")
        if not isinstance(files, dict):
            raise InvalidRecord(f"{MANIFEST}.files", expected="an object of members", got=type(files).__name__)
        return {name: _listed(name, entry) for name, entry in files.items()}

    def document(self) -> dict[str, Any]:
        """Return the whole manifest, empty where there is none; ``InvalidRecord`` if it is no JSON object."""
        if MANIFEST not in self._members:
            return {}
        document = parse_json(self.read(MANIFEST, MAX_MANIFEST_BYTES), MANIFEST)
        if not isinstance(document, dict):
            raise InvalidRecord(MANIFEST, expected="an object", got=type(document).__name__)
        return document

    def check(self) -> list[tuple[str, str, str]]:
        """Read every member and compare with the manifest: (member, expected, got) for each difference.

        An archive without a manifest has no differences. Raises as ``chunks`` and ``manifest`` do.
        """
        found = {name: self._measured(name) for name in self._members if name != MANIFEST}
        listed = self.manifest()
        if listed is None:
            return []
        wrong = [(name, "a member that the manifest lists", "no such member") for name in listed.keys() - found.keys()]
        wrong += [(name, "only members that the manifest lists", "one more") for name in found.keys() - listed.keys()]
        for name in listed.keys() & found.keys():
            if listed[name].size != found[name].size:
                wrong.append((name, f"{listed[name].size} bytes", f"{found[name].size} bytes"))
            elif listed[name].sha256 != found[name].sha256:
                wrong.append((name, f"SHA-256 {listed[name].sha256}", found[name].sha256))
        return sorted(wrong)

    def _measured(self, name: str) -> Listed:
        digest, size = hashlib.sha256(), 0
        for chunk in self.chunks(name):
            digest.update(chunk)
            size += len(chunk)
        return Listed(digest.hexdigest(), size)

    def _check_end(self, stream: BinaryIO, size: int) -> None:
        # zipfile builds an object for each entry before anyone can count them, so the end is looked at first.
        if size > MAX_ARCHIVE_BYTES:
            raise self._refusal("", f"at most {MAX_ARCHIVE_BYTES} bytes", f"{size} bytes")
        length = min(size, _MOST_COMMENT_BYTES + _END.size)
        stream.seek(size - length)
        tail = stream.read(length)
        start = length - _END.size
        if not (start >= 0 and tail[start:].startswith(_END_SIGNATURE) and tail.endswith(b"\0\0")):
            start = tail.rfind(_END_SIGNATURE)
        if start < 0 or start + _END.size > length:
            raise self._refusal("", "a ZIP archive", "no directory at its end")
        _, _, _, _, entries, directory_bytes, _, comment_bytes = _END.unpack_from(tail, start)
        if start + _END.size + comment_bytes != length:
            raise self._refusal("", "nothing after the directory", "more bytes")
        if start >= _ZIP64_BYTES and tail[start - _ZIP64_BYTES :].startswith(_ZIP64_SIGNATURE):
            raise self._refusal("", f"at most {MAX_MEMBERS} members and no ZIP64 directory", "a ZIP64 directory")
        if entries > MAX_MEMBERS:
            raise self._refusal("", f"at most {MAX_MEMBERS} members", f"{entries} members")
        if directory_bytes > MAX_DIRECTORY_BYTES:
            raise self._refusal("", f"a directory of at most {MAX_DIRECTORY_BYTES} bytes", f"{directory_bytes} bytes")

    def _checked(self, found: list[zipfile.ZipInfo], size: int) -> dict[str, zipfile.ZipInfo]:
        if len(found) > MAX_MEMBERS:
            raise self._refusal("", f"at most {MAX_MEMBERS} members", f"{len(found)} members")
        members: dict[str, zipfile.ZipInfo] = {}
        seen: dict[str, str] = {}
        for info in found:
            # zipfile cuts a name at a NUL byte and turns separators; what stands in the file is judged.
            name = info.orig_filename
            self._check_entry(name, info)
            folded = unicodedata.normalize("NFC", name.rstrip("/")).casefold()
            if folded in seen:
                raise self._refusal(name, "each name once, upper and lower case alike", f"{seen[folded]!r:.120} too")
            seen[folded] = name
            if not name.endswith("/"):
                members[name] = info
        packed = sum(info.compress_size for info in found)
        if packed > size:
            raise self._refusal("", f"members that fit in {size} bytes", f"{packed} packed bytes")
        self._check_total(sum(info.file_size for info in found))
        return members

    def _check_entry(self, name: str, info: zipfile.ZipInfo) -> None:
        problem = _wrong_name(name)
        if problem:
            raise self._refusal(name, "a relative name inside the archive", problem)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            link = kind == stat.S_IFLNK
            raise self._refusal(name, "a plain file or a folder", "a symbolic link" if link else "a special file")
        if info.flag_bits & _ENCRYPTED:
            raise self._refusal(name, "a member without encryption", "an encrypted one")
        if info.compress_type not in _METHODS:
            raise self._refusal(name, "a member that is stored or deflated", f"method {info.compress_type}")
        if name.endswith("/") and info.file_size:
            raise self._refusal(name, "a folder without content", f"{info.file_size} bytes")
        self._check_size(name, info.file_size, info.compress_size)

    def _check_size(self, name: str, size: int, packed: int) -> None:
        if size > MAX_MEMBER_BYTES:
            raise self._refusal(name, f"at most {MAX_MEMBER_BYTES} bytes", "more")
        if size > MAX_RATIO * packed:
            raise self._refusal(name, f"at most {MAX_RATIO} times its {packed} packed bytes", f"{size} bytes or more")

    def _check_total(self, size: int) -> None:
        if size > MAX_TOTAL_BYTES:
            raise self._refusal("", f"at most {MAX_TOTAL_BYTES} bytes in all", f"{size} bytes or more")

    def _refusal(self, name: str, expected: str, got: str) -> InvalidValue:
        where = f"{self.title}: member {name!r:.120}" if name else self.title
        return InvalidValue(where, expected=expected, got=got, remedy=_REMEDY)


def _wrong_name(name: str) -> str:
    """Return what is wrong with a member's name, empty if it stays inside the folder it is unpacked to."""
    parts = name.removesuffix("/").split("/")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"a name of more than {MAX_NAME_BYTES} bytes"
    if name.startswith("/"):
        return "an absolute path"
    if re.match(r"[A-Za-z]:", name):
        return "a drive letter"
    if "\\" in name:
        return "a backslash"
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        return "a control character"
    if ".." in parts:
        return "a way out ('..')"
    return "an empty part" if "" in parts or "." in parts else ""


def _listed(name: str, entry: object) -> Listed:
    path = f"{MANIFEST}.files.{name[:200]}"
    if not isinstance(entry, dict) or set(entry) != {"sha256", "size"}:
        raise InvalidRecord(path, expected="an object with the keys sha256 and size", got=f"{entry!r:.120}")
    sha256, size = entry["sha256"], entry["size"]
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise InvalidRecord(f"{path}.sha256", expected="64 hexadecimal digits", got=f"{sha256!r:.120}")
    if type(size) is not int or size < 0:
        raise InvalidRecord(f"{path}.size", expected="a number of bytes", got=f"{size!r:.120}")
    return Listed(sha256, size)
