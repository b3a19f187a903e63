//! Work on which it depends how much programs can record: it goes before what others do.
//!
//! The thread that keeps pages ready does such work. It needs locks that a drain takes, so a drain that was asked for early does it, too.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// Programs wait for nothing here, but they record less, or the session's memory grows, until this was done.
const NICENESS: i32 = -15;

/// The calling thread goes before others until this is dropped. Without privileges it runs as they do.
#[derive(Debug)]
pub struct BeforeOthers {
    /// `None` where it was refused.
    usual: Option<i32>,
}

impl BeforeOthers {
    /// From now on.
    pub fn begin() -> Self {
        let thread = Some(gettid());
        let usual = getpriority_process(thread).ok();
        Self { usual: usual.filter(|_| setpriority_process(thread, NICENESS).is_ok()) }
    }
}

impl Drop for BeforeOthers {
    fn drop(&mut self) {
        if let Some(usual) = self.usual {
            let _ = setpriority_process(Some(gettid()), usual);
        }
    }
}
