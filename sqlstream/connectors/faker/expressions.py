"""Expressions of Datafaker, such as `#{Name.fullName} of #{Options.option 'a','b'}`, which make a text of a value.

The names are Datafaker's, in any case, with or without underscores. The library Faker makes most texts; this module makes
numbers, dates and texts of patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from sqlstream.connectors.faker.patterns import matching
from sqlstream.errors import nearest

# The names of Datafaker and the methods of Faker that make such texts.
METHODS: Final[Mapping[str, str]] = {
    "name.fullname": "name",
    "name.name": "name",
    "name.namewithmiddle": "name",
    "name.firstname": "first_name",
    "name.lastname": "last_name",
    "name.prefix": "prefix",
    "name.suffix": "suffix",
    "name.username": "user_name",
    "name.title": "job",
    "job.title": "job",
    "job.position": "job",
    "internet.username": "user_name",
    "address.city": "city",
    "address.cityname": "city",
    "address.country": "country",
    "country.name": "country",
    "address.countrycode": "country_code",
    "country.countrycode2": "country_code",
    "address.state": "state",
    "address.stateabbr": "state_abbr",
    "address.zipcode": "postcode",
    "address.postcode": "postcode",
    "address.streetaddress": "street_address",
    "address.streetname": "street_name",
    "address.fulladdress": "address",
    "address.buildingnumber": "building_number",
    "address.streetaddressnumber": "building_number",
    "address.secondaryaddress": "secondary_address",
    "address.streetsuffix": "street_suffix",
    "address.latitude": "latitude",
    "address.longitude": "longitude",
    "address.timezone": "timezone",
    "internet.emailaddress": "email",
    "internet.safeemailaddress": "safe_email",
    "internet.url": "url",
    "internet.domainname": "domain_name",
    "internet.domainword": "domain_word",
    "internet.domainsuffix": "tld",
    "internet.ipv4address": "ipv4",
    "internet.publicipv4address": "ipv4_public",
    "internet.slug": "slug",
    "internet.privateipv4address": "ipv4_private",
    "internet.ipv6address": "ipv6",
    "internet.uuid": "uuid4",
    "internet.macaddress": "mac_address",
    "internet.useragent": "user_agent",
    "internet.useragentany": "user_agent",
    "internet.password": "password",
    "internet.httpmethod": "http_method",
    "internet.image": "image_url",
    "company.name": "company",
    "company.catchphrase": "catch_phrase",
    "company.bs": "bs",
    "company.suffix": "company_suffix",
    "phonenumber.phonenumber": "phone_number",
    "phonenumber.cellphone": "phone_number",
    "lorem.word": "word",
    "lorem.sentence": "sentence",
    "lorem.paragraph": "paragraph",
    "lorem.character": "random_letter",
    "color.name": "color_name",
    "color.hex": "hex_color",
    "commerce.color": "color_name",
    "currency.code": "currency_code",
    "currency.name": "currency_name",
    "country.currencycode": "currency_code",
    "country.currency": "currency_name",
    "finance.creditcard": "credit_card_number",
    "finance.iban": "iban",
    "finance.bic": "swift",
    "business.creditcardnumber": "credit_card_number",
    "business.creditcardtype": "credit_card_provider",
    "business.creditcardexpiry": "credit_card_expire",
    "file.filename": "file_name",
    "file.extension": "file_extension",
    "file.mimetype": "mime_type",
    "idnumber.valid": "ssn",
    "idnumber.ssnvalid": "ssn",
    "code.isbn10": "isbn10",
    "code.isbn13": "isbn13",
    "code.ean8": "ean8",
    "code.ean13": "ean13",
    "barcode.ean8": "ean8",
    "barcode.ean13": "ean13",
    "crypto.md5": "md5",
    "crypto.sha1": "sha1",
    "crypto.sha256": "sha256",
}
_UNITS: Final[Mapping[str, timedelta]] = {
    "MILLISECONDS": timedelta(milliseconds=1),
    "SECONDS": timedelta(seconds=1),
    "MINUTES": timedelta(minutes=1),
    "HOURS": timedelta(hours=1),
    "DAYS": timedelta(days=1),
}
_DIRECTIVE = re.compile(r"#\{\s*(?P<name>[\w.]+)\s*(?P<arguments>(?:'(?:[^']|'')*'\s*,?\s*)*)\}")
_ARGUMENT = re.compile(r"'((?:[^']|'')*)'")


@dataclass(slots=True)
class ValueContext:
    """The inputs of a `ValueFactory`: random numbers, an instance of Faker that draws from them, and the time of the batch."""

    random: Random
    fake: Any
    now: datetime


class _WrongPattern(ValueError):
    """A regular expression is not valid, or contains a construct for which no text can be generated."""


# Makes the text of a value.
ValueFactory = Callable[[ValueContext], str]


def parse(expression: str) -> ValueFactory:
    """Return the function that makes texts of an expression. Raises ValueError, with a message for users, for a wrong one."""
    parts: list[ValueFactory] = []
    at = 0
    for directive in _DIRECTIVE.finditer(expression):
        parts += [_fixed(expression[at : directive.start()]), _maker(directive)]
        at = directive.end()
    if "#{" in expression[at:]:
        wrong = expression[expression.index("#{", at) :]
        raise ValueError(f"\"{wrong}\" is not as #{{Name.fullName}} or #{{Options.option 'a','b'}}")
    parts.append(_fixed(expression[at:]))
    return lambda context: "".join(part(context) for part in parts)


def _fixed(text: str) -> ValueFactory:
    return lambda context: text


def _maker(directive: re.Match[str]) -> ValueFactory:
    written, arguments = directive["name"], [a.replace("''", "'") for a in _ARGUMENT.findall(directive["arguments"])]
    name = written.lower().replace("_", "")
    if name in _MAKERS:
        try:
            return _MAKERS[name](arguments)
        except _WrongPattern as error:
            raise ValueError(f'"{directive[0]}": {error}') from None
        except (IndexError, KeyError, ValueError):
            raise ValueError(f'"{directive[0]}" has arguments that do not fit') from None
    if name in METHODS:
        method = METHODS[name]
        # Arguments say how long a text is, or how safe: any text of the kind will do.
        return lambda context: str(getattr(context.fake, method)())
    near = nearest(name, (*_MAKERS, *METHODS))
    raise ValueError(f'"{written}" does not exist' + (f'; did you mean "{near}"?' if near else ""))


def _number_between(arguments: Sequence[str]) -> ValueFactory:
    low, high = map(int, arguments)
    # As in Datafaker, the upper bound is not among them.
    return lambda context: str(context.random.randrange(low, high) if low < high else low)


def _next_int(arguments: Sequence[str]) -> ValueFactory:
    low, high = map(int, arguments) if len(arguments) == 2 else (0, int(arguments[0]) - 1)
    return lambda context: str(context.random.randint(low, high))


def _double(arguments: Sequence[str]) -> ValueFactory:
    digits, low, high = int(arguments[0]), float(arguments[1]), float(arguments[2])
    return lambda context: f"{low + (high - low) * context.random.random():.{digits}f}"


def _price(arguments: Sequence[str]) -> ValueFactory:
    low, high = map(float, arguments) if arguments else (0.0, 100.0)
    return lambda context: f"{low + (high - low) * context.random.random():.2f}"


def _digits(arguments: Sequence[str]) -> ValueFactory:
    count = int(arguments[0]) if arguments else 1
    return lambda context: "".join(str(context.random.randrange(10)) for _ in range(count))


def _option(arguments: Sequence[str]) -> ValueFactory:
    choices = list(arguments)
    choices[0]
    return lambda context: choices[context.random.randrange(len(choices))]


def _regexify(arguments: Sequence[str]) -> ValueFactory:
    [pattern] = arguments
    try:
        make = matching(pattern)
    except ValueError as error:
        raise _WrongPattern(str(error)) from None
    return lambda context: make(context.random)


def _characters(arguments: Sequence[str]) -> ValueFactory:
    make = matching(f"[a-z0-9]{{{int(arguments[0]) if arguments else 255}}}")
    return lambda context: make(context.random)


def _placeholders(digits: str, letters: str) -> Callable[[Sequence[str]], ValueFactory]:
    """Return the function that replaces characters in `digits` by random digits, and characters in `letters` by letters."""

    def make(arguments: Sequence[str]) -> ValueFactory:
        pattern = arguments[0]

        def character(context: ValueContext, written: str) -> str:
            if written in digits:
                return str(context.random.randrange(10))
            return chr(ord("a") + context.random.randrange(26)) if written in letters else written

        return lambda context: "".join(character(context, written) for written in pattern)

    return make


def _away(sign: int) -> Callable[[Sequence[str]], ValueFactory]:
    """Return the function that makes times before (`sign` -1) or after (1) the batch's time.

    Its arguments are the greatest distance, optionally the least distance (default: 0), and their unit.
    """

    def make(arguments: Sequence[str]) -> ValueFactory:
        *bounds, unit_name = arguments
        unit = _UNITS[unit_name.upper()]
        most, least = int(bounds[0]) * unit, (int(bounds[1]) if len(bounds) > 1 else 0) * unit
        return lambda context: _text(context.now + sign * (least + (most - least) * context.random.random()))

    return make


def _between(arguments: Sequence[str]) -> ValueFactory:
    first, last = map(datetime.fromisoformat, arguments)
    return lambda context: _text(first + (last - first) * context.random.random())


def _birthday(arguments: Sequence[str]) -> ValueFactory:
    least, most = map(int, arguments) if arguments else (18, 65)
    days = (least * 365, most * 365)
    return lambda context: _text(context.now - timedelta(days=context.random.uniform(*days)))


def _text(time: datetime) -> str:
    return time.replace(tzinfo=None).isoformat(" ", "milliseconds")


_MAKERS: Final[Mapping[str, Callable[[Sequence[str]], ValueFactory]]] = {
    "number.numberbetween": _number_between,
    "number.randomdouble": _double,
    "number.digits": _digits,
    "number.digit": _digits,
    "number.randomdigit": _digits,
    "number.randomdigitnotzero": lambda arguments: _number_between(("1", "10")),
    "number.randomnumber": lambda arguments: _number_between(("0", str(10**9))),
    "number.positive": lambda arguments: _number_between(("1", str(2**31))),
    "number.negative": lambda arguments: _number_between((str(-(2**31)), "0")),
    "random.nextint": _next_int,
    "commerce.price": _price,
    "bool.bool": lambda arguments: _option(("true", "false")),
    "options.option": _option,
    "regexify": _regexify,
    "numerify": _placeholders("#", ""),
    "letterify": _placeholders("", "?"),
    "bothify": _placeholders("#", "?"),
    "lorem.characters": _characters,
    "date.past": _away(-1),
    "date.future": _away(1),
    "timeanddate.past": _away(-1),
    "timeanddate.future": _away(1),
    "date.between": _between,
    "date.birthday": _birthday,
}
NAMES: Final[Sequence[str]] = (*_MAKERS, *METHODS)


def time_of(microseconds: int) -> datetime:
    """Return a time, in microseconds since 1970, in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
