"""Flink's functions by name: those that are rewritten as DuckDB SQL, those that DuckDB has, and hints for the rest.

A *form* is DuckDB SQL in which `_0`, `_1`, .. stand for the arguments of a call. The names of lambda parameters in a form
begin with `__sqlstream_`, so that they hide no column. The manual's lists of functions are generated from this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from sqlstream.duck.sql import quote_text
from sqlstream.duck.time_variables import NOW, WATERMARK
from sqlstream.logical.bind.expressions import json_functions
from sqlstream.logical.bind.expressions.flink_call import FlinkCall, Form, WrongArgument
from sqlstream.logical.plan.state_settings import Semantics

_URL = r"^[^:/?#]+:"
_URL_PARTS = {
    "PROTOCOL": r"^([^:/?#]+):",
    "AUTHORITY": _URL + r"//([^/?#]*)",
    "USERINFO": _URL + r"//([^/?#@]*)@",
    "HOST": _URL + r"//(?:[^/?#@]*@)?(\[[^\]]*\]|[^:/?#]*)",
    "PATH": _URL + r"(?://[^/?#]*)?([^?#]*)",
    "FILE": _URL + r"(?://[^/?#]*)?([^#]*)",
    "QUERY": _URL + r"[^?#]*\?([^#]*)",
    "REF": _URL + r"[^#]*#(.*)$",
}


def _to_timestamp(call: FlinkCall) -> str:
    # DuckDB's own takes seconds.
    return "to_timestamp(_0)" if call.is_number(0) or call.type_of(0) is None else "TRY_CAST(_0 AS TIMESTAMP)"


def _to_timestamp_ltz(call: FlinkCall) -> str:
    if len(call.arguments) == 1:
        millis = "make_timestamptz(CAST(_0 * 1000 AS BIGINT))"
        return millis if call.is_number(0) else "TRY_CAST(_0 AS TIMESTAMP WITH TIME ZONE)"
    second = call.arguments[1]
    if isinstance(second, exp.Literal) and not second.is_string:
        forms = {
            "0": "make_timestamptz(CAST(_0 * 1000000 AS BIGINT))",
            "3": "make_timestamptz(CAST(_0 * 1000 AS BIGINT))",
            "6": "make_timestamptz(CAST(_0 AS BIGINT))",
        }
        if second.name not in forms:
            hint = "0 stands for seconds, 3 for milliseconds, 6 for microseconds."
            raise WrongArgument(1, f"{call.name} takes the precision 0, 3 or 6", hint)
        return forms[second.name]
    if (instant := call.parsed_instant(1)) is not None:
        return instant
    parsed = call.parsed(1)
    return f"timezone(_2, {parsed})" if len(call.arguments) == 3 else f"CAST({parsed} AS TIMESTAMP WITH TIME ZONE)"


def _current_watermark(call: FlinkCall) -> str:
    kind = call.type_of(0)
    if kind not in ("TIMESTAMP", _INSTANT):
        raise WrongArgument(0, "CURRENT_WATERMARK takes the column that has the watermark", None)
    return f"CAST({WATERMARK} AS {kind})"


def _timestamp_add(call: FlinkCall) -> str:
    unit = call.arguments[0].name
    moved = f"_2 + _1 * INTERVAL 1 {unit}"
    whole_days = unit not in ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR")
    return f"CAST({moved} AS DATE)" if whole_days and call.type_of(2) == "DATE" else moved


# A TIME as a moment of some day: DuckDB rounds no times of day.
_ON_A_DAY = "(DATE '1970-01-01' + _0)"


def _floor(call: FlinkCall) -> str:
    unit = _rounded_unit(call)
    if call.type_of(0) == "TIME":
        return f"CAST(date_trunc('{unit}', {_ON_A_DAY}) AS TIME)"
    return _dated(call, f"date_trunc('{unit}', _0)")


def _ceil(call: FlinkCall) -> str:
    # Of a time on the border of two units the border itself.
    unit = _rounded_unit(call)
    if call.type_of(0) == "TIME":
        # The border behind the last one of a day is midnight.
        return f"CAST(date_trunc('{unit}', {_ON_A_DAY} - INTERVAL 1 MICROSECOND) + INTERVAL 1 {unit} AS TIME)"
    return _dated(call, f"date_trunc('{unit}', _0 - INTERVAL 1 MICROSECOND) + INTERVAL 1 {unit}")


def _flinks_floor(call: FlinkCall) -> str:
    # Weeks begin on Sunday in Flink, and on Monday in date_trunc.
    if _rounded_unit(call) != "WEEK":
        return _floor(call)
    return _dated(call, "date_trunc('WEEK', _0 + INTERVAL 1 DAY) - INTERVAL 1 DAY")


def _flinks_ceil(call: FlinkCall) -> str:
    if _rounded_unit(call) != "WEEK":
        return _ceil(call)
    return _dated(call, "date_trunc('WEEK', _0 + INTERVAL 1 DAY - INTERVAL 1 MICROSECOND) + INTERVAL 6 DAY")


def _integer(node: exp.Expr) -> int | None:
    """Return the value of a literal integer, None for any other expression."""
    inner, sign = (node.this, -1) if isinstance(node, exp.Neg) else (node, 1)
    is_number = isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdigit()
    return sign * int(inner.name) if is_number else None


def _substring(call: FlinkCall) -> str | None:
    """Return SUBSTRING in which the position 0 is 1, one in front of the text gives '', and a negative length NULL."""
    start, has_length = _integer(call.arguments[1]), len(call.arguments) == 3
    length = _integer(call.arguments[2]) if has_length else 0
    is_usual = length is not None and length >= 0
    if is_usual and start is not None and start > 0:
        return None
    begin = "1" if start == 0 else "_1" if start is not None else "CASE WHEN _1 = 0 THEN 1 ELSE _1 END"
    part = f"substring(_0, {begin}, _2)" if has_length else f"substring(_0, {begin})"
    cases = "" if is_usual else "WHEN _2 < 0 THEN NULL "
    if start is None or start < 0:
        cases += "WHEN _1 < 0 AND length(_0) + _1 < 0 THEN '' "
    return f"CASE {cases}ELSE {part} END" if cases else part


def _chr(call: FlinkCall) -> str | None:
    code = _integer(call.arguments[0])
    if code is not None and 0 <= code < 256:
        return None
    return "CASE WHEN _0 < 0 THEN '' ELSE chr(CAST(CAST(_0 AS BIGINT) % 256 AS INTEGER)) END"


def _typeof(call: FlinkCall) -> str | None:
    kind = call.type_of(0)
    name = FLINKS_TYPES.get(kind or "", kind if (kind or "").startswith("DECIMAL") else None)
    if name is None:
        return None
    [value] = call.arguments
    if isinstance(value, exp.Literal) and value.is_string:
        name = f"CHAR({len(value.name)})"
    return quote_text(f"{name.replace(',', ', ')}{' NOT NULL' if isinstance(value, exp.Literal | exp.Boolean) else ''}")


def _rounded_unit(call: FlinkCall) -> str:
    if not isinstance(call.arguments[1], exp.Var):
        raise WrongArgument(1, f"{call.name} takes one argument, or FLOOR(ts TO HOUR)")
    return call.arguments[1].name


def _dated(call: FlinkCall, form: str) -> str:
    return f"CAST({form} AS DATE)" if call.type_of(0) == "DATE" else form


def _regexp_replace(call: FlinkCall) -> str:
    # Java's $1 is \1 here.
    by = call.arguments[2]
    if not (isinstance(by, exp.Literal) and by.is_string):
        return "regexp_replace(_0, _1, _2, 'g')"
    translated = quote_text(re.sub("[$]([0-9])", r"\\\1", by.name))
    return f"regexp_replace(_0, _1, {translated}, 'g')"


def _regexp_extract(call: FlinkCall) -> str:
    group = "_2" if len(call.arguments) == 3 else "0"
    return f"CASE WHEN regexp_matches(_0, _1) THEN regexp_extract(_0, _1, {group}) END"


def _parse_url(call: FlinkCall) -> str:
    part = call.text(1, "part").upper()
    if part not in _URL_PARTS:
        raise WrongArgument(1, f'a URL has no part "{part}"', f"existing parts: {', '.join(_URL_PARTS)}")
    pattern = quote_text(_URL_PARTS[part])
    part_sql = f"CASE WHEN regexp_matches(_0, {pattern}) THEN regexp_extract(_0, {pattern}, 1) END"
    if len(call.arguments) == 2:
        return part_sql
    if part != "QUERY":
        raise WrongArgument(2, f"the key of {call.name} goes with the part QUERY")
    key = "'(?:^|&)' || regexp_escape(_2) || '=([^&]*)'"
    return f"CASE WHEN regexp_matches({part_sql}, {key}) THEN regexp_extract({part_sql}, {key}, 1) END"


def _sha2(call: FlinkCall) -> str:
    if call.arguments[1].name != "256":
        raise WrongArgument(1, f"{call.name} has a length of 256 only", "Write SHA2(x, 256).")
    return "sha256(_0)"


def _charset(form: str) -> Callable[[FlinkCall], str]:
    def make(call: FlinkCall) -> str:
        charset = call.text(1, "character set")
        if charset.upper() not in ("UTF-8", "UTF8"):
            raise WrongArgument(1, f"{call.name} knows the character set UTF-8 only")
        return form

    return make


def _variadic(form: str) -> Callable[[FlinkCall], str]:
    """Return a form with any number of arguments: `{1}` in it stands for the arguments from number 1 on."""

    def make(call: FlinkCall) -> str:
        placeholder = re.search(r"\{(\d)\}", form)
        assert placeholder is not None
        return form.replace(placeholder[0], ", ".join(f"_{i}" for i in range(int(placeholder[1]), len(call.arguments))))

    return make


def _map_union(call: FlinkCall) -> str:
    maps = [f"_{number}" for number in range(len(call.arguments))]
    missing = " OR ".join(f"{each} IS NULL" for each in maps)
    return f"CASE WHEN NOT ({missing}) THEN map_concat({', '.join(maps)}) END"


_TEXT = "'%Y-%m-%d %H:%M:%S'"
_SECONDS = "CAST(floor(epoch({})) AS BIGINT)"
_LOCAL = "TRY_CAST({} AS TIMESTAMP)"
_INSTANT = "TIMESTAMP WITH TIME ZONE"
_ANY = -1
_WORDS = r"'[\p{L}\p{N}]+|[^\p{L}\p{N}]+'"
_MAP_ENTRY = (
    "MAP {{split_part(__sqlstream_p, {1}, 1): CASE WHEN contains(__sqlstream_p, {1}) "
    "THEN substr(__sqlstream_p, instr(__sqlstream_p, {1}) + length({1})) END}}"
)
_STR_TO_MAP = (
    "list_reduce(list_transform(string_split(_0, {0}), lambda __sqlstream_p: "
    + _MAP_ENTRY
    + "), lambda __sqlstream_a, __sqlstream_b: map_concat(__sqlstream_a, __sqlstream_b))"
)

# Flink's names of DuckDB's types.
FLINKS_TYPES = {
    **{name: name for name in ("BOOLEAN", "TINYINT", "SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "DATE")},
    "INTEGER": "INT",
    "HUGEINT": "BIGINT",
    "VARCHAR": "STRING",
    "BLOB": "BYTES",
    "TIME": "TIME(0)",
    "TIMESTAMP": "TIMESTAMP(6)",
    _INSTANT: "TIMESTAMP_LTZ(6)",
    '"NULL"': "NULL",
}

# Forms by the number of arguments; _ANY for any number. DuckDB runs a call with a number that is not listed.
REWRITTEN: Mapping[str, Mapping[int, Form]] = {
    # Times
    "current_watermark": {1: _current_watermark},
    "ceil": {2: _flinks_ceil},
    "ceiling": {2: _flinks_ceil},
    "convert_tz": {3: f"strftime(timezone(_2, timezone(_1, TRY_CAST(_0 AS TIMESTAMP))), {_TEXT})"},
    "date_format": {
        2: lambda call: call.formatted(1, _LOCAL.format("_0"), "_0" if call.type_of(0) == _INSTANT else None)
    },
    "dayofweek": {1: "dayofweek(_0) + 1"},
    "floor": {2: _flinks_floor},
    "from_unixtime": {
        1: f"strftime({_LOCAL.format('to_timestamp(_0)')}, {_TEXT})",
        2: lambda call: call.formatted(1, _LOCAL.format("to_timestamp(_0)"), "to_timestamp(_0)"),
    },
    "timestampadd": {3: _timestamp_add},
    "timestampdiff": {3: lambda call: f"date_sub('{call.arguments[0].name}', _1, _2)"},
    "to_date": {
        1: "TRY_CAST(_0 AS DATE)",
        2: lambda call: f"CAST({call.parsed(1)} AS DATE)",
    },
    "to_timestamp": {1: _to_timestamp, 2: lambda call: call.parsed(1)},
    "to_timestamp_ltz": {1: _to_timestamp_ltz, 2: _to_timestamp_ltz, 3: _to_timestamp_ltz},
    "unix_timestamp": {
        0: _SECONDS.format(NOW),
        1: _SECONDS.format(f"TRY_CAST(_0 AS {_INSTANT})"),
        2: lambda call: _SECONDS.format(call.parsed_instant(1) or f"CAST({call.parsed(1)} AS {_INSTANT})"),
    },
    # Texts
    "chr": {1: _chr},
    "btrim": {1: "trim(_0)", 2: "trim(_0, _1)"},
    "decode": {2: _charset("decode(_0)")},
    "elt": {_ANY: _variadic("[{1}][greatest(_0, 0)]")},
    "encode": {2: _charset("encode(_0)")},
    "endswith": {2: "ends_with(_0, _1)"},
    "initcap": {
        1: f"array_to_string(list_transform(regexp_extract_all(lower(_0), {_WORDS}),"
        " lambda __sqlstream_w: upper(__sqlstream_w[1]) || __sqlstream_w[2:]), '')"
    },
    "is_alpha": {1: r"regexp_full_match(_0, '\p{L}+')"},
    "is_decimal": {1: r"regexp_full_match(_0, '[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)')"},
    "is_digit": {1: r"regexp_full_match(_0, '\p{Nd}+')"},
    "locate": {
        2: "instr(_1, _0)",
        3: "CASE WHEN instr(substr(_1, _2), _0) > 0 THEN instr(substr(_1, _2), _0) + _2 - 1"
        " WHEN instr(substr(_1, _2), _0) = 0 THEN 0 END",
    },
    "parse_url": {2: _parse_url, 3: _parse_url},
    "regexp": {2: "regexp_matches(_0, _1)"},
    "regexp_count": {2: "len(regexp_extract_all(_0, _1))"},
    "regexp_extract": {2: _regexp_extract, 3: _regexp_extract},
    "regexp_instr": {
        # The pattern stands behind all that is before its first match.
        2: "CASE WHEN regexp_matches(_0, _1) THEN length(regexp_extract(_0, '(?s)^(.*?)(?:' || _1 || ')', 1)) + 1"
        " WHEN _0 IS NOT NULL AND _1 IS NOT NULL THEN 0 END"
    },
    "regexp_replace": {3: _regexp_replace},
    "regexp_substr": {2: _regexp_extract},
    "sha2": {2: _sha2},
    "split_index": {3: "string_split(_0, _1)[greatest(_2, -1) + 1]"},
    "substr": {2: _substring, 3: _substring},
    "substring": {2: _substring, 3: _substring},
    "typeof": {1: _typeof},
    "uuid": {0: "CAST(uuid() AS VARCHAR)"},
    "url_decode": {1: "url_decode(replace(_0, '+', ' '))"},
    "url_encode": {1: "replace(replace(replace(url_encode(_0), '%20', '+'), '%2A', '*'), '~', '%7E')"},
    "startswith": {2: "starts_with(_0, _1)"},
    "str_to_map": {1: _STR_TO_MAP.format("','", "'='"), 3: _STR_TO_MAP.format("_1", "_2")},
    # Numbers
    "e": {0: "exp(1)"},
    "rand": {0: "random()"},
    "rand_integer": {1: "CAST(floor(random() * _0) AS INTEGER)"},
    "truncate": {1: "trunc(_0)", 2: "trunc(_0, _1)"},
    # Lists and maps
    "array_except": {
        2: "list_filter(_0, lambda __sqlstream_e, __sqlstream_i: "
        "list_position(_0, __sqlstream_e) = __sqlstream_i AND list_position(_1, __sqlstream_e) IS NULL)"
    },
    "array_join": {
        2: "array_to_string(_0, _1)",
        3: "array_to_string(list_transform(_0, lambda __sqlstream_e: coalesce(CAST(__sqlstream_e AS VARCHAR), _2)), _1)",
    },
    "array_max": {1: "list_max(_0)"},
    "array_min": {1: "list_min(_0)"},
    "array_remove": {2: "list_filter(_0, lambda __sqlstream_e: __sqlstream_e IS DISTINCT FROM _1)"},
    "array_union": {
        2: "CASE WHEN _0 IS NOT NULL AND _1 IS NOT NULL THEN list_filter(list_concat(_0, _1),"
        " lambda __sqlstream_e, __sqlstream_i: list_position(list_concat(_0, _1), __sqlstream_e) = __sqlstream_i) END"
    },
    "element": {1: "CASE WHEN len(_0) > 1 THEN error('ELEMENT of a list of several elements') ELSE _0[1] END"},
    "map_from_arrays": {2: "map(_0, _1)"},
    "map_union": {_ANY: _map_union},
    # JSON
    "json_array": {_ANY: json_functions.array},
    "json_exists": {2: json_functions.exists, 3: json_functions.exists},
    "json_query": {2: json_functions.query, 6: json_functions.query},
    "json_string": {1: "CASE WHEN _0 IS NOT NULL THEN CAST(to_json(_0) AS VARCHAR) END"},
    "json_unquote": {1: "CASE WHEN json_valid(_0) THEN CAST(_0 AS JSON) ->> '$' ELSE _0 END"},
    "json_value": {_ANY: json_functions.value},
    "parse_json": {1: "CAST(_0 AS JSON)"},
    "try_parse_json": {1: "TRY_CAST(_0 AS JSON)"},
}

# What these are in jobs whose expressions have DuckDB's values; DuckDB runs a call without a form.
IN_DUCKDBS_VALUES: Mapping[str, Mapping[int, Form]] = {
    **{name: {} for name in ("chr", "json_array", "substr", "substring", "typeof", "url_decode", "url_encode", "uuid")},
    "ceil": {2: _ceil},
    "ceiling": {2: _ceil},
    "floor": {2: _floor},
}

# Functions that DuckDB has under the same name with the same meaning.
SAME = (
    *("abs", "acos", "asin", "atan", "atan2", "bin", "cos", "cosh", "cot", "degrees", "exp", "ln", "log10", "log2"),
    *("mod", "pi", "power", "radians", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "ascii"),
    *("char_length", "character_length", "concat_ws", "instr", "lower", "lpad", "ltrim", "md5"),
    *("overlay", "position", "repeat", "replace", "reverse", "rpad", "rtrim", "sha1"),
    *("sha256", "split", "translate", "trim", "upper"),
    *("dayofmonth", "dayofyear", "hour", "minute", "month", "quarter", "second", "week", "year"),
    *("coalesce", "if", "ifnull", "nullif", "try_cast", "array_contains"),
    *("array_reverse", "array_slice", "cardinality", "map_entries", "map_keys", "map_values"),
    "json_quote",
)

# Functions that DuckDB has under the same name with another meaning, which applies. "and X: .." names a second function.
DIFFERENT: Mapping[str, str] = {
    "array_append": "and ARRAY_PREPEND: a NULL list is an empty one",
    "array_concat": "a NULL list is an empty one",
    "array_distinct": "drops NULLs, and does not keep the order",
    "array_intersect": "drops NULLs, and does not keep the order",
    "array_position": "returns NULL, not 0, if the value is not in the list",
    "array_sort": "NULLs come last",
    "concat": "ignores NULLs",
    "extract": "DOW of a Sunday is 0, not 1",
    "from_base64": "returns bytes; for text write `decode(from_base64(text))`",
    "greatest": "and LEAST: ignore NULLs",
    "hex": "also takes bytes",
    "left": "and RIGHT: a negative number drops that many characters",
    "log": "with one argument it has base 10, not e",
    "printf": "takes format strings as in C",
    "regexp_extract_all": "without the number of a group it returns whole matches",
    "to_base64": "takes bytes; for text write `to_base64(encode(text))`",
    "unhex": "fails for text that is not hexadecimal",
}

_HASHLIB = "Compute it in a Python function, with hashlib: sqlstream docs python/functions."

# Functions that do not run, with a hint what to write instead.
INSTEAD: Mapping[str, str | None] = {
    "source_watermark": "Write the watermark as an expression: ts - INTERVAL '5' SECOND.",
    **dict.fromkeys(("sha224", "sha384", "sha512"), _HASHLIB),
    "nvl": "Write COALESCE(x, y).",
}

_IS_JSON = {"OBJECT": "= 'OBJECT'", "ARRAY": "= 'ARRAY'", "SCALAR": "NOT IN ('OBJECT', 'ARRAY')"}


def form(call: FlinkCall, semantics: Semantics = "flink") -> str | None:
    """Return the form of a call, None if DuckDB runs it as it is. Raises WrongArgument."""
    name = call.name.lower()
    forms = REWRITTEN.get(name, {})
    if semantics == "duckdb":
        forms = IN_DUCKDBS_VALUES.get(name, forms)
    rule = forms.get(len(call.arguments), forms.get(_ANY))
    return rule(call) if callable(rule) else rule


def repeated(form: str, number: int) -> bool:
    """Return whether a form evaluates an argument more than once.

    >>> repeated("f(_0, _1, _0)", 0), repeated("f(_0, _1, _0)", 1)
    (True, False)
    """
    return len(re.findall(rf"\b_{number}\b", form)) > 1


def arities(name: str) -> str:
    """Return the numbers of arguments that a rewritten function takes, in words.

    >>> arities("split_index"), arities("to_date"), arities("elt")
    ('3 arguments', '1 or 2 arguments', 'arguments')
    """
    counts = [count for count in REWRITTEN[name] if count != _ANY]
    listed = " or ".join(map(str, counts))
    return f"{listed} argument{'' if counts == [1] else 's'}".strip()


def json_predicate(kind: str | None) -> str:
    """Return the form of `_0 IS JSON <kind>`; None, or any other kind than OBJECT, ARRAY and SCALAR, stands for any JSON."""
    if kind not in _IS_JSON:
        return "json_valid(_0)"
    return f"CASE WHEN NOT json_valid(_0) THEN false ELSE json_type(_0) {_IS_JSON[kind]} END"
