"""Takes the pictures of the documents: ``python tests/take_pictures.py [FOLDER]``.

An encoder of four layers whose third one overflows float16 in its attention scores is compared in float16; the page is
photographed light, dark, on a phone and on paper, with the culprit's row open, and in Chinese; and the workbook as
LibreOffice prints it. Needs chromium, playwright, libreoffice, poppler-utils and Pillow.

Beside the pictures lies taken.json: of which code and of which words they are. tests/test_pictures.py says when either
has changed since.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from planted.onnx_faults import Graph, tokens

from precision_debug.report import Report
from precision_debug.report.formats.json import load
from precision_debug.report.lead import lead_sentences

_LAYER = 2
ROOT = Path(__file__).resolve().parents[1]
TAKEN = ROOT / "docs" / "pictures" / "taken.json"
_TALL = 560
"""Pixels of a sheet that are shown."""


def encoder() -> tuple[Graph, Sequence[str]]:
    """Four layers; the scores of one reach 1.4 million."""
    g = Graph()
    x = tokens(g, size=64, length=48)
    for layer in range(4):
        if layer == _LAYER:
            q, k, v = (g.dense(x, 64, 64, f"l{layer}/attn/{n}", scale=220.0 if n in "qk" else 1) for n in "qkv")
            kt = g.op("Transpose", [k], f"l{layer}/attn/kt", perm=[0, 2, 1])
            raw = g.op("MatMul", [q, kt], f"l{layer}/attn/scores")
            scaled = g.op("Div", [raw, g.weight("d", np.float32(6e4))], f"l{layer}/attn/scaled")
            most = g.op("ReduceMax", [scaled], f"l{layer}/attn/max", axes=[-1], keepdims=1)
            shifted = g.op("Sub", [scaled, most], f"l{layer}/attn/shifted")
            prob = g.op("Softmax", [shifted], f"l{layer}/attn/prob", axis=-1)
            mixed = g.op("MatMul", [prob, v], f"l{layer}/attn/mixed")
            x = g.op("Add", [x, g.dense(mixed, 64, 64, f"l{layer}/attn/out")], f"l{layer}/attn/res")
        else:
            x = g.attention(x, 64, f"l{layer}/attn")
        x = g.norm(g.mlp(g.norm(x, 64, f"l{layer}/norm1"), 64, f"l{layer}/mlp"), 64, f"l{layer}/norm2")
    return g, [x]


def reported(folder: Path) -> Report:
    """Compare as a user does, in the folder: pictures show the model's name without one."""
    g, outputs = encoder()
    g.save(folder / "encoder.onnx", outputs)
    np.savez(folder / "inputs.npz", **g.feeds)
    command = [sys.executable, "-m", "precision_debug", "--model_file", "encoder.onnx", "--run_mode", "ort_fp16_sim"]
    command += ["--inputs", "inputs.npz", "--quiet", "--output", "encoder.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return load(folder / "encoder.json")


def code() -> str:
    """Return the hash of what draws the page and the workbook."""
    found = hashlib.sha256()
    for name in ("html", "xlsx"):
        for path in sorted((ROOT / "precision_debug" / "report" / "formats" / name).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()


def words(report: Report) -> list[list[str]]:
    """Return the first sentences, in both languages, without what another processor may compute otherwise."""
    return [[re.sub(r"\d[\d.,e+-]*", "#", text) for text in (said.en, said.zh)] for said in lead_sentences(report)]


def small(path: Path, wide: int) -> None:
    """Few colours, and no wider than needed."""
    from PIL import Image

    with Image.open(path) as picture:
        shown = picture.convert("RGB")
    if shown.width > wide:
        shown = shown.resize((wide, round(shown.height * wide / shown.width)), Image.Resampling.LANCZOS)
    shown.quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)


def photograph(report: Report, folder: Path, work: Path) -> None:
    """The page."""
    from playwright.sync_api import sync_playwright

    page_file = report.save(work / "page.html")
    place = next(n for n, row in enumerate(report.rows) if row.name == f"l{_LAYER}/attn/scores")
    desk, phone = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}
    shots: dict[str, tuple[dict[str, int], dict[str, Any], str]] = {
        "light": (desk, {}, ""), "dark": (desk, {"color_scheme": "dark"}, ""), "phone": (phone, {}, ""),
        "chinese": (desk, {"locale": "zh-CN"}, ""), "row": (desk, {}, f"#row={place}"),
    }  # fmt: skip
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (size, settings, address) in shots.items():
            context = browser.new_context(viewport=size, **{"locale": "en-US", **settings})  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"file://{page_file}{address}")
            page.wait_for_selector("html[data-ready=yes]")
            page.wait_for_timeout(500)
            page.screenshot(path=folder / f"{name}.png")
            small(folder / f"{name}.png", 1000 if size is desk else 390)
            if name == "light":
                page.pdf(path=work / "paper.pdf", format="A4")
            context.close()
        browser.close()
    first = ["-r", "80", "-f", "1", "-l", "1", "-png", "-singlefile"]
    subprocess.run(["pdftoppm", *first, work / "paper.pdf", folder / "print"], check=True)
    small(folder / "print.png", 900)


def workbook(report: Report, folder: Path, work: Path) -> None:
    """The summary and the charts, as LibreOffice prints them."""
    from PIL import Image

    report.save(work / "book.xlsx")
    profile = f"-env:UserInstallation=file://{work}/profile"
    subprocess.run(["soffice", "--headless", profile, "--convert-to", "pdf", "--outdir", work, work / "book.xlsx"],
                   check=True, capture_output=True)  # fmt: skip
    subprocess.run(["pdftoppm", "-r", "80", "-png", work / "book.pdf", work / "book"], check=True)
    pages = sorted(work.glob("book-*.png"))
    texts = subprocess.run(["pdftotext", work / "book.pdf", "-"], check=True, capture_output=True, text=True).stdout
    opens = next(number for number, text in enumerate(texts.split("\f")) if "OUT OF TOLERANCE" in text)
    for name, source in (("xlsx_summary", pages[opens]), ("xlsx_charts", pages[-1])):
        with Image.open(source) as picture:
            box = picture.convert("L").point(lambda value: 255 * (value < 250)).getbbox()
            shown = picture.crop(box) if box is not None else picture
            shown.crop((0, 0, shown.width, min(shown.height, _TALL))).save(folder / f"{name}.png")
        small(folder / f"{name}.png", 1000)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else TAKEN.parent)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        report = reported(work)
        photograph(report, folder, work)
        workbook(report, folder, work)
        taken = {"code": code(), "words": words(report)}
        (folder / TAKEN.name).write_text(json.dumps(taken, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for path in sorted(folder.glob("*.png")):
        print(f"{path.stat().st_size:>8,} {path.name}")


if __name__ == "__main__":
    main()
