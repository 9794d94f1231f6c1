"""Statements and clauses of Flink SQL that sqlstream does not run, each with what to write instead."""

from __future__ import annotations

# What to write instead of statements that change the row of a key.
DIRECTORY = "Declare the folder as a table of the connector 'filesystem', and write INSERT INTO it."
UPSERT = "Leave it out, and declare PRIMARY KEY (..) NOT ENFORCED: a row then replaces the one that has its key."
# What to write instead of a query that reads itself.
RECURSION = (
    "Write each step as a query in WITH, or follow the steps in a Python function: sqlstream docs python/functions."
)
_MODEL = "Call the model in a Python function: sqlstream docs python/functions."
_STATISTICS = "Leave it out: plans need no statistics. sqlstream query with SUMMARIZE says what a table has."
_REFERENCES = "Leave it out, and join the other table in the query, where an inner join drops rows that refer to none."

# The first words of a statement, longest match first.
STATEMENTS: dict[str, str] = {
    "CREATE OR ALTER TABLE": "Write CREATE OR REPLACE TABLE.",
    "CREATE OR ALTER VIEW": "Write CREATE OR REPLACE VIEW.",
    "CREATE OR ALTER FUNCTION": "Write DROP FUNCTION IF EXISTS, then CREATE FUNCTION.",
    "REPLACE TABLE": "Write DROP TABLE IF EXISTS, then CREATE TABLE and INSERT INTO.",
    "CREATE CATALOG": "Put CREATE TABLE statements into files under catalog/.",
    "CREATE MODEL": _MODEL,
    "CREATE TEMPORARY MODEL": _MODEL,
    "CREATE CONNECTION": "Put the connector's options into the WITH clause of CREATE TABLE.",
    "ALTER MATERIALIZED TABLE": "Stop its job with the command `sqlstream stop`, and let it go on by running its script again; "
    "for another query write CREATE OR ALTER MATERIALIZED TABLE, and run sqlstream with --upgrade.",
    "ALTER VIEW": "Write DROP VIEW, then CREATE VIEW.",
    "ALTER": "Write DROP, then CREATE.",
    "DROP CATALOG": "All tables are in one catalog: write DROP TABLE for each.",
    "DROP CONNECTION": "Only tables have options: write DROP TABLE.",
    "DROP MODEL": "Write DROP FUNCTION: a model is called in a Python function.",
    "TRUNCATE TABLE": "Run sqlstream with --fresh to start the job, and what it wrote, anew.",
    "CALL": "There are no procedures: a query calls Python functions, and sqlstream has commands (sqlstream --help).",
    "ANALYZE": _STATISTICS,
    "ANALYZE TABLE": _STATISTICS,
    "EXECUTE PLAN": "Write the INSERT statement itself.",
    "INSERT OR REPLACE": UPSERT,
    "INSERT OR IGNORE": UPSERT,
    "DELETE": "Filter the rows in the query that writes the table.",
    "UPDATE": "Change the rows in the query that writes the table.",
    "MERGE": "Change the rows in the query that writes the table.",
    "SHOW SCHEMAS": "Write SHOW DATABASES.",
    "COMPILE PLAN": "Use the command `sqlstream explain` to see the plan.",
    "COMPILE AND EXECUTE PLAN": "Write the INSERT statement itself.",
    "SUMMARIZE": "Use the command `sqlstream query` with SUMMARIZE.",
    "REMOVE JAR": "Leave it out: Python functions are in files under udfs/.",
    "STOP JOB": "Use the command `sqlstream stop`.",
    "COPY": "Write INSERT INTO a table with the connector 'filesystem'.",
    "ATTACH": "Declare its tables: CREATE TABLE .. WITH ('connector' = 'duckdb', ..), or 'sqlite', or 'postgresql'.",
    "DETACH": "Leave it out: tables name their database in WITH.",
    "INSTALL": "Leave it out: sqlstream loads the extensions that it needs.",
    "PRAGMA": "Write SET.",
    "BEGIN": "Leave it out: every batch of a job is committed as a whole.",
    "COMMIT": "Leave it out: every batch of a job is committed as a whole.",
    "ROLLBACK": "Go back to a savepoint: sqlstream run SCRIPT --from SAVEPOINT.",
}

# Constraints of a table other than its primary key.
CONSTRAINTS: dict[str, str] = {
    "UNIQUE": "Write PRIMARY KEY (..) NOT ENFORCED.",
    "CHECK": "Filter the rows in the query that writes the table.",
    "FOREIGN KEY": _REFERENCES,
}

# Clauses that can follow the type of a column in Flink or in DuckDB.
COLUMN_CLAUSES: dict[str, str] = {
    "DEFAULT": "Use COALESCE in the query that writes the table.",
    "UNIQUE": "Write PRIMARY KEY (..) NOT ENFORCED.",
    "CHECK": "Filter the rows in the query that writes the table.",
    "REFERENCES": _REFERENCES,
    "GENERATED": "Write a computed column: name AS expression.",
    "COLLATE": "Use COLLATE in the query that reads the table.",
}
