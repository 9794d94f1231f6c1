-- q18, find last bid: the last one of each bidder for each auction.
CREATE TABLE q18 (
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
    PRIMARY KEY (bidder, auction) NOT ENFORCED
);

INSERT INTO q18
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM bid
QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC, price DESC) = 1;
