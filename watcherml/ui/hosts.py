"""Which names a request may call this server by.

A page of another site can make its own name point at this machine (DNS rebinding) and would then read what lies here.
Its request still carries that name in ``Host``, so only names that nobody else can own are answered: loopback, and
where others may connect, bare addresses and the names of this machine.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from watcherml.errors import InvalidValue, UsageError

LOOPBACK_NAMES = frozenset({"localhost"})


@dataclass(frozen=True)
class Names:
    """The names this server answers to; ``any_address`` lets every bare address in."""

    names: frozenset[str] = LOOPBACK_NAMES
    any_address: bool = False

    def allow(self, host: str) -> bool:
        """Tell whether a ``Host`` header (a name or address, with or without a port) is one of them.

        The port is not compared: through an SSH tunnel it is another one.
        """
        name = _name(host)
        if name is None:
            return False
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return self.any_address or address.is_loopback


def names_for(host: str, *, allow_remote: bool) -> Names:
    """Return what a server started with ``--host`` answers to."""
    if not allow_remote:
        return Names()
    own = socket.gethostname().lower()
    return Names(LOOPBACK_NAMES | {host.lower(), own, f"{own}.local"}, any_address=True)


def bind(host: str, port: int, *, allow_remote: bool) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises ``UsageError`` for an address that others can reach without ``allow_remote``, ``InvalidValue`` for one that
    is not this machine's and for a port that is in use.
    """
    family, address = _resolve(host, port, allow_remote)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # on Windows a second server could share the port otherwise
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        # Two sockets with SO_REUSEADDR may both bind; only one of them may listen.
        made.listen(128)
    except OSError as error:
        made.close()
        raise _refused(host, port, error) from None
    return made


def address_of(made: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = made.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if made.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _resolve(host: str, port: int, allow_remote: bool) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidValue(
            "--host", expected="a name or address of this machine", got=f"{host[:100]!r} ({error})"
        ) from None
    # 127.0.0.1 before ::1: that is what people type.
    family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    reached = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if not reached.is_loopback and not allow_remote:
        raise UsageError(
            "--host",
            expected="an address that only this machine can reach, such as 127.0.0.1",
            got=f"{host[:100]} ({reached})",
            remedy="The UI asks nobody who they are. From elsewhere use an SSH tunnel (`ssh -L 7331:localhost:7331"
            " HOST`); --allow-remote opens it to everybody who can reach that address.",
        )
    return family, (str(address[0]), port)


def _refused(host: str, port: int, error: OSError) -> InvalidValue:
    import errno

    if error.errno in (errno.EADDRINUSE, getattr(errno, "WSAEADDRINUSE", -1)):
        return InvalidValue(
            "--port",
            expected="a port that is free",
            got=f"{port}, which another program uses",
            remedy="Perhaps the UI is running already. --port 0 picks a free one.",
        )
    if error.errno == errno.EACCES:
        return InvalidValue("--port", expected="a port that this user may use, mostly above 1023", got=str(port))
    return InvalidValue("--host", expected="an address of this machine", got=f"{host[:100]} ({error.strerror})")


def _name(host: str) -> str | None:
    """Return the name in a ``Host`` header without its port, in lower case; None for what is none."""
    if host.startswith("["):
        inside, bracket, port = host[1:].partition("]")
        return inside if bracket and (not port or port[1:].isdecimal()) else None
    name, colon, port = host.partition(":")
    if colon and not (port.isascii() and port.isdecimal()):
        return None
    return name.lower().rstrip(".") or None
