-- Ages in buckets of ten years: the division of integers is whole.
CREATE TABLE people (name STRING, age INT) WITH ('connector' = 'datagen');
CREATE TABLE decades (decade INT, people BIGINT, PRIMARY KEY (decade) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO decades SELECT age / 10, COUNT(*) FROM people GROUP BY age / 10;
