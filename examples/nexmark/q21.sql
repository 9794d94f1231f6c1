-- q21, add channel id: a number for the four large channels, for others the one in the address of the bid, if it has one.
CREATE TABLE q21 (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, channel_id STRING);

INSERT INTO q21
SELECT auction, bidder, price, channel, channel_id
FROM (
    SELECT *, CASE lower(channel)
        WHEN 'apple' THEN '0'
        WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2'
        WHEN 'baidu' THEN '3'
        ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
    FROM bid
)
WHERE channel_id IS NOT NULL;
