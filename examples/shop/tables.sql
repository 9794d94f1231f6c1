-- The topics that the shop writes, the tables of its database, and the tables and the topic that the jobs write.
-- KAFKA, POSTGRES and LAKE are environment variables.

-- A message may come up to a minute after others of its time. What comes later is kept in late_orders.
CREATE TABLE orders (
    order_id BIGINT,
    customer_id INT,
    product_id INT,
    quantity INT,
    ordered_at TIMESTAMP(3),
    WATERMARK FOR ordered_at AS ordered_at - INTERVAL '1' MINUTE
) WITH (
    'connector' = 'kafka',
    'topic' = 'orders',
    'properties.bootstrap.servers' = '${KAFKA}',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);

CREATE TABLE payments (
    payment_id BIGINT,
    order_id BIGINT,
    method STRING,
    status STRING,  -- paid or failed
    paid_at TIMESTAMP(3),
    WATERMARK FOR paid_at AS paid_at - INTERVAL '1' MINUTE
) WITH (
    'connector' = 'kafka',
    'topic' = 'payments',
    'properties.bootstrap.servers' = '${KAFKA}',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);

CREATE TABLE page_views (
    view_id BIGINT,
    customer_id INT,
    page STRING,
    viewed_at TIMESTAMP(3),
    WATERMARK FOR viewed_at AS viewed_at - INTERVAL '1' MINUTE
) WITH (
    'connector' = 'kafka',
    'topic' = 'page_views',
    'properties.bootstrap.servers' = '${KAFKA}',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);

-- Looked up in the shop's database.
CREATE TABLE customers (customer_id INT, name STRING, country STRING, PRIMARY KEY (customer_id) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = '${POSTGRES}', 'table' = 'customers', 'lookup.cache' = 'PARTIAL');

CREATE TABLE products (product_id INT, product STRING, category STRING, price DECIMAL(10, 2), PRIMARY KEY (product_id) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = '${POSTGRES}', 'table' = 'products', 'lookup.cache' = 'PARTIAL');

-- Written by the jobs.
CREATE TABLE revenue (
    category STRING,
    window_start TIMESTAMP(3),
    orders BIGINT,
    revenue DECIMAL(18, 2),
    PRIMARY KEY (category, window_start) NOT ENFORCED
) WITH ('connector' = 'postgresql', 'url' = '${POSTGRES}', 'table' = 'revenue', 'sink.create-table' = 'true');

CREATE TABLE late_orders (order_id BIGINT, ordered_at TIMESTAMP(3), watermark TIMESTAMP(3))
WITH ('connector' = 'postgresql', 'url' = '${POSTGRES}', 'table' = 'late_orders', 'sink.create-table' = 'true');

CREATE TABLE revenue_history (country STRING, category STRING, window_start TIMESTAMP(3), orders BIGINT, revenue DECIMAL(18, 2))
WITH ('connector' = 'delta', 'path' = '${LAKE}/revenue_history', 'sink.create-table' = 'true');

CREATE TABLE sessions (
    customer_id INT,
    started_at TIMESTAMP(3),
    ended_at TIMESTAMP(3),
    views BIGINT,
    pages BIGINT,
    PRIMARY KEY (customer_id, started_at) NOT ENFORCED
) WITH ('connector' = 'postgresql', 'url' = '${POSTGRES}', 'table' = 'sessions', 'sink.create-table' = 'true');

CREATE TABLE session_history (customer_id INT, country STRING, started_at TIMESTAMP(3), ended_at TIMESTAMP(3), views BIGINT, pages BIGINT)
WITH ('connector' = 'delta', 'path' = '${LAKE}/session_history', 'sink.create-table' = 'true');

CREATE TABLE alerts (kind STRING, order_id BIGINT, customer STRING, detail STRING, event_time TIMESTAMP(3))
WITH (
    'connector' = 'kafka',
    'topic' = 'alerts',
    'properties.bootstrap.servers' = '${KAFKA}',
    'format' = 'json',
    'sink.delivery-guarantee' = 'exactly-once',
    'sink.transactional-id-prefix' = 'shop'
);
