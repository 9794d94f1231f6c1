CREATE TEMPORARY SYSTEM FUNCTION mask AS 'com.example.Mask' LANGUAGE JAVA;
CREATE TABLE names (name STRING) WITH ('connector' = 'datagen');
CREATE TABLE masked (name STRING) WITH ('connector' = 'print');
INSERT INTO masked SELECT mask(name) FROM names;
