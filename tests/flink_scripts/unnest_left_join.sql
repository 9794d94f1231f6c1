CREATE TABLE carts (cart_id INT, skus ARRAY<STRING>) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE cart_skus (cart_id INT, sku STRING) WITH ('connector' = 'print');
INSERT INTO cart_skus
SELECT cart_id, sku FROM carts LEFT JOIN UNNEST(skus) AS x(sku) ON TRUE;
