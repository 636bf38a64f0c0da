"""Healthy training steps of known architectures: nobody is blamed in any mode, and hooks change no gradient's bits."""

# ruff: noqa: E402

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.backend import open_model
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import Model, example_feeds, from_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report.lead import lead_sentences

MODES = ("torch_autocast_bf16", "torch_autocast_fp16", "torch_bf16")
TOKENS = torch.randint(1, 60, (2, 12), generator=torch.Generator().manual_seed(4))


def bert() -> tuple[Any, Any]:
    """Post-norm encoder with a head of masked words."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForMaskedLM(config), {"input_ids": TOKENS, "labels": TOKENS.roll(1, 1)}


def llama() -> tuple[Any, Any]:
    """Decoder with RMS norm, rotary embeddings, grouped queries and a gated feed-forward part."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config), {"input_ids": TOKENS, "labels": TOKENS.clone()}


def t5() -> tuple[Any, Any]:
    """Encoder and decoder with relative positions and no scale in front of softmax."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config), {"input_ids": TOKENS, "labels": TOKENS.flip(1)}


class Inverted(nn.Module):
    """EfficientNet's block: expand, depthwise, squeeze and excite, project, add."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width
        self.expand, self.n1 = nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise, self.n2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        self.squeeze, self.excite = nn.Conv2d(wide, width // 2, 1), nn.Conv2d(width // 2, wide, 1)
        self.project, self.n3 = nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Any) -> Any:
        y = F.silu(self.n2(self.depthwise(F.silu(self.n1(self.expand(x))))))
        gate = torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.n3(self.project(y * gate))


class EfficientNet(nn.Module):
    """A stem, two of EfficientNet's blocks, and a classifier, as timm builds them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.blocks, self.head = nn.Sequential(Inverted(8), Inverted(8)), nn.Linear(8, 10)

    def forward(self, x: Any, labels: Any) -> Any:
        x = self.blocks(F.silu(self.norm(self.stem(x))))
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


def efficientnet() -> tuple[Any, Any]:
    drawn = torch.Generator().manual_seed(5)
    return EfficientNet(), {"x": torch.randn(6, 3, 16, 16, generator=drawn), "labels": torch.arange(6)}


BUILDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "bert": bert, "llama": llama, "t5": t5, "efficientnet": efficientnet,
}  # fmt: skip


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


def model_of(name: str) -> tuple[Model, Any]:
    if name != "efficientnet":
        pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    module, inputs = BUILDS[name]()
    module.train()
    return dataclasses.replace(from_module(module, inputs), optimiser=adamw), inputs


@pytest.mark.parametrize("mode", [*MODES, "torch_fp32"])
@pytest.mark.parametrize("name", BUILDS)
def test_hooks_change_no_bit_of_a_gradient(name: str, mode: str) -> None:
    model, _ = model_of(name)
    found = []
    for hook in (None, lambda *_: None):
        session = open_model(model, mode, {"step": "backward", "device": "cpu"}, [example_feeds(model)])
        outputs = session.run(example_feeds(model), hook)
        found.append({one: np.array(outputs[one]).tobytes() for one in outputs})
        session.close()
    plain, watched = found
    learned = [one for one, parameter in model.module.named_parameters() if parameter.requires_grad]
    assert {f"gradient/{one}" for one in learned} <= plain.keys()
    assert plain == watched


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BUILDS)
def test_nobody_is_blamed_in_a_healthy_step(name: str, mode: str) -> None:
    model, inputs = model_of(name)
    step = "backward" if mode == "torch_bf16" else "optimiser"  # parameters in bfloat16 do lose updates
    report = compare_module(
        model.module, inputs, run_mode=mode, device="cpu", optimiser=model.optimiser, settings={"step": step},
        explain="fast", tolerance=Tolerance(given=False),
    )  # fmt: skip
    said = lead_sentences(report)[0].en
    assert report.explanation is not None
    assert [culprit.name for culprit in report.explanation.culprits] == [], said
    assert report.exit_status == 0, said
