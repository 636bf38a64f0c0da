"""torch_compile of the transformers library's models: constants that they make, caches, masks that ask for values."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import precision_debug
from precision_debug.cli import main
from precision_debug.records import Status
from precision_debug.report.model import Report, Verdict

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

MODELS = """
import torch
import transformers

SIZES = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=64,
             max_position_embeddings=64)


def made(kind, config):
    torch.manual_seed(0)
    return kind(config).eval(), {"input_ids": torch.arange(16).reshape(2, 8)}


def gpt2():
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32)
    return made(transformers.GPT2LMHeadModel, config)


def bert():
    return made(transformers.BertModel, transformers.BertConfig(**SIZES))


def t5():
    config = transformers.T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, vocab_size=64,
                                   decoder_start_token_id=0)
    model, inputs = made(transformers.T5ForConditionalGeneration, config)
    return model, {**inputs, "decoder_input_ids": torch.arange(8).reshape(2, 4)}


def mixtral():
    config = transformers.MixtralConfig(num_key_value_heads=1, num_local_experts=2, **SIZES)
    return made(transformers.MixtralForCausalLM, config)
"""


def compared(name: str, folder: Path) -> Report:
    logging.disable(logging.CRITICAL)
    try:
        (folder / "models.py").write_text(MODELS)
        return precision_debug.compare(
            f"{folder / 'models.py'}:{name}", run_mode="torch_compile", device="cpu", explain="off"
        )
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "name", ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "mixtral", "t5"))]
)
def test_its_tensors_are_seen(name: str, tmp_path: Path) -> None:
    report = compared(name, tmp_path)
    assert report.verdict is Verdict.EXPECTED
    assert not [row for row in report.rows if row.status is Status.FAIL]
    assert report.coverage.compared > 0.85 * report.coverage.total
    asked = any("asks for values" in note for note in report.target.notes)
    assert asked == (name in ("bert", "mixtral"))


BRANCHING = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.first(x)
        if x.sum().item() > 0:
            y = self.second(y) * 2
        return y.sin() + x.max().item()


def build():
    torch.manual_seed(0)
    return Net().eval(), torch.ones(2, 8)
"""


@pytest.mark.slow
def test_each_way_through_a_model_has_a_graph_of_its_own(tmp_path: Path) -> None:
    """Three samples of one shape: two take one branch with other numbers, one the other."""
    import numpy as np

    (tmp_path / "net.py").write_text(BRANCHING)
    np.savez(tmp_path / "x.npz", x=np.stack([np.full((2, 8), v, np.float32) for v in (1.0, -1.0, 2.0)]))
    output = tmp_path / "o.json"
    main(["--model_file", f"{tmp_path / 'net.py'}:build", "--run_mode", "torch_compile", "--device", "cpu", "--inputs",
          str(tmp_path / "x.npz"), "--option", "samples_axis=0", "--explain", "off", "--quiet", "--output",
          str(output)])  # fmt: skip
    report = Report.load(output)
    assert not [row.name for row in report.rows if row.status is Status.FAIL]
    assert {row.name for row in report.compared} >= {"first/addmm", "sin", "output"}


ATTENTION = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        h = self.norm(x)
        return self.out(x + self.attention(h, h, h, need_weights=False)[0])


def build():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 4, 16)
"""


def test_attention_that_eager_runs_as_one_operator(tmp_path: Path) -> None:
    """What lies inside is the compiled side's alone; what comes before and after is compared."""
    import torch

    (tmp_path / "net.py").write_text(ATTENTION)
    before = torch.backends.mha.get_fastpath_enabled()
    report = precision_debug.compare(f"{tmp_path / 'net.py'}:build", run_mode="torch_compile", device="cpu")
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert not [row for row in report.rows if row.status is Status.FAIL]
    assert {row.name for row in report.compared} >= {
        "norm/layer_norm", "attention/_native_multi_head_attention", "out/addmm", "output",
    }  # fmt: skip


def test_operators_that_differ_are_named() -> None:
    from precision_debug_torch.engine.compiled_session import _find_first_other

    assert _find_first_other(["aten.add", "aten.mul"], ["aten.add", "aten.sub", "aten.mul"]) == ("aten.sub", "aten.mul")
    assert _find_first_other(["aten.add"], ["aten.add", "aten.sub"]) == ("aten.sub", "-")
