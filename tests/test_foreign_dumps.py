"""Dumps of five tools: every pair against a list that is not ours, with names and without; and the wrong layer."""

from __future__ import annotations

import shutil
from pathlib import Path

import foreign_dumps
import pytest

from precision_debug.errors import RecordingError
from precision_debug.products.dumps.dump import read_dump

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

ETDUMP = foreign_dumps.DATA / "executorch"


@pytest.mark.parametrize(
    ("names", "wrong"), [("its own", True), ("none", True), ("none", False)], ids=["named", "nameless", "healthy"]
)
@pytest.mark.parametrize("kind", foreign_dumps.MAKERS)
def test_no_pair_is_wrong_and_the_wrong_layer_is_named(tmp_path: Path, kind: str, names: str, wrong: bool) -> None:
    if kind in foreign_dumps.NEEDS:
        pytest.importorskip(foreign_dumps.NEEDS[kind], reason=f"needs {foreign_dumps.NEEDS[kind]}")
    foreign = foreign_dumps.MAKERS[kind](tmp_path, wrong)
    if names == "none":
        foreign = foreign_dumps.nameless(foreign, tmp_path / "nameless")
    found = foreign_dumps.paired(foreign, tmp_path)
    assert not found.wrong
    assert {foreign.told[name] for name in found.pairs if name in foreign.told} == set(foreign.told.values())
    if wrong:
        assert found.verdict == "out of tolerance"
        assert found.culprits
        assert found.culprits[0] in foreign.culprits
    else:
        assert found.verdict == "as expected"
        assert not found.culprits


def test_an_etdump_without_its_record(tmp_path: Path) -> None:
    """Of the portable kernels: instructions instead of names, what a kernel does not write left out."""
    tensors = read_dump(str(ETDUMP / "portable_wrong")).tensors
    assert [one.name for one in tensors][:3] == ["m/000", "m/001", "m/002"]
    foreign = foreign_dumps.Foreign(path=ETDUMP / "portable_wrong", told={}, tool="", list_="")
    found = foreign_dumps.paired(foreign, tmp_path)
    assert len(found.pairs) == 13  # of 15: the pool's indices and the turned weight are nobody's
    assert found.culprits == ("bn2_out",)


def test_an_etdump_is_read_by_its_record() -> None:
    tensors = {one.name.partition("/")[2]: one for one in read_dump(str(ETDUMP / "xnnpack")).tensors}
    assert tensors["b2.bn/aten__native_batch_norm_legit_no_training_default_1"].shape == (1, 16, 8, 8)
    assert len(tensors) == 15  # what a delegate reads is what another wrote, and is there once


@pytest.mark.parametrize("harm", ["cut", "no buffer", "short buffer", "text", "no tensors"])
def test_a_damaged_etdump_is_one_line(tmp_path: Path, harm: str) -> None:
    for file in (ETDUMP / "portable_wrong").iterdir():
        shutil.copy(file, tmp_path)
    dump, buffer = tmp_path / "m.etdump", tmp_path / "m.dbg"
    content = dump.read_bytes()
    if harm == "cut":
        dump.write_bytes(content[:400])
    if harm == "text":
        dump.write_bytes(b"\x10\x00\x00\x00ED00" + b"\xff" * 90)
    if harm == "no tensors":  # as its root says of no run
        dump.write_bytes(b"\x0c\x00\x00\x00ED00\x04\x00\x04\x00\x04\x00\x00\x00")
    if harm == "no buffer":
        buffer.unlink()
    if harm == "short buffer":
        buffer.write_bytes(buffer.read_bytes()[:500])
    with pytest.raises(RecordingError) as caught:
        read_dump(str(tmp_path))
    assert "\n" not in str(caught.value)
