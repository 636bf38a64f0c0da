"""Tokens of real language models: faults planted into one layer of a transformers folder, BF16, GGUF."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.cli import main

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.engine("transformers")
MAKE = Path(__file__).parents[1] / "examples" / "rollout" / "make.py"
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
IDS = np.random.default_rng(3).integers(0, 64, (2, 10))


def save(folder: Path, *, off: str = "", share: float = 0.1) -> Path:
    """off: a parameter that is off by this share."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
            if name == off:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
                parameter.add_(noise * share * parameter.std())
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("tokens") / "good")


@pytest.mark.parametrize("fault", ["model.layers.0.self_attn.v_proj", "lm_head"])  # down_proj: the example, below
def test_a_stale_weight_is_the_operator_that_moves_the_worst_token(good: Path, tmp_path: Path, fault: str) -> None:
    """As after a weight sync that left one layer out."""
    stale = save(tmp_path / "stale", off=f"{fault}.weight")
    report = precision_debug.compare(
        str(stale), run_mode="torch_fp32", baseline_model=str(good), inputs={"input_ids": IDS}
    )
    assert report.token_effects is not None
    assert report.tokens is not None
    effects = report.token_effects
    assert effects.operators[0].name.startswith(f"{fault}/")
    assert abs(float(effects.operators[0].left or 0)) < 0.3 * abs(float(effects.whole))
    assert report.tokens.tokens[effects.token].difference == pytest.approx(effects.whole, rel=0.3)
    assert all(report.tokens.profiles.values())


def test_log_probabilities_are_those_of_transformers(good: Path) -> None:
    report = precision_debug.compare(str(good), run_mode="torch_bf16", inputs={"input_ids": IDS}, explain="off")
    model = transformers.LlamaForCausalLM.from_pretrained(good).eval()
    ids = torch.from_numpy(IDS)
    with torch.no_grad():
        logs = model(ids).logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    assert report.tokens is not None
    told = [one.base for one in report.tokens.tokens if one.id is not None]
    assert told == pytest.approx(logs.ravel().tolist(), abs=1e-4)
    assert 0 < report.tokens.sequences[0].mean_abs < 0.2


def test_a_masked_language_model_has_no_tokens(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, vocab_size=64, initializer_range=0.3))
    model.save_pretrained(tmp_path / "bert")
    report = precision_debug.compare(
        str(tmp_path / "bert"), run_mode="torch_bf16", inputs={"input_ids": IDS}, explain="off"
    )
    assert report.tokens is None
    shutil.rmtree(tmp_path / "bert")


def written(folder: Path, kind: str, config: Any, change: Callable[[Any], None] = lambda _: None) -> Path:
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
            if name.endswith("q_norm.weight"):
                parameter.copy_(torch.linspace(0.5, 1.5, len(parameter)))
        change(model)
    model.save_pretrained(folder)
    return folder


def permuted(model: Any) -> None:
    """Rows of q as another engine's checkpoint has them."""
    weight = model.model.layers[0].self_attn.q_proj.weight
    weight.copy_(weight.view(4, 2, 4, 32).transpose(1, 2).reshape(32, 32))


def head_in_bfloat16(model: Any) -> None:
    model.lm_head.weight.copy_(model.lm_head.weight.bfloat16().float())


def norm_of_ones(model: Any) -> None:
    model.model.layers[0].self_attn.q_norm.weight.fill_(1)


FAULTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], Callable[[Any], None], str]] = {
    "q permuted": ("LlamaForCausalLM", "LlamaConfig", {}, {}, permuted, "model.layers.0.self_attn.q_proj/mm"),
    "lm_head in bfloat16": ("LlamaForCausalLM", "LlamaConfig", {}, {}, head_in_bfloat16, "lm_head/mm"),
    "q_norm missing": (
        "Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 8}, {"head_dim": 8}, norm_of_ones,
        "model.layers.0.self_attn.q_norm/mul#2",
    ),
    "sliding window ignored": (
        "MistralForCausalLM", "MistralConfig", {"sliding_window": 4}, {"sliding_window": None}, lambda _: None,
        "model.layers.0.self_attn/scaled_dot_product_attention",
    ),
}  # fmt: skip
"""Class, its configuration's, settings of both sides, what is done to the target, and who must be named."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_language_model_is_named(tmp_path: Path, fault: str) -> None:
    kind, config, ours, theirs, change, label = FAULTS[fault]
    sizes = SIZES | {"num_hidden_layers": 1}  # stale weights, above, have layers before and behind them
    base = written(tmp_path / "base", kind, getattr(transformers, config)(**sizes, **ours))
    target = written(tmp_path / "target", kind, getattr(transformers, config)(**sizes, **theirs), change)
    report = precision_debug.compare(
        str(target), run_mode="torch_fp32", baseline_model=str(base), inputs={"input_ids": IDS}
    )
    assert report.explanation is not None
    assert report.token_effects is not None
    assert report.explanation.culprits[0].name == label
    assert report.token_effects.operators[0].name == label


def test_the_example_is_what_its_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """examples/rollout/README.md and docs/tutorials/rollout.md."""
    runpy.run_path(str(MAKE))["save"](tmp_path / "trainer")
    runpy.run_path(str(MAKE))["save"](tmp_path / "stale", stale=True)
    np.savez(tmp_path / "ids.npz", input_ids=np.random.default_rng(1).integers(0, 128, (2, 16)))
    words = ["--model_dir", f"{tmp_path}/stale", "--baseline_model", f"{tmp_path}/trainer", "--run_mode", "torch_fp32",
             "--inputs", f"{tmp_path}/ids.npz", "--output", f"{tmp_path}/r.json"]  # fmt: skip
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "`model.layers.1.mlp.down_proj/mm` alone" in said
    assert "importance ratio 1.092 to 1.152" in said


def test_a_gguf_has_tokens_and_the_operator_that_moves_the_worst(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="needs xllamacpp")
    pytest.importorskip("gguf", reason="needs gguf, which writes the models")
    import gguf_files

    values = gguf_files.weights()
    other = {**values, "blk.1.ffn_down.weight": gguf_files.weights(9)["blk.1.ffn_down.weight"]}
    good = gguf_files.write(tmp_path / "F32.gguf")
    wrong = gguf_files.write(tmp_path / "wrong.gguf", values=other)
    feeds = {"input_ids": gguf_files.ids()}
    report = precision_debug.compare(wrong, run_mode="gguf_fp32", baseline_model=good, inputs=feeds)
    assert report.tokens is not None
    assert report.token_effects is not None
    assert report.tokens.sequences[0].tokens == feeds["input_ids"].size - 1
    assert report.token_effects.operators[0].name == "ffn_out-1"
    assert report.tokens.profiles
