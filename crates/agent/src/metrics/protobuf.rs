//! `io.prometheus.client.MetricFamily`, as `metrics.proto` of Prometheus' client_model has it; only the fields that are written.

use prost::Message;

use super::catalog::{Metric, Type};
use super::distribution::Distribution;
use super::family::{Exemplar, Family, Sample, Value};

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarOf {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    /// Of counters only.
    #[prost(message, optional, tag = "2")]
    exemplar: Option<ExemplarOf>,
}

#[derive(Clone, PartialEq, Message)]
struct ClassicBucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<ExemplarOf>,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<ClassicBucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Series>,
}

const fn code(kind: Type) -> i32 {
    match kind {
        Type::Counter => 0,
        Type::Gauge => 1,
        Type::Histogram => 4,
    }
}

pub fn encode(families: &[Family]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families {
        let metric = family.metric;
        let message = MetricFamily {
            name: Some(metric.name().to_owned()),
            help: Some(metric.help().to_owned()),
            kind: Some(code(metric.kind())),
            metric: family.samples.iter().map(|sample| series(metric, sample)).collect(),
        };
        bytes.extend(message.encode_length_delimited_to_vec());
    }
    bytes
}

fn series(metric: Metric, sample: &Sample) -> Series {
    let pair = |(name, value): (&str, &str)| LabelPair { name: Some(name.to_owned()), value: Some(value.to_owned()) };
    let mut series = Series { label: sample.named_labels(metric).map(pair).collect(), ..Series::default() };
    match (&sample.value, metric.kind()) {
        (Value::Histogram(distribution), _) => {
            series.histogram = Some(histogram(distribution, sample.exemplar.as_ref()));
        }
        (Value::Number(value), Type::Gauge) => series.gauge = Some(Number { value: Some(*value), exemplar: None }),
        (Value::Number(value), _) => {
            let exemplar = sample.exemplar.as_ref().map(exemplar_of);
            series.counter = Some(Number { value: Some(*value), exemplar });
        }
    }
    series
}

fn exemplar_of(exemplar: &Exemplar) -> ExemplarOf {
    let label = LabelPair { name: Some("recording".to_owned()), value: Some(exemplar.recording.clone()) };
    let whole = exemplar.unix_seconds.floor();
    let timestamp = Timestamp { seconds: whole as i64, nanos: ((exemplar.unix_seconds - whole) * 1e9) as i32 };
    ExemplarOf { label: vec![label], value: Some(exemplar.value), timestamp: Some(timestamp) }
}

/// Native buckets as spans of neighbours: how far each begins after the last one's end, and how long it is; counts as differences.
fn histogram(distribution: &Distribution, mut exemplar: Option<&Exemplar>) -> Histogram {
    let classic = |(bound, count)| ClassicBucket {
        cumulative_count: Some(count),
        upper_bound: Some(bound),
        // It belongs to the bucket that holds it.
        exemplar: exemplar.take_if(|exemplar| exemplar.value <= bound).map(exemplar_of),
    };
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (None, 0);
    for (index, count) in distribution.native() {
        match (spans.last_mut(), next) {
            (Some(span), Some(next)) if next == index => span.length = span.length.map(|length| length + 1),
            _ => spans.push(BucketSpan { offset: Some(index - next.unwrap_or(0)), length: Some(1) }),
        }
        deltas.push(count.cast_signed() - before);
        (next, before) = (Some(index + 1), count.cast_signed());
    }
    if spans.is_empty() {
        // An empty one is native by a span without buckets.
        spans.push(BucketSpan { offset: Some(0), length: Some(0) });
    }
    Histogram {
        sample_count: Some(distribution.count),
        sample_sum: Some(distribution.seconds()),
        bucket: distribution.cumulative().into_iter().map(classic).collect(),
        schema: Some(0),
        zero_threshold: Some(0.0),
        zero_count: Some(0),
        positive_span: spans,
        positive_delta: deltas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::Bucket;

    #[test]
    fn native_buckets_are_spans_of_neighbours_with_differences_of_counts() {
        let exemplar = Exemplar { recording: "flight-1".into(), value: 3.0, unix_seconds: 1.25 };
        let mut waits = Distribution::default();
        waits.add(&[(Bucket(29), 5, 0), (Bucket(30), 3, 0), (Bucket(33), 4, 0)], 12, 0);
        let histogram = histogram(&waits, Some(&exemplar));
        let spans: Vec<_> =
            histogram.positive_span.iter().map(|span| (span.offset.unwrap(), span.length.unwrap())).collect();
        assert_eq!(spans, [(0, 2), (2, 1)]);
        assert_eq!(histogram.positive_delta, [5, -2, 1]);
        let with: Vec<_> = histogram.bucket.iter().filter(|bucket| bucket.exemplar.is_some()).collect();
        assert_eq!((with.len(), with[0].upper_bound), (1, Some(4.294967296)));
        let timestamp = Timestamp { seconds: 1, nanos: 250_000_000 };
        assert_eq!(with[0].exemplar.as_ref().unwrap().timestamp, Some(timestamp));
    }

    #[test]
    fn what_is_written_reads_back_family_by_family() {
        let number = |value| vec![Sample { labels: vec!["x".into()], value: Value::Number(value), exemplar: None }];
        let families = [
            Family { metric: Metric::OpenWaits, samples: number(2.0) },
            Family { metric: Metric::AgentShed, samples: number(3.0) },
        ];
        let bytes = encode(&families);
        let mut rest = bytes.as_slice();
        let gauge = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        let counter = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!(gauge.metric[0].gauge.as_ref().unwrap().value, Some(2.0));
        assert_eq!((counter.kind, counter.metric[0].counter.as_ref().unwrap().value), (Some(0), Some(3.0)));
    }
}
