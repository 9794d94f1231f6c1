-- Visits of customers: page views with less than two minutes between them.
SET 'pipeline.name' = 'sessions';

CREATE TEMPORARY VIEW distinct_views AS
SELECT * FROM page_views
QUALIFY ROW_NUMBER() OVER (PARTITION BY view_id ORDER BY viewed_at) = 1;

-- While the job runs, the sessions that are open are the table state.sessions.by_customer.
CREATE TEMPORARY VIEW by_customer AS
SELECT customer_id, window_start, window_end, COUNT(*) AS views, COUNT(DISTINCT page) AS pages
FROM SESSION(TABLE distinct_views PARTITION BY customer_id, DESCRIPTOR(viewed_at), INTERVAL '2' MINUTE)
GROUP BY customer_id, window_start, window_end;

EXECUTE STATEMENT SET BEGIN

INSERT INTO sessions SELECT * FROM by_customer;

INSERT INTO session_history
SELECT s.customer_id, c.country, s.window_start, s.window_end, s.views, s.pages
FROM (SELECT *, PROCTIME() AS p FROM by_customer) AS s
JOIN customers FOR SYSTEM_TIME AS OF s.p AS c ON c.customer_id = s.customer_id;

END;
