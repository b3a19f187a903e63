//! Any numbers in a report with holds, and in a plan: measured, and forecast.

use arbitrary::{Result, Unstructured};
use lockmeter_predict::forecast::{MOST_THREADS, Plan, Prices, forecast};
use lockmeter_predict::measured::Measured;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{
    About, Basis, Bucket, Dimension, Happened, HoldBasis, Interval, Key, Kind, Lock, Mode, Naming, Total, Value,
};

/// Solving takes the square of the threads: a fuzzer learns nothing from more of them.
const SOLVED_THREADS: usize = 24;

/// Bytes as numbers of locks, holds and a plan.
pub fn predict(bytes: &[u8]) {
    // Too few bytes make a smaller report.
    let _ = forecast_of(&mut Unstructured::new(bytes));
}

fn forecast_of(bytes: &mut Unstructured<'_>) -> Result<()> {
    let plan = plan(bytes)?;
    let about = About { cpus: number(bytes)? as u32, ..About::default() };
    let mut builder = ReportBuilder::new(&about, &Query::by([Dimension::Lock]));
    for _ in 0..=bytes.int_in_range(0..=2)? {
        builder.add(&interval(bytes)?);
    }
    let measured = Measured::from_report(&builder.finish());
    let threads = plan.threads.unwrap_or(measured.cpus as usize).max(measured.fewest_threads());
    if (SOLVED_THREADS + 1..=MOST_THREADS).contains(&threads) || plan.cpus.iter().any(|cpus| is_large(*cpus, &plan)) {
        return Ok(());
    }
    for lock in 0..measured.locks.len().min(2) {
        let Ok(forecast) = forecast(&measured, lock, &plan) else { continue };
        assert!((0.0..=1.0).contains(&forecast.utilization), "{forecast:?}");
        for point in &forecast.points {
            let rates = [point.spinning, point.sleeping, point.simulated, Some(point.removed), point.sharded];
            for rate in rates.into_iter().flatten() {
                assert!(rate.is_finite() && rate >= 0.0, "{point:?} of {measured:?}");
            }
        }
        let (text, json) = (forecast.to_string(), serde_json::to_string(&forecast));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(json.is_ok_and(|json| !json.contains("null,\"sharded\"")));
    }
    Ok(())
}

/// Whether the plan is one that can be forecast and takes long.
fn is_large(cpus: usize, plan: &Plan) -> bool {
    (SOLVED_THREADS + 1..=MOST_THREADS).contains(&cpus.saturating_mul(plan.threads_per_cpu))
}

fn plan(bytes: &mut Unstructured<'_>) -> Result<Plan> {
    let cpus = (0..bytes.int_in_range(0..=2)?).map(|_| Ok(number(bytes)? as usize)).collect::<Result<_>>()?;
    Ok(Plan {
        cpus,
        threads_per_cpu: number(bytes)? as usize,
        threads: bytes.arbitrary::<bool>()?.then_some(number(bytes)? as usize),
        shards: number(bytes)? as u32,
        prices: Prices { spin_ns: bytes.arbitrary()?, sleep_ns: bytes.arbitrary()? },
    })
}

fn interval(bytes: &mut Unstructured<'_>) -> Result<Interval> {
    let mut interval = Interval { duration_ns: number(bytes)?, ..Interval::default() };
    for _ in 0..=bytes.int_in_range(0..=5)? {
        let name = format!("lock{}", bytes.int_in_range(0..=2)?);
        let lock = Lock { name, object: None, naming: Naming::Symbol, detail: String::new() };
        let key = Key {
            happened: *bytes.choose(&[Happened::Hold, Happened::Hold, Happened::Wait])?,
            lock: interval.tables.intern_lock(lock),
            kind: *bytes.choose(&[Kind::Mutex, Kind::Spin, Kind::Rwsem])?,
            mode: *bytes.choose(Mode::ALL)?,
            task: None,
            cgroup: None,
            context: None,
            cpu: None,
            bucket: Bucket(bytes.int_in_range(0..=63)?),
        };
        let value =
            Value { count: number(bytes)?, total_ns: number(bytes)?, max_ns: number(bytes)?, spin_ns: number(bytes)? };
        interval.totals.push(Total { key, value });
        if bytes.arbitrary()? {
            interval.bases.push(Basis {
                key,
                instance: None,
                site: None,
                value: HoldBasis { untimed: number(bytes)?, ..HoldBasis::default() },
            });
        }
    }
    interval.off.all_ns = number(bytes)?;
    Ok(interval)
}

/// Any number, small and large ones alike.
fn number(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(bytes.arbitrary::<u64>()? >> bytes.int_in_range(0..=63_u32)?)
}

/// Numbers of every size in every place.
pub fn seeds() -> Vec<Vec<u8>> {
    let counting = (0..=255_u8).chain(0..=255).collect();
    let steps = (0..512_u32).map(|nth| (nth.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    vec![counting, steps, vec![0; 400], vec![0xff; 400], [0x10, 0, 0, 0, 0, 0, 0, 0, 60].repeat(40)]
}
