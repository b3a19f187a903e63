//! What meters locks: the kernel's, and those of programs from inside or outside, in one interval.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;

use lockmeter_kernel::contention::{ContentionSource, Metered, Options, Scope, StackBudget};
use lockmeter_kernel::futex::{FutexSource, Processes};
use lockmeter_kernel::threads::ThreadSource;
use lockmeter_kernel::{ErrorKind, KernelError, SharedNames, confinement_of, prepare_kernel_names};
use lockmeter_meter::reader::{Level, Session, TIMED_HOLDS, UserSource};
use lockmeter_profile::{Interval, IntervalClock, Loss, Source};

use crate::error::RecorderError;
use crate::hold_hooks::{self, HoldOptions};
use crate::preload::{self, Obstacle};
use crate::swap_filter;

/// Whose locks are metered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// The kernel's, and those of programs where that is possible.
    #[default]
    All,
    /// The kernel's.
    Kernel,
    /// Those of programs.
    User,
}

/// Which pthread locks of a command become which of lockmeter's.
#[derive(Debug, Clone)]
pub struct SwapOptions {
    /// As the preloaded library reads them: `mutex=mutex,rwlock=rwsem`.
    pub swaps: String,
    /// Only locks with such a name.
    pub pattern: Option<String>,
}

/// What to meter of locks.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// Whose waits.
    pub scope: Scope,
    /// The command that will be run, under [`Scope::Children`].
    pub command: Vec<OsString>,
    /// Whose locks.
    pub which: Which,
    /// What stacks may cost.
    pub stacks: StackBudget,
    /// Holds, too.
    pub holds: Option<HoldOptions>,
    /// Which locks to swap.
    pub swap: Option<SwapOptions>,
}

/// All sources of locks.
pub struct LockSources {
    kernel: Option<ContentionSource>,
    user: Option<User>,
    threads: Option<ThreadSource>,
    /// Not yet handed over.
    notices: Vec<String>,
}

/// How the locks of programs are metered. From both sides each wait is counted once.
enum User {
    Inside(Box<Inside>),
    Outside(Box<FutexSource>),
    /// Neither is possible, and the command runs all the same.
    NotAtAll(Unmetered),
}

/// A command that must not be metered from inside, where metering from outside is not allowed: counted as lost, once.
struct Unmetered {
    clock: IntervalClock,
    is_counted: bool,
}

impl Unmetered {
    fn drain_into(&mut self, interval: &mut Interval) {
        interval.losses.add(Loss::UserIncompatible, u64::from(!std::mem::replace(&mut self.is_counted, true)));
    }
}

struct Inside {
    source: UserSource,
    environment: Vec<(&'static str, OsString)>,
    /// What the preloaded library does not see: locks inside other libraries, programs without it. Where that may be looked at.
    outside: Option<Box<FutexSource>>,
    // Last: its end removes what the source reads.
    _session: Session,
}

impl LockSources {
    /// Starts what the options ask for and what is allowed: kernel locks, locks of programs, or both.
    pub fn start(options: &LockOptions) -> Result<Self, RecorderError> {
        if options.holds.is_some() && options.which == Which::User && options.scope != Scope::Children {
            return Err(RecorderError::usage(
                "how long a program holds its own locks can be metered from inside only: start it under `-- COMMAND`",
            ));
        }
        let mut notices = Vec::new();
        // The kernel's symbols take a while to read, and nobody would empty a ring buffer meanwhile.
        let names = prepare_kernel_names();
        let threads = names.as_ref().ok().and_then(|names| start_threads(options, names, &mut notices));
        let kernel = match options.which {
            Which::User => None,
            Which::All | Which::Kernel => Some(start_kernel(options, names, &mut notices)?),
        };
        let can_do_without =
            |error| options.scope == Scope::Children && options.which != Which::Kernel && is_refusal(error);
        let kernel = match kernel {
            Some(Err(error)) if !can_do_without(&error) => return Err(error.into()),
            other => other,
        };
        let user = match options.scope {
            _ if options.which == Which::Kernel => None,
            Scope::Children => start_user(options, matches!(kernel, Some(Ok(_))), &mut notices)?,
            Scope::Process(pid) => {
                start_outside(options.which == Which::User, Processes::Of(pid), options, &mut notices)?
            }
            Scope::Machine => start_outside(options.which == Which::User, Processes::All, options, &mut notices)?,
            Scope::Cgroup(ref cgroup) => {
                start_outside(options.which == Which::User, Processes::Cgroup(cgroup.clone()), options, &mut notices)?
            }
        };
        let mut sources = Self { kernel: None, user, threads, notices };
        match kernel {
            Some(Ok(kernel)) => sources.kernel = Some(kernel),
            // That is said already.
            Some(Err(_)) if matches!(sources.user, Some(User::NotAtAll(_))) => return Ok(sources),
            Some(Err(error)) if sources.user.is_some() => {
                let notice = format!("only the command's own locks are metered, for kernel locks need more: {error}");
                sources.notices.insert(0, notice);
            }
            Some(Err(error)) => return Err(error.into()),
            None if sources.user.is_some() => {}
            None => {
                return Err(RecorderError::usage(
                    "no locks of programs can be metered here; `lockmeter doctor` says why",
                ));
            }
        }
        sources.follow_existing_children(options);
        sources.begin_together()?;
        Ok(sources)
    }

    /// The others follow only what a process forks from now on.
    fn follow_existing_children(&mut self, options: &LockOptions) {
        let (Scope::Process(pid), Some(threads)) = (&options.scope, &self.threads) else { return };
        for child in threads.processes().into_iter().filter(|child| child != pid) {
            // One that has ended meanwhile needs no following.
            if let Some(kernel) = &self.kernel {
                let _ = kernel.follow(child);
            }
            if let Some(User::Outside(futexes)) = &self.user {
                let _ = futexes.follow(child);
            }
        }
    }

    /// Has the first interval begin now, when everything is attached: a program's symbols take seconds to read, and its waits of that
    /// time are not seen, while the kernel's are.
    fn begin_together(&mut self) -> Result<(), RecorderError> {
        if matches!(self.user, Some(User::Outside(_))) || self.threads.is_some() {
            self.drain()?;
        }
        if let Some(threads) = &mut self.threads {
            threads.begin();
        }
        Ok(())
    }

    /// What is metered, in words.
    pub const fn words(&self) -> &'static str {
        match (&self.kernel, &self.user) {
            (None, Some(User::NotAtAll(_))) => "no locks",
            (Some(_), Some(User::NotAtAll(_))) => "kernel locks",
            (Some(_), Some(_)) => "user and kernel locks",
            (None, _) => "user locks",
            _ => "kernel locks",
        }
    }

    /// What the command needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        match &self.user {
            Some(User::Inside(inside)) => inside.environment.clone(),
            _ => Vec::new(),
        }
    }
}

impl Source for LockSources {
    type Error = RecorderError;

    fn command_started(&mut self) -> Result<(), RecorderError> {
        if let Some(threads) = &mut self.threads {
            threads.command_started();
        }
        if let Some(futexes) = self.user.as_mut().and_then(User::futexes) {
            futexes.command_started()?;
        }
        match &mut self.kernel {
            Some(kernel) => Ok(kernel.command_started()?),
            None => Ok(()),
        }
    }

    fn news(&self) -> Option<BorrowedFd<'_>> {
        match &self.user {
            Some(User::Outside(futexes)) => futexes.news(),
            Some(User::Inside(inside)) => inside.outside.as_ref()?.news(),
            _ => None,
        }
    }

    fn take_news(&mut self) {
        if let Some(futexes) = self.user.as_mut().and_then(User::futexes) {
            futexes.take_news();
        }
    }

    fn tick(&mut self) -> bool {
        if let Some(Err(error)) = self.threads.as_mut().map(ThreadSource::look) {
            self.threads = None;
            self.notices.push(format!("the threads' time is not kept any more: {error}"));
        }
        let user_fills = self.user.as_mut().and_then(User::futexes).is_some_and(Source::tick);
        let Some(kernel) = &mut self.kernel else { return user_fills };
        self.notices.extend(kernel.keep_hooks_within_budget().map(hold_hooks::over_budget));
        kernel.tick() || user_fills
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn drain(&mut self) -> Result<Interval, RecorderError> {
        let mut interval = match (&mut self.kernel, &mut self.user) {
            (Some(kernel), user) => {
                let mut interval = kernel.drain()?;
                if let Some(user) = user {
                    user.drain_into(&mut interval);
                }
                interval
            }
            (None, Some(user)) => user.drain()?,
            (None, None) => Interval::default(),
        };
        if let Some(threads) = &mut self.threads {
            threads.drain_into(&mut interval)?;
        }
        Ok(interval)
    }

    fn stop(mut self) -> Result<Interval, RecorderError> {
        let mut interval = match (self.kernel.take(), self.user.take()) {
            (Some(kernel), user) => {
                let mut interval = kernel.stop()?;
                if let Some(user) = user {
                    user.stop_into(&mut interval);
                }
                interval
            }
            (None, Some(user)) => user.stop()?,
            (None, None) => Interval::default(),
        };
        if let Some(threads) = self.threads.take() {
            threads.stop_into(&mut interval)?;
        }
        Ok(interval)
    }
}

impl User {
    /// What looks from outside.
    fn futexes(&mut self) -> Option<&mut FutexSource> {
        match self {
            Self::Outside(futexes) => Some(futexes),
            Self::Inside(inside) => inside.outside.as_deref_mut(),
            Self::NotAtAll(_) => None,
        }
    }

    fn drain_into(&mut self, interval: &mut Interval) {
        match self {
            Self::Inside(inside) => inside.drain_into(interval),
            Self::Outside(futexes) => futexes.drain_into(interval),
            Self::NotAtAll(unmetered) => unmetered.drain_into(interval),
        }
    }

    fn drain(&mut self) -> Result<Interval, RecorderError> {
        match self {
            Self::Inside(inside) => {
                let Ok(mut interval) = inside.source.drain();
                if let Some(outside) = &mut inside.outside {
                    outside.drain_into(&mut interval);
                }
                Ok(interval)
            }
            Self::Outside(futexes) => Ok(futexes.drain()?),
            Self::NotAtAll(unmetered) => {
                let mut interval = unmetered.clock.cut();
                unmetered.drain_into(&mut interval);
                Ok(interval)
            }
        }
    }

    fn stop_into(self, interval: &mut Interval) {
        match self {
            Self::Inside(inside) => inside.stop_into(interval),
            Self::Outside(futexes) => futexes.stop_into(interval),
            Self::NotAtAll(mut unmetered) => unmetered.drain_into(interval),
        }
    }

    fn stop(mut self) -> Result<Interval, RecorderError> {
        match self {
            Self::NotAtAll(_) => self.drain(),
            Self::Inside(inside) => {
                let Inside { source, outside, .. } = *inside;
                let Ok(mut interval) = source.stop();
                if let Some(outside) = outside {
                    outside.stop_into(&mut interval);
                }
                Ok(interval)
            }
            Self::Outside(futexes) => Ok(futexes.stop()?),
        }
    }
}

impl Inside {
    fn drain_into(&mut self, interval: &mut Interval) {
        self.source.drain_into(interval);
        if let Some(outside) = &mut self.outside {
            outside.drain_into(interval);
        }
    }

    fn stop_into(self, interval: &mut Interval) {
        self.source.stop_into(interval);
        if let Some(outside) = self.outside {
            outside.stop_into(interval);
        }
    }
}

/// Without the privileges for it there is none, as there are no kernel locks then.
fn start_threads(options: &LockOptions, names: &SharedNames, notices: &mut Vec<String>) -> Option<ThreadSource> {
    match ThreadSource::start(&options.scope, names.clone()) {
        Ok(threads) => Some(threads),
        Err(error) if error.kind() == ErrorKind::NotPermitted => None,
        Err(error) => {
            notices.push(format!("where the threads' time goes is not kept: {error}"));
            None
        }
    }
}

/// The outer error is one of the options; the inner one says why this machine does not meter kernel locks.
fn start_kernel(
    options: &LockOptions,
    names: Result<SharedNames, KernelError>,
    notices: &mut Vec<String>,
) -> Result<Result<ContentionSource, KernelError>, RecorderError> {
    let metered = match &options.holds {
        Some(holds) => holds.metered(notices)?,
        None => Metered::Waits,
    };
    let names = match names {
        Ok(names) => names,
        Err(error) => return Ok(Err(error)),
    };
    let kernel = kernel_options(options, metered);
    Ok(match &options.holds {
        Some(holds) => holds.start(&kernel, &names, notices),
        None => ContentionSource::start_with(&kernel, &names),
    })
}

fn kernel_options(options: &LockOptions, metered: Metered) -> Options {
    Options { scope: options.scope.clone(), stacks: options.stacks, metered }
}

fn is_refusal(error: &KernelError) -> bool {
    !matches!(error.kind(), ErrorKind::NoSuchProcess | ErrorKind::NotAProcess | ErrorKind::NoSuchCgroup)
}

/// `None` if the command's own locks cannot be metered, which is said; without kernel locks there is nothing else, and it is an error.
fn start_user(
    options: &LockOptions,
    has_kernel: bool,
    notices: &mut Vec<String>,
) -> Result<Option<User>, RecorderError> {
    let (only_user, hold) = (options.which == Which::User || !has_kernel, options.holds.is_some());
    if let Some(Obstacle { why, instead, disturbs }) = preload::obstacle(&options.command) {
        if options.swap.is_some() {
            return Err(RecorderError::not_allowed(format!("{why}, nor swapped")));
        }
        let metered = match hold {
            false => "metering its locks from outside",
            // It has to be built anew or run otherwise to be metered from inside, which its user has a reason not to do.
            true if disturbs => "metering its waits from outside, where holds are not seen",
            true => {
                let instead = instead.map(|command| format!(", or run `{command}`")).unwrap_or_default();
                let sentence = format!("{why}; leave --hold out to meter its waits from outside{instead}");
                return Err(RecorderError::failed(sentence));
            }
        };
        let not_possible = || {
            let instead = instead.map(|command| format!(" (run `{command}` for that)")).unwrap_or_default();
            format!("{why}{instead}, and not from outside either")
        };
        let user = match FutexSource::start(Processes::Children, options.stacks) {
            // Its user has a reason to run it: it does so as below a shell.
            Err(error) if disturbs && is_refusal(&error) => {
                notices.push(format!("{why}, and not from outside either ({error}); it runs unmetered"));
                let unmetered = Unmetered { clock: IntervalClock::start(), is_counted: false };
                return Ok(Some(User::NotAtAll(unmetered)));
            }
            started => may_do_without(started, only_user, notices).map_err(|error| error.after(&not_possible()))?,
        };
        notices.extend(user.is_some().then(|| format!("{why}; {metered}")));
        return Ok(user);
    }
    if let Some(language) = options.command.first().and_then(|program| preload::language_without_pthread(program)) {
        let unseen = format!("the locks of {language} can be seen from outside only");
        if hold || options.swap.is_some() {
            notices.push(format!(
                "{unseen}, which shows no holds and swaps nothing; metering those of its C libraries alone (leave --hold and --swap \
                 out to meter waits for {language}'s)"
            ));
        } else {
            match FutexSource::start(Processes::Children, options.stacks) {
                Ok(futexes) => {
                    notices.push(format!("{unseen}; metering them from there"));
                    return Ok(Some(User::Outside(Box::new(futexes))));
                }
                Err(error) => notices.push(format!("{unseen} ({error}); metering those of its C libraries")),
            }
        }
    }
    notices.extend(confined(&options.command));
    let library = match preload::library() {
        Ok(library) => library,
        Err(error) if hold || options.swap.is_some() => return Err(error),
        Err(error) => {
            notices.push(format!("{error}; metering the command's locks from outside"));
            return start_outside(only_user, Processes::Children, options, notices);
        }
    };
    let level = if hold { Level::Hold } else { Level::Wait };
    let session = Session::create_timing(level, if options.stacks == StackBudget::Every { 0 } else { TIMED_HOLDS })?;
    let preloaded = std::env::var_os("LD_PRELOAD");
    let mut environment = session.environment(&library, preloaded.as_deref()).to_vec();
    if let Some(swap) = &options.swap {
        let wanted = swap_filter::environment(&session, &swap.swaps, swap.pattern.as_deref(), &options.command)?;
        environment.extend(wanted);
    }
    let source = session.source()?;
    // Without the privileges for it kernel locks are not metered either, which is said.
    let outside = FutexSource::start_beside_preloaded(Processes::Children, options.stacks).ok().map(Box::new);
    Ok(Some(User::Inside(Box::new(Inside { source, environment, outside, _session: session }))))
}

/// What to say of a command that the system's policy confines: whether that keeps the library from it is seen only when it has begun.
fn confined(command: &[OsString]) -> Option<String> {
    let program = preload::program_file(command.first()?)?;
    let program = program.canonicalize().unwrap_or(program);
    let confinement = confinement_of(&program)?;
    let name = program.display();
    Some(format!(
        "{confinement} confines {name}: if that keeps lockmeter's library from it, the report counts it as not metered; \
         `{}` lifts it",
        confinement.how_to_lift()
    ))
}

/// Meters futex waits. `None` if that cannot be, which is said, and kernel locks can be metered all the same: if these are
/// not asked for, it is an error.
fn start_outside(
    only_user: bool,
    processes: Processes,
    options: &LockOptions,
    notices: &mut Vec<String>,
) -> Result<Option<User>, RecorderError> {
    may_do_without(FutexSource::start(processes, options.stacks), only_user, notices)
}

fn may_do_without(
    started: Result<FutexSource, KernelError>,
    only_user: bool,
    notices: &mut Vec<String>,
) -> Result<Option<User>, RecorderError> {
    match started {
        Ok(futexes) => Ok(Some(User::Outside(Box::new(futexes)))),
        Err(error) if only_user || !is_refusal(&error) => Err(error.into()),
        Err(error) => {
            notices.push(format!("{error}; metering kernel locks only"));
            Ok(None)
        }
    }
}
