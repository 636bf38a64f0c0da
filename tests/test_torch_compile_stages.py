"""torch.compile's stages: what is handed to eager, to AOTAutograd alone and to inductor, and inductor's parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_debug import compare
from precision_debug.errors import UsageError
from precision_debug.protocols import Rung
from precision_debug.records import ModelFiles, SessionSpec

torch = pytest.importorskip("torch")

from precision_debug_torch import TorchBackend  # noqa: E402

MODULE = """
import torch
class Chain(torch.nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * torch.exp(-x * x)
        return (y.softmax(-1) + torch.sin(x * 3)).cumsum(-1)
def make():
    torch.manual_seed(0)
    return Chain(), (torch.randn(8, 33) * 3,)
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "chain.py").write_text(MODULE)
    return f"{tmp_path}/chain.py:make"


def _spec(**options: object) -> SessionSpec:
    return SessionSpec(model=ModelFiles(model_file="chain.py:make"), mode="torch_compile", options=options)


def test_the_stages_end_in_what_was_asked_for() -> None:
    backend = TorchBackend()
    told = [(rung.mode, rung.options.get("compile_backend")) for rung in backend.rungs(_spec())]
    assert told == [
        ("torch_fp32", None), ("torch_compile", "eager"), ("torch_compile", "aot_eager"), ("torch_compile", None),
    ]  # fmt: skip
    assert [rung.name for rung in backend.rungs(_spec(compile_backend="aot_eager"))] == [
        "float32", "eager", "aot_eager",
    ]  # fmt: skip


def test_what_is_switched_off_is_what_torch_knows_and_the_user_left() -> None:
    rung = Rung(name="inductor", mode="torch_compile")
    parts, whole = TorchBackend().switches(_spec(inductor={"pattern_matcher": "False"}), rung, ())
    assert {"max_fusion_size", "cpp.simdlen"} <= {*parts.items} <= {*torch._inductor.list_options()}
    assert "pattern_matcher" not in parts.items
    assert parts.options(["cpp.simdlen"]) == {"inductor": ["pattern_matcher=False", "cpp.simdlen=1"]}
    pasted = parts.snippet(["max_fusion_size"])
    assert pasted == "torch.compile(model, options={'pattern_matcher': False, 'max_fusion_size': 1})"
    assert whole.options(["inductor"]) == {"compile_backend": "aot_eager"}
    eager = Rung(name="eager", mode="torch_compile", options={"compile_backend": "eager"})
    assert TorchBackend().switches(_spec(), eager, ()) == ()


def test_a_graph_without_inductor_computes_what_eager_does(module: str) -> None:
    report = compare(module, run_mode="torch_compile", compile_backend="aot_eager", atol=0.0, rtol=0.0)
    assert report.verdict.value == "within tolerance"
    assert not report.layers  # no kernel of inductor's


def test_an_option_of_inductor_reaches_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, plain = [], torch.compile

    def listening(*args: object, **kwargs: object) -> object:
        seen.append(kwargs["options"])
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", listening)
    report = compare(module, run_mode="torch_compile", inductor={"max_fusion_size": "1"})
    assert report.verdict.value == "as expected"
    assert seen
    assert all(options["max_fusion_size"] == 1 for options in seen)


def test_an_option_that_torch_does_not_have_is_one_line(module: str) -> None:
    with pytest.raises(UsageError, match=r"--option inductor: torch\.compile refuses it"):
        compare(module, run_mode="torch_compile", inductor={"no_such_part": "1"})
