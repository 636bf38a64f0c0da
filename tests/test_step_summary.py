"""`--output github:` adds the report to the summary of a GitHub Actions step, as far as there is room."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_models
import pytest
from report_factory import make_report

from precision_debug.cli import main
from precision_debug.errors import OutputError
from precision_debug.report.formats import md


def test_a_command_adds_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    words = ["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_opt", "--quiet", "--explain", "off"]
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert main([*words, "--output", "github:"]) == 2
    summary = tmp_path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        assert main([*words, "--output", "github:", "--output", str(tmp_path / "r.json")]) == 0
    assert summary.read_text(encoding="utf-8").count("ort_opt") >= 2
    assert main(["report", str(tmp_path / "r.json"), "--output", "github:"]) == 0
    assert summary.read_text(encoding="utf-8").count("\n# ") == 2


def test_what_does_not_fit_is_cut_to_its_first_sentences(tmp_path: Path) -> None:
    report = make_report(40)
    whole = "\n".join(md.format_lines(report))
    path = tmp_path / "step.md"
    md.append(report, path, title="a_title")
    assert path.read_text(encoding="utf-8") == f"## a\\_title\n\n{whole}\n\n"
    for size, shown in (((1 << 20) - len(whole.encode()) // 2, "\n".join(md.format_head(report))), ((1 << 20) - 8, "")):
        path.write_bytes(b"x" * size)
        md.append(report, path)
        assert path.read_bytes()[size:].decode().strip("\n") == shown
        assert path.stat().st_size <= 1 << 20


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        md.append(make_report(1), tmp_path / "absent" / "step.md")


def test_what_does_not_pass_is_annotated_in_github_actions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    words = ["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_fp16_sim", "--quiet", "--explain", "off"]
    words += ["--output", str(tmp_path / "r.json")]
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert main([*words, "--atol", "0", "--rtol", "0"]) == 1
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main([*words, "--atol", "10"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*words, "--atol", "0", "--rtol", "0"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("::error title=ort_fp16_sim m.onnx::")
    assert told.count("\n") == 1


def test_an_annotation_is_one_command_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    said = md.make_annotation(make_report(300), title="a::b,c%\n::error::x")
    assert said.split("::")[1].endswith(" title=a%3A%3Ab%2Cc%25%0A%3A%3Aerror%3A%3Ax")
    assert "\n" not in said
