"""Options of tables of Iceberg and Delta Lake under the names that they have in Flink, with the names that they have here.

Options that need nothing are in `flink_options`.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlstream.connectors.translation import TranslatedOptions, UntranslatableTable

_CATALOG = "catalog."
# Kinds of catalogs, and the classes that stand for them in `catalog-impl`.
_KINDS = {"rest": "rest", "hive": "hive", "glue": "glue"}
_CLASSES = {"restcatalog": "rest", "gluecatalog": "glue", "hivecatalog": "hive"}
_HADOOP = (
    "Other programs must not write beside a Hadoop catalog. Write 'catalog-type' = 'rest', 'hive' or 'glue'; or "
    "'catalog.type' = 'sql' with 'catalog.uri' = 'sqlite:///catalog.db' and 'catalog.warehouse'."
)
# Options of a catalog that its library takes under the same names.
_OF_CATALOG = ("uri", "warehouse", "credential", "token", "scope", "oauth2-server-uri")
_OF_STORES = ("s3.", "client.", "glue.", "rest.", "header.", "adls.", "gcs.")
# Properties of the Iceberg table.
_OF_TABLE = ("write.", "commit.", "format-version", "read.")
# Options that say that a table of Iceberg is declared as in Flink.
_FLINKS = ("catalog-name", "catalog-type", "catalog-impl", "catalog-database", "catalog-table", *_OF_CATALOG)
_DATABASE, _TABLE = ("catalog-database", "database-name"), ("catalog-table", "table-name")
_DELTA_PATHS = ("table-path", "table_path")


def translated_iceberg(name: str, options: Mapping[str, str]) -> TranslatedOptions:
    """Return the options of a table `name` of Flink's `iceberg`; options with their names here are returned as they are.

    Raises UntranslatableTable for a catalog that its library does not have.

    >>> flinks = {"connector": "iceberg", "catalog-name": "lake", "catalog-type": "rest", "uri": "http://rest:8181"}
    >>> dict(translated_iceberg("orders", {**flinks, "catalog-database": "shop"}).options)
    {'connector': 'iceberg', 'catalog': 'lake', 'catalog.type': 'rest', 'catalog.uri': 'http://rest:8181', \
'table': 'shop.orders', 'sink.create-table': 'true'}
    """
    if not any(option in options for option in _FLINKS):
        return TranslatedOptions(options, {option: option for option in options})
    result, origins = dict[str, str](), dict[str, str]()

    def put(option: str, value: str, origin: str) -> None:
        result[option], origins[option] = value, origin

    for option, value in options.items():
        if option == "catalog-name":
            put("catalog", value, option)
        elif option in ("catalog-type", "catalog-impl"):
            put(f"{_CATALOG}type", _kind(option, value), option)
        elif option in _OF_CATALOG or option.startswith(_OF_STORES):
            put(_CATALOG + option, value, option)
        elif option.startswith(_OF_TABLE) and option != "write.upsert.enabled":
            put(f"iceberg.{option}", value, option)
        elif option == "monitor-interval":
            put("source.monitor-interval", value, option)
        elif option == "streaming":
            if value.lower() == "true" and "monitor-interval" not in options:
                # Flink's default.
                put("source.monitor-interval", "60 s", option)
        elif option not in (*_DATABASE, *_TABLE):
            put(option, value, option)
    database, table = (next((o for o in names if o in options), None) for names in (_DATABASE, _TABLE))
    if "table" not in result or database or table:
        # LIKE takes the `table` of another one.
        before, _, last = result.get("table", f"default.{name}").rpartition(".")
        qualified = f"{options[database] if database else before}.{options[table] if table else last}"
        put("table", qualified, table or database or "connector")
    if "sink.create-table" not in result:
        # As Flink creates it.
        put("sink.create-table", "true", "connector")
    return TranslatedOptions(result, origins)


def has_name_of_declaration(options: Mapping[str, str]) -> bool:
    """Whether a table of Flink's `iceberg` has the name in its catalog that its declaration has here."""
    is_flinks = options.get("connector", "").lower() == "iceberg" and any(option in options for option in _FLINKS)
    return is_flinks and not any(option in options for option in ("table", *_TABLE))


def _kind(option: str, value: str) -> str:
    kind = _KINDS.get(value.lower()) if option == "catalog-type" else _CLASSES.get(value.rpartition(".")[2].lower())
    if kind is not None:
        return kind
    hint = (
        f"Write one of 'catalog-type' = {', '.join(map(repr, _KINDS))}; or 'catalog.type' = 'sql' with 'catalog.uri'."
    )
    raise UntranslatableTable(
        f'the catalog "{value}" of Iceberg', option, _HADOOP if "hadoop" in value.lower() else hint
    )


def translated_delta(options: Mapping[str, str]) -> TranslatedOptions:
    """Return the options of a table of Flink's `delta`; options with their names here are returned as they are.

    >>> dict(translated_delta({"connector": "delta", "table-path": "s3a://lake/t"}).options)
    {'connector': 'delta', 'path': 's3a://lake/t', 'sink.create-table': 'true'}
    """
    if not any(option in options for option in _DELTA_PATHS):
        return TranslatedOptions(options, {option: option for option in options})
    result, origins = dict[str, str](), dict[str, str]()
    for option, value in options.items():
        name = {"versionAsOf": "scan.version", "startingVersion": "scan.startup.version"}.get(option, option)
        name = "path" if option in _DELTA_PATHS else name
        if option == "startingVersion":
            latest = value.lower() == "latest"
            result["scan.startup.mode"], origins["scan.startup.mode"] = "latest" if latest else "version", option
            if latest:
                continue
        result[name], origins[name] = value, option
    if "sink.create-table" not in result:
        result["sink.create-table"], origins["sink.create-table"] = "true", "connector"
    return TranslatedOptions(result, origins)
