-- q14, calculation: bids of a price, the time of day, and a Python function (udfs/nexmark.py) for each.
CREATE TABLE q14 (
    auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), time_of_day STRING, `dateTime` TIMESTAMP(3), extra STRING, c_counts BIGINT
);

INSERT INTO q14
SELECT auction, bidder, 0.908 * price,
    CASE
        WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END,
    `dateTime`, extra, count_char(extra, 'c')
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
