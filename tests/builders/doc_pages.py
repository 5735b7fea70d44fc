"""The documentation as tests read it: pages, headings, links, blocks, commands. Reads alone.

A block that begins with ```console holds commands after "$ " and what they print; one that begins
with ```yaml holds manifests or values; blocks without a language hold commands, or output alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where prose for people is; the rest of the repository speaks through its code.
FOLDERS = ("docs", "helm/spes", "hack")
SINGLE_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")
PROGRAMS = ("spes", "spes-operator", "spes-sync", "spes-trainer")
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEREDOC = re.compile(r"<<'?(\w+)'?")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: "Page"
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Where it is, for the name of a test."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    def __str__(self) -> str:
        """Its path in the repository."""
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text()

    @property
    def prose(self) -> str:
        """Without its blocks."""
        return _FENCE.sub("", self.text)

    @property
    def anchors(self) -> set[str]:
        """By which links reach its headings, as GitHub makes them."""
        found: list[str] = []
        for title in re.findall(r"^#+ (.*)$", self.prose, re.M):
            plain = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            twice = found.count(plain)
            found.append(f"{plain}-{twice}" if twice else plain)
        return set(found)

    @property
    def links(self) -> list[str]:
        """Targets of its links, but for those into the web."""
        return [link for link in _LINK.findall(self.prose) if "://" not in link]

    def blocks(self) -> Iterator[Block]:
        """Every fenced block."""
        for found in _FENCE.finditer(self.text):
            indent = found[1]
            lines = (line.removeprefix(indent) for line in found[3].splitlines())
            number = self.text.count("\n", 0, found.start()) + 1
            yield Block(page=self, line=number, language=found[2], text="\n".join(lines) + "\n")


def pages() -> list[Page]:
    """Every page."""
    found = [ROOT / name for name in SINGLE_PAGES]
    for folder in FOLDERS:
        found += sorted((ROOT / folder).rglob("*.md"))
    return [Page(path) for path in found]


def commands(block: Block) -> Iterator[str]:
    """The command lines of a block, joined where they go on; here-documents are left out."""
    lines = iter(block.text.splitlines())
    for line in lines:
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            command = line.removeprefix("$ ")
        elif block.language in ("", "sh"):
            command = line
        else:
            return
        while command.endswith("\\"):
            command = command[:-1] + next(lines, "").removeprefix("> ")
        if here := _HEREDOC.search(command):
            for inside in lines:
                if inside.strip() == here[1]:
                    break
        yield command


def sections(page: Page, level: int) -> dict[str, str]:
    """Title -> text of each heading of that level; a title that comes twice fails."""
    parts = re.split(rf"^{'#' * level} (.*)$", page.text, flags=re.M)
    titles, texts = parts[1::2], parts[2::2]
    assert len(set(titles)) == len(titles), f"{page} has a heading twice"
    outer = re.compile(rf"^#{{1,{level - 1}}} ", re.M) if level > 1 else None
    return {
        title: outer.split(text)[0] if outer else text
        for title, text in zip(titles, texts, strict=True)
    }
