"""The recorded step of two real ranks, run again by one process: rows by rank, and the rank and operator at fault."""

# ruff: noqa: E402

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import InputError, UsageError
from precision_debug.report.lead import lead_sentences
from tests.planted import rank_faults

QUICK = ("overflow_batch", "rounding_fsdp", "rounding_everywhere", "underflow", "dropped", "own_backward")
CASES = {case.name: case for case in rank_faults.CASES}
FILE = rank_faults.__file__


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a folder for each case, all trained by two processes."""
    folder = tmp_path_factory.mktemp("rank_rows")
    rank_faults.recorded(folder, [*CASES])
    return folder


def compared(name: str, kept: Path, **settings: Any) -> Any:
    case = CASES[name]
    given = {"step": "backward", "explain": "fast", **case.settings, **settings}
    return precision_debug.compare(
        f"{FILE}:make_{name}", run_mode=case.mode, device="cpu", from_step=str(kept), **given
    )  # fmt: skip


@pytest.mark.parametrize("name", [*QUICK, "healthy_fp16", "healthy_weights"])
def test_a_step_of_ranks_is_explained(runs: Path, name: str) -> None:
    fits, said = rank_faults.outcome(CASES[name], runs / name)
    assert fits, said


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_every_planted_rank_is_explained(runs: Path, name: str) -> None:
    fits, said = rank_faults.outcome(CASES[name], runs / name)
    assert fits, said


@pytest.mark.parametrize("name", ["healthy_weights", "healthy_norm"])
def test_a_ranks_rows_are_those_of_its_own_run(runs: Path, name: str) -> None:
    """Ranks of other parameters, other buffers and other batches: nothing of one is the other's."""
    together = {row.name: row for row in compared(name, runs / name, explain="off").rows}
    many = 0
    for rank in (0, 1):
        alone = compared(name, runs / name / f"step_000001_rank{rank}.pt", explain="off").rows
        for row in alone:
            there = together[f"rank{rank}/{row.name}"]
            assert there.comparison == row.comparison, row.name
            assert there.status is row.status
            if row.name.startswith("backward/"):
                assert there.extra["Rank"] == str(rank)
        many += len(alone)
    assert many == len(together)


def test_the_sentence_names_the_rank_and_compares_the_others(runs: Path) -> None:
    report = compared("rounding", runs / "rounding")
    first = report.explanation.culprits[0]
    assert (first.name, first.ranks) == ("rank1/backward/gelu/gelu_backward", (1,))
    assert first.errors["1"] > 5 * first.errors["0"] > 0
    said = lead_sentences(report)[0]
    assert holds_approved(said.en)
    assert "仅 rank 1 如此" in said.zh
    assert report.to_keep is None or "rank" not in report.to_keep.option
    broken = compared("overflow_batch", runs / "overflow_batch").explanation.culprits[0]
    assert broken.errors["1"] == math.inf > broken.errors["0"]
    everywhere = compared("rounding_everywhere", runs / "rounding_everywhere")
    assert "All ranks have it (0, 1)." in lead_sentences(everywhere)[0].en
    assert len(everywhere.explanation.culprits) == 1


def test_the_ways_to_name_a_step_of_ranks(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run [1]"
    shutil.copytree(runs / "healthy_bf16", folder)
    ways = (folder, folder / "step_000001", runs / "healthy_bf16" / "step_*_rank[01].pt")
    rows = [len(compared("healthy_bf16", way, explain="off").rows) for way in ways]
    assert len(set(rows)) == 1
    one = compared("healthy_bf16", folder / "step_000001_rank1.pt", explain="off")
    assert 2 * len(one.rows) == rows[0]
    shutil.copy(folder / "step_000001_rank0.pt", folder / "step_000007_rank0.pt")
    with pytest.raises(InputError, match=r"files of several steps"):
        compared("healthy_bf16", folder, explain="off")
    assert len(compared("healthy_bf16", folder / "step_000001", explain="off").rows) == rows[0]
    with pytest.raises(InputError, match="no such file"):
        compared("healthy_bf16", folder / "step_000003", explain="off")


def test_what_several_ranks_cannot_do_is_said(runs: Path) -> None:
    with pytest.raises(UsageError, match=r"parameters differ \(a.weight\)"):
        compared("healthy_weights", runs / "healthy_weights", step="optimiser")
    with raises_approved(UsageError):
        compared("healthy_bf16", runs / "healthy_bf16", step="forward")


def some(quick: str, others: str) -> list[Any]:
    return [*quick.split(), *(pytest.param(name, marks=pytest.mark.slow) for name in others.split())]


@pytest.mark.parametrize("name", some("healthy_fsdp", "healthy_bf16 healthy_fp16 healthy_unequal dropped"))
def test_the_optimiser_steps_once_for_all_ranks_as_their_own_run_did(runs: Path, name: str) -> None:
    from precision_debug_torch import TorchBackend

    from precision_debug.records import ModelFiles, SessionSpec

    options = {"step": "optimiser", "device": "cpu", "from_step": str(runs / name), "loss_scale": 1}
    mode, backend = CASES[name].mode, TorchBackend()
    spec = SessionSpec(model=ModelFiles(model_file=f"{FILE}:make_{name}"), mode=mode, options=options)
    feeds = backend.examples(spec)
    opened = backend.open(spec, [feeds])
    try:
        found = opened.run(feeds)
        assert {f"rank{rank}/loss" for rank in (0, 1)} < found.keys()
        again = opened.run(feeds)
    finally:
        opened.close()
    began = torch.load(runs / name / "step_000001_rank0.pt", weights_only=True)["model"]
    ended = torch.load(runs / name / "after_rank0.pt", weights_only=True)
    for parameter in ("a.weight", "a.bias", "b.weight", "b.bias"):
        update = torch.from_numpy(found[f"update/{parameter}"])
        assert torch.equal(update, ended[parameter] - began[parameter]), parameter
        assert again[f"update/{parameter}"].tobytes() == found[f"update/{parameter}"].tobytes()
        halves = [found[f"rank{rank}/gradient/{parameter}"] / 2 for rank in (0, 1)]
        assert (halves[0] + halves[1]).tobytes() == found[f"gradient/{parameter}"].tobytes()


def test_each_run_of_a_recorded_step_is_the_same(runs: Path) -> None:
    """The optimiser's recorded state is not what the last run made of it."""
    from precision_debug_torch import TorchBackend

    from precision_debug.records import ModelFiles, SessionSpec

    kept = runs / "healthy_bf16" / "step_000001_rank1.pt"
    options = {"step": "optimiser", "device": "cpu", "from_step": str(kept)}
    backend = TorchBackend()
    spec = SessionSpec(model=ModelFiles(model_file=f"{FILE}:make_healthy_bf16"), mode="torch_fp32", options=options)
    feeds = backend.examples(spec)
    opened = backend.open(spec, [feeds])
    try:
        runs_of_it = [{name: np.array(value) for name, value in opened.run(feeds).items()} for _ in range(3)]
    finally:
        opened.close()
    first, *others = runs_of_it
    assert any(name.startswith("state/") for name in first)
    for again in others:
        assert [name for name in first if first[name].tobytes() != again[name].tobytes()] == []


@pytest.mark.parametrize("name", some("rounding", "rounding_everywhere overflow_batch dropped underflow"))
def test_a_rank_spoils_the_step_of_all(runs: Path, name: str) -> None:
    fits, said = rank_faults.outcome(CASES[name], runs / name, step="optimiser")
    assert fits, said


@pytest.mark.parametrize("name", some("healthy_norm", "healthy_bf16 healthy_fp16 healthy_fsdp"))
def test_a_healthy_step_of_ranks_blames_nobody(runs: Path, name: str) -> None:
    fits, said = rank_faults.outcome(CASES[name], runs / name, step="optimiser")
    assert fits, said


def test_a_step_that_begins_with_nan_is_refused(runs: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        kept = torch.load(runs / "healthy_bf16" / f"step_000001_rank{rank}.pt", weights_only=True)
        kept["model"]["a.weight"][0, 0] = math.nan
        torch.save(kept, tmp_path / f"step_000001_rank{rank}.pt")
    with raises_approved(InputError):
        compared("healthy_bf16", tmp_path)


def test_the_log_names_the_step_of_all_ranks(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["training", str(runs / "overflow_batch"), "--lang", "en"]) == 1
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert f"from_step={runs / 'overflow_batch' / 'step_000001'}\n" in said
