"""--gen_script FILE.py: this very command as a script on our API, to read, to change and to run."""

from __future__ import annotations

import dataclasses
import pprint
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...reasons import say
from ...records import ModelFiles, RunSpec, Tolerance
from ...report.atomic_file import replace_atomically
from ...safety.untrusted import make_visible
from ...settings.options import iterate_differing

__all__ = ["make_script", "write_script"]

_TEXT = '''"""{title}

Written by: {command}
"""

{imports}


def main() -> int:
    """0 within tolerance or as expected, 1 out of tolerance or inconclusive."""
    report = precision_debug.compare(
{arguments}
    )
    print(report.verdict)
    for row in report.rows:
        if row.status is precision_debug.Status.FAIL:
            print(f"{{row.op_type!r}} {{row.name!r}}: {{str(row.reason)!r}}")
    return report.exit_status


if __name__ == "__main__":
    sys.exit(main())
'''


def write_script(path: str, spec: RunSpec, outputs: Sequence[Path]) -> None:
    """Raises UsageError for what has no counterpart in ``compare``, and OutputError."""
    if not path.endswith(".py"):
        raise UsageError(say("not_python"), where=f"--gen_script {path}")
    with replace_atomically(Path(path)) as temporary:
        temporary.write_text(make_script(spec, outputs), encoding="utf-8")


def make_script(spec: RunSpec, outputs: Sequence[Path]) -> str:
    """Return the text of a script that does what the command does. Raises UsageError."""
    for one, _ in iterate_differing(spec):
        if "script" in one.not_with:
            raise UsageError("cannot be combined with --gen_script", where=one.option, hint="leave one of them out")
    written = dict(_list_arguments(spec, outputs))
    lines = []
    for name, value in written.items():
        if name.isidentifier():
            lines.append(f"{name}={_format_literal(value)},")
        else:  # a setting of one side: "baseline.KEY"
            lines.append(f"**{{{name!r}: {_format_literal(value)}}},")
    body = "\n".join(
        f"        {line}" for text in [f"{_format_literal(spec.model)},", *lines] for line in text.splitlines()
    )
    command = _quote_for_docstring(" ".join(spec.command.split()))
    title = _quote_for_docstring(f"Compare {spec.run_mode} with {spec.baseline or 'its default baseline'}.")
    return _TEXT.format(title=title, command=command, imports="import sys\n\nimport precision_debug", arguments=body)


def _quote_for_docstring(text: str) -> str:
    """For a docstring."""
    return make_visible(text.replace("\\", "\\\\")).replace('"""', "'''")


def _list_arguments(spec: RunSpec, outputs: Sequence[Path]) -> list[tuple[str, Any]]:
    """Return what differs from the defaults."""
    found = {one.name: value for one, value in iterate_differing(spec) if "." not in one.field}
    if spec.baseline_model is not None:
        found["baseline_model"] = spec.baseline_model
    if spec.tolerance != dataclasses.replace(Tolerance(), given=False):
        found["tolerance"] = spec.tolerance
    if outputs:
        found["output"] = [str(path) for path in outputs]
    return [*found.items(), *sorted(spec.options.items())]


def _format_literal(value: Any) -> str:
    """As Python writes it; our records by their names, without what is as ever."""
    if isinstance(value, (ModelFiles, Tolerance)):
        plain = type(value)()
        parts = [
            f"{field.name}={_format_literal(getattr(value, field.name))}" for field in dataclasses.fields(value)
            if getattr(value, field.name) != getattr(plain, field.name)
        ]  # fmt: skip
        return f"precision_debug.{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        return pprint.pformat(dict(value), width=100, sort_dicts=False)
    return pprint.pformat(value, width=100, compact=True)
