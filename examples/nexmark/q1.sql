-- q1, currency conversion: every bid in euros.
CREATE TABLE q1 (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` TIMESTAMP(3), extra STRING);

INSERT INTO q1
SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid;
