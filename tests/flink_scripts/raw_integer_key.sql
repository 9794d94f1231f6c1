-- A tutorial of a vendor: the key of the message is a number in binary form.
CREATE TABLE orders (customer_id INT, product STRING, amount DOUBLE) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'broker:9092', 'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'raw', 'key.fields' = 'customer_id', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY');
CREATE TABLE spent (customer_id INT, total DOUBLE, PRIMARY KEY (customer_id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'spent', 'properties.bootstrap.servers' = 'broker:9092', 'key.format' = 'raw', 'value.format' = 'json');
INSERT INTO spent SELECT customer_id, SUM(amount) FROM orders GROUP BY customer_id;
