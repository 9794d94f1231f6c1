CREATE TABLE yesterday (id INT) WITH ('connector' = 'datagen');
CREATE TABLE today (id INT) WITH ('connector' = 'datagen');
CREATE TABLE both_days (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'print');
CREATE TABLE lost (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO both_days SELECT id FROM yesterday INTERSECT SELECT id FROM today;
INSERT INTO lost SELECT id FROM yesterday EXCEPT SELECT id FROM today;
