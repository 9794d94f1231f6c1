CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = 'http://rest:8181');
CREATE DATABASE IF NOT EXISTS lake.shop;
CREATE TABLE events (id INT, name STRING) WITH ('connector' = 'datagen');
CREATE TABLE lake.shop.events (id INT, name STRING);
INSERT INTO lake.shop.events SELECT id, name FROM events;
