"""Writing a ZIP whose bytes depend on its members alone, and checking that a ZIP has that form.

Members stand in the order of their names, with one fixed time, mode and compression level; ``manifest.json`` comes last
and is not compressed. It holds the SHA-256 and size of every member and, under ``packed``, the SHA-256 of the bytes as
they lie in the file: so the last bits of a compressed stream, which no reader looks at, are covered too. The headers
hold nothing but what follows from that, which ``irregularities`` checks byte by byte.

Members and manifest are the same on every machine; the compressed bytes are those of zlib's level 6 here.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from watcherml.errors import InvalidRecord, InvalidValue
from watcherml.store.archive import MANIFEST, MAX_RATIO, Archive

Source = bytes | Path
Problem = tuple[str, str, str]

LEVEL = 6
VERSION = 1
_TIME = (1980, 1, 1, 0, 0, 0)  # the first moment that a ZIP can name
_DOS_TIME, _DOS_DATE = 0, (1 << 5) | 1
_MODE = (stat.S_IFREG | 0o600) << 16
_UNIX, _ZIP_VERSION, _UTF8 = 3, 20, 0x800
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")
_END = struct.Struct("<4s4H2LH")
_CHUNK_BYTES = 2**20


class Written(NamedTuple):
    """A finished archive: where it is, its size, and its members with their sizes in bytes."""

    path: Path
    size_bytes: int
    members: dict[str, int]


def write_archive(
    target: Path, kind: str, members: Mapping[str, Source], *, overwrite: bool = False, **facts: Any
) -> Written:
    """Write a ZIP of ``members`` (bytes, or files whose bytes are copied) beside ``target`` and rename it there.

    ``kind`` and ``facts`` (plain JSON) stand in the manifest. Raises ``InvalidValue`` if the target exists, unless
    ``overwrite``, or cannot be written; then nothing is left behind.
    """
    if not overwrite:
        refuse_existing(target)
    try:
        with beside(target) as temporary:
            sizes = _write(temporary, kind, members, facts)
            _put_in_place(temporary, target, overwrite)
        return Written(target, target.stat().st_size, sizes)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise cannot_write(target, error) from None


def cannot_write(target: Path, error: Exception) -> InvalidValue:
    """Return the error that names the file and the system's reason."""
    return InvalidValue(
        "--out", expected="a file that can be written", got=f"{target}: {getattr(error, 'strerror', None) or error}"
    )


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Yield the name of a file beside ``target`` that is private to this call; it is gone afterwards."""
    temporary = target.parent / f".watcherml.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, kind: str, members: Mapping[str, Source], facts: Mapping[str, Any]) -> dict[str, int]:
    listed: dict[str, dict[str, Any]] = {}
    packed: dict[str, str] = {}
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w+b") as stream:
        with zipfile.ZipFile(stream, "w") as archive:
            for name in sorted(members):
                info, digest = _add(archive, name, members[name])
                listed[name] = {"sha256": digest, "size": info.file_size}
                packed[name] = _packed(stream, info)
            document = {"archive": kind, "version": VERSION, "files": listed, "packed": packed, **facts}
            _add(archive, MANIFEST, manifest_bytes(document), zipfile.ZIP_STORED)
        stream.flush()
        os.fsync(stream.fileno())
    return {name: entry["size"] for name, entry in listed.items()}


def manifest_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the manifest's one spelling."""
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode("ascii")


def _add(
    archive: zipfile.ZipFile, name: str, source: Source, method: int = zipfile.ZIP_DEFLATED
) -> tuple[zipfile.ZipInfo, str]:
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system, info.external_attr, info.compress_type = _UNIX, _MODE, method
    info._compresslevel = LEVEL  # type: ignore[attr-defined]  # `open` has no argument for it
    # Announced, so that only what is really large gets the header of large members.
    info.file_size = len(source) if isinstance(source, bytes) else source.stat().st_size
    digest = hashlib.sha256()
    with archive.open(info, "w") as packing:
        if isinstance(source, bytes):
            digest.update(source)
            packing.write(source)
        else:
            with source.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    packing.write(chunk)
    if method == zipfile.ZIP_DEFLATED and info.file_size > MAX_RATIO // 2 * info.compress_size:
        # A reader would take it for a bomb: taken back, and stored as it is.
        archive.filelist.remove(info)
        del archive.NameToInfo[name]
        archive.start_dir = info.header_offset
        return _add(archive, name, source, zipfile.ZIP_STORED)
    return info, digest.hexdigest()


def _packed(stream: IO[bytes], info: zipfile.ZipInfo) -> str:
    stream.seek(info.header_offset)
    name_bytes, extra_bytes = struct.unpack("<2H", stream.read(30)[26:])
    stream.seek(info.header_offset + 30 + name_bytes + extra_bytes)
    return _digest_of(stream, info.compress_size)


def _digest_of(stream: IO[bytes], size: int) -> str:
    digest, left = hashlib.sha256(), size
    while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def refuse_existing(target: Path) -> None:
    """Raise ``InvalidValue`` where something of that name exists."""
    if os.path.lexists(target):
        raise InvalidValue(
            "--out",
            expected="a name that is free",
            got=f"{target}, which exists",
            remedy="Choose another name, or pass --force to replace it.",
        )


def _put_in_place(temporary: Path, target: Path, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(temporary, target)  # unlike a rename, it never replaces what came there meanwhile
            return
        except FileExistsError:
            refuse_existing(target)
        except OSError:
            refuse_existing(target)  # a file system without links
    if target.is_dir():
        raise IsADirectoryError(21, "it is a folder", str(target))
    temporary.replace(target)


# -- the form ---------------------------------------------------------------------------------------------------------


def irregularities(stream: BinaryIO, archive: Archive) -> list[Problem]:
    """Compare an archive with the form that ``write_archive`` gives it: (member, expected, got) for each difference.

    ``stream`` is what ``archive`` was opened on. Raises ``InvalidRecord`` for a manifest of another shape.
    """
    packed = _packed_of(archive)
    found: list[Problem] = []
    infos = archive.infos
    names = [info.filename for info in infos]
    if names != [*sorted(name for name in names if name != MANIFEST), MANIFEST]:
        found.append((MANIFEST, "members in the order of their names, and the manifest last", "another order"))
    if manifest_bytes(archive.document()) != archive.read(MANIFEST):
        found.append((MANIFEST, "the manifest as it was written", "another spelling"))
    position, directory = 0, b""
    for info in infos:
        header = _local_header(info)
        stream.seek(position)
        if info.header_offset != position or stream.read(len(header)) != header:
            found.append((info.filename, "the header that it was written with", "another one"))
        stream.seek(position + len(header))
        digest = _digest_of(stream, info.compress_size)
        if info.filename != MANIFEST and digest != packed.get(info.filename):
            found.append((info.filename, "the packed bytes that the manifest lists", "others"))
        directory += _directory_entry(info, position)
        position += len(header) + info.compress_size
    directory += _END.pack(b"PK\x05\x06", 0, 0, len(infos), len(infos), len(directory), position, 0)
    stream.seek(position)
    if stream.read(len(directory) + 1) != directory:
        found.append((MANIFEST, "the directory that the archive was written with", "another one"))
    return found


def _packed_of(archive: Archive) -> dict[str, Any]:
    packed = archive.document().get("packed")
    if not isinstance(packed, dict):
        raise InvalidRecord(f"{MANIFEST}.packed", expected="an object of members", got=type(packed).__name__)
    if len(packed) != len(archive.infos) - 1:
        raise InvalidRecord(f"{MANIFEST}.packed", expected="as many members as there are", got=f"{len(packed)}")
    return packed


def _encoded(name: str) -> tuple[bytes, int]:
    data = name.encode("utf-8", "surrogatepass")
    return data, 0 if name.isascii() else _UTF8


def _local_header(info: zipfile.ZipInfo) -> bytes:
    name, flags = _encoded(info.orig_filename)
    head = _LOCAL.pack(
        b"PK\x03\x04", _ZIP_VERSION, flags, info.compress_type, _DOS_TIME, _DOS_DATE,
        info.CRC, info.compress_size, info.file_size, len(name), 0,
    )  # fmt: skip
    return head + name


def _directory_entry(info: zipfile.ZipInfo, offset: int) -> bytes:
    name, flags = _encoded(info.orig_filename)
    head = _CENTRAL.pack(
        b"PK\x01\x02", _ZIP_VERSION, _UNIX, _ZIP_VERSION, 0, flags, info.compress_type, _DOS_TIME, _DOS_DATE,
        info.CRC, info.compress_size, info.file_size, len(name), 0, 0, 0, 0, _MODE, offset,
    )  # fmt: skip
    return head + name
