"""A verb is a file of the command line's folder, or one that a product declares, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_debug import cli


def test_every_verb_says_what_it_is_for_and_runs() -> None:
    verbs = cli.verbs()
    assert next(iter(verbs)) == "compare"
    assert {"doctor", "inputs", "inspect", "ladder", "marks", "report", "search"} <= set(verbs)
    for name in verbs:
        assert callable(cli.module_of(name).run)


def test_a_file_is_a_new_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hello.py").write_text(
        'SUMMARY = "says hello"\nSUMMARY_ZH = "问好"\n\n\ndef run(arguments):\n    print(*arguments)\n    return 0\n'
    )
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    monkeypatch.setattr(cli.pkgutil, "get_data", lambda package, name: next(
        (path.read_bytes() for folder in cli.__path__ if (path := Path(folder, name)).exists()), None
    ))  # fmt: skip
    cli.verbs.cache_clear()
    try:
        assert cli.verbs()["hello"] == ("says hello", "问好")
        assert cli.main(["hello", "a", "stranger"]) == 0
        assert capsys.readouterr().out == "a stranger\n"
    finally:
        cli.verbs.cache_clear()
