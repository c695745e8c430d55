"""What stands before every page: who may ask (Host, Origin), and what a browser may do with the answer."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from watcherml.ui.hosts import Names

# Styles of elements are the reports' own: they are made for notebooks, which strip every style sheet. Scripts and
# style sheets come from this server only, nothing else is loaded, and nobody may frame a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_FOREIGN_HOST = (
    "403 Forbidden: this server does not answer to that name.\n"
    "Open it as http://127.0.0.1 or http://localhost with its port; from elsewhere through an SSH tunnel, or start it"
    " with --host NAME --allow-remote.\n"
)
_FOREIGN_ORIGIN = "403 Forbidden: a page of another site asked for this. Nothing was read or changed.\n"


class Guard:
    """Answers foreign requests itself and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or refuse it."""
        if scope["type"] != "http":
            return  # no web sockets here
        refused = self._refusal(Headers(scope=scope), str(scope["method"]))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if refused:
            await _plain(sent, refused)
        else:
            await self._app(scope, receive, sent)

    def _refusal(self, headers: Headers, method: str) -> str:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._names.allow(hosts[0]):
            return _FOREIGN_HOST
        origins = headers.getlist("origin")
        # A browser names the origin of everything that is sent to be changed. "null" is nobody's.
        if method not in ("GET", "HEAD") and not origins:
            return _FOREIGN_ORIGIN
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return _FOREIGN_ORIGIN
        # Said by browsers that know it; a link from elsewhere is followed, a picture or script is not given away.
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _FOREIGN_ORIGIN
        return ""


async def _plain(send: Send, text: str) -> None:
    body = text.encode("utf-8")
    kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": kind})
    await send({"type": "http.response.body", "body": body})
