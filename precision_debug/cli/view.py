"""precision_debug view: show a report in this machine's browser only.

SOURCE is a report: .html as it is, .json or an interrupted run's journal.jsonl as the page made of it. The page is
served on 127.0.0.1 until Ctrl-C; over SSH, forward the port that is printed (ssh -L PORT:127.0.0.1:PORT HOST).
"""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..errors import OutputError, UsageError
from ..report import write
from ..run.locked_folder import make_scratch_folder
from ..safety.untrusted import make_visible, refuse_special
from .parser import make_flag, make_verb_parser, parse
from .report import load

__all__ = ["Pages", "run"]

SUMMARY = "show a report in the browser, served on this machine only"
SUMMARY_ZH = "在浏览器中显示报告，仅在本机提供"

DESCRIPTION_ZH = """precision_debug view：在本机浏览器中显示报告，不对外提供。

SOURCE 是报告：.html 原样显示；.json 或中断运行的 journal.jsonl 则生成页面。页面在 127.0.0.1 上提供，
直到按 Ctrl-C；经 SSH 使用时转发打印出的端口（ssh -L PORT:127.0.0.1:PORT HOST）。
"""

_HERE = "127.0.0.1"


class Pages(ThreadingHTTPServer):
    """One page at "/", on 127.0.0.1 alone. port 0: one that is free; ``address`` says which."""

    daemon_threads = True

    def __init__(self, page: bytes, port: int = 0) -> None:
        super().__init__((_HERE, port), _Answer)
        self.page = page

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a browser that went away in the middle of an answer is no news."""

    @property
    def address(self) -> str:
        return f"http://{_HERE}:{self.server_address[1]}/"


class _Answer(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host", "") not in {f"{_HERE}:{port}", f"localhost:{port}"}:
            self.send_error(403)  # a name of somebody else's that leads here: its pages could read this one
        elif self.path.partition("?")[0] != "/":
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(self.server.page)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            if with_body:
                self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the terminal has the address, and that is enough."""


def run(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C, which is how it ends well: 0."""
    args = parse(make_verb_parser("view", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    if not 0 <= args.port <= 65535:
        raise UsageError("must be from 0 to 65535", where="--port", hint="leave it out to use a free one")
    page = _read_page(Path(args.source), args.lang)
    try:
        server = Pages(page, args.port)
    except OSError as error:
        raise OutputError(
            f"cannot be served: {error.strerror}", where=f"{_HERE}:{args.port}", hint="leave --port out"
        ) from error
    with server:
        print(make_visible(f"{args.source}: {server.address}  (Ctrl-C ends it)"), flush=True)
        if args.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


_FLAGS = (
    make_flag("source", "report.html, report.json or journal.jsonl", "report.html、report.json 或 journal.jsonl",
         metavar="SOURCE"),
    make_flag("--port", "default: any free port", "默认为任意空闲端口", type=int, default=0),
    make_flag("--open", "also open the browser", "同时打开浏览器", action="store_true"),
)  # fmt: skip


def _read_page(source: Path, language: str) -> bytes:
    """Return a report's page. Raises OutputError where the source is none."""
    if source.suffix.lower() in {".json", ".jsonl"}:
        with make_scratch_folder() as (folder, _):
            return write(load(source), folder / "report.html", language=language).read_bytes()
    if source.suffix.lower() != ".html":
        raise UsageError("is not a report that can be displayed", where=str(source), hint="give the .html or the .json")
    refuse_special(source, OutputError)
    try:
        return source.read_bytes()
    except OSError as error:
        raise OutputError(f"cannot be read: {error.strerror}", where=str(source), hint="check the path") from error
