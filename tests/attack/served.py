"""The server of ``view``: who gets what, and what it says."""

from __future__ import annotations

import contextlib
import io
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from precision_debug.cli.view import Pages

from .case import Lost

__all__ = ["served"]


@contextlib.contextmanager
def _serving(page: bytes) -> Iterator[tuple[int, Callable[[], str]]]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), Pages(page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1], said.getvalue
        finally:
            server.shutdown()
            thread.join(10)


_PATHS = ("/", "/", "/?x", "/../../etc/passwd", "/%2e%2e/etc/passwd", "//etc/passwd", "/index.html", "http://evil/",
          "*",
          "/\r\nX: y", "/\x00", "?", "", "/" + "a" * 70_000, "/é", "\\..\\x")  # fmt: skip
_HOSTS = ("127.0.0.1:{port}", "127.0.0.1:{port}", "localhost:{port}", "evil.example", "evil.example:{port}",
          "127.0.0.1",
          "127.0.0.1:1", "localhost:{port}.evil", "", "0.0.0.0:{port}", "127.0.0.1:{port}, evil",
          "[::1]:{port}")  # fmt: skip


def served(random_: random.Random, folder: Path) -> None:
    """The page goes to who asks this machine by its own name for "/", and nothing else goes to anybody."""
    page = b"<p>secret</p>" + b"x" * random_.choice((0, 5_000_000))
    with _serving(page) as (port, said):
        path, host = random_.choice(_PATHS), random_.choice(_HOSTS).format(port=port)
        verb = random_.choice(("GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "CONNECT", "get", "\x00"))
        lines = [f"{verb} {path} HTTP/1.{random_.choice('10')}", f"Host: {host}"]
        lines += random_.choice(([], [], [f"Host: 127.0.0.1:{port}"], ["X-Forwarded-Host: localhost"],
                                ["Range: bytes=0-3"],
                                 ["X: " + "y" * 70_000], ["Content-Length: 99"]))  # fmt: skip
        hasty = random_.random() < 0.3
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.settimeout(10)
            connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass"))
            answer = b""
            if not hasty:
                with contextlib.suppress(OSError):  # it may have hung up
                    connection.shutdown(socket.SHUT_WR)
                    while block := connection.recv(1 << 20):
                        answer += block
        head = answer.partition(b"\r\n")[0]
        own = host in (f"127.0.0.1:{port}", f"localhost:{port}")
    if b"secret" in answer and not (own and re.split(r"[?\r]", path)[0] in ("/", "") and verb == "GET"):
        raise Lost(f"the page went to {lines[0][:60]!r}, {lines[1]!r}")
    if b"root:" in answer:
        raise Lost("another file was read")
    if own and path == "/" and verb == "GET" and len(lines) == 2 and not hasty and b" 200 " not in head:
        raise Lost(f"no page: {head!r}")
    if said():
        raise Lost(f"it prints: {said()[-300:]}")
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        raise Lost("it goes on serving after its end")
