CREATE TABLE visits (user_name STRING, page STRING) WITH ('connector' = 'kafka', 'topic' = 'v',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE trails (user_name STRING, pages STRING, trail STRING, PRIMARY KEY (user_name) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO trails SELECT user_name, LISTAGG(page), LISTAGG(page, ' > ') FROM visits GROUP BY user_name;
