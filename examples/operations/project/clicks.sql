INSERT INTO clicks_per_page
WITH by_page AS (
    SELECT page, window_start, window_end, COUNT(*) AS clicks, COUNT(DISTINCT visitor) AS visitors
    FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY page, window_start, window_end
)
SELECT page, window_start, clicks, visitors FROM by_page;
