CREATE TABLE people (full_name STRING, mail STRING) WITH ('connector' = 'datagen');
CREATE TABLE parts (first_name STRING, last_name STRING, host STRING, initials STRING, padded STRING, hashed STRING, shown STRING) WITH ('connector' = 'print');
INSERT INTO parts
SELECT
  SPLIT_INDEX(full_name, ' ', 0),
  INITCAP(SPLIT_INDEX(full_name, ' ', 1)),
  SUBSTRING(mail FROM POSITION('@' IN mail) + 1),
  SUBSTR(full_name, 1, 1) || UPPER(SUBSTR(SPLIT_INDEX(full_name, ' ', 1), 1, 1)),
  LPAD(CAST(CHAR_LENGTH(full_name) AS STRING), 4, '0'),
  MD5(mail),
  REGEXP_REPLACE(mail, '(.).*@', '$1***@')
FROM people;
