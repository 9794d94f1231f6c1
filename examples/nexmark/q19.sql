-- q19, top ten: the ten highest bids of each auction.
CREATE TABLE q19 (
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING, place BIGINT,
    PRIMARY KEY (auction, place) NOT ENFORCED
);

INSERT INTO q19
SELECT auction, bidder, price, channel, url, `dateTime`, extra,
    ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, `dateTime`, bidder) AS place
FROM bid
QUALIFY place <= 10;
