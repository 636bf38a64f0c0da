"""Folders and files of tools that say more than names: what is where in each, from a real run or its documentation."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codec import parse_json
from ...errors import RecordingError
from .etdump import find_etdump, read_etdump
from .tensor_file import RAW

__all__ = ["LAYOUTS", "Layout"]

Array = np.ndarray[Any, Any]
Listed = Iterator[tuple[Path, str, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A tool's layout of the files of a dump.

    name: the tool's. files: each file, the tensor's name ("": the file's), and what is known of it, as a side file
    would say. read: where the files are of a format of the tool's own."""

    name: str
    is_it: Callable[[Path], bool]
    files: Callable[[Path], Listed]
    read: Callable[[Path], Iterator[tuple[str, Array, tuple[int, ...] | None]]] | None = None


def _read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


# trtexec --exportOutput=FILE: [{"name": …, "dimensions": "1x10", "values": [ … ]}, …]
# (TensorRT, samples/common/sampleReporting.cpp, exportJSONOutput)
def _is_trtexec(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    data = _read_json(path)
    return isinstance(data, list) and bool(data) and all(
        isinstance(one, dict) and {"name", "dimensions", "values"} <= set(one) for one in data
    )  # fmt: skip


def _read_trtexec(path: Path) -> Iterator[tuple[str, Array, tuple[int, ...] | None]]:
    for one in _read_json(path) or ():
        sizes = re.findall(r"\d+", str(one["dimensions"]))
        shape = tuple(map(int, sizes))
        value = np.array(one["values"], np.float32)
        if value.size != math.prod(shape):
            raise RecordingError(f"{one['name']}: {value.size} values for {one['dimensions']}", where=str(path))
        yield str(one["name"]), value.reshape(shape), shape


# trtexec --dumpOutput: its log, in which each tensor is a line "NAME: (1x10)" with its numbers on the next, behind
# "Output Tensors:" and, with --dumpInput, "Input Tensors:" (TensorRT, samples/common/sampleInference.cpp)
_LOGGED = re.compile(r"^(?:\[[^\]]*\] )?\[[A-Z]\] ?")
_TENSORS = re.compile(r"^(?:Input|Output) Tensors:\s*$")
_HEADER = re.compile(r"^(.+): \((\d+(?:x\d+)*)?\)\s*$")
_NUMBERS = re.compile(r"^[-+0-9.einfaINFA\s]*$")


def _is_trtexec_log(path: Path) -> bool:
    if path.suffix.lower() not in (".txt", ".log") or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as lines:
        return any(_TENSORS.match(_LOGGED.sub("", line)) for line in lines)


def _read_trtexec_log(path: Path) -> Iterator[tuple[str, Array, tuple[int, ...] | None]]:
    name, inside = "", False
    shape: tuple[int, ...] = ()
    numbers: list[str] = []
    for line in [*path.read_text(encoding="utf-8", errors="replace").splitlines(), "end"]:
        said = _LOGGED.sub("", line)
        header = _HEADER.match(said) if inside else None
        if name and (header or not _NUMBERS.match(said)):
            if len(numbers) != math.prod(shape):
                text = "x".join(map(str, shape))
                raise RecordingError(f"{name}: {len(numbers)} values for {text}", where=str(path))
            yield name, np.array(numbers, np.float32).reshape(shape), shape
            name, numbers = "", []
        if header:
            name, shape = header[1], tuple(int(one) for one in (header[2] or "").split("x") if one)
        elif name:
            numbers += said.split()
        else:
            inside = bool(_TENSORS.match(said)) or (inside and not said.strip())


# qnn-net-run, snpe-net-run: OUT/Result_N/NAME.raw, float32 unless --use_native_output_files, which write
# NAME_native.raw; in the names what is no letter or digit is an underscore (Qualcomm AI Engine Direct SDK, tools)
def _is_qnn(path: Path) -> bool:
    return path.is_dir() and any(any(one.glob("**/*.raw")) for one in path.glob("Result_[0-9]*"))


def _read_qnn(path: Path) -> Listed:
    first = min(path.glob("Result_[0-9]*"), key=lambda one: int(re.sub(r"\D", "", one.name) or 0))
    for file in sorted(first.rglob("*")):
        if file.suffix in RAW:
            yield file, str(file.relative_to(first)).removesuffix(file.suffix).removesuffix("_native"), {}


# msprobe (MindStudio): stepN/rankN/dump.json {"data": {API: {"output": [{"data_name": FILE, "type", "shape"}]}}} and
# dump_tensor_data/FILE (mstt/debug/accuracy_tools/msprobe/docs, dump in PyTorch)
def _is_msprobe(path: Path) -> bool:
    return path.is_dir() and _find_first_json(path) is not None


def _find_first_json(path: Path) -> Path | None:
    for file in sorted(path.rglob("dump.json")):
        if (file.parent / "dump_tensor_data").is_dir():
            return file
    return None


def _read_msprobe(path: Path) -> Listed:
    listing = _find_first_json(path)
    assert listing is not None
    data = _read_json(listing)
    calls = data.get("data", {}) if isinstance(data, dict) else {}
    for name, call in (calls or {}).items():
        words = str(name).split(".")
        outputs = call.get("output", call.get("output_args", [])) if isinstance(call, dict) else []
        kept = [one for one in outputs or () if isinstance(one, dict) and one.get("data_name")]
        for place, one in enumerate(kept):
            file = listing.parent / "dump_tensor_data" / Path(str(one["data_name"])).name
            if file.is_file():
                plain = re.sub(r"\.(forward|backward)(\.\d+)?$", "", str(name))
                if words[0] in {"Module", "Cell"}:  # Module.PATH.CLASS
                    plain = plain.partition(".")[2].rpartition(".")[0] or plain
                kind = words[-3] if len(words) > 3 else ""
                yield file, plain if len(kept) == 1 else f"{plain}.{place}", {"op_type": kind}


# RKNN-Toolkit2's accuracy_analysis (seen of 2.5.0): snapshot/map_name_to_file.txt, and beside it golden/ and
# simulator/, of a board runtime/: text files of numbers, and npy/ with the same in the shapes of the model
def _is_rknn(path: Path) -> bool:
    return path.is_dir() and _find_rknn_map(path) is not None


def _find_rknn_map(path: Path) -> Path | None:
    return next((one for one in (path / "map_name_to_file.txt", path.parent / "map_name_to_file.txt") if one.is_file()),
                None)  # fmt: skip


def _read_rknn(path: Path) -> Listed:
    listing = _find_rknn_map(path)
    assert listing is not None
    names: dict[str, str] = {}
    for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) >= 2:
            names[Path(words[-1]).stem] = words[0]
    folder = next((path / one for one in ("runtime", "simulator", "golden") if (path / one).is_dir()), path)
    shaped = sorted((folder / "npy").glob("*.npy"))
    for file in shaped or sorted(folder.glob("*.txt")):
        yield file, names.get(file.stem, file.stem), {}


def _read_single_file(path: Path) -> Listed:
    yield path, "", {}


# recorder.py's own: one line a tensor in index.jsonl, whatever came after the last one
def _is_recorder(path: Path) -> bool:
    return path.is_dir() and next(path.rglob("index.jsonl"), None) is not None


def _read_recorder(path: Path) -> Listed:
    """Of the first step and sample, every rank."""
    every = sorted(path.rglob("index.jsonl"), key=str)
    step, sample = every[0].parent.parent.parent.name, every[0].parent.name
    for index in every:
        if (index.parent.parent.parent.name, index.parent.name) == (step, sample):
            yield from _read_rank(index)


def _read_rank(index: Path) -> Listed:
    times: Counter[str] = Counter()
    for line in index.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            one = json.loads(line)
        except ValueError:  # cut off by a crash
            continue
        file = index.parent / Path(str(one.get("file", ""))).name
        if isinstance(one, dict) and one.get("file") and file.is_file():
            name = str(one.get("name", ""))
            times[name] += 1
            called = name if times[name] == 1 else f"{name}#{times[name]}"
            yield file, f"{index.parent.parent.name}/{called}", {
                key: one[key] for key in ("op_type", "shape", "dtype") if one.get(key) is not None
            }  # fmt: skip


# ExecuTorch's ETDump, its debug buffer and, where there is one, its ETRecord: see etdump.py
def _read_etdump(path: Path) -> Listed:
    found = find_etdump(path)
    assert found is not None
    yield found, "", {}


LAYOUTS = (
    Layout(
        name="ExecuTorch ETDump", is_it=lambda path: find_etdump(path) is not None, files=_read_etdump, read=read_etdump
    ),
    Layout(name="trtexec --exportOutput", is_it=_is_trtexec, files=_read_single_file, read=_read_trtexec),
    Layout(name="trtexec --dumpOutput", is_it=_is_trtexec_log, files=_read_single_file, read=_read_trtexec_log),
    Layout(name="precision_debug recorder", is_it=_is_recorder, files=_read_recorder),
    Layout(name="msprobe", is_it=_is_msprobe, files=_read_msprobe),
    Layout(name="RKNN accuracy_analysis", is_it=_is_rknn, files=_read_rknn),
    Layout(name="qnn-net-run", is_it=_is_qnn, files=_read_qnn),
)
