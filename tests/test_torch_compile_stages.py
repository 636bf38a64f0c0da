"""torch.compile's stages: what is handed to eager, to AOTAutograd alone and to inductor, and inductor's parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from approval import raises_approved

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
    with raises_approved(UsageError):
        compare(module, run_mode="torch_compile", inductor={"no_such_part": "1"})


@torch._dynamo.config.patch(recompile_limit=2)  # monkeypatch would leave the process without that setting
def test_every_session_with_other_options_is_compiled(module: str) -> None:
    """Beyond recompile_limit ways to compile one forward torch ran it uncompiled, and every option "mended" it."""
    torch.compiler.reset()
    backend, found = TorchBackend(), []
    spec = SessionSpec(model=ModelFiles(model_file=module), mode="torch_fp32")
    kept = backend.open(spec, ())  # the model stays loaded
    for size in (1, 2, 3):
        spec = SessionSpec(
            model=ModelFiles(model_file=module), mode="torch_compile",
            options={"device": "cpu", "inductor": {"max_fusion_size": str(size)}},
        )  # fmt: skip
        session = backend.open(spec, ())
        session.run({"x": np.ones((8, 33), np.float32)})
        found.append(len(session.layers))
        session.close()
    kept.close()
    assert all(found), f"kernels of each session: {found}"


def test_where_an_operator_was_called_is_in_the_model(tmp_path: Path) -> None:
    """Of torch's own modules in a row the nearest frame outside of torch was this tool's, and stood as the source."""
    (tmp_path / "row.py").write_text(
        "from torch import nn, ones\ndef make(): return nn.Sequential(nn.Linear(4, 4), nn.Tanh()), ones(2, 4)\n"
    )
    spec = SessionSpec(
        model=ModelFiles(model_file=f"{tmp_path}/row.py:make"), mode="torch_compile",
        options={"device": "cpu", "compile_backend": "eager"},
    )  # fmt: skip
    session = TorchBackend().open(spec, [{"input": np.ones((2, 4), np.float32)}])
    assert {meta.extra.get("Source", "") for meta in session.tensors} == {""}
    session.close()
