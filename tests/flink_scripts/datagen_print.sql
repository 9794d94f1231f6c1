-- The first script of every tutorial.
CREATE TABLE orders (
  order_number BIGINT,
  price DECIMAL(32, 2),
  buyer ROW<first_name STRING, last_name STRING>,
  order_time TIMESTAMP(3)
) WITH ('connector' = 'datagen', 'rows-per-second' = '5');
CREATE TABLE print_table (order_number BIGINT, price DECIMAL(32, 2), last_name STRING) WITH ('connector' = 'print', 'sink.parallelism' = '1');
INSERT INTO print_table SELECT order_number, price, buyer.last_name FROM orders;
