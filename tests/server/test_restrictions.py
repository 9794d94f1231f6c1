"""What SQL of the role `submit` may reach: the catalog, and files below the paths that the server was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from sqlstream.server.access import Role, Tokens
from sqlstream.server.problems import HttpError
from sqlstream.server.restrictions import TableRestrictions
from tests.server.serving import serving, settings_of

TOKEN = "s" * 20


@pytest.fixture(scope="module")
def submitting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client with a token of the role submit, of a server that lets it read the folder `in`."""
    project = tmp_path_factory.mktemp("restricted")
    (project / "catalog").mkdir()
    (project / "in").mkdir()
    (project / "in" / "link").symlink_to("/etc")
    (project / "in-private").mkdir()
    for folder in ("in", "in-private"):
        (project / folder / "x.csv").write_text("a\n1\n")
    (project / "in" / "y.csv").symlink_to(project / "in-private" / "x.csv")
    (project / "in" / "z.txt").symlink_to(project / "in" / "x.csv")
    (project / "catalog" / "declared.sql").write_text(
        "CREATE TABLE declared (a STRING) WITH ('connector' = 'filesystem', 'path' = 'elsewhere', 'format' = 'csv');"
    )
    tokens = Tokens(((sha256(TOKEN.encode()).digest(), Role.SUBMIT),))
    settings = replace(settings_of(project), tokens=tokens, paths=("in", "s3://b/in"))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with serving(settings) as (url, _), httpx.Client(base_url=url, timeout=60, headers=headers) as client:
        yield client


SUBMITTED = """
CREATE TABLE f (a STRING) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'{more});
CREATE TABLE o (a STRING);
INSERT INTO o SELECT a FROM f
"""


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (SUBMITTED.format(path="/etc/passwd", more=""), "its path is outside"),
        (SUBMITTED.format(path="in/../../x", more=""), "its path is outside"),
        (SUBMITTED.format(path="in/*/../../../x", more=""), "its path is outside"),
        (SUBMITTED.format(path="in/link", more=""), "its path is outside"),
        # Neighbours whose names begin in the same way, and files that links lead to.
        (SUBMITTED.format(path="in*", more=""), "its path is outside"),
        (SUBMITTED.format(path="in?private/x.csv", more=""), "its path is outside"),
        (SUBMITTED.format(path="i[n]*/*", more=""), "its path is outside"),
        (SUBMITTED.format(path="in", more=""), "leads outside"),
        (SUBMITTED.format(path="in/**/passwd", more=""), "leads outside"),
        (SUBMITTED.format(path="in/li*/passwd", more=""), "leads outside"),
        (SUBMITTED.format(path="in/*.csv", more=""), 'the link "'),
        (SUBMITTED.format(path="s3://b/in/../x", more=""), "its path is outside"),
        (SUBMITTED.format(path="s3://b/in/%252E%2e/x", more=""), "its path is outside"),
        (SUBMITTED.format(path="s3://b/in/x?endpoint_override=evil.example", more=""), "its path is outside"),
        (
            "CREATE TABLE d (a STRING) WITH ('connector' = 'sqlite', 'path' = 's3://b/in/x', 'table' = 't')",
            "is outside",
        ),
        (
            "CREATE TABLE d (a STRING) WITH ('connector' = 'delta', 'path' = 'in/d', 'storage.aws_endpoint_url' = 'e')",
            "cannot set",
        ),
        (SUBMITTED.format(path="in/x", more=", 'protobuf.schema-file' = '/etc/passwd'"), "cannot set"),
        # A url of JDBC is a path, or a server.
        (
            "CREATE TABLE d (a STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/etc/x', 'table-name' = 't')",
            "its path is outside",
        ),
        (
            "CREATE TABLE d (a STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d', 'table-name' = 't')",
            'use the connector "mysql"',
        ),
        (
            "CREATE TABLE o (a STRING); INSERT INTO o SELECT a FROM declared"
            " /*+ OPTIONS('connector' = 'jdbc', 'url' = 'jdbc:duckdb:/etc/x', 'table-name' = 't', 'path' = '', 'format' = '') */",
            "is outside",
        ),
        (
            "CREATE TABLE d WITH ('connector' = 'filesystem', 'path' = '/etc', 'format' = 'csv') AS SELECT 1 AS a FROM declared",
            "its path is outside",
        ),
        ("CREATE TABLE g WITH ('path' = '/etc') LIKE declared", "its path is outside"),
        ("ALTER TABLE declared SET ('path' = '/etc')", "its path is outside"),
        ("INSERT OVERWRITE declared SELECT 'x'", "cannot overwrite"),
        ("EXECUTE STATEMENT SET BEGIN INSERT OVERWRITE declared SELECT 'x'; END", "cannot overwrite"),
        ("CREATE TABLE o (a STRING); INSERT INTO o SELECT a FROM declared /*+ OPTIONS('path'='/etc') */", "is outside"),
        ("CREATE TABLE p (a STRING) WITH ('connector' = 'python', 'class' = 'os.X')", 'use the connector "python"'),
        ("CREATE FUNCTION f AS 'os.system' LANGUAGE PYTHON", "cannot bring in functions"),
        ("SET 'spark.driver.extraJavaOptions' = '-x'", "cannot set"),
        ("SET 'parallelism.default' = '100000'", 'cannot set "parallelism.default" to "100000"'),
        ("SET 'Parallelism.Default' = '00000000000065'", "cannot set"),
        ("SET 'parallelism' = '65'", "cannot set"),
        ("SET 'table.exec.resource.default-parallelism' = '65'", "cannot set"),
        ("CREATE TABLE o (a STRING); INSERT INTO o VALUES ('${HOME:-x}')", "cannot read variables"),
        # Whether there is such a file is not told.
        ("CREATE TABLE o (a STRING); INSERT INTO o VALUES ('${file:/nowhere}')", "cannot read variables"),
    ],
)
def test_sql_of_the_role_submit_reaches_what_is_declared(submitting: httpx.Client, sql: str, message: str) -> None:
    found = submitting.post("/v1/plan", json={"sql": sql})
    assert found.status_code == 403, found.text
    assert message in found.json()["detail"]


@pytest.mark.parametrize("path", ["~/x", "file://~/x", "FILE://~"])
def test_a_path_in_the_home_folder_is_not_one_in_the_project(tmp_path: Path, path: str) -> None:
    check = TableRestrictions(settings_of(tmp_path).project, (".",))
    check("t", {"connector": "filesystem", "path": "x/y"}, None)
    with pytest.raises(HttpError, match="its path is outside"):
        check("t", {"connector": "filesystem", "path": path}, None)


def test_a_uri_is_of_the_store_that_is_allowed(tmp_path: Path) -> None:
    here = "s3://b/in?endpoint_override=here"
    check = TableRestrictions(settings_of(tmp_path).project, (here,))
    check("t", {"connector": "delta", "path": here.replace("in?", "in/x?")}, None)
    for path in ("s3://b/in/x", "s3://b/in/x?endpoint_override=there"):
        with pytest.raises(HttpError, match="its path is outside"):
            check("t", {"connector": "delta", "path": path}, None)


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("s3://b/in/day=1/part-?.json", True),
        ("s3://b/in/day=?/x", True),
        ("s3://b/in/x?a=1&b", True),
        ("s3://b/in/part-?.json?endpoint_override=evil", False),
        ("s3://b/in/x?endpoint%5Foverride=evil", False),
        ("s3://b/in/x?a&endpoint_override=evil", False),
        ("s3://b/in/x?endpoint_override=evil&a=?", False),
    ],
)
def test_a_wildcard_in_a_uri_is_no_option(tmp_path: Path, path: str, is_allowed: bool) -> None:
    check = TableRestrictions(settings_of(tmp_path).project, ("s3://b/in",))
    with nullcontext() if is_allowed else pytest.raises(HttpError, match="its path is outside"):
        check("t", {"connector": "filesystem", "path": path}, None)


def test_sql_of_the_role_submit_has_the_catalog_and_declared_paths(submitting: httpx.Client) -> None:
    known = "CREATE TABLE o (a STRING); INSERT INTO o SELECT a FROM declared"
    few = "SET 'parallelism.default' = '64';" + known
    paths = [SUBMITTED.format(path=path, more="") for path in ("in/x", "in/x*", "in/z.txt", "in/[z]*")]
    for sql in (*paths, known, few):
        assert submitting.post("/v1/plan", json={"sql": sql}).status_code == 200
