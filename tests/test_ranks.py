"""A serving engine's recording beside transformers' modules: stacked projections, tensor-parallel ranks, stages."""


from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warm import run_together

import precision_debug
from precision_debug.products.dumps.dump import read_dump
from precision_debug.products.dumps.pairing.fingerprint import take
from precision_debug.products.dumps.pairing.found_tensor import FoundTensor, group_by_stage
from precision_debug.products.dumps.pairing.fused import Projections, Stack, find_best_stack, is_same_module
from precision_debug.recording.recorder import Recorder

ROOT = Path(__file__).parents[1]
ENGINE = ROOT / "examples" / "recorder" / "serving_engine.py"
IDS = np.random.default_rng(0).integers(0, 128, (1, 12))
LAYERS = 4


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=128, max_position_embeddings=64, head_dim=16, initializer_range=0.1,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    np.save(folder / "ids.npy", IDS)
    return folder


def recorded(llama: Path, dump: Path, *words: str) -> Path:
    """By the example, in processes that talk over gloo: of its own as it starts them, beyond two as forks."""
    command = [str(ENGINE), str(llama), str(llama / "ids.npy"), str(dump), *words]
    asked = dict(zip(words[::2], words[1::2], strict=False))
    count = int(asked.get("--ranks", 1)) * int(asked.get("--stages", 1))
    if count == 2:
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT, timeout=900)
    else:
        run_together(*[command] * count, env=os.environ, engine="torch", timeout=900, ranks=True)
    return dump


def wanted(name: str) -> list[str]:
    """The modules of transformers' Llama that a module of the engine's is, as both are written."""
    front = name.rpartition(".")[0]
    if name.endswith("qkv_proj"):
        return [f"{front}.{one}_proj" for one in "qkv"]
    if name.endswith("gate_up_proj"):
        return [f"{front}.{one}_proj" for one in ("gate", "up")]
    return [name]


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--ranks", "2"], ""),
        (["--ranks", "4", "--wrong", "1"], "model.layers.1.mlp.gate_proj"),
        (["--ranks", "2", "--stages", "2", "--wrong", "3", "--anew"], "model.layers.3.mlp.gate_proj"),
    ],
    ids=["two ranks", "four ranks, two heads of k", "two stages of two ranks"],
)
def test_ranks_and_stages_are_one_side(llama: Path, tmp_path: Path, words: list[str], culprit: str) -> None:
    """Against one process of transformers: every module of the engine is a row, fused ones as what they were fused of.

    Four ranks share two heads of k and v; stages number their layers from 0.
    """
    dump = recorded(llama, tmp_path / "dump", *words)
    report = precision_debug.compare(str(llama), run_mode=str(dump), baseline="torch_fp32", inputs={"input_ids": IDS})
    compared = {row.name.rpartition("/")[0]: row for row in report.rows if row.comparison is not None}
    modules = {"model.embed_tokens", "model.norm", "lm_head"}
    for number in range(LAYERS):
        front = f"model.layers.{number}"
        modules |= {f"{front}.{one}" for one in ("input_layernorm", "post_attention_layernorm", "self_attn.o_proj",
                                                 "mlp.down_proj")}  # fmt: skip
        modules |= set(wanted(f"{front}.self_attn.qkv_proj") + wanted(f"{front}.mlp.gate_up_proj"))
    assert modules <= set(compared)
    how = compared["model.layers.3.self_attn.k_proj"].extra["Found by"]
    assert f"{words[1]} ranks joined along axis 1" in how
    assert "part 2 of 3" in how
    assert "the same on" in compared["model.layers.3.mlp.down_proj"].extra["Found by"]
    if culprit:
        assert report.explanation.culprits[0].name.startswith(f"{culprit}/")
        assert str(report.verdict) == "out of tolerance"
    else:
        assert str(report.verdict) == "inconclusive"  # torch shows many tensors within each module; a hook has one
        assert not report.explanation.culprits
        assert all((row.comparison.relative_l2 or 0) < 1e-5 for row in compared.values() if row.comparison is not None)


def test_pipeline_stages_number_their_layers_anew(tmp_path: Path) -> None:
    """Layers 0 to 5 on rank 0, 6 to 11 on rank 1, both called 0 to 5; by what the values say, not by the names."""
    made = np.random.default_rng(0)
    truth = {f"layers.{n}": made.normal(size=(4, 8)).astype(np.float32) for n in range(12)}
    for rank in (0, 1):
        record = Recorder(tmp_path, rank=rank)
        for n in range(6):
            record("Linear", f"layers.{n}", truth[f"layers.{n + 6 * rank}"])
    found = [FoundTensor(name=one.name, value=one.value, shape=one.shape, parts=one.parts, ranks=one.ranks)
             for one in read_dump(str(tmp_path)).tensors]  # fmt: skip
    assert [one.ranks for one in found] == [(0, 1)] * 6

    def score(ones: Any) -> int:
        values = [form.value for one in ones for form in (one.forms if not one.parts else one.forms[:-1])]
        return sum(any(np.array_equal(value, known) for value in values) for known in truth.values())

    apart = {one.name: one for one in group_by_stage(found, score)}
    assert set(apart) == set(truth)
    for name, one in apart.items():
        np.testing.assert_array_equal(one.value, truth[name])
    assert [one.renumbered for one in apart.values()] == [False] * 6 + [True] * 6
    assert list(group_by_stage(found, lambda _: 0)) == found  # nothing told: as one stage


def test_more_than_ten_ranks_stay_in_order(tmp_path: Path) -> None:
    whole = np.arange(48, dtype=np.float32).reshape(2, 24)
    for rank in range(12):
        Recorder(tmp_path, rank=rank)("Linear", "y", whole[:, 2 * rank : 2 * rank + 2])
    (one,) = read_dump(str(tmp_path)).tensors
    assert one.ranks == tuple(range(12))
    np.testing.assert_array_equal(np.concatenate([one.value, *one.parts], 1), whole)


@pytest.mark.parametrize(
    ("order", "groups", "copies"),
    [((0, 1, 2), 1, 1), ((0, 1, 2), 2, 1), ((2, 0, 1), 1, 1), ((0, 1, 2), 8, 1), ((0, 1, 2), 4, 2)],
    ids=["one after the other", "two ranks", "v first", "a head at a time", "heads shared by two ranks"],
)
def test_how_projections_are_stacked_their_values_say(order: tuple[int, ...], groups: int, copies: int) -> None:
    """Stacked by hand, an element at a time."""
    made = np.random.default_rng(0)
    of = Projections(names=("q", "k", "v"), sizes=(64, 16, 16), rows=5)
    parts = [made.normal(size=(5, size)).astype(np.float32) for size in of.sizes]
    columns = []
    for group in range(groups):
        for place in order:
            shared = copies if place else 1
            wide = of.sizes[place] * shared // groups
            start = group // shared * wide
            columns += [parts[place][:, start + at] for at in range(wide)]
    value = np.stack(columns, 1)
    prints = {name: take(part) for name, part in zip(of.names, parts, strict=True)}
    stack, far = find_best_stack(value, of, prints, ranks=1, known=()) or (None, 1.0)
    assert stack is not None
    assert far == 0
    for part, known in zip(stack.taken_apart(value, of) or (), parts, strict=True):
        np.testing.assert_array_equal(part, known)
    assert find_best_stack(made.normal(size=value.shape), of, prints, ranks=1, known=(Stack(order=(0, 1)),)) is None


@pytest.mark.parametrize(
    ("name", "same"),
    [("model.layers.1.self_attn.qkv_proj", True), ("net_model_layers_1_self_attn_qkv_proj", True),
     ("model.layers.11.self_attn.qkv_proj", False), ("model.layers.1.mlp.gate_up_proj", False)],
)  # fmt: skip
def test_a_stacked_projection_is_called_as_its_parts(name: str, same: bool) -> None:
    assert is_same_module(name, [f"model.layers.1.self_attn.{one}_proj" for one in "qkv"]) is same


def test_a_layer_that_hands_on_two_parts_is_recorded_as_their_sum(tmp_path: Path) -> None:
    """What vLLM's modules return, in torch: a layer (hidden, residual), a norm (normed, residual), whatever the order
    in which a model calls them; a tuple of equal shapes from a module that knows no residual is no sum."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Norm(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *args: Any) -> Any:  # as vLLM's CustomOp
            x = args[0] if len(args) == 1 else args[0] + args[1]
            return x / x.abs().max() if len(args) == 1 else (x / x.abs().max(), x)

    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mlp = Norm(), torch.nn.Linear(8, 8)

        def forward(self, positions: Any, hidden: Any, residual: Any) -> Any:
            hidden, residual = (self.norm(hidden), hidden) if residual is None else self.norm(hidden, residual)
            return self.mlp(hidden), residual

    class Rotary(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.turn = torch.nn.Identity()

        def forward(self, q: Any, k: Any) -> Any:
            return self.turn(q), k

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rotary, self.layers, self.norm = Rotary(), torch.nn.ModuleList([Layer(), Layer()]), Norm()

        def forward(self, x: Any) -> Any:
            x, residual = self.rotary(x, x * 2)[0], None
            for layer in self.layers:
                x, residual = layer(positions=None, hidden=x, residual=residual)
                truth.append((x + residual).detach().numpy())
            return self.norm(x, residual)[0]

    truth: list[Any] = []
    model = Model()
    Recorder(tmp_path).watch(model, "model")
    x = torch.ones(3, 8)
    last = model(x).detach().numpy()
    found = {one.name: one.value for one in read_dump(str(tmp_path)).tensors}
    for number, value in enumerate(truth):
        np.testing.assert_array_equal(found[f"model.layers.{number}"], value)
    np.testing.assert_array_equal(found["model.norm"], last)
    np.testing.assert_array_equal(found["model.rotary"], x.numpy())
