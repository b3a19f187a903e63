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

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its labels' values.
    pub labels: Labels,
    /// Its value.
    pub value: Value,
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
