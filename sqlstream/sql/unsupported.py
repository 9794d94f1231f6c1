"""Statements and clauses that Flink SQL has and sqlstream does not run, each with what to write instead."""

from __future__ import annotations

# The first words of a statement, longest match first.
STATEMENTS: dict[str, str | None] = {
    "CREATE OR ALTER": "Write DROP ... IF EXISTS, then CREATE.",
    "REPLACE TABLE": "Write DROP TABLE IF EXISTS, then CREATE TABLE and INSERT INTO.",
    "CREATE TEMPORARY SYSTEM FUNCTION": "Write CREATE FUNCTION.",
    "CREATE CATALOG": "Put CREATE TABLE statements into files under catalog/.",
    "CREATE DATABASE": "Put CREATE TABLE statements into files under catalog/.",
    "CREATE MODEL": None,
    "CREATE TEMPORARY MODEL": None,
    "CREATE CONNECTION": "Put the connector's options into the WITH clause of CREATE TABLE.",
    "CREATE MATERIALIZED TABLE": "Write CREATE TABLE without a connector, and INSERT INTO it.",
    "ALTER TABLE": "Write DROP TABLE, then CREATE TABLE.",
    "ALTER VIEW": "Write DROP VIEW, then CREATE VIEW.",
    "ALTER": None,
    "DROP CATALOG": None,
    "DROP CONNECTION": None,
    "DROP DATABASE": None,
    "DROP TEMPORARY SYSTEM FUNCTION": "Write DROP FUNCTION.",
    "DROP MATERIALIZED TABLE": "Write DROP TABLE.",
    "DROP MODEL": None,
    "TRUNCATE TABLE": "Run sqlstream with --fresh to start the job, and what it wrote, anew.",
    "CALL": None,
    "ANALYZE TABLE": None,
    "EXECUTE INSERT": "Write INSERT INTO.",
    "EXECUTE PLAN": "Write the INSERT statement itself.",
    "INSERT OVERWRITE": "Write INSERT INTO, and run sqlstream with --fresh to start anew.",
    "DELETE": "Filter the rows in the query that writes the table.",
    "UPDATE": "Change the rows in the query that writes the table.",
    "MERGE": "Change the rows in the query that writes the table.",
    **dict.fromkeys(
        [f"EXPLAIN {d}" for d in ("CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")],
        "Leave the detail out: EXPLAIN says all it knows.",
    ),
    **dict.fromkeys(
        ["SHOW CATALOGS", "SHOW CURRENT", "SHOW DATABASES", "SHOW SCHEMAS"], "All tables are in one catalog."
    ),
    "COMPILE PLAN": "Use the command `sqlstream explain` to see the plan.",
    "COMPILE AND EXECUTE PLAN": "Write the INSERT statement itself.",
    "SUMMARIZE": "Use the command `sqlstream query` with SUMMARIZE.",
    "USE": "All tables are in one catalog; write their names alone.",
    "LOAD MODULE": None,
    "UNLOAD MODULE": None,
    "ADD JAR": "Put Python functions into files under udfs/.",
    "REMOVE JAR": None,
    "STOP JOB": "Use the command `sqlstream stop`.",
    "COPY": "Write INSERT INTO a table with the connector 'filesystem'.",
    "ATTACH": None,
    "DETACH": None,
    "INSTALL": None,
    "PRAGMA": "Write SET.",
    "BEGIN": "Leave it out: every batch of a job is committed as a whole.",
    "COMMIT": "Leave it out: every batch of a job is committed as a whole.",
    "ROLLBACK": None,
}

# What may follow the columns of CREATE TABLE in Flink.
TABLE_CLAUSES: dict[str, str | None] = {
    "DISTRIBUTED": "Leave it out: state and tables are partitioned by sqlstream.",
    "AS": "Write CREATE TABLE with columns, then INSERT INTO it.",
}

# Constraints on a table, beside its primary key.
CONSTRAINTS: dict[str, str | None] = {
    "UNIQUE": "Write PRIMARY KEY (..) NOT ENFORCED.",
    "CHECK": "Filter the rows in the query that writes the table.",
    "FOREIGN KEY": None,
}

# What may follow the type of a column in Flink or in DuckDB.
COLUMN_CLAUSES: dict[str, str | None] = {
    "DEFAULT": "Use COALESCE in the query that writes the table.",
    "UNIQUE": "Write PRIMARY KEY (..) NOT ENFORCED.",
    "CHECK": "Filter the rows in the query that writes the table.",
    "REFERENCES": None,
    "GENERATED": "Write a computed column: name AS expression.",
    "COLLATE": "Use COLLATE in the query that reads the table.",
}
