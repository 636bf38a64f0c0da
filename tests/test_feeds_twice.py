"""Files that hold more than is read: nothing of it is lost without a word."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from approval import raises_approved

from precision_debug.errors import InputError
from precision_debug.feeds import make_feeds
from precision_debug.numbers.scores import load_labels
from precision_debug.records import InputMeta

X = InputMeta(name="x", dtype="float32", shape=(2, 3))
ONES = np.ones((2, 3), np.float32)


def _npy(array: np.ndarray) -> bytes:  # type: ignore[type-arg]
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["x.npy", "x"])
@pytest.mark.parametrize("axis", [None, 0])
def test_two_arrays_of_one_name_are_refused(tmp_path: Path, second: str, axis: int | None) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", _npy(ONES))
        archive.writestr(second, _npy(2 * ONES))
    with raises_approved(InputError):
        make_feeds([X], source=str(path), samples_axis=axis)


def test_a_second_array_in_a_npy_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(_npy(ONES) + _npy(2 * ONES))
    with raises_approved(InputError):
        make_feeds([X], source=str(path))


@pytest.mark.parametrize("arrays", [{}, {"images": np.zeros(2, np.int64), "labels": np.ones(2, np.int64)}])
def test_labels_are_not_the_first_array_of_several(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:  # type: ignore[type-arg]
    np.savez(tmp_path / "l.npz", **arrays)
    with pytest.raises(InputError, match=rf"l\.npz: .* {len(arrays)} arrays"):
        load_labels(str(tmp_path / "l.npz"))


def test_an_axis_of_samples_without_inputs_is_refused() -> None:
    with raises_approved(InputError):
        make_feeds([X], samples_axis=0)
