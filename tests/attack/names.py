"""Names and notes that want to be more than text, in every format and on the terminal."""

from __future__ import annotations

import csv
import html
import io
import random
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

from precision_debug.report import Report, write
from precision_debug.safety.untrusted import make_visible

from .case import Lost, command
from .whole import whole_report

__all__ = ["Tags", "beside", "hostile_name", "live_markdown", "on_the_terminal", "report_of", "spreadsheets",
           "web_and_markdown", "workbook"]  # fmt: skip

_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "{=", "=cmd|' /C calc'!A0", '=HYPERLINK("http://x","y")', "http://x",
           "https://", "ftp://", "mailto:a@b", "internal:A1", "external:x.xlsx", "'", '"', "＝1", "<", "</script>",
           "<script>", "<img src=x onerror=alert(1)>", "javascript:", "]]>", "&lt;", "|", "`", "**", "![x](http://x)",
           "{{data}}", "--", "_x0041_", "")  # fmt: skip
_PARTS = ("\x00", "\x07", "\x1b[2J", "\x1b]0;t\x07", "\x9b31m", "\x7f", "\u202e", "\u2066", "\ufffe", "\uffff",
          "\udcff", "\u2028", "\r", "\n", "\t", " ", "1+1", "A1", "卷积", "😀", "name", "/", ".", ",", ";", "é" * 50,
          "x" * 500, "%s", "[bold]", "\\", "$(id)", "..")  # fmt: skip


def hostile_name(random_: random.Random) -> str:
    return random_.choice(_STARTS) + "".join(random_.choice(_PARTS) for _ in range(random_.randrange(4)))


def report_of(random_: random.Random) -> Report:
    """A report whose every text is hostile."""
    return whole_report(random_, lambda: hostile_name(random_))


def spreadsheets(random_: random.Random, folder: Path) -> None:
    """No formula, no link to elsewhere, no damaged part."""
    report = report_of(random_)
    workbook(write(report, folder / "r.xlsx"))
    path = write(report, folder / "r.csv")
    for line in csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")):
        for cell in line:
            ours = re.fullmatch(r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)( \([-+.\dinfae]+\))?", cell)
            if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝")) and not ours:
                raise Lost(f"a live cell in .csv: {cell[:80]!r}")


def workbook(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            text = archive.read(member).decode()
            ElementTree.fromstring(text)
            if "<f>" in text and "charts/" not in member:
                raise Lost(f"a formula in {member}")
            for place in re.findall(r'Target="([^"]*)" TargetMode="External"', text):
                if not beside(unquote(html.unescape(place))):
                    raise Lost(f"a link to elsewhere in {member}: {place[:80]!r}")
            if "oleObject" in text or "externalLink" in text:
                raise Lost(f"a link to elsewhere in {member}")
            for content in re.findall(r"<t[^>]*>([^<]*)</t>", text):
                if re.search(r"_x00(?!0[9AD]|5F)[01][0-9A-F]_", content.replace("_x005F_", "")):
                    raise Lost(f"a control character in {member}: {content[:80]!r}")


def beside(place: str) -> bool:
    """Whether a link leads to a file that can only lie beside the report, or under its folder, or above it."""
    return not re.match(r"[a-z][a-z0-9+.-]*:|[/\\]", place.strip(), re.IGNORECASE)


def live_markdown(text: str) -> str:
    """What a name has become in Markdown beyond text; "" where nothing has."""
    plain = re.sub(r"\\.|(`+).*?\1", "", text)  # without what is escaped, and without code
    if re.search(r"<[a-z/!]", plain, re.IGNORECASE):
        return "a name became a tag in Markdown"
    places = [place for place in re.findall(r"\]\(([^)]*)\)", plain) if not beside(place)]
    return f"a link to elsewhere: {places[0][:80]!r}" if places else ""


class Tags(HTMLParser):
    """Start tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def web_and_markdown(random_: random.Random, folder: Path) -> None:
    """The page has two scripts and no handlers whatever the names are, and nothing hidden; so has the Markdown."""
    report = report_of(random_)
    page = write(report, folder / "r.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(page)
    if sum(tag == "script" for tag, _ in tags.found) != 2 or any(tag in ("img", "iframe") for tag, _ in tags.found):
        raise Lost("a name became a tag")
    if any(name.startswith("on") for _, names in tags.found for name in names):
        raise Lost("a name became a handler")
    markdown = write(report, folder / "r.md").read_text(encoding="utf-8")
    if problem := live_markdown(markdown):
        raise Lost(problem)
    for link in tags.links:
        if not link.startswith("data:image/") and not beside(link):
            raise Lost(f"a link to elsewhere: {link[:80]!r}")
    for text in (page, markdown):
        if make_visible(text, keep="\n\t") != text:
            raise Lost("hidden characters were written")


def on_the_terminal(random_: random.Random, folder: Path) -> None:
    """The summary of a report from elsewhere."""
    path = write(report_of(random_), folder / "r.json")
    said = command("report", str(path))
    if said.status not in (0, 1, 3) or not said.out:
        raise Lost(f"no summary: {said.status} {said.err[:200]}")
