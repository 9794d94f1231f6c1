"""Records: small text files that are valid only as a whole. The last line of each has the digest of the others.

A power failure can leave a recently written file empty, cut off or full of zeros; a failing disk can change a bit of any file.
For errors that name a file, the purposes of all files of a warehouse are listed here, too.

A record is a msgspec Struct, written as JSON, with the number of its format. A field with a default may be added at any time:
files of an earlier version lack it, and an earlier version ignores it. A field with another meaning or another type needs a new
format, and an upgrade from the format before (see `Record`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

import msgspec

from sqlstream.errors import DamageError, OtherVersionError
from sqlstream.warehouse.filesystem import Filesystem

_LAST_LINE = re.compile(r'\{"digest":"([0-9a-f]{16})"\}\n\Z')

EMPTY, CUT, CHANGED, GONE = "is empty", "is cut off", "is not as it was written", "is missing"

_SAVEPOINT = re.compile(r"/savepoints/([^/]+)/")
# Patterns of the paths of a warehouse's files, each with what the file says or holds.
_KINDS = tuple(
    (re.compile(f"/{pattern}$"), meaning)
    for pattern, meaning in (
        (r"jobs/(?P<job>[^/]+)/job\.json", "what the job is: its query, and the shape of its state"),
        (r"jobs/(?P<job>[^/]+)/status\.json", "how the job is doing"),
        (r"jobs/(?P<job>[^/]+)/restarts\.json", "how often the job has started again"),
        (r"jobs/(?P<job>[^/]+)/checks\.json", "what the last looks at the job's state checks found"),
        (r"jobs/(?P<job>[^/]+)/lock", "which process runs the job"),
        (r"jobs/(?P<job>[^/]+)/restoring\.json", "from which savepoint the job is being restored"),
        (r"jobs/(?P<job>[^/]+)/begun\.json", "what the last batch reads that has begun"),
        (r"jobs/(?P<job>[^/]+)/log/0*(?P<n>\d+)\.json", "what batch {n} read and wrote"),
        (r"jobs/(?P<job>[^/]+)/log/0*(?P<n>\d+)-0*(?P<m>\d+)\.json", "what batches {n} to {m} read and wrote"),
        (r"jobs/(?P<job>[^/]+)/checkpoint/commits/(?P<n>\d+)", "that batch {n} is committed"),
        (r"jobs/(?P<job>[^/]+)/splits/next/0*(?P<n>\d+)\.json", "what input a batch reads"),
        (
            r"jobs/(?P<job>[^/]+)/splits/seen-\d+\.json",
            "which input the job read before its last batches, which no other file says",
        ),
        (
            r"jobs/(?P<job>[^/]+)/splits/read/0*(?P<n>\d+)-0*(?P<m>\d+)\.json",
            "what input batches {n} to {m} read, which only sqlstream verify needs",
        ),
        (r"jobs/(?P<job>[^/]+)/(splits|tables|sources)/.*", "how far the job has read its input"),
        (r"jobs/(?P<job>[^/]+)/received/.*", "input that was received, and is nowhere else"),
        (r"jobs/(?P<job>[^/]+)/output/\d+/(writers|pending)\.json", "how rows are divided over the writers of a topic"),
        (r"jobs/(?P<job>[^/]+)/output/\d+/data/.*", "rows on their way to a table outside of the warehouse"),
        (r"jobs/(?P<job>[^/]+)/output/.*\.json", "which files of results a batch has given their names"),
        (r"jobs/(?P<job>[^/]+)/state/(?P<o>[^/]+)/manifests/.*", 'which files hold the state of operator "{o}"'),
        (r"jobs/(?P<job>[^/]+)/state/(?P<o>[^/]+)/data/.*", 'rows of the state of operator "{o}"'),
        (r"tables/(?P<t>[^/]+)/(?P<job>[^/]+)/manifests/.*", 'which files hold the rows that the job wrote into "{t}"'),
        (r"tables/(?P<t>[^/]+)/(?P<job>[^/]+)/data/.*", 'rows of table "{t}"'),
    )
)


def damage(path: str, fault: str, *, hint: str | None = None) -> DamageError:
    """Return the error for people about a damaged file: what is wrong with it, what it is for, and what to do."""
    torn = fault != CHANGED
    if (match := _SAVEPOINT.search(path)) is not None:
        name = _word(unquote(match[1]))
        hint = f"The job is not affected. Take another savepoint, and drop this one: sqlstream drop --savepoint {name}."
        return DamageError(path, fault, torn=False, detail=f"It belongs to savepoint {name}.", hint=hint)
    for pattern, meaning in _KINDS:
        if match := pattern.search(path):
            parts = {name: unquote(value) for name, value in match.groupdict().items()}
            command = f"sqlstream check {_word(parts['job'])}"
            hint = (
                hint
                or f"`{command}` lists what is damaged, `{command} --repair` goes back to the newest intact version."
            )
            verb = "holds" if meaning.startswith(("rows", "input")) else "says"
            return DamageError(path, fault, torn=torn, detail=f"It {verb} {meaning.format(**parts)}.", hint=hint)
    return DamageError(path, fault, torn=torn, hint=hint)


def _word(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f'"{name}"'


def sealed(body: str) -> str:
    """Return a text, with its digest in a further line.

    >>> sealed("{}")
    '{}\\n{"digest":"2fec7bffeff0b397"}\\n'
    """
    body = body if body.endswith("\n") else f"{body}\n"
    return f'{body}{{"digest":"{digest(body)}"}}\n'


def opened(path: str, text: str) -> str:
    """Return the body of a sealed text; `path` is for the error. Raises DamageError when it is not as it was written."""
    match = _LAST_LINE.search(text)
    if match is None:
        raise damage(path, EMPTY if not text.strip("\0") else CUT)
    body = text[: match.start()]
    if digest(body) != match[1]:
        raise damage(path, CHANGED)
    return body


def digest(body: str) -> str:
    """Return a digest of a text, with 16 hexadecimal digits."""
    return blake2b(body.encode(), digest_size=8).hexdigest()


def write_sealed(fs: Filesystem, path: str, body: str, *, durable: bool = False) -> None:
    """Write a record, which readers see whole or not at all; a `durable` one also survives a power failure."""
    fs.write_text_atomic(path, sealed(body), durable=durable)


def read_sealed(fs: Filesystem, path: str) -> str:
    """Return the body of a record. Raises FileNotFoundError, and DamageError when it is not as it was written."""
    try:
        text = fs.read_text(path)
    except UnicodeDecodeError as error:
        raise damage(path, CHANGED) from error
    return opened(path, text)


# Converts the JSON content of a record to the next format.
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


class UnreadableFormat(Exception):
    """A record has a format that this version cannot read: of a later version, or of a version before 0.1.0.

    `today` is the format that this version writes, `content` the JSON content of the record. `misfit` says which value of a
    record in that format has a type, or is of a kind, that this version lacks.
    """

    def __init__(self, format: int, today: object, content: Mapping[str, Any], misfit: str = ""):
        super().__init__(format)
        self.format, self.today, self.content, self.misfit = format, today, content, misfit

    def error(self, what: str) -> OtherVersionError:
        """Return the error for people; `what` is the beginning of the sentence `<what> was written by a later version`."""
        if self.misfit or (isinstance(self.today, int) and self.format > self.today):
            detail = f"It has format {self.format}; this version reads formats up to {self.today}."
            return OtherVersionError(
                f"{what} was written by a later version of sqlstream",
                detail=f"It has something that this version lacks: {self.misfit}." if self.misfit else detail,
                hint="Use that version, or a later one.",
            )
        return OtherVersionError(
            f"{what} was written by a version of sqlstream before 0.1.0",
            detail=f"It has format {self.format}, which was never released.",
            hint="Start the job anew with --fresh.",
        )


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file's content. A subclass sets `tag_field="format"` and its format as `tag`; `upgrades` are by the older format."""

    upgrades: ClassVar[Mapping[int, Upgrade]] = {}

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return msgspec.json.encode(self).decode()


R = TypeVar("R", bound=Record)


class _Head(msgspec.Struct):
    format: int = 0


_HEADS = msgspec.json.Decoder(_Head)


def read_json(text: str, kind: type[R]) -> R:
    """Return the record in a JSON text, upgraded to the current format. Raises UnreadableFormat.

    The text is as it was written: a value in it that does not fit is one of a later version, such as a new kind of operator.
    """
    today = kind.__struct_config__.tag
    format = stored_format = _HEADS.decode(text).format
    if today is None or format == today:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError as error:
            raise UnreadableFormat(format, today, msgspec.json.decode(text), str(error).replace("`", "")) from error
    content = msgspec.json.decode(text)
    while (upgrade := kind.upgrades.get(format)) is not None:
        format += 1
        content = {**upgrade(content), "format": format}
    if format != today:
        raise UnreadableFormat(stored_format, today, content)
    return msgspec.convert(content, type=kind, str_keys=True)
