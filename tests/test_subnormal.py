"""What loses digits below the normal numbers of float16 is told from what became 0: constants, and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph, tokens
from planted.onnx_further import k

import precision_debug
from precision_debug.records import Culprit
from precision_debug.report.blame import sentence_of


def culprit_of(folder: Path, build: Callable[[Graph], Sequence[str]]) -> Culprit:
    graph = Graph(seed=3)
    file = graph.save(folder / "m.onnx", build(graph))
    report = precision_debug.compare(file, run_mode="ort_fp16_sim", inputs=graph.feeds)
    return report.explanation.culprits[0]


def small_weight(g: Graph) -> Sequence[str]:
    """A weight of a few steps of the smallest number, and a factor that makes up for it."""
    x = tokens(g)
    small = g.op("MatMul", [x, k(g, "w", g.random.normal(size=(32, 32)) * 3e-7)], "small")
    up = g.op("Mul", [g.op("Mul", [small, k(g, "up", 6e3)], "scaled"), k(g, "up2", 100)], "again")
    return [g.dense(g.op("Relu", [up], "r"), 32, 8, "y")]


def long_row(g: Graph) -> Sequence[str]:
    """Probabilities of a few steps each."""
    x = g.input("x", (g.random.normal(size=(1, 300_000)) * 0.5).astype("float32"))
    prob = g.op("Softmax", [x], "prob", axis=-1)
    return [g.op("Mul", [g.op("Mul", [prob, k(g, "n", 3e3)], "p1"), k(g, "m", 100)], "y")]


def gone(g: Graph) -> Sequence[str]:
    """Most of it becomes 0."""
    x = tokens(g)
    low = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 32, "a")], "s"), k(g, "t", 1e-8 * 2**10)], "low")
    less = g.op("Mul", [low, k(g, "t2", 2.0**-10)], "less")
    return [g.op("Mul", [g.op("Mul", [less, k(g, "u", 1e4)], "u1"), k(g, "u2", 1e4)], "y")]


def weight_gone(g: Graph) -> Sequence[str]:
    """Every number of a weight is below the smallest."""
    x = g.op("MatMul", [tokens(g), k(g, "w", g.random.uniform(1e-8, 2e-8, size=(32, 32)))], "small")
    return [g.op("Mul", [g.op("Mul", [x, k(g, "up", 6e4)], "scaled"), k(g, "up2", 1e3)], "y")]


@pytest.mark.parametrize(
    ("build", "name", "cause", "said"),
    [
        (weight_gone, "small", "weight_underflow", "1,024 of the 1,024 numbers of its constant w, around"),
        (small_weight, "small", "weight_underflow", "is below the type's smallest normal number, 6.104e-05, and loses"),
        (long_row, "prob", "underflow", "results below the type's smallest normal number, 6.104e-05, lose digits"),
        (gone, "less", "underflow", "results below the type's smallest value became 0"),
    ],
)
def test_digits_that_are_lost_are_told_from_zeros(
    build: Callable[[Graph], Sequence[str]], name: str, cause: str, said: str, tmp_path: Path
) -> None:
    """Before, of a small weight "265 results below the type's smallest value became 0" was said where two did, and of a
    long softmax that the type is too coarse."""
    found = culprit_of(tmp_path, build)
    assert (found.name, found.cause) == (name, cause)
    assert said in sentence_of(found, "float16").en
    assert ("有效位" in sentence_of(found, "float16").zh) == ("digits" in said or "loses" in said)
