//! The one loop of all metering.

use std::time::{Duration, Instant};

use lockmeter_profile::{Interval, Source};

use crate::signals::{StopSignals, Woken};
use crate::target::Target;

/// How often a source looks whether its tables fill: a burst of new tasks fills one in a few hundred milliseconds.
const TICK: Duration = Duration::from_millis(100);

/// What becomes of what was metered: a recording, a report, a screen.
pub trait Sink {
    /// The sink's own error; it ends the metering.
    type Error;

    /// When [`due`](Self::due) is to be called next.
    fn next_due(&self) -> Instant;

    /// Takes what was metered since the last call. It is called when something is due, earlier where tables fill, and at the end.
    fn take(&mut self, interval: Interval) -> Result<(), Self::Error>;

    /// The time of [`next_due`](Self::next_due) has come, and everything metered until now was handed over.
    fn due(&mut self) -> Result<(), Self::Error>;

    /// A sentence for the person who watches.
    fn notice(&mut self, sentence: String);

    /// Called ten times a second.
    fn tick(&mut self) {}

    /// Nothing more is metered: what is left is read and named now, which may take seconds.
    fn end(&mut self) {}
}

/// How metering ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When the target was seen to have ended, or the time was up: the rest was read after that.
    pub at: Instant,
    /// Whether a signal had asked to stop.
    pub by_signal: bool,
}

/// Runs a source until the time is up, the target ends or a signal asks to stop.
pub struct Recorder<'a> {
    /// The signals that ask to stop.
    pub signals: &'a mut StopSignals,
    /// The process whose end ends the metering.
    pub target: &'a Target,
    /// How long to meter.
    pub duration: Option<Duration>,
}

impl Recorder<'_> {
    /// Meters, stops the source, and hands all of it to the sink. When this returns, nothing is metered any more.
    pub fn run<S, K, E>(self, mut source: S, sink: &mut K) -> Result<Ended, E>
    where
        S: Source,
        K: Sink,
        E: From<S::Error> + From<K::Error> + From<std::io::Error>,
    {
        let metered: Result<Ended, E> = self.until_end(&mut source, sink);
        sink.end();
        let last = source.stop();
        let ended = metered?;
        sink.take(last?)?;
        Ok(ended)
    }

    fn until_end<S, K, E>(self, source: &mut S, sink: &mut K) -> Result<Ended, E>
    where
        S: Source,
        K: Sink,
        E: From<S::Error> + From<K::Error> + From<std::io::Error>,
    {
        let begin = Instant::now();
        let end = self.duration.map(|duration| begin + duration);
        let mut next_tick = begin + TICK;
        let mut asked_to_stop = 0;
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(Ended { at: now, by_signal: asked_to_stop > 0 });
            }
            let until = [Some(next_tick), Some(sink.next_due()), end].into_iter().flatten().min().unwrap_or(now);
            match self.signals.wait(until.saturating_duration_since(now), self.target.end(), source.news())? {
                // One of several processes.
                Woken::Exited if self.target.goes_on() => continue,
                Woken::Exited => {
                    if asked_to_stop > 0 {
                        self.signals.write_no_longer_than_needed();
                    }
                    return Ok(Ended { at: Instant::now(), by_signal: asked_to_stop > 0 });
                }
                Woken::News => {
                    if source.take_news() {
                        sink.take(source.drain()?)?;
                    }
                    if Instant::now() < until {
                        continue;
                    }
                }
                Woken::Signal(signal) => {
                    asked_to_stop += 1;
                    let has_command = self.target.pass_on(signal);
                    // A command's first signal is the command's to end at.
                    if !has_command || asked_to_stop > 1 {
                        self.signals.write_no_longer_than_needed();
                        return Ok(Ended { at: Instant::now(), by_signal: true });
                    }
                }
                Woken::Timeout => {}
            }
            let is_filling = source.tick();
            source.take_notices().into_iter().for_each(|sentence| sink.notice(sentence));
            next_tick = Instant::now() + TICK;
            let is_due = Instant::now() >= sink.next_due();
            if is_filling || is_due {
                sink.take(source.drain()?)?;
            }
            if is_due {
                sink.due()?;
            }
            sink.tick();
        }
    }
}
