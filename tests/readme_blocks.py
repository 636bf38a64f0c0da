"""The fenced code blocks of a Markdown file, with what the comment above each one says about running it.

<!-- not run: REASON -->      the block is left alone
<!-- exit: N N ... -->        the exit status that each line of a bash block must have (else all 0)
<!-- file: PATH -->           the block is the content of this file, for the blocks below

python tests/readme_blocks.py README.md 2     prints its second bash block, whether the tests run it or not
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "blocks_of", "without_environment"]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<key>not run|exit|file): (?P<value>[^>]+) -->\n)?"
    r"(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_ENVIRONMENT = re.compile(r"python3 -m venv \.venv && \.venv/bin/pip install -q -e '\.\[(?P<extras>[\w,]+)\]' && ")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block. line: of its fence, from 1. extras: what the replaced environment would have installed."""

    document: Path
    line: int
    language: str
    text: str
    not_run: str = ""
    statuses: tuple[int, ...] = ()
    file: str = ""

    @property
    def runs(self) -> bool:
        return self.language in {"bash", "python"} and not self.not_run and not self.file

    @property
    def commands(self) -> list[tuple[str, int]]:
        """Lines of a bash block and the exit status that each must have."""
        lines = self.text.splitlines()
        return list(zip(lines, self.statuses or [0] * len(lines), strict=True))


def blocks_of(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        key, value = match["key"], (match["value"] or "").strip()
        found.append(
            Block(
                document=document,
                line=text.count("\n", 0, match.start("fence")) + 1,
                language=match["language"],
                text=match["text"],
                not_run=value if key == "not run" else "",
                statuses=tuple(map(int, value.split())) if key == "exit" else (),
                file=value if key == "file" else "",
            )
        )
    return found


def without_environment(command: str) -> str:
    """The command with its environment's creation left out: `python` stands for the environment's."""
    return _ENVIRONMENT.sub("", command).replace(".venv/bin/python", "python")


if __name__ == "__main__":
    found = [block.text for block in blocks_of(Path(sys.argv[1])) if block.language == "bash"]
    sys.stdout.write(found[int(sys.argv[2]) - 1])
