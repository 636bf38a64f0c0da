"""Every type of every framework goes through both hooks: what is the same passes, what differs in one element fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from precision_debug import AssertClose, SaveBaseline, Status, numbers
from precision_debug.numbers.arrays import as_array
from precision_debug.records import Tolerance

EXACT = Tolerance(atol=0.0, rtol=0.0)
OF_NUMPY = "?bBhHiIlLqQefdgFDG"
OF_ML_DTYPES = [
    name for name in dir(ml_dtypes)
    if isinstance(getattr(ml_dtypes, name), type) and issubclass(getattr(ml_dtypes, name), np.generic)
]  # fmt: skip
OF_TORCH = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]
OF_PADDLE = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
]


def values(complex_: bool) -> tuple[Any, Any]:
    """Two arrays that every type holds and that differ in one element: of complex ones, in its imaginary part."""
    if complex_:
        return np.array([1 + 2j, 0.5 - 1j, 1]), np.array([1 + 2j, 0.5 + 1j, 1])
    return np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0])


def shown(base: Any, target: Any) -> Any:
    """The row of a tensor that one hook kept and the other compared."""
    keep = SaveBaseline()
    keep("op", "x", base)
    check = AssertClose(keep, atol=0.0, rtol=0.0)
    check("op", "x", target)
    (row,) = check.report().rows
    return row


def check_both(make: Callable[[Any], Any], complex_: bool, name: str) -> None:
    one, other = (make(array) for array in values(complex_))
    same, differing = shown(one, one), shown(one, other)
    assert same.status is Status.PASS, same.reason
    assert same.comparison.identical
    assert same.comparison.base.dtype == name
    assert differing.status is Status.FAIL
    assert differing.comparison.mismatched == 1
    assert differing.comparison.max_abs == (2.0 if complex_ else 1.0)
    assert shown(other, one).status is Status.FAIL


@pytest.mark.parametrize("code", OF_NUMPY)
def test_numpy(code: str) -> None:
    dtype = np.dtype(code)
    check_both(lambda array: array.astype(dtype), dtype.kind == "c", dtype.name)


@pytest.mark.parametrize("name", OF_ML_DTYPES)
def test_ml_dtypes(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    if name == "float8_e8m0fnu":  # has no 0
        one, other = np.array([1.0, 2.0]).astype(dtype), np.array([1.0, 4.0]).astype(dtype)
        assert shown(one, one).status is Status.PASS
        assert shown(one, other).comparison.mismatched == 1
        return
    complex_ = "complex" in name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_both(lambda array: array.astype(dtype), complex_, "complex64" if complex_ else name)


@pytest.mark.parametrize("name", ["complex32", "bcomplex32"])
def test_numbers_without_a_hook_keep_the_imaginary_part(name: str) -> None:
    one, other = (array.astype(getattr(ml_dtypes, name)) for array in values(True))
    assert numbers.compare(one, other, EXACT).mismatched == 1
    assert numbers.compare(one, one, EXACT).identical
    assert numbers.describe(np.array([3 + 4j]).astype(one.dtype)).max == 5.0


@pytest.mark.parametrize("name", OF_TORCH)
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    dtype = getattr(torch, name)

    def make(array: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.from_numpy(array).to(dtype)

    if name == "float8_e8m0fnu":
        one, other = make(np.array([1.0, 2.0])), make(np.array([1.0, 4.0]))
        assert shown(one, one).comparison.identical
        assert shown(one, other).comparison.max_abs == 2.0
        return
    check_both(make, dtype.is_complex, "complex64" if name == "complex32" else name)


def of_torch() -> Iterator[tuple[str, Callable[[Any, Any], Any]]]:
    yield "transposed", lambda torch, array: torch.from_numpy(np.stack([array, array])).to(torch.float8_e5m2).t()
    yield "with a gradient", lambda torch, array: torch.from_numpy(array).requires_grad_() * 1
    yield "conjugated", lambda torch, array: torch.from_numpy(array + 1j).conj()
    yield "negated lazily", lambda torch, array: torch.from_numpy(array + 1j).conj().imag
    yield (
        "quantised",
        lambda torch, array: torch.quantize_per_tensor(torch.from_numpy(array.astype(np.float32)), 0.5, 1, torch.qint8),
    )
    yield "sparse", lambda torch, array: torch.from_numpy(array).to_sparse()
    yield "a parameter", lambda torch, array: torch.nn.Parameter(torch.from_numpy(array).to(torch.bfloat16))


@pytest.mark.parametrize(("what", "make"), list(of_torch()), ids=lambda one: one if isinstance(one, str) else "")
def test_torch_in_every_form(what: str, make: Callable[[Any, Any], Any]) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (make(torch, array) for array in values(False))
    if what == "negated lazily":
        return check_equal(as_array(one), [-1.0, -1.0, -1.0])
    assert shown(one, one).comparison.identical
    assert shown(one, other).comparison.max_abs == 1.0
    return None


def check_equal(found: Any, wanted: list[float]) -> None:
    assert np.asarray(found, np.float64).ravel().tolist() == wanted


def test_torchs_pairs_of_four_bits_are_two_numbers() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    packed = torch.tensor([[0x21, 0x7F]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    check_equal(as_array(packed), [0.5, 1.0, -6.0, 6.0])


@pytest.mark.parametrize("name", OF_PADDLE)
def test_paddle(name: str) -> None:
    paddle = pytest.importorskip("paddle", reason="needs paddlepaddle")
    complex_ = "complex" in name
    check_both(lambda array: paddle.to_tensor(array).astype(name), complex_, name)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_paddles_raw_bits_need_no_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    paddle = pytest.importorskip("paddle", reason="needs paddlepaddle")
    tensor = paddle.to_tensor([1.5, -2.0]).astype(name)
    monkeypatch.setitem(sys.modules, "torch", None)
    check_equal(as_array(tensor), [1.5, -2.0])


def test_paddles_sparse_tensor_is_read_dense() -> None:
    paddle = pytest.importorskip("paddle", reason="needs paddlepaddle")
    sparse = paddle.sparse.sparse_coo_tensor([[0, 2]], [1.0, 2.0], [3])
    check_equal(as_array(sparse), [1.0, 0.0, 2.0])
