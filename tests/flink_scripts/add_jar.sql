ADD JAR '/opt/flink/lib/flink-sql-connector-kafka.jar';
CREATE TABLE t (a INT) WITH ('connector' = 'datagen');
CREATE TABLE p (a INT) WITH ('connector' = 'print');
INSERT INTO p SELECT a + 1 FROM t;
