"""The `nexmark` source: people, auctions and bids, as in the Nexmark benchmark (https://github.com/nexmark/nexmark).

The nth event depends on n, the table's options and the time of event 0 only. By default, of 50 events one is a person, three are
auctions, and the rest bids, half of them for a few hot auctions. Numbers are drawn for 64 Ki events at a time; texts are picked
from pools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from sqlstream.catalog import Column, Table
from sqlstream.connectors.generated_rows import RowRange
from sqlstream.connectors.options import BOOLEAN, COUNT, NUMBER, SIZE, OptionType, TableOption, named
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Select, quote_name
from sqlstream.errors import BindError, missing

_PERSON = ("id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra")
_AUCTION = (
    "id",
    "itemName",
    "description",
    "initialBid",
    "reserve",
    "dateTime",
    "expires",
    "seller",
    "category",
    "extra",
)
_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
_NUMERIC = {"id", "initialBid", "reserve", "seller", "category", "auction", "bidder", "price"}
_TIMES = {"dateTime", "expires"}


def _row(names: Sequence[str]) -> str:
    types = ("BIGINT" if n in _NUMERIC else "TIMESTAMP" if n in _TIMES else "VARCHAR" for n in names)
    return f"STRUCT({', '.join(f'{quote_name(n)} {t}' for n, t in zip(names, types, strict=True))})"


COLUMNS = (
    Column("event_type", "INTEGER"),
    Column("person", _row(_PERSON)),
    Column("auction", _row(_AUCTION)),
    Column("bid", _row(_BID)),
    Column("dateTime", "TIMESTAMP"),
)

# The first id of people and auctions, and of categories, of which there are five.
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1000, 10, 5
# One in this many auctions, sellers and bidders is hot.
_HOT_SPACING = 100
# How many auctions are open at a time, how many people are active, and by how much a bid may be ahead of either.
_OPEN_AUCTIONS, _ACTIVE_PEOPLE, _LEAD = 100, 1000, 10
_CHUNK = 1 << 16
_POOL = 1024
_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_NAMES = ("Ada", "Bea", "Carl", "Dora", "Emil", "Finn", "Greta", "Hugo", "Ines", "Jan", "Kira", "Lars")
_SURNAMES = ("Abel", "Brandt", "Conrad", "Diaz", "Ebert", "Frank", "Gomez", "Huber", "Ivanov")
_CITIES = (
    "Phoenix",
    "Tucson",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES = ("AZ", "AZ", "CA", "CA", "ID", "OR", "OR", "WA", "WA", "WY")

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def _moment(text: str) -> int:
    """Return a UTC time in milliseconds since 1970."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise ValueError(f'"{text}" is not a time such as 2026-01-01 00:00:00') from None


OPTIONS = (
    TableOption("first-event.rate", COUNT, "events per second of event time", default="10000"),
    TableOption("next-event.rate", COUNT, "another name of the same option", default="10000"),
    TableOption(
        "rate.limited", BOOLEAN, "true: events come at that rate; false: as fast as they are read", default="false"
    ),
    TableOption("events.num", NUMBER, "how many events there are; 0: without end", default="0"),
    TableOption("person.proportion", COUNT, "persons in each round of events", default="1"),
    TableOption("auction.proportion", COUNT, "auctions in each round", default="3"),
    TableOption("bid.proportion", COUNT, "bids in each round", default="46"),
    TableOption("bid.hot-ratio.auctions", COUNT, "n: one bid in n is not for a hot (popular) auction", default="2"),
    TableOption("bid.hot-ratio.bidders", COUNT, "n: one bid in n is not by a hot bidder", default="4"),
    TableOption("auction.hot-ratio.sellers", COUNT, "n: one auction in n is not of a hot seller", default="4"),
    TableOption("person.avg-size", SIZE, "average size of a person event", default="200 b"),
    TableOption("auction.avg-size", SIZE, "average size of an auction event", default="500 b"),
    TableOption("bid.avg-size", SIZE, "average size of a bid event", default="100 b"),
    TableOption("seed", NUMBER, "another seed gives other events (an extension)", default="0"),
    TableOption(
        "base-time",
        OptionType("time", _moment),
        "time of the first event; by default, when the job first started (an extension)",
    ),
)
_BY_NAME = named(OPTIONS)


def validate(table: Table) -> None:
    """Raise BindError if the two options for the rate differ, and for columns that Nexmark does not have."""
    rates = {table.options[k].strip() for k in ("first-event.rate", "next-event.rate") if k in table.options}
    if len(rates) > 1:
        hint = "Give one of the two; a rate that changes with time is not supported."
        raise BindError(f'table "{table.name}": the two event rates differ', table.span, hint=hint)
    columns = {c.name.lower(): c for c in COLUMNS}
    for column in table.physical:
        if (own := columns.get(column.name.lower())) is None:
            hint = missing("column", column.name, [c.name for c in COLUMNS])
            raise BindError(f'table "{table.name}": nexmark has no column "{column.name}"', table.span, hint=hint)
        if DuckDBPyType(own.type) != DuckDBPyType(column.type):
            raise BindError(
                f'table "{table.name}": column "{column.name}" is {column.type}, but nexmark gives {own.type}',
                table.span,
                hint="Leave the columns out; they are known.",
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a table as numbers.

    `rate` is in events per second of event time, and `limited` says whether events also come at that rate. `total` is the number
    of events, None without a limit. `people`, `auctions` and `bids` are their numbers in each round. `sizes` are the average
    bytes of a person, an auction and a bid. `base` is the time of event 0 in ms since 1970, None for the first start of the job.
    """

    rate: int
    limited: bool
    total: int | None
    people: int
    auctions: int
    bids: int
    hot_auctions: int
    hot_bidders: int
    hot_sellers: int
    sizes: tuple[int, int, int]
    seed: int
    base: int | None

    @classmethod
    def of(cls, table: Table) -> Settings:
        """Return the settings of a table that `validate` has accepted."""

        def value(name: str) -> Any:
            option = _BY_NAME[name]
            return option.type.parse(table.options.get(name, option.default))

        rate = "first-event.rate" if "first-event.rate" in table.options else "next-event.rate"
        return cls(
            rate=value(rate),
            limited=value("rate.limited"),
            total=value("events.num") or None,
            people=value("person.proportion"),
            auctions=value("auction.proportion"),
            bids=value("bid.proportion"),
            hot_auctions=value("bid.hot-ratio.auctions"),
            hot_bidders=value("bid.hot-ratio.bidders"),
            hot_sellers=value("auction.hot-ratio.sellers"),
            sizes=(value("person.avg-size"), value("auction.avg-size"), value("bid.avg-size")),
            seed=value("seed"),
            base=value("base-time") if "base-time" in table.options else None,
        )


def read_nexmark(con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], table: Table) -> ReadPlan:
    """Return the plan that reads some events, which are generated now, and registered in the connection."""
    batches = [b for s in splits for b in events(Settings.of(table), s.first, s.end, s.base)]
    event_table = pa.Table.from_batches(batches)
    names = {c.name: c.name for c in table.physical}
    # The only metadata is the row's number.
    for column in (c for c in table.physical if c.metadata):
        names[column.name] = "_number"
        numbers = np.concatenate([np.arange(s.first, s.end, dtype=np.int64) for s in splits])
        event_table = event_table.append_column("_number", pa.array(numbers))
    con.register("_events", event_table)
    items = ", ".join(f"CAST({quote_name(names[c.name])} AS {c.type}) AS {quote_name(c.name)}" for c in table.physical)
    return ReadPlan(Select(f"SELECT {items} FROM _events"))


def events(settings: Settings, first: int, end: int, base: int) -> Iterator[pa.RecordBatch]:
    """Yield the events [first, end), with COLUMNS, 64 Ki at a time; `base` is the time of event 0 in ms since 1970."""
    for start in range(first, end, _CHUNK):
        yield _Events(settings, np.arange(start, min(start + _CHUNK, end), dtype=np.int64), base).batch()


class _Events:
    """Some events by their numbers."""

    def __init__(self, settings: Settings, numbers: Ints, base: int):
        self._settings, self._numbers, self._base = settings, numbers, base
        epoch, self._offset = np.divmod(numbers, settings.people + settings.auctions + settings.bids)
        # The newest person and the newest auction so far, counted from 0.
        self._person = epoch * settings.people + np.minimum(self._offset, settings.people - 1)
        newest = np.clip(self._offset - settings.people, -1, settings.auctions - 1)
        self._auction = np.maximum(epoch * settings.auctions + newest, 0)
        self._times = self._time(numbers)

    def batch(self) -> pa.RecordBatch:
        """Return a row per event, with COLUMNS."""
        s = self._settings
        person = self._offset < s.people
        bid = self._offset >= s.people + s.auctions
        kinds = np.where(person, 0, np.where(bid, 2, 1)).astype(np.int32)
        arrays = [
            pa.array(kinds),
            self._scattered(person, self._people(np.flatnonzero(person)), _PERSON),
            self._scattered(~person & ~bid, self._auctions(np.flatnonzero(~person & ~bid)), _AUCTION),
            pa.StructArray.from_arrays(self._bids(), names=list(_BID), mask=pa.array(~bid)),
            _times(self._times),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in COLUMNS])

    @staticmethod
    def _scattered(chosen: npt.NDArray[np.bool_], columns: list[pa.Array], names: Sequence[str]) -> pa.Array:
        """Return an array with a struct for each chosen row, in order, and NULL for the others."""
        structs = pa.StructArray.from_arrays(columns, names=list(names))
        return structs.take(pa.array(np.cumsum(chosen) - 1, mask=~chosen))

    def _people(self, at: Ints) -> list[pa.Array]:
        s, n = self._settings, self._numbers[at]
        one, two, three = (_drawn(n, s.seed, f"person {i}") for i in range(3))
        city = _below(one, len(_CITIES))
        names = _pool("name", s.seed, 0)
        return [
            pa.array(self._person[at] + _FIRST_ID),
            names.take(pa.array(_below(one << np.uint64(32), len(names)))),
            _pool("email", s.seed, 0).take(pa.array(_below(two, _POOL))),
            _pool("card", s.seed, 0).take(pa.array(_below(two << np.uint64(32), _POOL))),
            pa.array(_CITIES).take(pa.array(city)),
            pa.array(_STATES).take(pa.array(city)),
            _times(self._times[at]),
            _pool("extra", s.seed, s.sizes[0] - 100).take(pa.array(_below(three, _POOL))),
        ]

    def _auctions(self, at: Ints) -> list[pa.Array]:
        s, n = self._settings, self._numbers[at]
        draws = [_drawn(n, s.seed, f"auction {i}") for i in range(5)]
        initial = _price(draws[0])
        hot = _below(draws[1], s.hot_sellers) > 0
        seller = np.where(hot, self._person[at] // _HOT_SPACING * _HOT_SPACING, self._any_person(at, draws[1]))
        # An auction is open for as long as it takes, on average, until so many others have begun.
        total = s.people + s.auctions + s.bids
        horizon = self._time(n + _OPEN_AUCTIONS * total // s.auctions) - self._times[at]
        length = 1 + _below(draws[2], np.maximum(horizon * 2, 1))
        return [
            pa.array(self._auction[at] + _FIRST_ID),
            _pool("item", s.seed, 0).take(pa.array(_below(draws[3], _POOL))),
            _pool("description", s.seed, 0).take(pa.array(_below(draws[3] << np.uint64(32), _POOL))),
            pa.array(initial),
            pa.array(initial + _price(draws[0] << np.uint64(32))),
            _times(self._times[at]),
            _times(self._times[at] + length),
            pa.array(seller + _FIRST_ID),
            pa.array(_FIRST_CATEGORY + _below(draws[2] << np.uint64(32), _CATEGORIES)),
            _pool("extra", s.seed, s.sizes[1] - 150).take(pa.array(_below(draws[4], _POOL))),
        ]

    def _bids(self) -> list[pa.Array]:
        """Return the columns of a bid for every event; they are masked for events that are no bids."""
        s, n, every = self._settings, self._numbers, slice(None)
        one, two, three, four = (_drawn(n, s.seed, f"bid {i}") for i in range(4))
        newest = self._auction
        oldest = np.maximum(newest - _OPEN_AUCTIONS, 0)
        any_auction = oldest + _below(one << np.uint64(32), newest - oldest + 1 + _LEAD)
        auction = np.where(_below(one, s.hot_auctions) > 0, newest // _HOT_SPACING * _HOT_SPACING, any_auction)
        hot_bidder = self._person // _HOT_SPACING * _HOT_SPACING + 1
        bidder = np.where(_below(two, s.hot_bidders) > 0, hot_bidder, self._any_person(every, two))
        common = _below(four << np.uint64(32), len(_HOT_CHANNELS))
        rare = len(_HOT_CHANNELS) + _below(four << np.uint64(32), _CHANNELS)
        channel = pa.array(np.where(four >> np.uint64(63) == 0, common, rare).astype(np.int32))
        extra = pa.array(_below(three << np.uint64(32), _POOL).astype(np.int32))
        return [
            pa.array(auction + _FIRST_ID),
            pa.array(bidder + _FIRST_ID),
            pa.array(_price(three)),
            pa.DictionaryArray.from_arrays(channel, _channels()),
            pa.DictionaryArray.from_arrays(channel, _urls(s.seed)),
            _times(self._times),
            pa.DictionaryArray.from_arrays(extra, _pool("extra", s.seed, s.sizes[2] - 32)),
        ]

    def _any_person(self, at: Ints | slice, drawn: Words) -> Ints:
        """Return the number of an active person, or of one who comes soon, for each event."""
        people = self._person[at] + 1
        active = np.minimum(people, _ACTIVE_PEOPLE)
        return np.asarray(people - active + _below(drawn << np.uint64(32), active + _LEAD), np.int64)

    def _time(self, numbers: Ints) -> Ints:
        return np.asarray(self._base + numbers * 1000 // self._settings.rate, np.int64)


# -- draws


def _drawn(numbers: Ints, seed: int, salt: str) -> Words:
    """Return 64 random bits per number (splitmix64)."""
    x = numbers.astype(np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(_salted(seed, salt))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


@cache
def _salted(seed: int, salt: str) -> int:
    return int.from_bytes(blake2b(f"{seed}/{salt}".encode(), digest_size=8).digest(), "little")


def _below(drawn: Words, bound: int | Ints) -> Ints:
    """Return whole numbers from 0 to below a bound, from the upper half of the bits."""
    limit = np.asarray(bound, np.uint64)
    return np.asarray(((drawn >> np.uint64(32)) * limit) >> np.uint64(32), np.int64)


def _price(drawn: Words) -> Ints:
    """Return prices in cents, from 100 to 100 million, whose logarithms are uniformly distributed."""
    share = (drawn >> np.uint64(32)).astype(np.float64) * (6 * np.log(10) / 2**32)
    return np.asarray(np.rint(np.exp(share) * 100), np.int64)


def _times(milliseconds: Ints) -> pa.Array:
    return pa.array(milliseconds * 1000).view(pa.timestamp("us"))


# -- texts


@cache
def _pool(kind: str, seed: int, size: int) -> pa.Array:
    """Return texts to pick from; texts of kind `extra` have about `size` characters."""
    if kind == "name":
        return pa.array([f"{name} {surname}" for name in _NAMES for surname in _SURNAMES])
    draw = np.random.default_rng(_salted(seed, f"pool {kind} {size}"))

    def letters(count: int) -> str:
        return "".join(map(chr, draw.integers(97, 123, count)))

    def text() -> str:
        match kind:
            case "email":
                return f"{letters(7)}@{letters(5)}.com"
            case "card":
                return " ".join(f"{part:04}" for part in draw.integers(0, 10_000, 4))
            case "item":
                return letters(int(draw.integers(5, 20)))
            case "description":
                return letters(int(draw.integers(20, 100)))
        return letters(int(draw.integers(int(size * 0.8), int(size * 1.2) + 1))) if size > 0 else ""

    return pa.array([text() for _ in range(_POOL)])


@cache
def _channels() -> pa.Array:
    return pa.array([*_HOT_CHANNELS, *(f"channel-{i}" for i in range(_CHANNELS))])


@cache
def _urls(seed: int) -> pa.Array:
    draw = np.random.default_rng(_salted(seed, "url"))
    count = len(_HOT_CHANNELS) + _CHANNELS
    words = ["".join(map(chr, row)) for row in draw.integers(97, 123, (count * 3, 5))]
    # The address of nine in ten of the rare channels contains the channel's id.
    channel_numbers = np.arange(count) - len(_HOT_CHANNELS)
    ids = [f"&channel_id={i}" if i >= 0 and i % 10 else "" for i in channel_numbers]
    parts = zip(words[0::3], words[1::3], words[2::3], ids, strict=True)
    return pa.array([f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1{i}" for a, b, c, i in parts])
