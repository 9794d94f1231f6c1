CREATE TABLE purchases (buyer STRING, product STRING) WITH ('connector' = 'kafka', 'topic' = 'p',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE baskets (buyer STRING, products MULTISET<STRING>, PRIMARY KEY (buyer) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO baskets SELECT buyer, COLLECT(product) FROM purchases GROUP BY buyer;
