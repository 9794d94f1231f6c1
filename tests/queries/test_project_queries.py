"""Queries of a project: of the tables that are declared over files, those that a query names are looked into, and no others."""

from pathlib import Path

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.loading import load_project
from sqlstream.errors import QueryError, SqlStreamError
from sqlstream.project import Project, find_project
from sqlstream.server.query_pool import QueryPool
from sqlstream.session.project_query import open_project_query
from sqlstream.session.session import Session
from tests.queries.small_job import SmallJob


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "rows.csv").write_text("1\n2\n")
    (tmp_path / "catalog" / "files.sql").write_text(
        """
        CREATE TABLE "a""B" (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows.csv', 'format' = 'csv');
        CREATE TABLE gone (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'gone', 'format' = 'csv');
        """
    )
    return Project(str(tmp_path), str(tmp_path / "warehouse"))


@pytest.mark.parametrize("name", ['"a""B"', '"A""b"', 'main."a""B"', 'memory.main."a""B"'])
def test_a_table_is_known_by_its_name_whatever_is_in_it(project: Project, name: str) -> None:
    assert open_project_query(project, f"SELECT sum(x) FROM {name}").fetchall() == [(3,)]
    assert open_project_query(project, f"DESCRIBE {name}").fetchall()[0][:2] == ("x", "BIGINT")


def test_a_text_and_a_column_name_no_table(project: Project) -> None:
    # The files of a table that is named can be read, by any means.
    found = open_project_query(project, """SELECT 'gone' AS gone, x FROM "a""B" ORDER BY x""").fetchall()
    assert found == [("gone", 1), ("gone", 2)]
    path = Path(project.root) / "gone"
    path.mkdir()
    (path / "rows.csv").write_text("7\n")
    with pytest.raises(QueryError, match="outside of what a query may read"):
        open_project_query(project, f"SELECT 'gone', * FROM read_csv('{path}/rows.csv')").fetchall()
    assert open_project_query(project, f"SELECT * FROM read_csv('{path}/rows.csv'), gone").fetchall() == [(7, 7)]


def test_files_that_are_hidden_declare_nothing(project: Project) -> None:
    catalog = Path(project.catalog)
    # As Kubernetes mounts a ConfigMap.
    (catalog / "..2026_03_02").mkdir()
    (catalog / "files.sql").rename(catalog / "..2026_03_02" / "files.sql")
    (catalog / "..data").symlink_to("..2026_03_02")
    (catalog / "files.sql").symlink_to("..data/files.sql")
    (catalog / ".draft.sql").write_text("CREATE")
    compiler = Compiler(project=project.root)
    load_project(project, compiler)
    assert sorted(compiler.catalog.tables) == ['a"b', "gone"]
    compiler.close()
    assert open_project_query(project, """SELECT sum(x) FROM "a""B" """).fetchall() == [(3,)]


@pytest.mark.slow
def test_what_is_wrong_in_a_catalog_fails_those_that_use_it(project: Project) -> None:
    catalog = Path(project.catalog)
    # It is read before the others.
    (catalog / "bad.sql").write_text("CREATE TABLE wrong (x INT) WITHH; CREATE TABLE beside (x INT);")
    (catalog / "half.sql").write_text(
        "CREATE TABLE odd (x NO_SUCH_TYPE); CREATE VIEW of_odd AS SELECT x FROM odd; CREATE TABLE fine (x INT);"
        "SET 'pipeline.name' = 'x';"
    )
    (catalog / "twice.sql").write_text("CREATE TABLE fine (x STRING); CREATE TABLE fine (x STRING);")
    (catalog / "text.sql").write_bytes(b"\xff")
    assert open_project_query(project, """SELECT sum(x) FROM "a""B" """).fetchall() == [(3,)]
    assert open_project_query(project, "SELECT job FROM sqlstream.jobs").fetchall() == []
    listed = {row[0] for row in open_project_query(project, "SHOW TABLES").fetchall()}
    assert listed >= {'a"B', "gone"}
    assert not listed & {"wrong", "beside", "odd", "fine"}
    for name, message in (
        ("wrong", 'unexpected "WITHH"'),
        ("beside", 'unexpected "WITHH"'),
        ("odd", "NO_SUCH_TYPE"),
        ("of_odd", "NO_SUCH_TYPE"),
        ("fine", "declared twice"),
    ):
        with pytest.raises(SqlStreamError, match=message) as raised:
            open_project_query(project, f"SELECT * FROM {name}")
        assert raised.value.span is not None
        assert raised.value.span.source.name.startswith("catalog/")
    with pytest.raises(QueryError, match='table "nothing" does not exist'):
        open_project_query(project, "SELECT * FROM nothing")
    notices: list[str] = []
    with Session(project.root, project.warehouse, notice=notices.append) as session:
        found = session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); SHOW TABLES")
        assert found is not None
        with pytest.raises(SqlStreamError, match='unexpected "WITHH"'):
            session.sql("INSERT INTO wrong SELECT x FROM gone")
        # What a script declares is there.
        session.sql("CREATE TABLE wrong (x INT); INSERT INTO wrong VALUES (2)")
        assert session.query("SELECT x FROM wrong").fetchall() == [(2,)]
    assert 'warning: catalog/bad.sql:1:28: unexpected "WITHH"; so there is no wrong, beside' in notices
    assert any(
        notice.startswith("warning: catalog/half.sql") and "a catalog file holds" in notice for notice in notices
    )
    assert any("text.sql" in notice and "cannot be read" in notice for notice in notices)


@pytest.mark.slow
def test_functions_that_are_wrong_fail_those_that_call_them(project: Project) -> None:
    udfs = Path(project.root) / "udfs"
    udfs.mkdir()
    begin = "from sqlstream import udf\n\n@udf\ndef "
    (udfs / "a.py").write_text(f"{begin}twice(x: int) -> int:\n    return x\n")
    (udfs / "b.py").write_text(f"{begin}twice(x: int) -> int:\n    return 2 * x\n")
    (udfs / "c.py").write_text(
        f"{begin}untyped(x):\n    return x\n\n\n@udf\ndef one_more(x: int) -> int:\n    return x + 1\n"
    )
    assert open_project_query(project, "SELECT one_more(1)").fetchall() == [(2,)]
    assert open_project_query(project, "SELECT job FROM sqlstream.jobs").fetchall() == []
    for name in ("twice", "untyped"):
        with pytest.raises(SqlStreamError, match=name) as raised:
            open_project_query(project, f"SELECT {name}(1)")
        assert "does not exist" not in raised.value.message


def test_a_pool_reads_a_catalog_anew_wherever_it_is(project: Project) -> None:
    root = Path(project.root)
    (root / "catalog").rename(root / "tables")
    (root / "sqlstream.toml").write_text('catalog = "tables"\n')
    pool = QueryPool(find_project(project.root, project.warehouse))
    with pool.lent() as queries:
        assert queries.query('SELECT sum(x) FROM "a""B"').fetchall() == [(3,)]
    with (root / "tables" / "files.sql").open("a") as file:
        file.write(
            "CREATE TABLE more (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows.csv', 'format' = 'csv');"
        )
    with pool.lent() as queries:
        assert queries.query("SELECT sum(x) FROM more").fetchall() == [(3,)]
    pool.close()


def test_a_list_names_all_tables(project: Project) -> None:
    for listing in ("SHOW TABLES", "show all tables", "FROM (SHOW TABLES)"):
        found = {row[0] for row in open_project_query(project, listing).fetchall()}
        assert 'a"B' in found or any('a"B' in row for row in found), found


def test_a_list_leaves_out_no_table_for_its_files_and_none_for_another(project: Project) -> None:
    root = Path(project.root)
    (root / "bad.parquet").write_text("no Parquet")
    (root / "catalog" / "bad.sql").write_text(
        "CREATE TABLE bad (x BIGINT, y AS x * 1.5) "
        "WITH ('connector' = 'filesystem', 'path' = 'bad.parquet', 'format' = 'parquet');"
    )
    SmallJob(root / "warehouse", "good").batch([("a", 1, 10)], [("a", 1)])
    job = SmallJob(root / "warehouse", "damaged", table="others")
    job.batch([("a", 1, 10)], [("a", 1)])
    next(Path(job.paths.root).rglob("partials-*.parquet")).unlink()
    listed = "SELECT concat_ws('.', schema, name) AS n, column_types AS t FROM (SHOW ALL TABLES) ORDER BY ALL"
    found = dict(open_project_query(project, listed).fetchall())
    assert found["main.bad"] == ["BIGINT", "DECIMAL(21,1)"]
    assert {"main.gone", "main.counts", "main.others", "good.departures"} <= found.keys()
    with pytest.raises(SqlStreamError, match=r"not a Parquet file"):
        open_project_query(project, "FROM bad")
    with pytest.raises(SqlStreamError):
        open_project_query(project, "FROM state.damaged.departures, (SHOW TABLES)")


@pytest.mark.parametrize("declared", ["gone", '"a""B"'])
def test_at_reads_no_declared_table(project: Project, declared: str) -> None:
    with pytest.raises(QueryError, match=r"does not exist|AT takes a constant"):
        open_project_query(project, f"FROM state.j.o AT (VERSION => (SELECT max(x) FROM {declared}))")


@pytest.mark.parametrize("format", ["csv", "json"])
def test_columns_may_have_names_that_a_reader_would_give_its_own(tmp_path: Path, format: str) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "warehouse").mkdir()
    row = '{"__wrong": %s, "__value": %s, "_taken": %s, "_row": %s}' if format == "json" else "%s,%s,%s,%s"
    (tmp_path / "odd.txt").write_text("\n".join(row % values for values in ((1, 2, 3, 4), (5, '"x"', 6, 7))))
    (tmp_path / "catalog" / "odd.sql").write_text(
        f"""CREATE TABLE odd (__wrong BIGINT, __value BIGINT, _taken BIGINT, _row BIGINT) WITH (
        'connector' = 'filesystem', 'path' = 'odd.txt', 'format' = '{format}', '{format}.ignore-parse-errors' = 'true');"""
    )
    project = Project(str(tmp_path), str(tmp_path / "warehouse"))
    assert open_project_query(project, "SELECT * FROM odd").fetchall() == [(1, 2, 3, 4)]


def test_show_answers_as_in_a_script(project: Project) -> None:
    SmallJob(Path(project.warehouse), "good").batch([("a", 1, 10)], [("a", 1)])
    [(text,)] = open_project_query(project, "-- what is it?\nSHOW CREATE TABLE gone").fetchall()
    assert text.startswith('CREATE TABLE "gone"')
    assert open_project_query(project, "SHOW STATE CHECKS;").fetchall() == []
    with pytest.raises(QueryError, match='table "counts" is not declared in the catalog') as written:
        open_project_query(project, "SHOW CREATE TABLE counts")
    assert written.value.span is not None
    with pytest.raises(SqlStreamError, match='table "nowhere" does not exist'):
        open_project_query(project, "SHOW CREATE TABLE nowhere")
    with pytest.raises(QueryError, match="one statement is run at a time"):
        open_project_query(project, "SHOW STATE CHECKS; SELECT 1")
