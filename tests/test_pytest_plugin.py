"""A made-up project that uses the fixture: it passes, then fails on a planted regression, and the culprit is named."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved
from report_factory import find_complaint, make_report, make_row
from warm import run_python

from precision_debug import Report, compare
from precision_debug.errors import UsageError
from precision_debug.testing.thresholds import Thresholds

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PROJECT = """
def test_the_model_keeps_its_precision(assert_precision):
    assert_precision("model.onnx", run_mode="ort_fp16_sim", inputs="x.npz"{more})
"""


def model(path: Path, scale: float) -> None:
    """Two layers; the hidden one grows with ``scale``."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(0, 0.2, (16, 32)).astype(np.float32) * np.float32(scale),
        "w2": rng.normal(0, 0.2, (32, 4)).astype(np.float32),
    }
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w1"], ["hidden"], name="up"),
        onnx.helper.make_node("Relu", ["hidden"], ["active"], name="relu"),
        onnx.helper.make_node("MatMul", ["active", "w2"], ["y"], name="down"),
    ]
    info = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [8, 16]), ("y", [8, 4]))]
    graph = onnx.helper.make_graph(
        nodes, "g", info[:1], info[1:], [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def run(folder: Path, *words: str) -> tuple[int, str]:
    installed = any(
        entry.value == "precision_debug.testing.pytest_plugin" for entry in metadata.entry_points(group="pytest11")
    )
    plugin = [] if installed else ["-p", "precision_debug.testing.pytest_plugin"]
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *words, cwd=folder)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_model.py").write_text(PROJECT.format(more=""))
    model(folder / "model.onnx", 1.0)
    np.savez(folder / "x.npz", x=np.random.default_rng(1).uniform(0.5, 1, (8, 16)).astype(np.float32))
    return folder


@pytest.mark.fresh
def test_pytest_rewrites_none_of_our_modules(project: Path) -> None:
    """What it rewrites it parses, and CPython 3.11 fails at random where two threads, that import late, both do."""
    (project / "test_late.py").write_text(
        "import sys\n"
        "from precision_debug.numbers import compare  # noqa: F401\n"
        "def test_late(assert_precision):\n"
        "    assert_precision('model.onnx', run_mode='ort_fp16_sim', inputs='x.npz')\n"
        "    late = [m for n, m in sys.modules.items() if n.startswith('precision_debug.numbers.')]\n"
        "    assert len(late) > 5\n"
        "    assert not any(type(m.__loader__).__name__ == 'AssertionRewritingHook' for m in late)\n"
    )
    status, said = run(project, "test_late.py")
    assert status == 0, said


def test_it_passes_and_a_planted_overflow_fails_with_the_culprits_name(project: Path) -> None:
    assert run(project)[0] == 0
    model(project / "model.onnx", 8e4)
    status, said = run(project, "--junitxml", "out.xml", "--precision_reports", "kept")
    assert status == 1, said
    assert "hidden" in said
    assert "`hidden` lost the precision" in said
    assert (project / "kept" / "test_model.py.test_the_model_keeps_its_precision.html").exists()
    properties = {
        item.get("name"): item.get("value") for item in ElementTree.parse(project / "out.xml").iter("property")
    }
    assert properties["precision_debug.verdict"] == "out of tolerance"
    assert "hidden" in str(properties["precision_debug.culprits"])


def test_every_report_is_kept(project: Path) -> None:
    """Tests of one name in two files, several calls in a test, and parameters that no file name can hold."""
    (project / "sub").mkdir()
    call = 'assert_precision("model.onnx", run_mode="ort_fp16_sim", inputs="x.npz", explain="off")'
    again = f"def test_the_model_keeps_its_precision(assert_precision):\n    {call}\n    {call}\n"
    (project / "sub" / "test_other.py").write_text(again)
    words = ["a/b", "a_b", "n" * 400]
    marked = f"import pytest\n@pytest.mark.parametrize('word', {words})\ndef test_words(word, assert_precision):\n"
    (project / "sub" / "test_words.py").write_text(f"{marked}    {call}\n")
    status, said = run(project, "--precision_reports", "kept")
    assert status == 0, said
    assert len(list((project / "kept").glob("*.html"))) == 1 + 2 + 3


def test_a_golden_report_fails_on_regressions_only(project: Path) -> None:
    def report(scale: float) -> Report:
        model(project / "model.onnx", scale)
        return compare(project / "model.onnx", run_mode="ort_fp16_sim", inputs=project / "x.npz", atol=1e-9, rtol=1e-9)

    golden = report(1.0)
    assert find_complaint(golden, Thresholds())  # out of this tolerance as it is
    assert not find_complaint(report(1.0), Thresholds(), golden)
    worse = report(8e4)
    assert holds_approved(find_complaint(worse, Thresholds(), golden))
    assert not find_complaint(worse, Thresholds(), worse)


def said_of(project: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str, str]:
    """Status, what was printed, the verdict of JUnit's XML, and the job's summary."""
    summary = project / "step.md"
    summary.write_text("")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    status, said = run(project, "--junitxml", "out.xml", *words)
    properties = {
        item.get("name"): item.get("value") for item in ElementTree.parse(project / "out.xml").iter("property")
    }
    return status, said, str(properties["precision_debug.verdict"]), summary.read_text(encoding="utf-8")


def test_a_golden_report_that_is_not_there_fails_and_is_written_when_asked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "test_model.py").write_text(PROJECT.format(more=', golden="golden.json", atol=1e-9, rtol=1e-9'))
    status, said, verdict, summary = said_of(project, monkeypatch)
    assert (status, verdict) == (1, "out of tolerance")  # of this tolerance, as it is
    assert holds_approved(said)
    assert "✅" not in summary
    assert not (project / "golden.json").exists()
    assert said_of(project, monkeypatch, "--precision_golden", "write")[::2] == (0, "within tolerance")
    assert (project / "golden.json").exists()
    assert run(project)[0] == 0
    model(project / "model.onnx", 8e4)
    status, said, verdict, summary = said_of(project, monkeypatch)
    assert (status, verdict) == (1, "out of tolerance")
    assert holds_approved(said, 2)
    assert "✅" not in summary
    assert "Nothing to do" not in summary


@pytest.mark.parametrize(
    ("thresholds", "status", "verdict"),
    [
        ({"outputs": 1e-9}, 1, "out of tolerance"),  # a red test beside a report that says "as expected"
        ({"outputs": 1e-2}, 0, "within tolerance"),
        ({"outputs": 1e-2, "tensors": {"hiden": 1e-2}}, 1, "inconclusive"),  # matches nothing
        ({"operators": {"Matmul": 1e-2}}, 1, "inconclusive"),
        ({"operators": {"Relu": 1.0}}, 0, "within tolerance"),  # an inner layer alone: the report's verdict stands
    ],
)
def test_thresholds_summary_and_junit_have_one_verdict(
    project: Path, monkeypatch: pytest.MonkeyPatch, thresholds: dict[str, Any], status: int, verdict: str
) -> None:
    (project / "test_model.py").write_text(PROJECT.format(more=f", thresholds={thresholds}"))
    found = said_of(project, monkeypatch)
    assert (found[0], found[2]) == (status, verdict), found[1]
    assert ("✅" in found[3]) is (status == 0)


def test_a_threshold_of_an_inner_layer_does_not_switch_the_verdict_off(project: Path) -> None:
    wrong = project / "wrong.onnx"
    model(wrong, 1.0)
    proto = onnx.load(wrong)
    weight = next(one for one in proto.graph.initializer if one.name == "w2")
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(3), "w2"))
    onnx.save(proto, wrong)
    report = compare(wrong, run_mode="ort_opt", baseline_model=project / "model.onnx", inputs=project / "x.npz")
    for thresholds in ({"operators": {"Relu": 1.0}}, {"tensors": {"active": 1.0}}, {"tensors": {"*": 0.1}}):
        assert find_complaint(report, Thresholds.of(thresholds)), thresholds
    assert find_complaint(report, Thresholds.of({"tensors": {"gone/*": 1.0}}))
    assert not find_complaint(report, Thresholds.of({"outputs": 9.0})), "whoever allows so much has said so"


def test_thresholds_of_the_project(project: Path) -> None:
    table = "[tool.precision_debug.thresholds]\noutputs = {}\n[tool.precision_debug.thresholds.operators]\nRelu = 0.5\n"
    (project / "pytest.ini").unlink()
    (project / "pyproject.toml").write_text(table.format(1e-6) + "[tool.pytest.ini_options]\n")
    status, said = run(project)
    assert status == 1, said
    assert "allowed 1e-06" in said


THRESHOLDS = "thresholds:\n  outputs: {}\n  tensors:\n    'hid*': 0.5\n  operators:\n    Relu: 0.5\n"


def test_thresholds_in_yaml(project: Path) -> None:
    (project / "precision_debug.yaml").write_text(THRESHOLDS.format(1e-6))
    status, said = run(project)
    assert status == 1, said
    assert "allowed 1e-06" in said
    (project / "loose.yml").write_text(THRESHOLDS.format(0.5).replace("thresholds:\n", "").replace("\n  ", "\n")[2:])
    status, said = run(project, "--precision_thresholds", "loose.yml")
    assert status == 0, said


def test_a_file_of_thresholds_is_the_table_whatever_it_is_written_in(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(THRESHOLDS.format(0.25))
    (tmp_path / "a.toml").write_text("outputs = 0.25\n[tensors]\n'hid*' = 0.5\n[operators]\nRelu = 0.5\n")
    wanted = Thresholds(outputs=0.25, tensors={"hid*": 0.5}, operators={"Relu": 0.5})
    assert Thresholds.of_file(tmp_path / "a.yaml") == wanted
    assert Thresholds.of_file(tmp_path / "a.toml") == wanted
    (tmp_path / "a.yaml").rename(tmp_path / "precision_debug.yaml")
    assert Thresholds.of_project(tmp_path) == wanted
    (tmp_path / "pyproject.toml").write_text("[tool.precision_debug.thresholds]\noutputs = 1.0\n")
    with pytest.raises(UsageError, match="two files"):
        Thresholds.of_project(tmp_path)
    (tmp_path / "c.yaml").touch()
    assert Thresholds.of_file(tmp_path / "c.yaml") == Thresholds()
    for name, text in (("b.ini", ""), ("b.yaml", "- 1"), ("b.yaml", "outputs: !!python/name:os.system")):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError):
            Thresholds.of_file(tmp_path / name)


def test_without_yaml_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text("outputs: 1\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match=r"precision_debug\[yaml\]"):
        Thresholds.of_file(tmp_path / "a.yaml")


def test_each_report_is_in_the_summary_of_a_github_step(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = project / "step.md"
    summary.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    model(project / "model.onnx", 8e4)
    assert run(project)[0] == 1
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("earlier\n## test\\_the\\_model\\_keeps\\_its\\_precision\n")
    assert "`hidden`" in text
    assert "out of tolerance" in text.lower()


@pytest.mark.parametrize(
    "plain", [[], {"output": 1}, {"outputs": "1"}, {"outputs": -1}, {"tensors": 1}, {"operators": {"Relu": True}}]
)
def test_what_is_no_threshold_is_refused(plain: Any) -> None:
    with pytest.raises(UsageError):
        Thresholds.of(plain)


def test_the_strictest_threshold_counts() -> None:
    import dataclasses

    report = dataclasses.replace(make_report(1), rows=(make_row(0, 5e-4),), explanation=None)
    loose = Thresholds.of({"tensors": {"/layer1/*": 1e-2}, "operators": {"Conv": 1e-6}})
    assert "allowed 1e-06" in find_complaint(report, loose)
    assert "allowed 1e-06" in find_complaint(report, Thresholds.of({"operators": {"Conv": 1e-6}}))
