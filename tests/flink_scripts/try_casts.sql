CREATE TABLE forms (field STRING) WITH ('connector' = 'kafka', 'topic' = 'f', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'csv');
CREATE TABLE numbers (n INT, ok BOOLEAN) WITH ('connector' = 'print');
INSERT INTO numbers SELECT TRY_CAST(field AS INT), TRY_CAST(field AS INT) IS NOT NULL FROM forms;
