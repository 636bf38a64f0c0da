"""precision_debug doctor: which run modes run here, and what the others need."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import OutputError
from ..ownership import refuse_foreign
from ..reasons import CORE as REASONS
from ..reasons import Catalogue, Text
from ..records import Availability, RunMode
from ..report.sections import describe_machine
from ..report.words import measure_text_width, reason_text
from ..safety.untrusted import make_visible
from ..settings import Setting
from . import pages
from .pages import describe_setting
from .parser import choose_language, make_flag, make_verb_parser, parse

__all__ = ["PAGES", "run"]

SUMMARY = "which run modes run here, and what the others need"
SUMMARY_ZH = "哪些运行模式可在本机运行，其余缺少什么"

DESCRIPTION_ZH = """precision_debug doctor：哪些运行模式可在本机运行，其余缺少什么。"""

_PACKAGES = (
    "numpy", "ml_dtypes", "xlsxwriter", "pandas", "onnx", "onnxruntime", "onnxruntime-gpu", "onnxruntime-extensions",
    "paddlepaddle", "paddlepaddle-gpu", "tensorrt", "torch",
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    """Print the machine, the packages and every run mode; 0 if at least one mode can run here, else 1."""
    args = parse(make_verb_parser("doctor", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    language = choose_language(args.lang)
    wanted = {name: path for name in PAGES if (path := getattr(args, f"{name}_page"))}
    if wanted:
        for name, path in wanted.items():
            _write_page(Path(path), PAGES[name]())
        return 0
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if not console.is_terminal:
        console.width = 160
    if args.settings:
        return _show_settings(console, language)
    _show_machine(console, language)
    runnable = sum(_show_backend(console, plugin, language) for plugin in registry.plugins())
    return 0 if runnable else 1


def _show_machine(console: Any, language: str) -> None:
    from .. import numbers

    packages = ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _find_version(name)))
    about = {**describe_machine(), "packages": packages, "comparison": reason_text(numbers.describe_kernel(), language)}
    for key, value in about.items():
        label = Text(key, _LABELS.get(key, key)).of(language)
        console.print(f"{label}{' ' * (16 - measure_text_width(label))} {value}")


def _show_backend(console: Any, plugin: registry.Plugin, language: str) -> int:
    """Print which modes of a backend run here, and what the others need; return how many can run."""
    console.print()
    if plugin.backend is None:
        failed = Text("could not be loaded", "无法加载")
        console.print(
            make_visible(f"{_describe_backend(plugin.name).of(language)}: {failed.of(language)}: {plugin.problem}")
        )
        return 0
    modes = {mode: plugin.backend.availability(mode.name) for mode in plugin.backend.run_modes}
    runnable = sum(found.ok for found in modes.values())
    needs = {found.needs for found in modes.values()}
    if len(needs) == 1 and not runnable:  # one line says it of all
        lacking = Text("none of its modes runs here", "其运行模式均不能在此运行")
        lack = reason_text(needs.pop(), language)
        console.print(make_visible(f"{_describe_backend(plugin.name).of(language)}: {lacking.of(language)}: {lack}"))
        console.print("  " + " ".join(mode.name for mode in modes))
    else:
        console.print(_table_of_modes(plugin.name, modes, language))
        told = (text for found in modes.values() if found.ok for text in (found.slower, found.inexact) if text)
        for text in dict.fromkeys(told):
            console.print(make_visible(reason_text(text, language)))
        names = " ".join(one.name for one in plugin.backend.settings)
        heading = Text("settings (doctor --settings explains them)", "设置（doctor --settings 逐一说明）")
        console.print(f"{heading.of(language)}: {names or '-'}")
    _show_tried(console, tuple(modes), language)
    return runnable


def _describe_backend(name: str) -> Text:
    return Text(f"backend {name}", f"后端 {name}")


def _table_of_modes(backend: str, modes: Mapping[RunMode, Availability], language: str) -> Any:
    from rich.table import Table

    table = Table(title=_describe_backend(backend).of(language), title_justify="left", box=None, pad_edge=False)
    for column in _HEAD:
        table.add_column(column.of(language), overflow="fold")
    for mode, available in modes.items():
        reads = " ".join(suffix or _FOLDER.of(language) for suffix in mode.suffixes)
        summary = Text(mode.summary, mode.zh or mode.summary).of(language)
        text = summary if available.ok else reason_text(available.needs, language)
        here = _HERE[available.ok]
        if available.ok and available.partly:
            text, here = reason_text(available.partly, language), _PARTLY
        table.add_row(mode.name, reads, here.of(language), text)
    return table


_FLAGS = (
    make_flag("--settings", "the backends' settings instead", "改为列出各后端的设置", action="store_true"),
    make_flag("--settings_page", "write them there, as the site has them", "将设置写入该文件，内容同文档网站的页面",
         metavar="FILE.md"),
    make_flag("--reasons_page", "write what reports say, as the site has it",
    "写出报告中的各种说明，内容同文档网站的页面",
         metavar="FILE.md"),
    make_flag("--columns_page", "the table's columns, as the site has them", "写出表格各列的说明，内容同文档网站的页面",
         metavar="FILE.md"),
)  # fmt: skip


_LABELS = {
    "platform": "平台", "host": "主机", "processor": "处理器", "cores": "核心数", "executable": "解释器",
    "packages": "软件包", "comparison": "比较方式",
}  # fmt: skip
_FOLDER = Text("folder", "目录")
_HERE = {True: Text("yes", "可用"), False: Text("no", "不可")}
_PARTLY = Text("partly", "部分")
_HEAD = (
    Text("run mode", "运行模式"), Text("reads", "读取"), Text("here", "本机"),
    Text("what it is, or what it needs", "说明，或所缺之物"),
)  # fmt: skip
_SETTING = (
    Text("setting", "设置"), Text("type", "类型"), Text("default", "默认"), Text("side", "哪一侧"),
    Text("modes", "模式"), Text("meaning", "含义"),
)  # fmt: skip


def _show_tried(console: Any, modes: Sequence[RunMode], language: str) -> None:
    """How far back each mode was tried, one line for those that are alike; nothing of a backend that tells of none."""
    if not any(mode.tried for mode in modes):
        return
    for tried in dict.fromkeys(mode.tried for mode in modes):
        names = [mode.name for mode in modes if mode.tried == tried]
        label = (_TRIED if tried else _NEVER_TRIED).of(language)
        every = Text("all of them", "全部").of(language) if len(names) == len(modes) else " ".join(names)
        console.print(make_visible(f"{label}{' ' if tried else ''}{tried}: {every}"))


_TRIED = Text("tried with", "试过的版本")
_NEVER_TRIED = Text("not tried yet", "尚未试过")


def _show_settings(console: Any, language: str) -> int:
    from rich.table import Table

    for title, settings in {**pages.options_by_group(language), **_tables()}.items():
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in _SETTING:
            table.add_column(column.of(language), overflow="fold")
        for one in settings:
            meaning = Text(one.help, one.zh).of(language)
            table.add_row(one.option if one.flag else one.name, *describe_setting(one), meaning)
        console.print(table)
        console.print()
    return 0


def _tables() -> dict[str, Sequence[Setting]]:
    backends = {backend.name: tuple(backend.settings) for backend in registry.backends()}
    return {f"backend {name}": table for name, table in backends.items() if table}


def _reasons() -> dict[str, Catalogue]:
    own = {f"backend {backend.name}": backend.reasons for backend in registry.backends()}
    return {"every backend": REASONS, **own}


PAGES: Mapping[str, Callable[[], str]] = {
    "columns": pages.columns_page,
    "settings": lambda: pages.settings_page(_tables()),
    "reasons": lambda: pages.reasons_page(_reasons()),
}
"""The pages that are written from tables of the code, by their names on the site."""


def _write_page(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_foreign(path)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write there: {error.strerror}", where=str(path)) from error


def _find_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        try:
            return "(not a wheel)" if importlib.util.find_spec(name.replace("-", "_")) else ""
        except (ImportError, ValueError):
            return ""
