-- q0, pass through: every bid as it comes.
CREATE TABLE q0 (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING);

INSERT INTO q0
SELECT auction, bidder, price, `dateTime`, extra FROM bid;
