CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '5');
CREATE TABLE squares AS SELECT n, n * n AS square FROM numbers;
