CREATE DATABASE IF NOT EXISTS shop;
USE shop;
SHOW DATABASES;
CREATE TABLE shop.orders (id INT, amount INT) WITH ('connector' = 'datagen');
CREATE TABLE big (id INT) WITH ('connector' = 'print');
SHOW TABLES;
INSERT INTO `default_catalog`.`shop`.`big` SELECT id FROM orders WHERE amount > 5;
