"""Places in the user's own files: definitions, parameters, the statement that raised."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import site
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, TracebackType
from typing import TypeAlias

from sqlstream.errors import SourceText, Span

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@functools.lru_cache(maxsize=4096)
def is_user_file(path: str) -> bool:
    """Return whether a file is the user's: not Python's, not an installed package's, not ours."""
    # Compiled modules (pyarrow) report paths of their build.
    generated = path.startswith(("<frozen ", "<string>")) or path.endswith((".pyx", ".pxi", ".pxd"))
    return not generated and not path.startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(os.path.join(folder, "") for folder in {*installed, site.getusersitepackages(), _PACKAGE})


def display(path: str, root: str) -> str:
    """Return a path for people: relative to the root, if it is below the root."""
    below = os.path.join(root, "")
    return path[len(below) :] if path.startswith(below) else path


def raised_at(traceback: TracebackType | None, root: str) -> str | None:
    """Return `file:line` of the innermost frame in the user's own files; None if there is none."""
    where = None
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if is_user_file(path):
            where = f"{display(path, root)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where


def location(function: FunctionType, root: str) -> str:
    """Return `file:line` of a function's `def`."""
    span = definition(function, root)
    line = span.source.position(span.start)[0] if span else function.__code__.co_firstlineno
    return f"{display(function.__code__.co_filename, root)}:{line}"


def definition(function: FunctionType, root: str) -> Span | None:
    """Return the position of `def name`; None if its source text is unavailable."""
    if (parsed := _parsed(function, root)) is None:
        return None
    source, node = parsed
    start = _offset(source, node.lineno, node.col_offset)
    keyword = source.text.index("def ", start)
    return Span(source, start, source.text.index(node.name, keyword + len("def ")) + len(node.name))


def parameter(function: FunctionType, name: str, root: str) -> Span | None:
    """Return the position of a parameter with its hint; the position of the function if the parameter's position is unknown."""
    if (parsed := _parsed(function, root)) is not None:
        source, node = parsed
        for argument in _arguments(node):
            if argument.arg == name and argument.end_lineno is not None and argument.end_col_offset is not None:
                start = _offset(source, argument.lineno, argument.col_offset)
                return Span(source, start, _offset(source, argument.end_lineno, argument.end_col_offset))
    return definition(function, root)


def class_location(user_class: type, root: str) -> str | None:
    """Return `file:line` of a class; None if its source text is unavailable."""
    span = class_definition(user_class, root)
    return f"{span.source.name}:{span.source.position(span.start)[0]}" if span else None


def class_definition(user_class: type, root: str) -> Span | None:
    """Return the position of `class Name`; None if its source text is unavailable."""
    if (parsed := _parsed_class(user_class, root)) is None:
        return None
    source, node = parsed
    start = _offset(source, node.lineno, node.col_offset)
    return Span(source, start, source.text.index(node.name, start + len("class ")) + len(node.name))


def assignment(user_class: type, name: str, root: str) -> Span | None:
    """Return the position of an annotated attribute in the body of a class; the position of the class if there is none."""
    if (parsed := _parsed_class(user_class, root)) is not None:
        source, node = parsed
        for part in node.body:
            target = part.target if isinstance(part, ast.AnnAssign) else None
            named = isinstance(target, ast.Name) and target.id == name
            if named and part.end_lineno is not None and part.end_col_offset is not None:
                start = _offset(source, part.lineno, part.col_offset)
                return Span(source, start, _offset(source, part.end_lineno, part.end_col_offset))
    return class_definition(user_class, root)


def _parsed_class(user_class: type, root: str) -> tuple[SourceText, ast.ClassDef] | None:
    methods = [m for m in vars(user_class).values() if isinstance(m, FunctionType)]
    if not methods:
        return None
    path = methods[0].__code__.co_filename
    text = "".join(linecache.getlines(path))
    first = min(m.__code__.co_firstlineno for m in methods if m.__code__.co_filename == path)
    named = (node for node in _definitions(text).classes if node.name == user_class.__name__)
    around = [node for node in named if node.lineno <= first <= (node.end_lineno or node.lineno)]
    return (SourceText(display(path, root), text), around[-1]) if around else None


def line_span(path: str, line: int, root: str) -> Span | None:
    """Return the position of a 1-based line, without its indentation; None past the end of the file."""
    lines = linecache.getlines(path)
    if not 0 < line <= len(lines):
        return None
    source = SourceText(display(path, root), "".join(lines))
    text = lines[line - 1]
    start = sum(map(len, lines[: line - 1])) + len(text) - len(text.lstrip())
    return Span(source, start, start + len(text.strip()))


def _parsed(function: FunctionType, root: str) -> tuple[SourceText, FunctionNode] | None:
    # linecache also has the cells of a notebook.
    path = function.__code__.co_filename
    text = "".join(linecache.getlines(path))
    node = _definitions(text).functions.get((function.__name__, function.__code__.co_firstlineno))
    return None if node is None else (SourceText(display(path, root), text), node)


@dataclass(frozen=True)
class _Definitions:
    """The definitions in a file: functions by (name, line of the first decorator or of `def`), and classes."""

    functions: Mapping[tuple[str, int], FunctionNode]
    classes: Sequence[ast.ClassDef]


@functools.lru_cache(maxsize=4)
def _definitions(text: str) -> _Definitions:
    """Return the definitions in a file's text; none if Python cannot parse it."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return _Definitions({}, ())
    functions = {
        (node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])): node
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    return _Definitions(functions, [node for node in nodes if isinstance(node, ast.ClassDef)])


def _arguments(node: FunctionNode) -> Iterator[ast.arg]:
    arguments = node.args
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (a for a in (arguments.vararg, arguments.kwarg) if a is not None)


def _offset(source: SourceText, line: int, column: int) -> int:
    """Return the character offset of a position of ast's: a 1-based line and a column in UTF-8 bytes."""
    lines = source.text.split("\n")
    before = sum(len(text) + 1 for text in lines[: line - 1])
    return before + len(lines[line - 1].encode()[:column].decode())


def unwrapped(function: object) -> FunctionType | None:
    """Return the Python function below decorators that set `__wrapped__`, such as `functools.cache`; None if there is none."""
    inner = inspect.unwrap(function) if callable(function) else None
    return inner if isinstance(inner, FunctionType) else None
