from __future__ import annotations

import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from approval import raises_approved

from precision_debug.errors import OutputError
from precision_debug.observe.store import Store


@pytest.mark.parametrize("budget", [None, 0, 100])
def test_what_is_put_in_comes_out_equal_and_is_a_copy(budget: int | None, tmp_path: Path) -> None:
    arrays = {
        "float": np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        "bf16": np.arange(7).astype(ml_dtypes.bfloat16),
        "scalar": np.array(3, np.int64),
        "empty": np.zeros((0, 3), np.float16),
        "bool": np.array([True, False]),
        "text": np.array(["a", "bc"], dtype=object),
    }
    with Store(memory_budget=budget, folder=tmp_path) as store:
        for key, array in arrays.items():
            store.put(key, array)
        expected = {key: array.copy() for key, array in arrays.items()}
        arrays["float"][...] = -1
        assert list(store) == list(arrays)
        for key, array in expected.items():
            held = store.get(key)
            assert held is not None
            assert held.dtype == array.dtype
            assert held.shape == array.shape
            assert (held == array).all()
        if budget is not None:
            assert list(tmp_path.iterdir())
        for key in arrays:
            store.drop(key)
        assert len(store) == 0
    assert not list(tmp_path.iterdir())


def test_a_key_is_put_once(tmp_path: Path) -> None:
    with Store() as store:
        store.put("x", np.zeros(3))
        with pytest.raises(KeyError):
            store.put("x", np.zeros(3))
        assert store.get("y") is None
        store.drop("y")


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with Store(memory_budget=0, folder=tmp_path) as store:
        store.put("a", np.zeros(3))
        made = next(tmp_path.iterdir())
        (made / "000002.raw").symlink_to("/dev/full")
        with raises_approved(OutputError):
            store.put("b", np.zeros(1000))
        assert "b" not in store


def test_what_is_written_is_not_copied_whole_before(tmp_path: Path) -> None:
    """A view in another order: the transposed table of a language model is half a gigabyte."""
    view = np.arange(1 << 23, dtype=np.float32).reshape(1 << 12, 1 << 11).T
    with Store(memory_budget=0, folder=tmp_path) as store:
        tracemalloc.start()
        try:
            store.put("x", view)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        held = store.get("x")
        assert held is not None
        assert (held == view).all()
    assert peak < view.nbytes * 0.75
