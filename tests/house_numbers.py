"""What the house looks like in numbers: python tests/house_numbers.py [CHECKOUT …], one column a checkout.

Files, lines, medians and the largest, import circles, rooms at the core's top level, and how many existing files a new
one of each kind touches (see CONTRIBUTING, "Where does a new … go"). Only the standard library is needed, so that an
older checkout can be read beside this one.
"""

from __future__ import annotations

import ast
import statistics
import sys
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


def imports(module: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Every module of the house that this one imports: at the top, in functions and for type checkers alike."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def naming(root: Path, words: tuple[str, ...]) -> int:
    """How many files of the core and the plugins have one of these words, as a name or in a text."""
    found = 0
    for path in sources(root).values():
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= (
                {node.id} if isinstance(node, ast.Name) else {node.attr} if isinstance(node, ast.Attribute) else set()
            )
            names |= {node.arg} if isinstance(node, (ast.keyword, ast.arg)) and node.arg else set()
            names |= {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
            names |= {node.name} if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()
        found += bool(names & set(words))
    return found


LIKE = {
    "a metric (as max_rel)": ("max_rel",),
    "a report format (as csv)": ("csv", ".csv", "to_csv"),
    "a setting (as op_block_list)": ("op_block_list",),
    "a verb (as inspect)": ("inspect", "inspect_verb"),
    "a run mode (as ort_fp16_sim)": ("ort_fp16_sim",),
    "a cause (as inputs_exchanged)": ("accumulation",),
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
        "circles of modules": f"{len(loops)} {' | '.join(' '.join(loop) for loop in loops)}",
        "circles of rooms": f"{len(between)} {' | '.join(' '.join(loop) for loop in between)}",
        "plugins that import plugins": f"{len(crossing)} {sorted(crossing) or ''}",
        "rooms at the core's top level": f"{len(rooms(root))}",
        **{f"files that name {what}": str(naming(root, words)) for what, words in LIKE.items()},
    }


def main(words: list[str]) -> None:
    roots = [Path(word) for word in words] or [Path(__file__).resolve().parent.parent]
    tables = [numbers(root) for root in roots]
    for key in tables[0]:
        print(f"{key:36}", *(f"{table[key]:>40}" for table in tables))


if __name__ == "__main__":
    main(sys.argv[1:])
