"""`sqlstream docs`: the manual in the terminal. Its pages are the Markdown files of `sqlstream/docs/`, part of the package."""

from __future__ import annotations

import io
import posixpath
import re
import shutil
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

import click

from sqlstream.errors import UsageError, missing

WIDTH = 100

# A line of the contents: a link to a page, and the subject of the page.
_ENTRY = re.compile(r"^- \[[^\]]+\]\((?P<path>[\w/-]+)\.md\): (?P<about>.+)$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


class Page(NamedTuple):
    """A page of the manual, as the contents list it."""

    name: str
    about: str


class Match(NamedTuple):
    """A line of a page that contains the words of a search."""

    page: str
    line: int
    text: str


def contents() -> list[Page]:
    """Return the pages in the order of the contents."""
    return [Page(entry["path"], entry["about"]) for entry in _ENTRY.finditer(_file("README").read_text("utf-8"))]


def read_page(name: str) -> tuple[str, str]:
    """Return the full name of a page and its Markdown text.

    The last part of a name is enough if it is unique: `windows` is `sql/windows`.

    Raises UsageError for a page that does not exist, with the nearest name as a hint.
    """
    names = [page.name for page in contents()]
    page_name = name.strip("/").removesuffix(".md").lower()
    matches = [n for n in names if n == page_name] or [n for n in names if n.rpartition("/")[2] == page_name]
    if len(matches) == 1:
        return matches[0], _file(matches[0]).read_text("utf-8")
    if matches:
        raise UsageError(f'there are several pages called "{name}"', hint=f"Name one of them: {', '.join(matches)}.")
    last_parts = {n.rpartition("/")[2]: n for n in names}
    hint = missing("page", page_name, [*names, *last_parts])
    raise UsageError(f'page "{name}" does not exist', hint=hint, detail="`sqlstream docs` lists all pages.")


def search(words: str) -> list[Match]:
    """Return the lines that contain all words, in any case: lines with whole words first, then headings, then adjacent words.

    A plural counts as the whole word. Lines of equal rank are in the order of the pages.
    """
    terms = words.lower().split()
    whole = [re.compile(rf"(?<![^\W_]){re.escape(word)}(?:e?s)?(?![^\W_])") for word in terms]
    side_by_side = re.compile(r"(?<![^\W_])" + r"\W+".join(map(re.escape, terms)) + r"(?:e?s)?(?![^\W_])")
    ranked: list[tuple[tuple[bool, bool, bool], Match]] = []
    for page in contents():
        is_code = False
        for number, line in enumerate(_file(page.name).read_text("utf-8").splitlines(), 1):
            is_code ^= line.startswith("```")
            text = line.lower()
            if all(word in text for word in terms):
                is_heading = line.startswith("#") and not is_code
                has_whole = all(word.search(text) for word in whole)
                rank = (not has_whole, not is_heading, not side_by_side.search(text))
                ranked.append((rank, Match(page.name, number, line.strip())))
    return [match for _, match in sorted(ranked, key=lambda one: one[0])]


def terminal_text(name: str, text: str) -> str:
    """Return a page's Markdown for a terminal: links name pages of the manual.

    >>> terminal_text("sql/joins", "See [state](../concepts/state.md#views), [above](#top).")
    'See [state](concepts/state), above.'
    """

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if target.startswith("#"):
            return match["text"]
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target.partition("#")[0]))
        return f"[{match['text']}]({path.removesuffix('.md')})"

    parts = _FENCE.split(text)
    return "".join(p if p.startswith("```") else _LINK.sub(link, p) for p in parts)


def show_contents() -> None:
    """Print the contents, a line per page."""
    pages = contents()
    width = max(len(page.name) for page in pages)
    for page in pages:
        click.echo(f"{page.name:{width}}  {page.about}")
    click.echo("\nsqlstream docs PAGE shows a page, sqlstream docs --search WORD the lines that have a word.")


def show_page(name: str) -> None:
    """Show a page: rendered and in a pager on a terminal, otherwise as Markdown. Raises UsageError for an unknown page."""
    full_name, text = read_page(name)
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    click.echo_via_pager(rendered(full_name, text, min(shutil.get_terminal_size().columns, WIDTH)))


def show_matches(words: str) -> None:
    """Print the lines that contain all words. Raises UsageError if there are none."""
    matches = search(words)
    if not matches:
        raise UsageError(f'no page has "{words}"', hint="`sqlstream docs` lists the pages.")
    for match in matches:
        click.echo(f"{match.page}:{match.line}: {match.text}")


def rendered(name: str, text: str, width: int) -> str:
    """Return a page with a terminal's colours and tables, `width` columns wide."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    with console.capture() as capture:
        console.print(Markdown(terminal_text(name, text), hyperlinks=False))
    return capture.get()


def _file(name: str) -> Traversable:
    return files("sqlstream").joinpath("docs", f"{name}.md")
