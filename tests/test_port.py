"""One network in PyTorch and in Paddle, paired by value, and from a port's mistake on by layers: it is found."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved
from warm import command, run_python

from precision_debug import Report
from precision_debug.explain import files
from precision_debug.products.dumps.pairing.same_layer import pair_layers
from precision_debug.reasons import say
from precision_debug.records import Operator, TensorMeta

both = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("paddle") is None,
    reason="needs torch and paddlepaddle",
)


def made(name: str, op_type: str, *inputs: str, shape: tuple[int, ...] = (2, 4), seen: bool = True) -> TensorMeta:
    more = {} if seen else {"unseen": say("method")}
    return TensorMeta(name=name, op_type=op_type, shape=shape, inputs=inputs, **more)  # type: ignore[arg-type]


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "backends")])}


def layer(meta: TensorMeta) -> str:
    return meta.name.rpartition("/")[0]


def paired(baseline: list[TensorMeta], target: list[TensorMeta], **known: str) -> dict[str, str]:
    return {name: base for name, (base, _) in pair_layers(baseline, target, known, layer, layer).items()}


def test_a_layer_hands_on_one_tensor_whatever_it_is_made_of() -> None:
    ours = [made("fc/t", "aten.t"), made("fc/addmm", "aten.addmm", "fc/t"), made("fc/view", "aten.view", "fc/addmm"),
            made("relu", "aten.relu", "fc/view")]  # fmt: skip
    theirs = [made("fc/linear", "linear"), made("relu", "relu", "fc/linear")]
    assert paired(ours, theirs) == {"fc/linear": "fc/view", "relu": "relu"}


def test_what_is_not_alone_stays_unpaired() -> None:
    twice = [made("fc/linear", "linear"), made("fc/linear#2", "linear")]
    assert paired(twice, twice) == {}, "the same layer, called twice: nothing says which call is which"
    rivals = [made("x", "input"), made("a", "relu", "x"), made("b", "relu", "x")]
    assert paired(rivals, rivals, x="x") == {}
    assert paired([made("fc/a", "linear")], [made("fc/b", "linear", shape=(2, 5))]) == {}
    assert paired([made("one/a", "linear")], [made("two/a", "linear", shape=(2, 4))]) == {}


def test_values_come_first() -> None:
    ours = [made("fc/linear", "linear"), made("other", "linear")]
    assert paired(ours, [made("fc/linear", "linear")], **{"fc/linear": "other"}) == {}
    assert paired(ours, [made("there", "linear"), made("fc/linear", "linear")], there="fc/linear") == {}


def test_moves_in_a_layer_say_nothing_by_being_alone() -> None:
    ours = [made("b/view", "aten.view", "x"), made("b/gelu", "aten.gelu", "y", seen=True), made("b/z", "aten.add")]
    theirs = [made("b/reshape", "reshape", "z"), made("b/gelu", "gelu", "w"), made("b/y", "tanh")]
    assert paired(ours, theirs) == {"b/gelu": "b/gelu"}


def test_a_batch_norm_and_what_it_was_folded_into_share_no_constants() -> None:
    numbers = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    norm = Operator(
        op_type="aten.native_batch_norm", parameters={"bn.running_mean": numbers[0], "bn.bias": numbers[1]}
    )
    folded = Operator(op_type="Conv", parameters={"w": numbers.reshape(4, 4, 1, 1), "b": numbers[2]})
    plain = Operator(op_type="convolution", parameters={"conv.bias": numbers[3]})
    assert not files._find_other_constant(norm, folded)
    assert not files._find_other_constant(folded, norm)
    assert files._find_other_constant(plain, folded)["name"] == "conv.bias"


@both
def test_the_example_finds_each_mistake(root: Path, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    script = str(root / "examples" / "port" / "align.py")
    done = run_python(script, cwd=tmp_path, timeout=600, env=environment(root), engine="torch")
    assert done.returncode == 0, done.stderr
    readme = (root / "examples" / "port" / "README.md").read_text(encoding="utf-8")
    assert done.stdout.strip() == readme.split("```text\n")[1].split("\n```")[0]


@both
@pytest.mark.parametrize("turned", [False, True], ids=["paddle_is_the_target", "paddle_is_the_baseline"])
def test_either_side_may_be_paddle(turned: bool, root: Path, tmp_path: Path) -> None:
    port = root / "examples" / "port"
    sides = [(f"{port}/network_torch.py:build", "torch_fp32"), (f"{port}/network_paddle.py:padding", "dygraph_fp32")]
    (base, base_mode), (target, mode) = reversed(sides) if turned else sides
    done = command(
        "--baseline_model", base, "--baseline", base_mode, "--model_file", target, "--run_mode", mode,
        "--output", "o.json", cwd=tmp_path, env=environment(root),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert holds_approved(done.stdout)
    report = Report.load(tmp_path / "o.json")
    first = report.first_mismatch
    assert first is not None
    assert first.name.startswith("conv2/")
    assert holds_approved(first.paired_by, 2)
    culprits = report.explanation.culprits if report.explanation is not None else ()
    assert [culprit.name for culprit in culprits] == [first.name]
    names = [row.name for row in report.compared]
    assert len(names) - names.index(first.name) > 15, "what follows the mistake has its partners too"
