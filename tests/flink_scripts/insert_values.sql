CREATE TABLE dim (id INT, label STRING) WITH ('connector' = 'filesystem', 'path' = '/tmp/dim', 'format' = 'csv');
INSERT INTO dim VALUES (1, 'one'), (2, 'two');
CREATE TABLE facts (id INT, amount INT) WITH ('connector' = 'datagen');
CREATE TABLE labeled (label STRING, amount INT) WITH ('connector' = 'print');
INSERT INTO labeled SELECT d.label, f.amount FROM facts f JOIN dim d ON f.id = d.id;
