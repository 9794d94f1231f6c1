"""What programs and connectors of others import from sqlstream keeps its place: it is imported by these names."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from tests.docs.pages import pages

ROOT = Path(__file__).resolve().parents[2]
# Names that the manual and the examples have given to others. To move one breaks their code: it needs an entry in the CHANGELOG.
GIVEN = {
    "sqlstream": {"Session"},
    "sqlstream.catalog": {"Table"},
    "sqlstream.connectors.batch": {"Batch"},
    "sqlstream.connectors.discovery": {"Discovery", "DiscoveryContext", "Offsets", "monitor_interval"},
    "sqlstream.connectors.formats.value_source": {"BY_NUMBER", "NUMBER", "PLACE", "ValueRows"},
    "sqlstream.connectors.guarantees": {"Delivery", "Replay", "Rollback"},
    "sqlstream.connectors.interface": {"BatchWriter", "Connector", "DriverSink", "Reach", "ReadContext", "SinkContext"},
    "sqlstream.connectors.options": {"MAX_BYTES", "MONITOR", "TEXT", "OptionType", "TableOption"},
    "sqlstream.connectors.read_plan": {"VALUE"},
    "sqlstream.errors": {"DataError", "UsageError"},
    "sqlstream.testing": {"check_connector"},
    "sqlstream.units": {"parse_bytes"},
}
_IMPORT = re.compile(r"^ *from (sqlstream[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def imported(text: str) -> set[tuple[str, str]]:
    """Return the modules and names that a text imports."""
    found = ((m[1], (m[2] or m[3]).partition("#")[0]) for m in _IMPORT.finditer(text))
    return {(module, name.strip()) for module, names in found for name in names.split(",") if name.strip()}


def test_what_others_import_keeps_its_place() -> None:
    for module, names in GIVEN.items():
        assert not {name for name in names if not hasattr(import_module(module), name)}, module


def test_what_connectors_are_shown_is_known_to_be_given() -> None:
    page = next(path for path in pages() if path.name == "packages.md").read_text()
    sources = [path.read_text() for path in (ROOT / "examples" / "connector" / "src").rglob("*.py")]
    shown = {(module, name) for text in (page, *sources) for module, name in imported(text)}
    ours = {(module, name) for module, name in shown if module == "sqlstream" or module.startswith("sqlstream.")}
    assert ours, "the page shows how a connector is written"
    assert ours <= {(module, name) for module, names in GIVEN.items() for name in names}
