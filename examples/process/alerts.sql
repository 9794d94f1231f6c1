-- Temperatures that jump; what a sensor has said ten minutes ago is forgotten by a timer.
CREATE TABLE alerts (sensor STRING, temperature DOUBLE, difference DOUBLE, ts TIMESTAMP(3));

INSERT INTO alerts
SELECT * FROM temperature_alerts(TABLE readings PARTITION BY sensor, threshold => 5, on_time => DESCRIPTOR(ts), uid => 'last');
