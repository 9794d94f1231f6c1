"""Random texts that match a regular expression, as `regexify` of Datafaker makes them."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from random import Random

# Makes a text with random numbers.
Maker = Callable[[Random], str]
_PRINTABLE = string.digits + string.ascii_letters + string.punctuation + " "
_WORD = string.ascii_letters + string.digits + "_"
_CLASSES = {"d": string.digits, "w": _WORD, "s": " "}
_NEGATED = {name.upper(): "".join(c for c in _PRINTABLE if c not in members) for name, members in _CLASSES.items()}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}
# The most repetitions where a pattern has no limit.
_MOST = 10


def matching(pattern: str) -> Maker:
    """Return a function that makes random texts which match a regular expression.

    Raises ValueError for an invalid expression, and for constructs that are not supported.

    >>> matching("(GET|PUT) /[a-c]{3}\\\\.html")(Random(1))
    'GET /abb.html'
    """
    reader = _Reader(pattern)
    maker = reader.alternatives()
    if reader.rest:
        raise ValueError(f'"{reader.rest}" is not expected there')
    return maker


class _Reader:
    def __init__(self, pattern: str):
        self.rest = pattern

    def alternatives(self) -> Maker:
        choices = [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        return lambda random: choices[random.randrange(len(choices))](random)

    def _sequence(self) -> Maker:
        parts: list[Maker] = []
        while self.rest and self.rest[0] not in "|)":
            parts.append(self._repeated(self._atom()))
        return lambda random: "".join(part(random) for part in parts)

    def _atom(self) -> Maker:
        character = self._next()
        match character:
            case "(":
                if self.rest.startswith("?") and not self._take("?:"):
                    raise ValueError(f'"({self.rest[:2]}" is no group that can be made up')
                inside = self.alternatives()
                if not self._take(")"):
                    raise ValueError('")" is missing')
                return inside
            case "[":
                return _one_of(self._class())
            case ".":
                return _one_of(_PRINTABLE)
            case "^" | "$":
                return lambda random: ""
            case "\\":
                return _one_of(self._escaped())
            case "*" | "+" | "?" | "{":
                raise ValueError(f'"{character}" has nothing to repeat')
        return lambda random: character

    def _repeated(self, atom: Maker) -> Maker:
        least, most = 1, 1
        if self._take("*"):
            least, most = 0, _MOST
        elif self._take("+"):
            least, most = 1, _MOST
        elif self._take("?"):
            least, most = 0, 1
        elif self._take("{"):
            bounds, closed, self.rest = self.rest.partition("}")
            first, comma, last = bounds.partition(",")
            if not closed or not first.isdigit() or (last and not last.isdigit()):
                raise ValueError(f'"{{{bounds}" is no number of repetitions')
            least = int(first)
            most = int(last) if last else least + _MOST if comma else least
            if most < least:
                raise ValueError(f'"{{{bounds}}}" ends before it begins')
        # A reluctant or possessive repetition makes the same texts.
        if least != most and not self._take("?"):
            self._take("+")
        if least == most == 1:
            return atom
        return lambda random: "".join(atom(random) for _ in range(random.randint(least, most)))

    def _class(self) -> str:
        negated = self._take("^")
        members: list[str] = []
        while not self._take("]") or not members:
            first = self._next()
            if first == "\\":
                members += self._escaped()
            elif self.rest.startswith("-") and self.rest[1:2] not in ("]", ""):
                self._next()
                last = self._next()
                if ord(last) < ord(first):
                    raise ValueError(f'"{first}-{last}" is no range')
                members += map(chr, range(ord(first), ord(last) + 1))
            else:
                members.append(first)
        return "".join(c for c in _PRINTABLE if c not in members) if negated else "".join(members)

    def _escaped(self) -> str:
        character = self._next()
        classes = {**_CLASSES, **_NEGATED, **_CONTROLS}
        if character.isalnum() and character not in classes:
            raise ValueError(f'"\\{character}" is not known')
        return classes.get(character, character)

    def _next(self) -> str:
        if not self.rest:
            raise ValueError("it ends too early")
        character, self.rest = self.rest[0], self.rest[1:]
        return character

    def _take(self, text: str) -> bool:
        if not self.rest.startswith(text):
            return False
        self.rest = self.rest[len(text) :]
        return True


def _one_of(characters: Sequence[str]) -> Maker:
    return lambda random: characters[random.randrange(len(characters))]
