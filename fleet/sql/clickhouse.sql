-- The tables, for ClickHouse. Run it in the folder that `lockmeter-fleet export --to` wrote to, then views.sql:
--   cd /srv/locks && clickhouse local --queries-file clickhouse.sql views.sql --query 'SELECT * FROM top_locks LIMIT 10'
SET use_hive_partitioning = 1;

CREATE OR REPLACE VIEW samples AS
SELECT * REPLACE (toDate(date) AS date, toInt32(hour) AS hour)
FROM file('samples/*/*/*.parquet', Parquet);

CREATE OR REPLACE VIEW stacks AS
SELECT DISTINCT id, frames
FROM file('stacks/*/*/*.parquet', Parquet);

CREATE OR REPLACE VIEW recordings AS
SELECT * REPLACE (toDate(date) AS date, toInt32(hour) AS hour)
FROM file('recordings/*/*/*.parquet', Parquet);
