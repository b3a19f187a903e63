//! What `record` measures with: the kernel half, the user half, or both in one interval.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, anyhow};
use lockmeter_kernel::contention::{ContentionSource, Options, Scope};
use lockmeter_kernel::{ErrorKind, KernelError};
use lockmeter_meter::reader::{Level, Session, UserSource};
use lockmeter_profile::{Interval, Source};

use crate::arguments::RecordArguments;
use crate::messages::say;
use crate::preload;

/// How long an ended command's children get to write their last word.
const GRACE: Duration = Duration::from_millis(1);

pub struct Sources {
    kernel: Option<ContentionSource>,
    user: Option<UserHalf>,
}

struct UserHalf {
    source: UserSource,
    environment: Vec<(&'static str, OsString)>,
    // Last: its end removes what the source reads.
    _session: Session,
}

impl Sources {
    /// Starts what the flags ask for and what is allowed. Of a command, whichever half is possible.
    pub fn start(arguments: &RecordArguments, options: &Options) -> Result<Self> {
        let user = match options.scope {
            Scope::Children if !arguments.kernel => start_user(arguments)?,
            _ => None,
        };
        if arguments.user {
            let user = user.ok_or_else(|| anyhow!("nothing of the command can be metered with --user"))?;
            return Ok(Self { kernel: None, user: Some(user) });
        }
        match ContentionSource::start(options) {
            Ok(kernel) => Ok(Self { kernel: Some(kernel), user }),
            Err(error) if user.is_some() && is_refusal(&error) => {
                say(format_args!(
                    "lockmeter: only the command's own locks are metered, for kernel locks need more: {error}"
                ));
                Ok(Self { kernel: None, user })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What is metered, in words.
    pub const fn words(&self) -> &'static str {
        match (&self.kernel, &self.user) {
            (Some(_), Some(_)) => "user and kernel locks",
            (None, _) => "user locks",
            _ => "kernel locks",
        }
    }

    /// What the command needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.user.as_ref().map(|user| user.environment.clone()).unwrap_or_default()
    }

    /// The command has been started.
    pub fn leave_own_process_out(&mut self) -> Result<()> {
        match &mut self.kernel {
            Some(kernel) => Ok(kernel.leave_own_process_out()?),
            None => Ok(()),
        }
    }

    /// As [`ContentionSource::tick`].
    pub fn tick(&mut self) -> bool {
        self.kernel.as_mut().is_some_and(ContentionSource::tick)
    }

    /// Everything measured since the last call.
    pub fn drain(&mut self) -> Result<Interval> {
        let interval = match &mut self.kernel {
            Some(kernel) => Some(kernel.drain()?),
            None => None,
        };
        Ok(self.with_user(interval))
    }

    /// Stops metering and hands over the last interval.
    pub fn stop(mut self) -> Result<Interval> {
        let interval = match self.kernel.take() {
            Some(kernel) => Some(kernel.stop()?),
            None => None,
        };
        std::thread::sleep(GRACE);
        Ok(self.with_user(interval))
    }

    fn with_user(&mut self, interval: Option<Interval>) -> Interval {
        match (interval, &mut self.user) {
            (Some(mut interval), Some(user)) => {
                user.source.drain_into(&mut interval);
                interval
            }
            (Some(interval), None) => interval,
            (None, Some(user)) => {
                let Ok(interval) = user.source.drain();
                interval
            }
            (None, None) => Interval::default(),
        }
    }
}

fn is_refusal(error: &KernelError) -> bool {
    !matches!(error.kind(), ErrorKind::NoSuchProcess | ErrorKind::NotAProcess | ErrorKind::NoSuchCgroup)
}

/// `None` if the command's own locks cannot be metered, which is said.
fn start_user(arguments: &RecordArguments) -> Result<Option<UserHalf>> {
    if let Some(why) = arguments.command.first().and_then(|program| preload::obstacle(program)) {
        if arguments.user || arguments.hold {
            return Err(anyhow!("{why}"));
        }
        say(format_args!("lockmeter: {why}; metering kernel locks only"));
        return Ok(None);
    }
    let library = match preload::library() {
        Ok(library) => library,
        Err(error) if arguments.user || arguments.hold => return Err(error),
        Err(error) => {
            say(format_args!("lockmeter: {error}; metering kernel locks only"));
            return Ok(None);
        }
    };
    let session = Session::create(if arguments.hold { Level::Hold } else { Level::Wait })?;
    let preloaded = std::env::var_os("LD_PRELOAD");
    let environment = session.environment(&library, preloaded.as_deref()).to_vec();
    Ok(Some(UserHalf { source: UserSource::new(session.directory()), environment, _session: session }))
}
