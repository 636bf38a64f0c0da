"""--help under --lang zh: every text of every parser brings its Chinese."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

import pytest

from precision_debug import registry
from precision_debug.cli import main, module_of, verbs
from precision_debug.cli.parser import Help, Parser

_NAMES = re.compile("|".join(rf"\b{one.name}\b" for backend in registry.backends() for one in backend.settings))
"""Of settings, which are listed one after the other, and are no English."""
_WORDS = re.compile(r"[a-z']+ [a-z']+ [a-z']+ [a-z']+ [a-z']+")
"""Five English words in a row."""


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def parsers() -> list[argparse.ArgumentParser]:
    """Each verb's parser, as it is when the verb parses."""
    found: list[argparse.ArgumentParser] = []

    def keep(self: Parser, *_: Any) -> Any:
        found.append(self)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parser, "parse_args", keep)
        for verb in verbs():
            with pytest.raises(Stop):
                module_of(verb).run(["x"])
    return found


def texts_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from filter(None, (parser.description, parser.epilog))
    for group in parser._action_groups:
        yield from filter(None, (group.title, group.description))
    yield from (action.help for action in parser._actions if action.help)


OF_ARGPARSE = {
    "positional arguments", "options", "show this help message and exit", "show program's version number and exit"
}  # fmt: skip
"""What ``Parser`` itself knows in Chinese; the test of the whole help below would find English there."""


def test_every_text_of_a_parser_has_chinese(parsers: list[argparse.ArgumentParser]) -> None:
    assert len(parsers) == len(verbs())
    for parser in parsers:
        for text in texts_of(parser):
            assert isinstance(text, Help) or text in OF_ARGPARSE, text
            chinese = text.text.zh if isinstance(text, Help) else "中"
            assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese) or chinese == text, text
            assert text.count("%(") == (chinese.count("%(") if isinstance(text, Help) else 0), text


def test_every_verb_has_a_chinese_summary() -> None:
    for en, zh in verbs().values():
        assert zh != en


@pytest.mark.parametrize("verb", ["", *(verb for verb in ("diff", "doctor", "inspect", "search", "sweep", "view"))])
def test_help_is_chinese_where_that_is_asked_for(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help", "--lang", "zh"], ["--lang=zh", "--help"]):
        assert main([*filter(None, [verb]), *words]) == 0
        said = capsys.readouterr().out
        assert said.startswith("用法：")
        assert "显示此帮助并退出" in said
        said = _NAMES.sub("·", said.replace("\n", " "))
        assert not _WORDS.search(said), _WORDS.search(said)
    assert main([*filter(None, [verb]), "--help", "--lang", "en"]) == 0
    assert "用法" not in capsys.readouterr().out


def test_the_locale_decides_where_nothing_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert main(["--help"]) == 0
    assert "哪两次运行？" in capsys.readouterr().out


def test_every_mode_is_described_in_chinese() -> None:
    for backend in registry.backends():
        if not type(backend).__module__.startswith("precision_debug_"):
            continue
        for mode in backend.run_modes:
            assert mode.zh, mode.name
            assert not _WORDS.search(mode.zh), mode.name


@pytest.mark.installed
def test_doctor_is_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--lang", "zh"]) == 0
    said = capsys.readouterr().out
    folders = any("" in mode.suffixes and backend.availability(mode.name).ok
                  for backend in registry.backends() for mode in backend.run_modes)  # fmt: skip
    for words in ("处理器", "CPU 上的 ONNX Runtime", *(["目录"] if folders else [])):
        assert words in said
    loader = "cannot open shared object file: No such file or directory"  # in its own words, whatever the language
    said = re.sub(r"\s+".join(map(re.escape, loader.split())), "", said)
    for line in said.splitlines():
        if not line.startswith(("设置", "解释器", "backend", "后端")):
            assert not _WORDS.search(line), line
