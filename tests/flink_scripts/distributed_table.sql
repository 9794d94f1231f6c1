CREATE TABLE orders (id INT, amount INT) DISTRIBUTED BY HASH(id) INTO 4 BUCKETS WITH ('connector' = 'datagen');
CREATE TABLE big (id INT) WITH ('connector' = 'print');
INSERT INTO big SELECT id FROM orders WHERE amount > 10;
