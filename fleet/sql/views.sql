-- What a fleet is asked, over the tables of duckdb.sql or clickhouse.sql. The same text runs on both, and on DataFusion in lockmeter-fleet.
--
-- `waiting` is the waited time divided by the metered time: how many threads waited, on average, on each machine.

-- The locks that cost the fleet most, on how many of its machines, and on which most. `lockmeter-fleet top` gives the same rows.
CREATE OR REPLACE VIEW top_locks AS
SELECT
    lock,
    kind,
    count(*) AS hosts,
    sum(of_host.waits) AS waits,
    sum(of_host.total_ns) AS waited_ns,
    sum(of_host.spin_ns) AS spin_ns,
    max(of_host.longest_ns) AS longest_ns,
    CAST(sum(of_host.total_ns) AS DOUBLE) / (SELECT sum(metered_ns) FROM recordings) AS waiting,
    max(CASE WHEN place = 1 THEN host END) AS most_on,
    max(CASE WHEN place = 1 THEN total_ns END) AS most_on_ns
FROM (
    SELECT *, row_number() OVER (PARTITION BY lock, kind ORDER BY total_ns DESC, host) AS place
    FROM (
        SELECT
            lock,
            kind,
            host,
            sum(count) AS waits,
            sum(samples.total_ns) AS total_ns,
            sum(samples.spin_ns) AS spin_ns,
            max(max_ns) AS longest_ns
        FROM samples
        WHERE happened = 'wait'
        GROUP BY lock, kind, host
    ) AS summed
) AS of_host
GROUP BY lock, kind
ORDER BY waited_ns DESC, lock, kind;

-- Who waits for each lock, and who makes them wait.
CREATE OR REPLACE VIEW callers AS
SELECT
    lock,
    kind,
    mode,
    caller,
    blocker,
    count(DISTINCT host) AS hosts,
    sum(count) AS waits,
    sum(total_ns) AS waited_ns,
    sum(stacks) AS sampled_stacks
FROM samples
WHERE happened = 'wait'
GROUP BY lock, kind, mode, caller, blocker
ORDER BY waited_ns DESC, lock, kind, mode, caller, blocker;

-- Each machine, and how much is waited there. One without waits has 0.
CREATE OR REPLACE VIEW hosts AS
SELECT
    host,
    max(of_host.kernel) AS kernel,
    sum(of_host.metered_ns) AS metered_ns,
    sum(of_host.waited_ns) AS waited_ns,
    sum(of_host.spin_ns) AS spin_ns,
    CAST(sum(of_host.waited_ns) AS DOUBLE) / sum(of_host.metered_ns) AS waiting
FROM (
    SELECT host, kernel, metered_ns, 0 AS waited_ns, 0 AS spin_ns FROM recordings
    UNION ALL
    SELECT host, kernel, 0 AS metered_ns, total_ns AS waited_ns, spin_ns FROM samples WHERE happened = 'wait'
) AS of_host
GROUP BY host
ORDER BY waiting DESC, host;

-- What each workload waits for.
CREATE OR REPLACE VIEW workloads AS
SELECT
    workload,
    lock,
    kind,
    count(DISTINCT host) AS hosts,
    sum(count) AS waits,
    sum(total_ns) AS waited_ns
FROM samples
WHERE happened = 'wait'
GROUP BY workload, lock, kind
ORDER BY waited_ns DESC, workload, lock, kind;

-- How each lock did, hour by hour. An hour without waits for it has no row.
CREATE OR REPLACE VIEW trend AS
SELECT
    of_lock.date AS date,
    of_lock.hour AS hour,
    lock,
    kind,
    hosts,
    waited_ns,
    CAST(waited_ns AS DOUBLE) / metered_ns AS waiting
FROM (
    SELECT date, hour, lock, kind, count(DISTINCT host) AS hosts, sum(total_ns) AS waited_ns
    FROM samples
    WHERE happened = 'wait'
    GROUP BY date, hour, lock, kind
) AS of_lock
INNER JOIN (
    SELECT date, hour, sum(recordings.metered_ns) AS metered_ns FROM recordings GROUP BY date, hour
) AS of_hour ON of_lock.date = of_hour.date AND of_lock.hour = of_hour.hour
ORDER BY date, hour, waited_ns DESC, lock, kind;

-- Each lock on each day and on the day before. `WHERE date = '2026-11-28'` compares two days. A day on which nothing was metered has no row,
-- and the day after it none to compare with.
CREATE OR REPLACE VIEW day_by_day AS
SELECT
    of_lock.date AS date,
    lock,
    kind,
    CAST(of_lock.waited_ns AS DOUBLE) / today.metered_ns AS waiting,
    CAST(of_lock.before_ns AS DOUBLE) / yesterday.metered_ns AS waiting_before,
    CAST(of_lock.waited_ns AS DOUBLE) / today.metered_ns - CAST(of_lock.before_ns AS DOUBLE) / yesterday.metered_ns AS change
FROM (
    SELECT date, lock, kind, sum(now_ns) AS waited_ns, sum(then_ns) AS before_ns
    FROM (
        SELECT date, lock, kind, total_ns AS now_ns, 0 AS then_ns FROM samples WHERE happened = 'wait'
        UNION ALL
        SELECT CAST(date + INTERVAL 1 DAY AS DATE) AS date, lock, kind, 0 AS now_ns, total_ns AS then_ns
        FROM samples
        WHERE happened = 'wait'
    ) AS both_days
    GROUP BY date, lock, kind
) AS of_lock
INNER JOIN (
    SELECT date, sum(recordings.metered_ns) AS metered_ns FROM recordings GROUP BY date
) AS today ON of_lock.date = today.date
INNER JOIN (
    SELECT CAST(date + INTERVAL 1 DAY AS DATE) AS date, sum(recordings.metered_ns) AS metered_ns FROM recordings GROUP BY date
) AS yesterday ON of_lock.date = yesterday.date
ORDER BY date, change DESC, lock, kind;
