"""Scripts of Flink: those that run have Flink's results; what is refused or different is listed, and may only become less."""

import json

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText
from sqlstream.session.porting import port
from tests.flink_scripts.corpus import NAMES, STANDING, ported, refusals, results, standing
from tests.golden import Different, compare

LISTED = standing()


def stands(name: str) -> bool:
    """Tell whether a script does not run yet, even if its foreign connectors are replaced."""
    return any(words.startswith("refused") for words in LISTED["refused"].get(name, []))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_refused_is_listed(name: str, request: pytest.FixtureRequest) -> None:
    result = ported(name)
    words = refusals(result)
    if request.config.getoption("update"):
        current = standing()
        current["refused"].pop(name, None)
        if words:
            current["refused"][name] = words
        current["refused"] = dict(sorted(current["refused"].items()))
        STANDING.write_text(json.dumps(current, indent=2) + "\n")
        return
    assert words == LISTED["refused"].get(name, []), "run pytest --update if there is less"
    again = Compiler()
    try:
        rest = port(SourceText("ported", result.script), again)
    finally:
        again.close()
    assert [one.problem for one in rest.statements if one.problem] == []


def differences(name: str) -> list[str]:
    """Return what a script shows that is not expected."""
    found = list[str]()
    for record, shown in results(name):
        try:
            compare(STANDING.with_name(f"{name}.rows"), record, shown)
        except Different as different:
            found.append(str(different))
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if not stands(name)])
def test_results_are_those_of_flink(name: str) -> None:
    if name in LISTED["different"]:
        assert differences(name), "take it off the list: it has Flink's results"
    else:
        assert "\n".join(differences(name)) == ""


def test_the_list_names_scripts() -> None:
    assert {*LISTED["refused"], *LISTED["different"]} <= {*NAMES}
    assert len(NAMES) >= 60
