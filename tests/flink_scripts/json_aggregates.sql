CREATE TABLE items (basket INT, sku STRING, price INT) WITH ('connector' = 'kafka', 'topic' = 'items',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE baskets (basket INT, skus STRING, prices STRING, PRIMARY KEY (basket) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO baskets
SELECT basket, JSON_ARRAYAGG(sku), JSON_OBJECTAGG(KEY sku VALUE price)
FROM items GROUP BY basket;
