"""With --lang zh, whatever a verb says of a file is Chinese: names, types and numbers alone stay as they are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from precision_debug.cli import module_of

pytest.importorskip("onnx", reason="needs onnx")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DIGITS, IMAGES = EXAMPLES / "digits" / "digits.onnx", EXAMPLES / "digits" / "test_images.npz"

_WORDS = re.compile(
    r"\b(input|output|operators|weights|elements|to|mean|sample|samples|takes|refuses|by default|chosen|random|from|"
    r"whole numbers|optional|nothing|unknown|not finite|a graph of|layers|backend|in)\b(?! = )"
)
"""Words of ours. What names of a model may be is looked for only where a line begins, or behind its names."""


def said(capsys: pytest.CaptureFixture[str], verb: str, *arguments: object) -> list[str]:
    assert module_of(verb).run([*map(str, arguments), "--lang", "zh"]) in (0, 1)
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]


def english(line: str) -> str:
    """What is left of a line without what stays as it is: names in the files at hand, paths, types, shapes."""
    return re.sub(r"/\S+|`[^`]*`|\[[^]]*\]|python -m .*|--\S+( \S+)?", "", line)


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "model", DIGITS), ("inspect", "model", DIGITS, "--show", "layers"),
        ("inspect", "model", DIGITS, "--show", "weights"), ("inspect", "data", IMAGES), ("inputs", DIGITS),
    ],
    ids=lambda arguments: " ".join(str(one).rpartition("/")[2] for one in arguments),
)  # fmt: skip
def test_no_line_of_a_model_or_a_file_stays_english(
    arguments: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, str(arguments[0]), *arguments[1:])
    assert len(lines) > 1
    assert any("\u4e00" <= letter <= "\u9fff" for line in lines for letter in line)
    names = {"input"}  # of the model itself
    left = {line: sorted(set(_WORDS.findall(english(line))) - names) for line in lines}
    assert not {line: words for line, words in left.items() if words}


def test_odd_values_and_open_sizes_are_worded_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    weight = numpy_helper.from_array(np.array([1.0, np.inf, np.nan], np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"], name="m")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.array([1.0, np.nan, np.inf], np.float32))
    text = "\n".join(said(capsys, "inspect", "model", tmp_path / "m.onnx", "--show", "weights"))
    assert "w  float32 [3]  1 至 1，2 个非有限值" in text
    assert "float32 形状未知" in text
    assert "导出工具未知" in text
    text = "\n".join(said(capsys, "inspect", "data", tmp_path / "x.npz"))
    assert "样本 0：" in text
    assert "，1 个 NaN，1 个 Inf" in text
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    text = "\n".join(said(capsys, "inputs", tmp_path / "m.onnx"))
    assert "默认 [2, 3]（批大小 2 为自选），0 到 1 的随机数" in text
