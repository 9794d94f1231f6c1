"""Loads the functions of a project: all in `udfs/**/*.py`, and functions that CREATE FUNCTION names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from sqlstream.catalog import AnyFunction
from sqlstream.errors import BindError, SourceText, Span, SqlStreamError, missing
from sqlstream.functions import source_locations
from sqlstream.functions.kinds import declare_any, decorator_of, is_marked


def load(directory: str, broken: list[SqlStreamError] | None = None) -> list[AnyFunction]:
    """Import every Python file below a directory, in path order, and return the functions with a decorator that they define.

    Files import each other by name, or relatively; an installed module of the same name comes first. Errors show files
    relative to the directory's parent. Loading again reads the files again. Raises SqlStreamError for a file that does not
    import, BindError for a function that SQL cannot call and for two functions of one name. With a list `broken`, errors are
    appended to it instead, and their functions are left out.
    """
    folder = Path(directory).resolve()
    root = str(folder.parent)
    functions: dict[str, AnyFunction] = {}
    twice: set[str] = set()
    with _package(folder) as package:
        for path in _files(folder):
            try:
                module = _imported(path, folder, package, root)
            except SqlStreamError as error:
                _tell(error, broken)
                continue
            own = {id(v): v for v in vars(module).values() if is_marked(v) and v.__module__ == module.__name__}
            for value in own.values():
                try:
                    function = declare_any(value, root=root)
                except SqlStreamError as error:
                    _tell(error, broken)
                    continue
                if (other := functions.setdefault(function.name.lower(), function)) is not function:
                    twice.add(function.name.lower())
                    _tell(_defined_twice(function, other), broken)
    return [function for name, function in functions.items() if name not in twice]


def _tell(error: SqlStreamError, broken: list[SqlStreamError] | None) -> None:
    """Append an error to the list `broken`; raise it if there is no list."""
    if broken is None:
        raise error
    broken.append(error)


def _defined_twice(function: AnyFunction, other: AnyFunction) -> BindError:
    return BindError(
        f'function "{function.name}" is defined twice',
        detail=f" --> {other.location}\n --> {function.location}",
        hint=f"Rename one of them, or give it another name in SQL: @{decorator_of(function)}(name='...').",
    )


def find(reference: str, span: Span, name: str, root: str) -> AnyFunction:
    """Return the function of the reference `module.attribute`, declared under `name`.

    The module is searched for in the project's folder `root`, in its `udfs/`, and among the installed packages. The attribute is
    a function with type hints or a class, with or without a decorator. Raises SqlStreamError, at the span if it has no other.
    """
    module_name, _, attribute = reference.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in reference.split(".")):
        raise BindError(
            f'"{reference}" is not the name of a module and of what is in it', span, hint="Write 'geo.distance'."
        )
    module = _find_module(module_name, Path(root).resolve())
    if module is None:
        hint = "It is looked for in the project's folder, in udfs/, and among the installed packages."
        raise BindError(f'module "{module_name}" does not exist', span, hint=hint)
    if not hasattr(module, attribute):
        usable = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        hint = missing("name", attribute, usable)
        raise BindError(f'module "{module_name}" has no "{attribute}"', span, hint=hint)
    try:
        return declare_any(getattr(module, attribute), name=name, root=root)
    except SqlStreamError as error:
        error.span = error.span or span
        raise


def _find_module(name: str, root: Path) -> ModuleType | None:
    for folder in (root, root / "udfs"):
        module_path = folder.joinpath(*name.split("."))
        path = module_path / "__init__.py" if module_path.is_dir() else module_path.with_name(f"{module_path.name}.py")
        if path.is_file():
            with _package(folder) as package:
                return _imported(path, folder, package, str(root))
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _files(folder: Path) -> list[Path]:
    below = ((p, p.relative_to(folder).parts) for p in folder.rglob("*.py"))
    return [p for p, parts in sorted(below) if not any(part.startswith(".") for part in parts)]


def _imported(path: Path, folder: Path, package: str, root: str) -> ModuleType:
    parts = path.relative_to(folder).with_suffix("").parts
    if any("." in part for part in parts):
        raise BindError(f'{source_locations.display(str(path), root)} has a "." in its name', hint="Rename it.")
    name = ".".join((package, *parts)).removesuffix(".__init__")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _import_error(error, path, root) from error


def _import_error(error: BaseException, path: Path, root: str) -> SqlStreamError:
    shown = source_locations.display(str(path), root)
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        return SqlStreamError(f"{shown} cannot be imported: {error.msg}", _line(error.filename, error.lineno, root))
    span, traceback = None, error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file.startswith(os.path.join(root, "")) and source_locations.is_user_file(file):
            span = _line(file, traceback.tb_lineno, root)
        traceback = traceback.tb_next
    reason = f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__
    hint = None
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"Install it: pip install {error.name.partition('.')[0]} (its package may have another name)."
    return SqlStreamError(f"{shown} cannot be imported: {reason}", span or Span(SourceText(shown, ""), 0, 0), hint=hint)


def _line(path: str, number: int, root: str) -> Span | None:
    linecache.checkcache(path)
    return source_locations.line_span(path, number, root)


@contextmanager
def _package(folder: Path) -> Iterator[str]:
    """Import the directory as a package of a unique name, so that files may have the names of installed modules."""
    package = f"udfs_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    # Another thread may be importing: the names are copied in one go.
    for name in [n for n in list(sys.modules) if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]
    module = ModuleType(package)
    module.__path__ = [str(folder)]
    sys.modules[package] = module
    importlib.invalidate_caches()
    linecache.checkcache()
    siblings = _SiblingImporter(package, folder)
    sys.meta_path.insert(0, siblings)
    try:
        yield package
    finally:
        sys.meta_path.remove(siblings)
        for name in siblings.imported:
            sys.modules.pop(name, None)


class _SiblingImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves `import geo` in a file of the directory to the module already loaded from geo.py, which runs only once."""

    def __init__(self, package: str, folder: Path):
        self.package = package
        self.folder = folder
        self.imported: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top, *inner = fullname.split(".")
        module_path = self.folder.joinpath(top, *inner)
        if not (module_path.is_dir() or module_path.with_name(f"{module_path.name}.py").is_file()):
            return None
        if (top not in self.imported) if inner else self._installed(fullname):
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def _installed(self, name: str) -> bool:
        others = (f.find_spec(name, None) for f in sys.meta_path if f is not self)
        # A loader of None is a folder without __init__.py that happens to be on the import path.
        return any(spec is not None and spec.loader is not None for spec in others)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{self.package}.{spec.name}")
        self.imported.append(spec.name)
        # The import system overwrites it with the spec of the sibling's other name.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
