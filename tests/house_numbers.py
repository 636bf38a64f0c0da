"""What the house looks like in numbers: python tests/house_numbers.py [CHECKOUT …], one column a checkout.

Files, lines, medians and the largest, comments and docstrings, import circles, rooms at the core's top level, and how
many existing files a new one of each kind touches (see CONTRIBUTING, "Where does a new … go"). Only the standard
library is needed, so that an older checkout can be read beside this one.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

CORE = "precision_debug"


def sources(root: Path) -> dict[str, Path]:
    """Dotted name to file, of the core and of every plugin that lies beside it."""
    found = {}
    for base, package in ((root, CORE), *((root / "backends", path.name) for path in plugins(root))):
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def plugins(root: Path) -> list[Path]:
    return sorted(path for path in (root / "backends").glob(f"{CORE}_*") if path.is_dir())


def parse(path: Path) -> ast.Module:
    """A file's syntax tree, made without the garbage collector, which took three quarters of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if collects:
            gc.enable()


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree of the kinds that are looked at here; a file is read once."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Constant, ast.keyword, ast.Assign)
    return tuple(node for node in ast.walk(parse(path)) if isinstance(node, kinds))


def imports(module: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Every module of the house that this one imports: at the top, in functions and for type checkers alike."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{source}.{alias.name}"
                found = name if name in known else source if source in known else ""
                if found and found != module:
                    yield found


def graph(root: Path) -> dict[str, set[str]]:
    known = sources(root)
    return {module: set(imports(module, path, known)) for module, path in known.items()}


def circles(edges: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Groups of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(edges.get(name, ())):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == name:
                    break
            if len(group) > 1:
                found.append(tuple(sorted(group)))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


def room_of(module: str) -> str:
    """The room of a core module, or its plugin."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == CORE else parts[0]


def room_graph(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same between rooms; the core's front door, which only names what lies behind it, is left out."""
    found: dict[str, set[str]] = {}
    for module, others in edges.items():
        if module != CORE:
            found.setdefault(room_of(module), set()).update(
                room_of(other) for other in others if other != CORE and room_of(other) != room_of(module)
            )
    return found


def rooms(root: Path) -> list[str]:
    """Modules and packages at the core's top level."""
    return sorted(
        path.stem for path in (root / CORE).iterdir()
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())
    )  # fmt: skip


def functions(root: Path) -> list[tuple[int, str]]:
    """Lines of every function, with its name."""
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module}.{node.name}")
        for module, path in sources(root).items()
        for node in ast.walk(parse(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def comments(root: Path) -> int:
    """Comments that say something to a reader: none of a linter's, a type checker's or a formatter's."""
    found = 0
    for path in sources(root).values():
        with path.open("rb") as file:
            found += sum(
                token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:|fmt:|pragma)", token.string)
                for token in tokenize.tokenize(file.readline)
            )
    return found


def docstrings(root: Path) -> int:
    """Lines of strings that stand by themselves: docstrings, and what is said of a constant below it."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in sources(root).values()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def naming(root: Path, word: str) -> int:
    """How many sources of the core and the plugins, C and CUDA among them, have a word."""
    found = re.compile(rf"{word}", re.IGNORECASE)
    files = [
        path for base in (CORE, "backends") for path in (root / base).rglob("*") if path.suffix in {".py", ".c", ".h"}
    ]
    return sum(bool(found.search(path.read_text(encoding="utf-8"))) for path in files)


def calls_of(root: Path, text: str) -> int:
    """How often the core has some text."""
    return sum(path.read_text(encoding="utf-8").count(text) for path in (root / CORE).rglob("*.py"))


def touched(root: Path) -> dict[str, str]:
    """Files that a new one of each kind touches: what names one that is there, or where the house looks for it."""
    finds_formats = (root / CORE / "report" / "formats").is_dir()
    finds_verbs = "SUMMARY" in (root / CORE / "cli" / "__init__.py").read_text(encoding="utf-8")
    declares = (root / CORE / "numbers" / "metrics.h").exists()
    return {
        "a metric touches": f"{1 if declares else naming(root, 'over_1pct')}",
        "a report format touches": f"{1 if finds_formats else 2}",
        "a verb touches": f"{1 if finds_verbs else 2}",
        "a setting touches": "1, and who reads it",
        "a backend out of tree touches": "0",
    }


def numbers(root: Path) -> dict[str, str]:
    found = sources(root)
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in found.items()}
    sizes = functions(root)
    edges = graph(root)
    largest = max(lines, key=lambda name: lines[name])
    longest = max(sizes)
    loops, between = circles(edges), circles(room_graph(edges))
    own = {name for name in found if name.split(".")[0] != CORE}
    crossing = [
        (name, other) for name in own for other in edges[name]
        if other.split(".")[0] not in (CORE, name.split(".")[0])
    ]  # fmt: skip
    return {
        "files": str(len(found)),
        "lines": str(sum(lines.values())),
        "median file": f"{statistics.median(lines.values()):.0f}",
        "largest file": f"{lines[largest]} ({largest})",
        "functions": str(len(sizes)),
        "median function": f"{statistics.median(size for size, _ in sizes):.0f}",
        "largest function": f"{longest[0]} ({longest[1]})",
        "functions over 50 lines": str(sum(size > 50 for size, _ in sizes)),
        "comments per 1,000 lines": f"{1000 * comments(root) / sum(lines.values()):.1f}",
        "lines of docstrings": f"{docstrings(root) / sum(lines.values()):.1%}",
        "files that name an option (top_k)": f"{naming(root, r'(?<![a-z])top_k')}",
        "settings of ours read by their name": f"{calls_of(root, 'value(CORE,')}",
        "circles of modules": f"{len(loops)}, of {sum(map(len, loops))} modules",
        "circles of rooms": f"{len(between)}, of {sum(map(len, between))} rooms",
        "imports of a plugin by another": f"{len(crossing)}",
        "rooms at the core's top level": f"{sum(not name.startswith('__') for name in rooms(root))}",
        **touched(root),
    }


def main(words: list[str]) -> None:
    roots = [Path(word) for word in words] or [Path(__file__).resolve().parent.parent]
    tables = [numbers(root) for root in roots]
    for key in tables[0]:
        print(f"{key:36}", *(f"{table[key]:>40}" for table in tables))


if __name__ == "__main__":
    main(sys.argv[1:])
