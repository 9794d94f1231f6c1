CREATE FUNCTION hash_code AS 'com.example.udf.HashCode' USING JAR '/opt/udf.jar';
CREATE TABLE words (word STRING) WITH ('connector' = 'datagen');
CREATE TABLE hashes (word STRING, h INT) WITH ('connector' = 'print');
INSERT INTO hashes SELECT word, hash_code(word) FROM words;
