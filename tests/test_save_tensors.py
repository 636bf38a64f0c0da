"""--save_tensors: the worst pairs of a run as .npz beside its report."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from report_factory import make_report

import precision_debug
from precision_debug.cli import main
from precision_debug.numbers.told import Portrait
from precision_debug.observe.hooks import SaveBaseline
from precision_debug.observe.portraits import Portraits
from precision_debug.observe.worst_pairs import WorstPairs
from precision_debug.report import write
from precision_debug.run.script_hooks import AssertClose

DIGITS = Path(__file__).parent.parent / "examples" / "digits"


def compare(output: Path | tuple[Path, ...], **given: Any) -> precision_debug.Report:
    said = {"inputs": DIGITS / "test_images.npz", "run_mode": "ort_int8", "explain": "off", **given}
    return precision_debug.compare(DIGITS / "digits.onnx", output=output, **said)


def off(base: np.ndarray, target: np.ndarray) -> float:
    return float(np.linalg.norm((target - base).astype(np.float64)) / np.linalg.norm(base.astype(np.float64)))


def test_the_worst_of_a_run_are_kept_as_they_were_compared(tmp_path: Path) -> None:
    report = compare((tmp_path / "r.json", tmp_path / "sub" / "r.html", tmp_path / "r.xlsx"), save_tensors=3)
    errors = {row.name: row.relative_l2 for row in report.compared if row.relative_l2}
    worst = set(sorted(errors, key=lambda name: -errors[name])[:3])
    with np.load(tmp_path / report.tensors_file) as file:
        names = file["names"].tolist()
        assert set(names) == worst == set(report.saved_tensors)
        assert sorted(file.files) == sorted(
            ["names", *(f"{n}.{side}" for n in (1, 2, 3) for side in ("baseline", "target"))]
        )
        for place, name in enumerate(names, 1):
            assert off(file[f"{place}.baseline"], file[f"{place}.target"]) == pytest.approx(errors[name], rel=1e-6)
    assert json.loads((tmp_path / "r.json").read_text())["tensors_file"] == "r.json.tensors.npz"
    assert 'href="../r.json.tensors.npz" download' in (tmp_path / "sub" / "r.html").read_text(encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "r.xlsx") as book:
        links = "".join(book.read(name).decode() for name in book.namelist() if name.endswith(".rels"))
    assert 'Target="r.json.tensors.npz"' in links
    assert precision_debug.Report.load(tmp_path / "r.json").saved_tensors == report.saved_tensors


def test_a_run_that_keeps_none_removes_what_an_earlier_one_kept(tmp_path: Path) -> None:
    compare(tmp_path / "r.json", save_tensors=1)
    assert (tmp_path / "r.json.tensors.npz").exists()
    report = compare(tmp_path / "r.json")
    assert report.tensors_file == ""
    assert not (tmp_path / "r.json.tensors.npz").exists()


def test_of_many_samples_those_of_the_worst_one(tmp_path: Path) -> None:
    with np.load(DIGITS / "test_images.npz") as file:
        name, images = file.files[0], file[file.files[0]]
    feeds = [{name: images[at : at + 4]} for at in (0, 4, 8)]
    report = compare(tmp_path / "r.json", inputs=feeds, save_tensors=2, run_mode="ort_fp16_sim")
    note = next(note for note in report.notes if note.code == "saved_of_sample")
    worst = int(note.args["sample"])
    alone = compare(tmp_path / "one.json", inputs=feeds[worst], save_tensors=2, run_mode="ort_fp16_sim")
    with np.load(tmp_path / "r.json.tensors.npz") as many, np.load(tmp_path / "one.json.tensors.npz") as one:
        assert alone.saved_tensors == report.saved_tensors
        for key in one.files:
            np.testing.assert_array_equal(many[key], one[key])


def shown(folder: Path, most: int, pairs: dict[str, tuple[Any, Any]], **settings: Any) -> dict[str, int]:
    """The pairs that are left of those that the hooks were shown, by name; never more than ``most`` + 1 files."""
    kept: dict[str, int] = {}

    def told(name: str, number: int) -> None:
        kept[name] = number
        assert len(list(folder.iterdir())) <= most + 1

    save = SaveBaseline(**settings)
    for name, (base, _) in pairs.items():
        save("Op", name, base)
    check = AssertClose(save, observers=[WorstPairs(most, folder, told)])
    for name, (_, target) in pairs.items():
        check("Op", name, target)
    save.comparer.settle()
    return {name: number for name, number in kept.items() if (folder / f"worst-{number}.npz").exists()}


def test_another_shape_comes_before_nan_before_the_largest_error(tmp_path: Path) -> None:
    one = np.ones(8, np.float32)
    lost = one.copy()
    lost[3] = math.nan
    pairs = {
        "same": (one, one), "some": (one, one * 1.01), "nan first": (one, lost), "more": (one, one * 1.5),
        "nan later": (one, lost), "shape": (one, one[:4]), "most": (one, one * 9),
    }  # fmt: skip
    for most, wanted in (
        (1, {"shape"}), (2, {"shape", "nan first"}), (4, {"shape", "nan first", "nan later", "most"}),
        (9, set(pairs) - {"same"}),
    ):  # fmt: skip
        folder = tmp_path / str(most)
        folder.mkdir()
        assert set(shown(folder, most, pairs)) == wanted


def test_types_that_npy_does_not_know_keep_their_values(tmp_path: Path) -> None:
    base = np.linspace(0, 3, 7, dtype=np.float32)
    left = shown(tmp_path, 1, {"x": (base, (base * 1.1).astype(ml_dtypes.bfloat16))})
    with np.load(tmp_path / f"worst-{left['x']}.npz") as file:
        np.testing.assert_array_equal(file["target"], (base * 1.1).astype(ml_dtypes.bfloat16).astype(np.float32))


def test_tensors_of_a_device_are_copied_once_their_numbers_are_there(tmp_path: Path) -> None:
    """torch's comparer tells its numbers later; its tensors are still what was compared."""
    torch = pytest.importorskip("torch")
    from precision_debug_torch.on_device import DeviceComparer, DeviceStore

    base = torch.linspace(0, 3, 1000).reshape(10, 100)
    pairs = {f"t{n}": (base, base * (1 + n / 10)) for n in range(6)}
    settings = {"comparer": DeviceComparer(), "store": DeviceStore()}
    left = shown(tmp_path, 2, pairs, **settings)
    assert set(left) == {"t4", "t5"}
    with np.load(tmp_path / f"worst-{left['t5']}.npz") as file:
        np.testing.assert_array_equal(file["target"], (base * 1.5).numpy())
    drawn: list[Portrait] = []
    save = SaveBaseline(comparer=DeviceComparer(), store=DeviceStore())
    save("Op", "t", base)
    with Portraits(0.1, drawn.append) as portraits:
        AssertClose(save, observers=[portraits])("Op", "t", base * 2)
        save.comparer.settle()
    assert [portrait.name for portrait in drawn] == ["t"]


def test_a_comparer_that_promises_nothing_is_not_looked_behind(tmp_path: Path) -> None:
    from precision_debug.numbers.arrays import HostComparer

    class Fleeting(HostComparer):
        keeps_pairs = False

    one = np.ones(8, np.float32)
    assert shown(tmp_path, 3, {"x": (one, one * 2)}, comparer=Fleeting()) == {}


def test_names_of_tensors_and_files_are_data(tmp_path: Path) -> None:
    name, file = '../../"><img src=x>', 'javascript:"><b>.npz'
    report = make_report(3)
    report = precision_debug.Report(**{
        **{field: getattr(report, field) for field in report.__dataclass_fields__},
        "rows": (precision_debug.Row(**{**vars(report.rows[0]), "name": name}), *report.rows[1:]),
        "saved_tensors": (name,), "tensors_file": file,
    })  # fmt: skip
    for suffix in (".html", ".xlsx", ".md", ".json"):
        write(report, tmp_path / f"r{suffix}")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<img src=x>" not in page
    assert 'href="javascript' not in page
    assert "](javascript" not in (tmp_path / "r.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("given", [["--save_tensors", "0"], ["--save_tensors", "2", "--jobs", "2"]])
def test_what_cannot_be_is_refused_in_one_line(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--model_file", str(DIGITS / "digits.onnx"), "--run_mode", "ort_opt", *given]
    assert main([*command, "--output", str(tmp_path / "r.json")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--save_tensors" in said
