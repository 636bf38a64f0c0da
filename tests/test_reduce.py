"""reduce: a planted fault is cut down to its operator, and the part shows it again from its files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import helper
from onnx_models import if_model, model, value

import precision_debug
from precision_debug.cli import main
from precision_debug.onnx.submodel import Part, Parts
from precision_debug.products.tools.reduce import _describe_script
from precision_debug.records import Status


def chain(path: Path) -> Path:
    """Twelve harmless operators with x * x in the middle, which overflows FP16 at 1000."""
    nodes = []
    last = "x"
    for place in range(12):
        name = f"t{place}"
        if place == 6:
            nodes.append(helper.make_node("Mul", [last, last], [name], name="square"))
        elif place == 7:
            nodes.append(helper.make_node("Sqrt", [last], [name], name="root"))
        else:
            nodes.append(helper.make_node("Add", [last, "zero"], [name], name=f"add{place}"))
        last = name
    zero = {"zero": np.zeros(1, np.float32)}
    onnx.save(model(nodes, [value("x", [4])], [value("t11", [4])], zero), path)
    np.savez(path.with_suffix(".npz"), x=np.array([1, 2, 3, 1000], np.float32))
    return path


def test_the_operator_that_overflows_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain(tmp_path / "chain.onnx")
    command = ["reduce", "--model_file", "chain.onnx", "--run_mode", "ort_fp16_sim", "--inputs", "chain.npz"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert holds_approved(printed)
    part = onnx.load("chain.part.onnx")
    onnx.checker.check_model(part, full_check=True)
    assert [node.op_type for node in part.graph.node] == ["Mul"]
    report = precision_debug.compare("chain.part.onnx", run_mode="ort_fp16_sim", inputs="chain.part.npz", explain="off")
    assert [row.name for row in report.rows if row.status is Status.FAIL] == ["t6"]
    assert main(["reduce", "--model_file", "chain.onnx", "--run_mode", "ort_opt", "--inputs", "chain.npz"]) == 1
    assert "nothing fails" in capsys.readouterr().err


def test_files_of_its_names_that_are_somebody_elses_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain(tmp_path / "chain.onnx")
    command = ["reduce", "--model_file", "chain.onnx", "--run_mode", "ort_fp16_sim", "--inputs", "chain.npz", "--quiet"]
    for name in ("chain.part.onnx", "chain.part.npz"):
        Path(name).write_bytes(b"somebody's own")
        assert main(command) == 2
        said = capsys.readouterr().err
        assert f"{name}: already exists" in said
        assert "--part" in said
        assert Path(name).read_bytes() == b"somebody's own"
        Path(name).unlink()
    assert main(command) == 0
    assert main(command) == 0, "its own it writes again"
    Path("named.onnx").write_bytes(b"somebody's own, whoever names it")
    assert main([*command, "--part", "named.onnx"]) == 2
    assert Path("named.onnx").read_bytes() == b"somebody's own, whoever names it"


def test_a_model_that_is_no_onnx_file_is_refused(fake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "--model_file", fake, "--run_mode", "fake_fp16"]) == 2
    assert "only .onnx models" in capsys.readouterr().err


def values_of(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of the main graph, by ONNX's own reference implementation."""
    from onnx.reference import ReferenceEvaluator

    names = [name for node in proto.graph.node for name in node.output]
    found = {}
    for name in names:
        one = onnx.ModelProto()
        one.CopyFrom(proto)
        del one.graph.output[:]
        one.graph.output.append(helper.make_empty_tensor_value_info(name))
        found[name] = np.asarray(ReferenceEvaluator(one).run(None, feeds)[0])
    return {**feeds, **found}


@pytest.mark.parametrize("wanted", [1, 2, 5, 7])
def test_the_smallest_part_is_found_in_few_questions(tmp_path: Path, wanted: int) -> None:
    proto = onnx.load(chain(tmp_path / "chain.onnx"))
    feeds = {"x": np.array([1, 2, 3, 4], np.float32)}
    parts = Parts(proto, values_of(proto, feeds), "t6")
    asked: list[int] = []

    def shows(part: Part) -> bool:
        asked.append(part.nodes)
        return part.nodes >= wanted

    found = parts.smallest(shows)
    assert found is not None
    assert found.nodes == wanted
    assert len(asked) <= 6
    assert parts.smallest(lambda _: False) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_part_gives_what_the_whole_gave(count: int) -> None:
    """Also where a body reads what lies around it."""
    from onnx.reference import ReferenceEvaluator

    proto = if_model()
    random = np.random.default_rng(0)
    feeds = {
        item.name: random.random([side.dim_value or 2 for side in item.type.tensor_type.shape.dim]).astype(
            helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        )
        for item in proto.graph.input
    }
    values = values_of(proto, feeds)
    output = proto.graph.output[0].name
    part = Parts(proto, values, output).last(count)
    onnx.checker.check_model(part.proto)
    again = ReferenceEvaluator(part.proto).run(None, dict(part.feeds))[0]
    assert np.array_equal(again, values[output])


def test_an_engines_own_fault_comes_with_a_script_for_its_developers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The batch norm's mean and the inputs share an offset, so that folding it into the weights rounds elsewhere."""
    random = np.random.default_rng(0)
    weights = random.normal(size=(4, 3, 3, 3)).astype(np.float32)
    ones = np.ones(4, np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["before"]),
        helper.make_node("Conv", ["before", "w"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "variance"], ["normed"]),
        helper.make_node("Sigmoid", ["normed"], ["after"]),
    ]
    constants = {"w": weights, "scale": ones, "bias": ones, "mean": 1e4 * weights.sum((1, 2, 3)), "variance": ones}
    onnx.save(model(nodes, [value("x", [1, 3, 8, 8])], [value("after", None)], constants), tmp_path / "bn.onnx")
    np.savez(tmp_path / "bn.npz", x=(random.normal(size=(1, 3, 8, 8)) + 1e4).astype(np.float32))
    command = ["reduce", "--model_file", "bn.onnx", "--run_mode", "ort_opt", "--inputs", "bn.npz", "--quiet"]
    assert main(command) == 0
    assert holds_approved(capsys.readouterr().out)
    text = Path("bn.part.py").read_text()
    assert len(text.splitlines()) <= 22
    assert "import precision_debug" not in text
    done = subprocess.run([sys.executable, "-I", "bn.part.py"], capture_output=True, text=True, check=True)
    errors = dict(re.findall(r"^(.+): relative L2 error (\S+),", done.stdout, re.MULTILINE))
    assert float(errors["no optimiser"]) < 1e-6 < 1e-4 < float(errors["every optimiser"])
    assert float(next(error for name, error in errors.items() if name.startswith("without"))) < 1e-4
    assert main(command) == 0, "its own it writes again"
    Path("bn.part.py").write_text("somebody's own")
    assert main(command) == 2


def test_a_fault_that_needs_what_comes_behind_it_ends_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that fuses up to a later tensor is right where a part ends before it."""
    import tempfile

    from precision_debug.codec import encode
    from precision_debug.products.tools import reduce
    from precision_debug.records import ModelFiles, RunSpec

    path, asked, plain = chain(tmp_path / "chain.onnx"), [], reduce._does_part_fail

    def shows(spec: RunSpec, part: Part, *, name: str, said: object) -> bool:
        asked.append(name)
        return name != "t6" and plain(spec, part, name=name, said=lambda _: None)

    monkeypatch.setattr(reduce, "_does_part_fail", shows)
    monkeypatch.setattr(tempfile, "tempdir", None)
    spec = RunSpec(
        model=ModelFiles(model_file=str(path)), run_mode="ort_fp16_sim", inputs=str(path.with_suffix(".npz"))
    )
    job = {"spec": encode(spec), "tensor": "", "file": str(tmp_path / "chain.part.onnx")}
    found = reduce.reduce_in_child(job, tmp_path, lambda _: None)
    assert asked[0] == "t6"
    assert found["tensor"] == "t7"
    assert found["operators"][-1] == ("Sqrt", "t7")


@pytest.mark.parametrize(("passes", "verb"), [(("A",), "A brings"), (("A", "B"), "A and B bring")])
def test_a_script_says_which_passes_bring_it(passes: tuple[str, ...], verb: str) -> None:
    (line,) = _describe_script(Path("part.onnx"), passes)
    assert line.endswith(f"which {verb}")
