CREATE TABLE orders (id BIGINT, amount DOUBLE, dt STRING) WITH ('connector' = 'datagen');
CREATE TABLE lake (id BIGINT, amount DOUBLE, dt STRING) WITH (
  'connector' = 'iceberg', 'catalog-name' = 'lake', 'catalog-type' = 'hadoop', 'warehouse' = 's3a://lake/warehouse',
  'database-name' = 'shop', 'table-name' = 'orders');
INSERT INTO lake SELECT * FROM orders WHERE amount IS NOT NULL;
