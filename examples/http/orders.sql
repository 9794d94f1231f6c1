-- Orders from files; each big one goes to a webhook, and what every customer has spent to a resource of its own.
CREATE TABLE orders (customer STRING, amount DECIMAL(10, 2))
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s');

CREATE TABLE alerts (customer STRING, amount DECIMAL(10, 2))
WITH ('connector' = 'python', 'class' = 'web.Webhook', 'url' = '${URL}/hook');

CREATE TABLE spent (customer STRING, total DECIMAL(38, 2), PRIMARY KEY (customer) NOT ENFORCED)
WITH ('connector' = 'python', 'class' = 'web.Resources', 'url' = '${URL}/customers');

INSERT INTO alerts SELECT customer, amount FROM orders WHERE amount > 100;

INSERT INTO spent SELECT customer, SUM(amount) FROM orders GROUP BY customer;
