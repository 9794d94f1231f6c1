SET table.sql-dialect = default;
LOAD MODULE hive WITH ('hive-version' = '3.1.2');
CREATE TABLE t (a INT) WITH ('connector' = 'datagen');
CREATE TABLE s (a INT) WITH ('connector' = 'print');
INSERT INTO s SELECT a FROM t;
