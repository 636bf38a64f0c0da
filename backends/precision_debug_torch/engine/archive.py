"""What a model archive may hold: numbers, and a graph of torch's own operators.

torch says of ``torch.export.load`` that it must never be given a file from a stranger. It unpickles, gives the text of
symbolic sizes to ``eval``, takes any attribute of torch ("torch.os.system") for an operator, writes names unquoted
into the Python that it generates, and loads compiled libraries that lie in the archive. So a file is looked through
before torch sees it, and what is none of that is refused.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from precision_debug.errors import ModelError

__all__ = ["check_program", "check_script", "load_data_only"]

_CODE = "it would run its own code when read"
_HINT = "build the model with a factory FILE.py:FUNCTION where you trust it"

_OPERATOR = re.compile(
    r"torch\.ops\.(?!__)\w+\.(?!__(?!i?(and|or|xor|lshift|rshift)__))\w+(\.(?!__)\w+)?"
    r"|torch\.(_?sym_\w+|_C\._set_grad_enabled|_C\._functorch\.\w+|amp\.autocast_mode\._(enter|exit)_autocast)"
    r"|math\.(?!__)\w+"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|invert"
    r"|lshift|rshift|getitem|matmul|index|truth|is_|is_not|contains|concat)"
)
_FILES = re.compile(r"(?:torch|ops\.\w+)\.(?:save|load|from_file)\b|ops\.debugprims\b|ops\.profiler\b")
"""Operators that read or write files, in an operator's name or in TorchScript's text."""

_SIZE_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.keyword, ast.UnaryOp, ast.unaryop, ast.BinOp,
    ast.operator, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.Tuple,
)  # fmt: skip
_SIZE_FUNCTION = re.compile(r"(?!S$|Lambda$|Function$)[A-Z]\w*|floor|ceiling|sqrt|log2?|exp")

_ENVIRONMENT = threading.Lock()


@contextlib.contextmanager
def load_data_only() -> Iterator[None]:
    """Inside it torch.load unpickles tensors and plain values alone, whatever its caller asks for.

    The switch is the process's, so that one such block waits for another.
    """
    ours = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}
    with _ENVIRONMENT:
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def check_program(path: str) -> None:
    """Refuse an exported program that would do more than compute. Raises ModelError; other damage is for the loader."""
    for name, read in _iterate_records(path):
        plain = name.partition("/")[2]
        if "aotinductor/" in name or plain.endswith((".so", ".cubin", ".dll")):
            raise ModelError(f"holds compiled code ({plain})", where=path, hint="save it with torch.export.save")
        if name.endswith(".json") or plain.startswith("models/"):
            try:
                content = json.loads(read())
            except (ValueError, RecursionError) as error:
                raise ModelError(f"is not an exported program: {plain}: {error}", where=path) from error
            _check(content, path, plain, depth=0)


def check_script(path: str) -> None:
    """Refuse TorchScript whose operators read or write files. Raises ModelError."""
    for name, read in _iterate_records(path):
        if name.endswith(".py") and (found := _FILES.search(read().decode("utf-8", "replace"))):
            raise ModelError(f"its code reads or writes files ({found[0]} in {name})", where=path, hint=_HINT)


def _iterate_records(path: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield every file of the archive, as torch's reader sees it and as Python's does: a file may show each another
    one."""
    import torch

    with contextlib.suppress(RuntimeError):
        reader: Any = torch._C.PyTorchFileReader(path)
        prefix = "archive/"  # torch leaves the archive's own name out
        for name in reader.get_all_records():
            yield prefix + name, lambda name=name: reader.get_record(name)  # type: ignore[misc]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                yield entry.filename, lambda entry=entry: archive.read(entry)  # type: ignore[misc]


def _check(value: Any, path: str, record: str, depth: int) -> None:
    if depth > 200:
        raise ModelError(f"is not an exported program: {record} is nested too deeply", where=path)
    if isinstance(value, list):
        for item in value:
            _check(item, path, record, depth + 1)
        return
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        rule = _RULES.get(key)
        if key == "target" and isinstance(item, str) and item.startswith("torch._functorch.predispatch."):
            raise ModelError(f"holds torch.vmap ({item.rpartition('.')[2]}), whose operators are not run one by one",
                             where=path, hint="build the model with a factory FILE.py:FUNCTION")  # fmt: skip
        if isinstance(item, str) and rule is not None and not rule(item):
            raise ModelError(f"{_CODE}: {key} {_shown(item)} in {record}", where=path, hint=_HINT)
        if key in ("config", "range_constraints") and isinstance(item, dict):
            bad = next((name for name in item if not _plain(name)), None)
            if bad is not None:
                raise ModelError(f"{_CODE}: the name {_shown(bad)} in {record}", where=path, hint=_HINT)
        if key == "forward_arg_names" and isinstance(item, list) and not all(map(_identifier, item)):
            raise ModelError(f"{_CODE}: {key} in {record}", where=path, hint=_HINT)
        if key == "guards_code" and item and not _guards(item):
            raise ModelError(f"{_CODE}: {key} in {record}", where=path, hint=_HINT)
        _check(item, path, record, depth + 1)


def _identifier(text: object) -> bool:
    return isinstance(text, str) and (text == "" or text.isidentifier())


def _plain(text: str) -> bool:
    """Return a name that stays a name between double quotes."""
    return text.isprintable() and not any(sign in text for sign in '"\\')


def _operator(text: str) -> bool:
    return bool(_OPERATOR.fullmatch(text)) and not _FILES.search(text)


def _size(text: str) -> bool:
    """Return an arithmetic expression of symbols, as sympy writes it; sympy gives it to ``eval``."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, _SIZE_NODES):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and not _identifier(node.value):
            return False
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return False
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and _SIZE_FUNCTION.fullmatch(node.func.id)
        ):
            return False
    return True


def _guards(lines: Any) -> bool:
    """Comparisons of the arguments' sizes, types and values; torch makes Python of them."""
    return isinstance(lines, list) and all(isinstance(line, str) and _guard(line) for line in lines)


def _guard(text: str) -> bool:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = {id(node.func): ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    known = re.compile(r"isinstance|len|math\.\w+|torch\._?sym_\w+|.*\.(size|stride|storage_offset|dim|numel)")
    return "__" not in text and all(known.fullmatch(name) for name in called.values())


def _layout(text: str) -> bool:
    """Return a pytree specification. An enumeration in it would have its module imported."""
    if "__enum__" in text:
        return False
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return _keywords(plain[1] if isinstance(plain, list) and len(plain) == 2 else plain)


def _keywords(layout: Any) -> bool:
    """Keyword arguments become parameters in generated Python: the keys of the dict that comes second."""
    parts = layout.get("children_spec") if isinstance(layout, Mapping) else None
    if not isinstance(parts, list) or len(parts) != 2 or not isinstance(parts[1], Mapping):
        return True
    try:
        names = json.loads(parts[1].get("context") or "null")
    except (ValueError, TypeError, RecursionError):
        return False
    if parts[1].get("type") != "builtins.dict" or names is None:
        return True
    return isinstance(names, list) and all(map(_identifier, names))


def _payload(text: str) -> bool:
    """Constants whose file has this name are unpickled as they are."""
    return not text.startswith("opaque_obj") and _plain(text)


_RULES: dict[str, Callable[[str], bool]] = {
    "target": _operator,
    "as_operator": _operator,
    "expr_str": _size,
    "name": _identifier,
    "as_name": _identifier,
    "parameter_name": _plain,
    "buffer_name": _plain,
    "tensor_constant_name": _plain,
    "custom_obj_name": _plain,
    "buffer_mutation_name": _plain,
    "fqn": _plain,
    "nn_module_stack": _plain,
    "in_spec": _layout,
    "out_spec": lambda text: "__enum__" not in text,
    "path_name": _payload,
}


def _shown(text: str) -> str:
    return repr(text if len(text) < 60 else text[:57] + "…")
