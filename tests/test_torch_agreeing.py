"""What makes a compiled model compute as eager does: options and modules, each run before it is offered."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch import TorchBackend

from precision_debug import compare
from precision_debug.errors import BackendError, UsageError
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta
from precision_debug.report import lead
from precision_debug.search.fix import ENGINE_OPTION, UNCOMPILED

MODEL = """
import torch
from torch import nn

class Act(nn.Module):
    def forward(self, x):
        return nn.functional.hardswish(x) if torch.compiler.is_compiling() else nn.functional.gelu(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(32, 64), Act(), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))

def branches():
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.LayerNorm(32), nn.Linear(32, 8)).eval(), torch.randn(8, 32)

class Cancelling(nn.Module):
    def forward(self, x):
        return torch.sin((x * 3.0 + 200.0) - 200.0)

def cancelling():
    torch.manual_seed(0)
    return Cancelling().eval(), torch.randn(16, 64).bfloat16()
"""


@pytest.fixture
def models(tmp_path: Path) -> str:
    (tmp_path / "models.py").write_text(MODEL)
    return str(tmp_path / "models.py")


def _spec(**options: object) -> SessionSpec:
    return SessionSpec(
        model=ModelFiles(model_file="m.py:make"), mode="torch_compile", options={"device": "cpu", **options}
    )


def _tensors(dtype: str) -> tuple[TensorMeta, ...]:
    parts = ("x", "up/addmm", "act/gelu", "down/addmm", "down/add")
    return tuple(
        TensorMeta(name=name, node=name, op_type="aten.op" if "/" in name else "Input", dtype=dtype) for name in parts
    )


def test_only_what_is_not_as_eager_computes_is_tried() -> None:
    known = TorchBackend()
    assert [one.name for one in known.agreements(_spec(), _tensors("float32"), ())] == []
    low = known.agreements(_spec(), _tensors("bfloat16"), ())
    assert [one.name for one in low] == ["emulate_precision_casts=True"]
    assert low[0].settings == {"inductor": ["emulate_precision_casts=True"]}
    assert low[0].text == "model = torch.compile(model, options={'emulate_precision_casts': True})"
    done = _spec(inductor={"emulate_precision_casts": "True"})
    assert known.agreements(done, _tensors("float16"), ()) == ()
    fast = _spec(inductor={"cpp.enable_unsafe_math_opt_flag": "True", "max_fusion_size": "1"})
    (one,) = known.agreements(fast, _tensors("float32"), ())
    assert one.settings == {"inductor": ["cpp.enable_unsafe_math_opt_flag=False", "max_fusion_size=1"]}
    both = known.agreements(fast, _tensors("bfloat16"), ())
    assert both[-1].name == "emulate_precision_casts=True, cpp.enable_unsafe_math_opt_flag=False"
    assert known.agreements(SessionSpec(model=fast.model, mode="torch_fp32"), _tensors("bfloat16"), ()) == ()


def test_modules_that_are_most_of_a_model_are_not_left_out() -> None:
    known = TorchBackend()
    (one,) = known.agreements(_spec(), _tensors("float32"), [["act/gelu"]])
    assert one.modules == ("act",)
    assert holds_approved(one.text)
    assert [one.modules for one in known.agreements(_spec(), _tensors("float32"), [["act/gelu"], ["down/add"]])] == [
        ("act",)
    ]
    assert known.agreements(_spec(), _tensors("float32"), [["x"]]) == ()


def test_an_option_is_tried_and_the_truer_side_is_told(models: str) -> None:
    """The compiled model was said to have lost the precision, which it has kept, and nothing was offered."""
    report = compare(f"{models}:cancelling", run_mode="torch_compile", device="cpu")
    kept = report.to_keep
    assert kept is not None
    assert (kept.unit, kept.keys) == (ENGINE_OPTION, ("emulate_precision_casts=True",))
    assert kept.option == """--option 'inductor=["emulate_precision_casts=True"]'"""
    assert kept.state == "mended"
    base, target, then = kept.exact
    assert target < base / 4
    assert then == pytest.approx(base)
    assert report.explanation is not None
    (culprit,) = report.explanation.culprits
    assert culprit.cause == "fewer_roundings"
    said = [sentence.en for sentence in lead.lead_sentences(report)]
    assert "lost the precision" not in said[0]
    assert holds_approved(said[0])
    assert holds_approved(list(said), 2)
    again = compare(
        f"{models}:cancelling", run_mode="torch_compile", device="cpu", inductor="emulate_precision_casts=True"
    )
    assert again.exit_status == 0


def test_a_module_is_left_out_and_run(models: str) -> None:
    report = compare(f"{models}:branches", run_mode="torch_compile", compile_backend="eager", device="cpu")
    kept = report.to_keep
    assert kept is not None
    assert (kept.unit, kept.keys) == (UNCOMPILED, ("0.act",))
    assert kept.state == "mended"
    assert [*kept.settings["uncompiled"]] == ["0.act"]
    assert 'torch.compile(model, backend="eager")' in kept.text
    scope: dict[str, Any] = {}
    exec(Path(models).read_text(), scope)
    model, x = scope["branches"]()
    pasted = {"model": model, "torch": torch}
    exec(kept.text, pasted)
    with torch.no_grad():
        assert torch.equal(pasted["model"](x), scope["branches"]()[0](x))
    again = compare(
        f"{models}:branches", run_mode="torch_compile", compile_backend="eager", device="cpu", uncompiled="0.act"
    )
    assert again.exit_status == 0
    seen = {row.name for row in again.compared}
    assert {"0.up/addmm", "0.act/gelu", "0.down/addmm", "2/addmm"} <= seen  # also of what is left out


def test_what_never_ran_is_not_said_to_leave_an_error(models: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_debug_torch.engine.compiled_session.leave_out", _fails)
    report = compare(f"{models}:branches", run_mode="torch_compile", compile_backend="eager", device="cpu")
    assert report.to_keep is not None
    assert report.to_keep.state == "not tried"
    assert "failed with every setting" in " ".join(sentence.en for sentence in lead.lead_sentences(report))


def _fails(_module: Any, names: Any, _where: str) -> None:
    if names:
        raise BackendError("out of something", where="torch")


def test_a_module_that_is_not_there_is_refused(models: str) -> None:
    spec = SessionSpec(
        model=ModelFiles(model_file=f"{models}:branches"), mode="torch_compile",
        options={"device": "cpu", "compile_backend": "eager", "uncompiled": ("0.atc",)},
    )  # fmt: skip
    session = TorchBackend().open(spec, ())
    with pytest.raises(UsageError, match=r"no module '0\.atc'"):
        session.run({"input": np.zeros((8, 32), np.float32)})
