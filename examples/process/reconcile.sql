-- Rides with their fares; after an hour, those that have no partner, as a side output.
CREATE TABLE paid (ride_id BIGINT, taxi STRING, amount DOUBLE);
CREATE TABLE unmatched (ride_id BIGINT, taxi STRING, amount DOUBLE, problem STRING);

CREATE VIEW reconciled AS
SELECT * FROM reconcile(
    rides => TABLE (SELECT * FROM rides WHERE event = 'begin') PARTITION BY ride_id,
    fares => TABLE fares PARTITION BY ride_id,
    on_time => DESCRIPTOR(ts)
);

EXECUTE STATEMENT SET BEGIN
    INSERT INTO paid SELECT ride_id, taxi, amount FROM reconciled;
    INSERT INTO unmatched SELECT ride_id, taxi, amount, problem FROM SIDE_OUTPUT(TABLE reconciled, 'unmatched');
END;
