//! Prometheus text, OpenMetrics text, and which form a scraper gets.

use std::fmt::Write;

use super::catalog::{Metric, Type};
use super::family::{Exemplar, Family, Sample, Value};
use super::protobuf;

/// A form of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus protobuf, length-delimited, with native histograms beside the classic ones.
    Protobuf,
}

impl Format {
    /// What the answer says of itself.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::OpenMetrics => "openmetrics",
            Self::Protobuf => "protobuf",
        }
    }
}

/// The form that an `Accept` header likes best; text if it names none that there is.
pub fn negotiate(accept: &str) -> Format {
    let mut best = (Format::Text, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or("").to_ascii_lowercase();
        let (mut quality, mut fits) = (1.0, true);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match (media_type.as_str(), name.trim()) {
                (_, "q") => quality = value.parse().unwrap_or(0.0),
                ("application/openmetrics-text", "version") => fits &= value == "1.0.0",
                ("text/plain", "version") => fits &= value == "0.0.4",
                (_, "proto") => fits &= value == "io.prometheus.client.MetricFamily",
                (_, "encoding") => fits &= value == "delimited",
                _ => {}
            }
        }
        let format = match media_type.as_str() {
            "application/openmetrics-text" => Format::OpenMetrics,
            "application/vnd.google.protobuf" => Format::Protobuf,
            "text/plain" | "text/*" | "*/*" => Format::Text,
            _ => continue,
        };
        if fits && quality > best.1 {
            best = (format, quality);
        }
    }
    best.0
}

/// The metrics in a form.
pub fn encode(families: &[Family], format: Format) -> Vec<u8> {
    match format {
        Format::Protobuf => protobuf::encode(families),
        Format::Text => text(families, false).into_bytes(),
        Format::OpenMetrics => text(families, true).into_bytes(),
    }
}

fn text(families: &[Family], open_metrics: bool) -> String {
    let mut out = String::new();
    for family in families {
        let metric = family.metric;
        // OpenMetrics names the counter without its ending.
        let name = if open_metrics { metric.name().trim_end_matches("_total") } else { metric.name() };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {}", escaped(metric.help(), false));
        let _ = writeln!(out, "# TYPE {name} {}", metric.kind().name());
        if open_metrics && !metric.unit().is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", metric.unit());
        }
        for sample in &family.samples {
            write_sample(&mut out, metric, sample, open_metrics);
        }
    }
    if open_metrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_sample(out: &mut String, metric: Metric, sample: &Sample, open_metrics: bool) {
    let name = metric.name();
    // The older text has none.
    let mut exemplar = sample.exemplar.as_ref().filter(|_| open_metrics);
    match &sample.value {
        Value::Number(value) => {
            write_line(out, name, metric, sample, None, *value);
            write_exemplar(out, exemplar);
        }
        Value::Histogram(distribution) => {
            for (bound, count) in distribution.cumulative() {
                let shown = if bound.is_infinite() { "+Inf".to_owned() } else { number(bound) };
                write_line(out, &format!("{name}_bucket"), metric, sample, Some(&shown), count as f64);
                // It belongs to the bucket that holds it.
                write_exemplar(out, exemplar.take_if(|exemplar| exemplar.value <= bound));
            }
            write_line(out, &format!("{name}_sum"), metric, sample, None, distribution.seconds());
            write_line(out, &format!("{name}_count"), metric, sample, None, distribution.count as f64);
        }
    }
}

fn write_line(out: &mut String, name: &str, metric: Metric, sample: &Sample, bound: Option<&str>, value: f64) {
    out.push_str(name);
    let labels = sample.named_labels(metric).chain(bound.map(|bound| ("le", bound)));
    let mut separator = '{';
    for (label, text) in labels {
        let _ = write!(out, "{separator}{label}=\"{}\"", escaped(text, true));
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {}", number(value));
}

/// Puts it behind the line that was written last.
fn write_exemplar(out: &mut String, exemplar: Option<&Exemplar>) {
    let Some(Exemplar { recording, value, unix_seconds }) = exemplar else { return };
    out.truncate(out.trim_end().len());
    let (value, name) = (number(*value), escaped(recording, true));
    let _ = writeln!(out, " # {{recording=\"{name}\"}} {value} {unix_seconds:.3}");
}

/// Whole numbers without a point, for they are counts.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 { format!("{value:.0}") } else { format!("{value}") }
}

fn escaped(text: &str, quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if quotes => escaped.push_str("\\\""),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Histograms are of seconds and counters end in `_total`: what `promtool check metrics` asks for.
const _: () = {
    let mut at = 0;
    while at < Metric::ALL.len() {
        let metric = Metric::ALL[at];
        assert!(metric.help().len() > 4);
        assert!(!matches!(metric.kind(), Type::Histogram) || matches!(metric.unit().as_bytes(), b"seconds"));
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::distribution::Distribution;
    use lockmeter_profile::Bucket;

    fn exemplar(value: f64) -> Option<Exemplar> {
        Some(Exemplar { recording: "flight-1".into(), value, unix_seconds: 1.5e9 })
    }

    fn families() -> Vec<Family> {
        let mut waits = Distribution::default();
        waits.add(&[(Bucket::of(3_000), 2, 6_000)], 2, 6_000);
        let labels = ["a\"b\\c\nd", "kernel", "mutex", ""].map(str::to_owned).to_vec();
        vec![
            Family {
                metric: Metric::LockWait,
                samples: vec![Sample { labels, value: Value::Histogram(waits), exemplar: exemplar(3e-6) }],
            },
            Family {
                metric: Metric::AgentIntervals,
                samples: vec![Sample { labels: vec![], value: Value::Number(7.0), exemplar: exemplar(1.0) }],
            },
        ]
    }

    #[test]
    fn text_escapes_labels_and_leaves_empty_ones_out() {
        let text = String::from_utf8(encode(&families(), Format::Text)).unwrap();
        let labels = r#"lock="a\"b\\c\nd",space="kernel",kind="mutex""#;
        assert!(
            text.contains(&format!("lockmeter_lock_wait_seconds_bucket{{{labels},le=\"0.000004096\"}} 2\n")),
            "{text}"
        );
        assert!(text.contains(&format!("lockmeter_lock_wait_seconds_count{{{labels}}} 2\n")), "{text}");
        assert!(
            text.contains("# TYPE lockmeter_agent_intervals_total counter\nlockmeter_agent_intervals_total 7\n"),
            "{text}"
        );
    }

    #[test]
    fn open_metrics_alone_has_exemplars_each_in_the_bucket_that_holds_it() {
        let text = |format| String::from_utf8(encode(&families(), format)).unwrap();
        assert!(!text(Format::Text).contains("flight-1"));
        let text = text(Format::OpenMetrics);
        let with: Vec<&str> = text.lines().filter(|line| line.contains("flight-1")).collect();
        assert_eq!(with.len(), 2, "{text}");
        assert!(
            with[0].ends_with("le=\"0.000004096\"} 2 # {recording=\"flight-1\"} 0.000003 1500000000.000"),
            "{with:?}"
        );
        let of_counter = "lockmeter_agent_intervals_total 7 # {recording=\"flight-1\"} 1 1500000000.000";
        assert_eq!(with[1], of_counter);
    }

    #[test]
    fn open_metrics_names_counters_without_their_ending_and_ends() {
        let text = String::from_utf8(encode(&families(), Format::OpenMetrics)).unwrap();
        assert!(
            text.contains("# TYPE lockmeter_agent_intervals counter\nlockmeter_agent_intervals_total 7 # "),
            "{text}"
        );
        assert!(text.contains("# UNIT lockmeter_lock_wait_seconds seconds\n") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_scraper_gets_what_it_likes_best_of_what_there_is() {
        const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                                  text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                              application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(negotiate(PROMETHEUS), Format::OpenMetrics);
        assert_eq!(negotiate(NATIVE), Format::Protobuf);
        assert_eq!(
            negotiate("application/openmetrics-text;version=0.0.1"),
            Format::Text,
            "a version that there is not"
        );
        assert_eq!(negotiate("application/vnd.google.protobuf;proto=other;encoding=delimited"), Format::Text);
        assert_eq!(negotiate("application/openmetrics-text;q=0.1, text/plain;q=x, */*;q=0.3"), Format::Text);
        assert_eq!(negotiate(""), Format::Text);
    }

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for metric in Metric::ALL {
            let name = metric.name();
            assert_eq!(name.ends_with("_total"), metric.kind() == Type::Counter, "{name}");
            let unit = metric.unit();
            assert!(unit.is_empty() || name.trim_end_matches("_total").ends_with(&format!("_{unit}")), "{name}");
            assert!(name.starts_with("lockmeter_"), "{name}");
        }
    }
}
