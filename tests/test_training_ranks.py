"""Two real processes that train on gloo, by DDP, FSDP2 and by hand: which rank spoilt a gradient, or the reduction."""

# ruff: noqa: E402

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved
from warm import run_together

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import precision_debug
from precision_debug.cli import main
from precision_debug.products.training.rank_faults import find_first_rank_fault, find_token_weights
from precision_debug.recording.rank_log import (
    BINS,
    GradientNumbers,
    InputNumbers,
    RankStep,
    Reduction,
    join_shards,
    rank_file,
    rank_line,
    read_ranks,
)  # fmt: skip
from precision_debug.recording.training_log import StepNumbers

FAULTS = {
    "ddp_inf": ("broken", 1, (1,)),
    "ddp_inf_scaled": ("broken", 1, (1,)),
    "ddp_rounded": ("narrow", 0, (1,)),
    "ddp_autocast": ("narrow", 0, (1,)),
    "ddp_sum": ("sum", 0, (0, 1)),
    "ddp_left_out": ("left_out", 0, (1,)),
    "ddp_bf16": ("rounded", 0, (0, 1)),
    "ddp_overflow": ("reduction_broken", 1, (0, 1)),
    "ddp_unused": ("unused", 0, (1,)),
    "fsdp_inf": ("broken", 1, (1,)),
    "fsdp_autocast": ("narrow", 0, (1,)),
    "fsdp_sum": ("sum", 0, (0, 1)),
    "hand_sum": ("sum", 0, (0, 1)),
    "hand_nothing": ("apart", 0, (1,)),
    "hand_weights": ("weights", 0, (1,)),
}  # fmt: skip
"""Code, step and ranks of each planted fault."""

HEALTHY = (
    "ddp_clean", "ddp_accumulated", "ddp_scaled", "ddp_clipped", "fsdp_clean", "fsdp_accumulated",
    "fsdp_clipped", "hand_mean", "hand_clipped",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The folder with a folder for each case, all trained by two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'backends'}", "GLOO_SOCKET_IFNAME": "lo"}
    script = str(root / "tests" / "training_ranks.py")
    words = [str(folder), *FAULTS, *HEALTHY]
    run_together(*([script, str(rank), *words] for rank in range(2)), env=environment, engine="torch")
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_of_a_rank_is_named(runs: Path, name: str) -> None:
    found = find_first_rank_fault(read_ranks(runs / name))
    assert found is not None
    assert (found.what, found.step, found.ranks) == FAULTS[name]
    if name == "ddp_rounded":
        assert (found.parameter, found.parameters, found.type) == ("body.weight", 1, "float16")
    if name.endswith("unused"):
        assert (found.parameter.partition(".")[0], found.parameters) == ("other", 2)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ranks_are_not_blamed(runs: Path, name: str) -> None:
    steps = read_ranks(runs / name)
    assert [(step.step, sorted(step.ranks)) for step in steps] == [(0, [0, 1]), (1, [0, 1]), (2, [0, 1])]
    assert find_first_rank_fault(steps) is None


def test_shards_join_to_the_whole_gradient(runs: Path) -> None:
    """DDP and FSDP2 do the same steps, so their numbers are the same however they are kept."""
    whole, sharded = (join_shards(read_ranks(runs / name)) for name in ("ddp_clean", "fsdp_clean"))
    shards = read_ranks(runs / "fsdp_clean")[0].ranks
    assert [shards[rank].shards["body.weight"].start for rank in (0, 1)] == [0, 144]
    assert len(whole) == len(sharded) == 3
    for one, other in zip(whole, sharded, strict=True):
        assert one.parameters.keys() == other.parameters.keys()
        for name, numbers in one.parameters.items():
            there = other.parameters[name]
            assert there.norm == pytest.approx(numbers.norm, rel=1e-4)
            assert there.size == pytest.approx(numbers.size, rel=1e-4)
            assert (there.moved is None) == (numbers.moved is None)
            assert (there.moved or 0.0) == pytest.approx(numbers.moved or 0.0, rel=1e-2)


def test_the_report_names_the_rank_and_the_way_on(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["training", str(runs / "ddp_inf"), "--output", str(page), "--lang", "en"]) == 1
    said = capsys.readouterr().out
    assert "Step 1: the gradient of `" in said
    assert holds_approved(said)
    assert f"from_step={runs / 'ddp_inf' / 'step_000001'}" in said
    assert "× NaN, Inf" in page.read_text(encoding="utf-8")
    assert main(["training", str(runs / "fsdp_clean"), "--lang", "zh"]) == 1  # three steps: too few for a band
    assert "均正常" in capsys.readouterr().out


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_a_ranks_own_step_is_run_again(runs: Path, root: Path, tmp_path: Path, way: str) -> None:
    """The step of rank 1 alone, by one process: its input is what has the Inf."""
    (tmp_path / "m.py").write_text(
        f"import sys; sys.path.insert(0, {str(root / 'tests')!r})\n"
        "import torch\nfrom training_ranks import Net\n\ndef make():\n"
        "    return Net(), (torch.zeros(16, 12),), lambda out: out.square().mean(),"
        " lambda p: torch.optim.AdamW(p, lr=1e-3)\n"
    )
    report = precision_debug.compare(
        f"{tmp_path / 'm.py'}:make", run_mode="torch_autocast_bf16", device="cpu", step="optimiser", explain="off",
        from_step=str(runs / f"{way}_inf" / "step_000001_rank1.pt"),
    )  # fmt: skip
    row = next(row for row in report.rows if row.name == "x")
    assert row.comparison is not None
    assert row.comparison.base.inf == 1
    assert any(row.name == "gradient/body.weight" for row in report.outputs)


def test_files_of_a_rank_that_are_missing_or_damaged_are_said(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / rank_file("", 0).name).write_bytes(rank_file(runs / "ddp_sum", 0).read_bytes())
    assert main(["training", str(tmp_path), "--lang", "en"]) == 1
    assert holds_approved(capsys.readouterr().out)
    (tmp_path / rank_file("", 1).name).write_text('{"step": 1}\n')
    assert main(["training", str(tmp_path), "--lang", "en"]) == 2
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "weights", "told"),
    [
        ((120, 480), (0.5, 0.5), "alike"),
        ((120, 480), (0.2, 0.8), "by_tokens"),
        ((120, 480), (0.7, 0.3), "other"),
        ((100, 200, 700), (0.1, 0.2, 0.7), "by_tokens"),
        ((120, 123), (0.5, 0.5), None),  # the two are the same there
        ((None, None), (0.2, 0.8), None),
    ],
)
def test_ranks_of_other_numbers_of_tokens_are_told_by_how_they_are_weighed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tokens: tuple[int | None, ...], weights: tuple[float, ...],
    told: str | None,
) -> None:  # fmt: skip
    draw = np.random.default_rng(3).standard_normal
    for step in range(2):
        own = [draw(BINS) + 0.5 for _ in tokens]
        behind = sum(factor * one for factor, one in zip(weights, own, strict=True))
        numbers = [GradientNumbers(norm=float(np.linalg.norm(one)), sketch=tuple(one)) for one in (*own, behind)]
        for rank, count in enumerate(tokens):
            gradient = Reduction(local=numbers[rank], reduced=numbers[-1], final=numbers[-1])
            seen = {"labels": InputNumbers(print=f"{step} {rank}", tokens=count)}
            line = rank_line(RankStep(
                numbers=StepNumbers(step=step), rank=rank, ranks=len(tokens), gradients={"w": gradient}, inputs=seen
            ))  # fmt: skip
            with rank_file(tmp_path, rank).open("a", encoding="utf-8") as file:
                file.write(line)
    steps = read_ranks(tmp_path)
    found = find_token_weights(steps)
    assert (found.what if found else None) == told
    assert find_first_rank_fault(steps) is None
    main(["training", str(tmp_path), "--lang", "en"])
    said = capsys.readouterr().out
    assert ("tokens" in said) == (told is not None)
    if found is not None:
        assert found.weights == pytest.approx(weights, rel=1e-3)
        assert all(str(count) in said for count in tokens)


@pytest.mark.parametrize(
    ("sizes", "who"),
    [
        ((1.0, 1.1, 0.003), (2, 0.003 / 1.05)),
        ((0.02, 1.0, 1.0, 1.0), (0, 0.02)),
        ((1.0, 1.0, 58.0), (2, 58.0)),
        ((255.0, 1.0), (0, 255.0)),  # of two the larger one
        ((1.0, 1.0, 0.3), None),
    ],
)
def test_an_input_of_another_scale_is_told_of_its_rank(
    tmp_path: Path, sizes: tuple[float, ...], who: tuple[int, float] | None
) -> None:
    for step in range(4):
        for rank, size in enumerate(sizes):
            seen = {"x": InputNumbers(print=f"{step} {rank}", rms=size)}
            line = rank_line(RankStep(
                numbers=StepNumbers(step=step), rank=rank, ranks=len(sizes), gradients={}, inputs=seen
            ))  # fmt: skip
            with rank_file(tmp_path, rank).open("a", encoding="utf-8") as file:
                file.write(line)
    found = find_first_rank_fault(read_ranks(tmp_path))
    assert (found and (found.what, found.ranks[0])) == (who and ("scale", who[0]))
    if found is not None and who is not None:
        assert found.value == pytest.approx(who[1])
