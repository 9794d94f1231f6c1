CREATE TABLE default_catalog.default_database.readings (id INT, v INT) WITH ('connector' = 'datagen');
CREATE TABLE high (id INT) WITH ('connector' = 'print');
INSERT INTO default_catalog.default_database.high SELECT id FROM default_database.readings WHERE v > 1;
