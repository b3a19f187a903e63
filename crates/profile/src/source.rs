//! What measures, from its start to its end.

use std::os::fd::BorrowedFd;

use crate::interval::Interval;

/// Something that measures. It counts from the moment it is made. Its caller then calls, in this order,
/// [`command_started`](Self::command_started) if it is to follow a command, [`tick`](Self::tick) ten times a second,
/// [`drain`](Self::drain) once an interval and earlier if `tick` says so, and [`stop`](Self::stop).
pub trait Source {
    /// The source's own error.
    type Error;

    /// The command to be metered runs: what this process starts from here on is not metered.
    fn command_started(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Becomes readable when [`take_news`](Self::take_news) should be called, for which the next tick may be too late.
    fn news(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reads what made [`news`](Self::news) readable. `true` if the source should be drained now.
    fn take_news(&mut self) -> bool {
        false
    }

    /// Does what is to be done ten times a second. `true` if the tables fill so fast that they should be drained now.
    fn tick(&mut self) -> bool {
        false
    }

    /// Sentences for the person who watches, such as that something was switched off. Each is handed over once.
    fn take_notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Everything measured since the last call.
    fn drain(&mut self) -> Result<Interval, Self::Error>;

    /// Stops measuring and hands over the last interval.
    fn stop(self) -> Result<Interval, Self::Error>
    where
        Self: Sized;
}
