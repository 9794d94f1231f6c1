-- Revenue per minute and category, and alerts about payments: one job, which reads each topic once.
SET 'pipeline.name' = 'orders';

-- A message may be there twice. The first one counts, once the watermark has passed it.
CREATE TEMPORARY VIEW distinct_orders AS
SELECT * FROM orders
QUALIFY ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY ordered_at) = 1;

CREATE TEMPORARY VIEW distinct_payments AS
SELECT * FROM payments
QUALIFY ROW_NUMBER() OVER (PARTITION BY payment_id ORDER BY paid_at) = 1;

CREATE TEMPORARY VIEW sold AS
SELECT o.order_id, o.ordered_at, c.name, c.country, p.product, p.category, p.price * o.quantity AS amount
FROM (SELECT *, PROCTIME() AS p FROM distinct_orders) AS o
JOIN customers FOR SYSTEM_TIME AS OF o.p AS c ON c.customer_id = o.customer_id
JOIN products FOR SYSTEM_TIME AS OF o.p AS p ON p.product_id = o.product_id;

-- The result so far of the minutes that are open, too: a later one takes the place of an earlier one.
CREATE TEMPORARY VIEW by_minute AS
SELECT /*+ EARLY_FIRE('1 s') */ category, window_start, COUNT(*) AS orders, SUM(amount) AS revenue
FROM TUMBLE(TABLE sold, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE)
GROUP BY category, window_start, window_end;

CREATE TEMPORARY VIEW by_minute_and_country AS
SELECT country, category, window_start, COUNT(*) AS orders, SUM(amount) AS revenue
FROM TUMBLE(TABLE sold, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE)
GROUP BY country, category, window_start, window_end;

-- An order waits for its payment for five minutes.
CREATE TEMPORARY VIEW unpaid AS
SELECT o.order_id, o.name, o.product, o.ordered_at
FROM sold AS o
LEFT JOIN (SELECT order_id, paid_at FROM distinct_payments WHERE status = 'paid') AS p
    ON p.order_id = o.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '5' MINUTE
WHERE p.order_id IS NULL;

EXECUTE STATEMENT SET BEGIN

INSERT INTO revenue SELECT * FROM by_minute;

INSERT INTO revenue_history SELECT * FROM by_minute_and_country;

INSERT INTO late_orders SELECT order_id, ordered_at, _watermark FROM LATE_ROWS(TABLE distinct_orders);

INSERT INTO alerts
SELECT 'payment failed', order_id, NULL, method, paid_at FROM distinct_payments WHERE status = 'failed'
UNION ALL
SELECT 'not paid', order_id, name, product, ordered_at FROM unpaid;

END;
