"""Factories that return a module and no example inputs: what is fed is read off the signature, or is what was given."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.engine.signature import forward_inputs

from precision_debug import cli, compare
from precision_debug.errors import InputError
from precision_debug.report import Report

pytestmark = pytest.mark.engine("torch")

FILE = """
import torch
from torch import nn

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, tokens, past=None, mask=None, scale: float = 2.0):
        x = self.table(tokens)
        x = x if mask is None else x * mask[..., None]
        return self.last(x) * scale if past is None else past

class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x)

def tokens(): return Tokens()
def picture(): return Picture()
def plain(): return nn.Sequential(nn.ReLU()), torch.randn(2, 5, 4)
def example(): return nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 5, 4)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text(FILE)
    return path


def ran(name: str, **more: Any) -> Report:
    report = compare(name, run_mode="torch_bf16", explain="off", **more)
    assert report.compared
    return report


def shapes(report: Report) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {info.name: (info.dtype, info.shape) for info in report.inputs}


def test_what_is_given_keeps_its_type(file: Path) -> None:
    np.savez(file.with_name("in.npz"), tokens=np.arange(6).reshape(2, 3), mask=np.ones((2, 3), np.float32))
    report = ran(f"{file}:tokens", inputs=str(file.with_name("in.npz")))
    assert shapes(report) == {"tokens": ("int64", (2, 3)), "mask": ("float32", (2, 3))}
    assert "aten.unsqueeze" in {row.op_type for row in report.rows}, "the mask reached its parameter, behind a gap"


def test_ids_are_whole_numbers_below_the_size_of_the_table(file: Path) -> None:
    report = ran(f"{file}:tokens", input_shapes={"tokens": (2, 5)})
    assert shapes(report) == {"tokens": ("int64", (2, 5))}
    assert 0 <= report.inputs[0].min <= report.inputs[0].max < 50  # type: ignore[operator]
    assert not any("left out" in str(note) for note in report.notes)


def test_pictures_are_floats_and_need_a_shape(file: Path) -> None:
    assert shapes(ran(f"{file}:picture", input_shapes={"x": (1, 3, 9, 9)})) == {"x": ("float32", (1, 3, 9, 9))}


def test_what_does_not_fit_is_one_line_that_says_what_to_do(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_file", f"{file}:picture", "--run_mode", "torch_bf16", "--output", str(file.with_name("r.json"))]
    assert cli.main([*words, "--input_shapes", "x:[2,5]"]) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert holds_approved(said)
    assert cli.main(words) == 2
    assert "give --input_shapes x:[...]" in capsys.readouterr().err
    assert cli.main([*words, "--input_shapes", "y:[2,5]"]) == 2
    assert "no input 'y'" in capsys.readouterr().err


def test_an_example_of_one_size_does_not_bind_what_is_fed(file: Path) -> None:
    np.savez(file.with_name("in.npz"), input=np.ones((3, 9, 4), np.float32))
    assert shapes(ran(f"{file}:example", inputs=str(file.with_name("in.npz")))) == {"input": ("float32", (3, 9, 4))}
    assert shapes(ran(f"{file}:example", input_shapes={"input": (1, 7, 4)})) == {"input": ("float32", (1, 7, 4))}
    with pytest.raises(InputError, match="the model expects"):
        ran(f"{file}:example", input_shapes={"input": (9, 4)})


@pytest.mark.parametrize("given", ["file", "arrays"])
def test_inputs_may_bear_the_names_of_the_file_beside_its_module(file: Path, given: str) -> None:
    make = pytest.importorskip("onnx", reason="onnx is not installed").helper
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    info = [make.make_tensor_value_info(name, 1, ["n", "t", size]) for name, size in (("x", 4), ("y", 4))]
    graph = make.make_graph([make.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    target = file.with_name("m.onnx")
    target.write_bytes(make.make_model(graph, ir_version=8, opset_imports=[make.make_opsetid("", 17)])
                       .SerializeToString())  # fmt: skip
    feeds = {"x": np.ones((2, 6, 4), np.float32)}
    np.savez(file.with_name("in.npz"), **feeds)
    report = compare(
        str(target), run_mode="ort_fp32", baseline_model=f"{file}:plain", baseline="torch_fp32", explain="off",
        inputs=str(file.with_name("in.npz")) if given == "file" else feeds,
    )  # fmt: skip
    assert report.verdict.value == "as expected"
    assert shapes(report) == {"input": ("float32", (2, 6, 4))}


def test_what_an_exported_file_says_is_no_guess(file: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    make = onnx.helper
    weight = np.zeros((4, 3, 3, 3), np.float32)
    nodes = [make.make_node("Conv", ["x", "w"], ["y"])]
    graph = make.make_graph(
        nodes, "g", [make.make_tensor_value_info("x", 1, ["batch", 3, 12, 10])],
        [make.make_tensor_value_info("y", 1, None)], [onnx.numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), file.with_name("m.onnx"))
    report = compare(
        str(file.with_name("m.onnx")), run_mode="ort_fp32", baseline="torch_fp32", baseline_model=f"{file}:picture"
    )
    assert shapes(report) == {"x": ("float32", (2, 3, 12, 10))}


MODELS = {
    "bert": ("BertConfig", "BertModel", {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 32, "n_head": 2, "n_layer": 1}),
    "t5": ("T5Config", "T5Model", {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_heads": 2, "num_layers": 1}),
    "vit": ("ViTConfig", "ViTModel", {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}),
    "whisper": (
        "WhisperConfig", "WhisperModel",
        {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "vocab_size": 99,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 40,
         "pad_token_id": 0},
    ),
    "wav2vec": (
        "Wav2Vec2Config", "Wav2Vec2Model",
        {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
    ),
    "llama": (
        "LlamaConfig", "LlamaForCausalLM",
        {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1},
    ),
    "clip": (
        "CLIPConfig", "CLIPModel",
        {"text_config": {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1},
         "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2,
                           "num_hidden_layers": 1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_of_transformers_need_nothing_given(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config, model, sizes = MODELS[name]
    path = tmp_path / "hub.py"
    path.write_text(
        f"import transformers\ndef make():\n    config = transformers.{config}(**{sizes!r})\n"
        f"    return transformers.{model}(config).eval()\n"
    )
    module = getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()
    needed = [meta for meta in forward_inputs(module) if not meta.optional]
    assert needed
    report = ran(f"{path}:make")
    assert {info.name for info in report.inputs} == {meta.name for meta in needed}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_torchscript_file_takes_what_is_given_too(tmp_path: Path) -> None:
    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(9, 4)

        def forward(self, rows: torch.Tensor, past: torch.Tensor | None = None) -> torch.Tensor:
            return torch.relu(self.table(rows)) if past is None else past

    torch.jit.script(Rows()).save(str(tmp_path / "rows.pt"))
    np.savez(tmp_path / "in.npz", rows=np.arange(4))
    file, inputs = str(tmp_path / "rows.pt"), str(tmp_path / "in.npz")
    report = compare(file, run_mode="torch_fp32", baseline="torch_fp32", inputs=inputs)
    assert shapes(report) == {"rows": ("int64", (4,))}


TIMM = """
import torch
from torch import nn


class Like(nn.Module):
    # what every model of timm has

    def __init__(self, built):
        super().__init__()
        self.pretrained_cfg = {"input_size": (3, 40, 48), "interpolation": "bicubic"}
        self.conv = nn.Conv2d(3, 4, 3)
        if built:
            self.patch_embed = nn.Module()
            self.patch_embed.img_size = (24, 32)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, tokens, src_key_padding_mask):
        return self.layer(self.table(tokens), src_key_padding_mask=src_key_padding_mask)


def trained(): return Like(False)
def built(): return Like(True)
def padded(): return Padded().eval()
"""


@pytest.mark.parametrize(("factory", "size"), [("trained", (40, 48)), ("built", (24, 32))])
def test_a_model_of_timm_tells_its_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factory: str, size: tuple[int, int]
) -> None:
    (tmp_path / "m.py").write_text(TIMM)
    assert shapes(ran(f"{tmp_path}/m.py:{factory}")) == {"x": ("float32", (2, 3, *size))}
    assert cli.main(["inputs", f"{tmp_path}/m.py:{factory}"]) == 0
    said = capsys.readouterr().out
    assert f"--run_mode torch_fp16 --input_shapes 'x:[2,3,{size[0]},{size[1]}]'" in said


def test_a_mask_of_padding_leaves_nothing_out(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(TIMM)
    report = ran(f"{tmp_path}/m.py:padded", input_shapes={"tokens": (2, 5), "src_key_padding_mask": (2, 5)})
    given = {info.name: info for info in report.inputs}["src_key_padding_mask"]
    assert (given.dtype, given.max) == ("bool", 0)
    assert any("zeros (nothing is padding)" in str(note) for note in report.notes)
    (row,) = report.outputs
    assert row.comparison is not None
    assert row.comparison.base.nan == 0, "where everything is masked, attention is NaN"
