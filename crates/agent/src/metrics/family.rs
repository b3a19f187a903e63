//! The metrics of one moment, before they take a form.

use super::catalog::Metric;
use super::distribution::Distribution;

/// Values of a metric's labels, in the order of [`Metric::labels`]; an empty one is not written.
pub type Labels = Vec<String>;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of a counter or a gauge.
    Number(f64),
    /// Of a histogram.
    Histogram(Distribution),
}

/// A recording that shows one of the events that a series counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// The recording's name.
    pub recording: String,
    /// The event's value: of a histogram, a duration in seconds.
    pub value: f64,
    /// When that was, in seconds since 1970.
    pub unix_seconds: f64,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its labels' values.
    pub labels: Labels,
    /// Its value.
    pub value: Value,
    /// One of its events.
    pub exemplar: Option<Exemplar>,
}

/// A metric with its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Which.
    pub metric: Metric,
    /// Its series.
    pub samples: Vec<Sample>,
}

impl Sample {
    /// The labels that are not empty, with their names.
    pub fn named_labels(&self, metric: Metric) -> impl Iterator<Item = (&'static str, &str)> {
        metric
            .labels()
            .iter()
            .copied()
            .zip(self.labels.iter().map(String::as_str))
            .filter(|(_, value)| !value.is_empty())
    }
}
