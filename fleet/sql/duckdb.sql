-- The tables, for DuckDB. Run it in the folder that `lockmeter-fleet export --to` wrote to, then views.sql:
--   cd /srv/locks && duckdb -init duckdb.sql
CREATE OR REPLACE VIEW samples AS
SELECT * REPLACE (CAST(date AS DATE) AS date, CAST(hour AS INTEGER) AS hour)
FROM read_parquet('samples/*/*/*.parquet', hive_partitioning = true, union_by_name = true);

CREATE OR REPLACE VIEW stacks AS
SELECT DISTINCT id, frames
FROM read_parquet('stacks/*/*/*.parquet', hive_partitioning = true);

CREATE OR REPLACE VIEW recordings AS
SELECT * REPLACE (CAST(date AS DATE) AS date, CAST(hour AS INTEGER) AS hour)
FROM read_parquet('recordings/*/*/*.parquet', hive_partitioning = true, union_by_name = true);
