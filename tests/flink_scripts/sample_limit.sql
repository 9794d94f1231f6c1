-- Some rows, to look at them.
CREATE TABLE src (id INT) WITH ('connector' = 'datagen');
CREATE TABLE sample_rows (id INT) WITH ('connector' = 'print');
INSERT INTO sample_rows SELECT id FROM src LIMIT 2;
