"""Commands that a page of the documentation gives, for tests that run them as they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bed.image import TOP

BLOCK = re.compile(r"(?<=\n\n)(?: {4}\S.*\n)+")


@dataclass(frozen=True)
class Page:
    """A page by its path in the repository."""

    path: str

    @property
    def text(self) -> str:
        return (TOP / self.path).read_text()

    def blocks(self) -> list[str]:
        """Its blocks of commands, as they stand there; fenced ones are none."""
        return BLOCK.findall(re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL))

    def commands(self, begin: str) -> list[str]:
        """Those of the only block whose first command begins so, without the comments at their ends."""
        (block,) = (one for one in self.blocks() if one.strip().startswith(begin))
        return [re.sub(r"\s{2,}#.*", "", line).strip() for line in block.splitlines()]

    def examples(self, language: str) -> list[str]:
        """What it shows in that language."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL)
