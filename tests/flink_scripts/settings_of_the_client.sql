SET 'sql-client.execution.result-mode' = 'tableau';
SET 'execution.runtime-mode' = 'streaming';
SET 'pipeline.name' = 'my job';
SET 'parallelism.default' = '1';
SET 'table.local-time-zone' = 'UTC';
CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '10', 'fields.n.kind' = 'sequence',
  'fields.n.start' = '1', 'fields.n.end' = '10');
CREATE TABLE evens (n INT) WITH ('connector' = 'print');
INSERT INTO evens SELECT n FROM numbers WHERE MOD(n, 2) = 0;
