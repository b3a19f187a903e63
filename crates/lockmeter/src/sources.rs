//! What `record` measures with: kernel locks, and the locks of programs from inside or outside, in one interval.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use lockmeter_kernel::contention::{ContentionSource, Hooks, Metered, Options, SLEEPING_KINDS, Scope};
use lockmeter_kernel::futex::{FutexSource, Processes};
use lockmeter_kernel::{ErrorKind, HookWay, KernelError, try_hooks};
use lockmeter_meter::reader::{Level, Session, TIMED_HOLDS, UserSource};
use lockmeter_profile::{Interval, IntervalClock, Loss, Source};

use crate::arguments::{HookChoice, RecordArguments};
use crate::exit::{Failure, Status};
use crate::messages::inform_once;
use crate::preload::{self, Obstacle};
use crate::swap_filter;

/// How long an ended command's children get to write their last word.
const GRACE: Duration = Duration::from_millis(1);

pub struct Sources {
    kernel: Option<ContentionSource>,
    user: Option<User>,
    /// What is to be said once the command runs: one that cannot be run is told by one sentence alone.
    notice: Option<String>,
}

/// How the locks of programs are metered: never both ways, for both see the same waits.
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
    // Last: its end removes what the source reads.
    _session: Session,
}

impl Sources {
    /// Starts what the flags ask for and what is allowed: whichever half is possible.
    pub fn start(arguments: &RecordArguments, options: &Options) -> Result<Self> {
        if arguments.hold && arguments.user && options.scope != Scope::Children {
            let sentence =
                "how long a program holds its own locks can be metered from inside only: start it under `-- COMMAND`";
            return Err(Failure::error(Status::Usage, sentence));
        }
        // The kernel's symbols take a while to read, and nobody would empty the other's ring buffer meanwhile.
        let kernel = if arguments.user { None } else { Some(start_kernel(arguments.hooks, options)) };
        let can_do_without = |error| options.scope == Scope::Children && !arguments.kernel && is_refusal(error);
        let kernel = match kernel {
            Some(Err(error)) if !can_do_without(&error) => return Err(error.into()),
            other => other,
        };
        let mut notice = None;
        let user = match options.scope {
            _ if arguments.kernel => None,
            Scope::Children => start_user(arguments, options, matches!(kernel, Some(Ok(_))), &mut notice)?,
            Scope::Process(pid) => start_outside(arguments.user, Processes::Of(pid), options)?,
            Scope::Machine | Scope::Cgroup(_) => None,
        };
        match kernel {
            Some(Ok(kernel)) => Ok(Self { kernel: Some(kernel), user, notice }),
            // That is said already.
            Some(Err(_)) if matches!(user, Some(User::NotAtAll(_))) => Ok(Self { kernel: None, user, notice }),
            Some(Err(error)) if user.is_some() => {
                inform_once(format!(
                    "lockmeter: only the command's own locks are metered, for kernel locks need more: {error}"
                ));
                Ok(Self { kernel: None, user, notice })
            }
            Some(Err(error)) => Err(error.into()),
            None if user.is_some() => Ok(Self { kernel: None, user, notice }),
            None => {
                let sentence = "--user meters a command's or a process's own locks; give `-- COMMAND` or -p PID";
                Err(Failure::error(Status::Usage, sentence))
            }
        }
    }

    /// Starts what `top` shows: kernel locks, and of a process its own locks, too.
    pub fn watch(options: &Options) -> Result<Self> {
        let kernel = ContentionSource::start(options)?;
        let user = match options.scope {
            Scope::Process(pid) => start_outside(false, Processes::Of(pid), options)?,
            _ => None,
        };
        Ok(Self { kernel: Some(kernel), user, notice: None })
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

    /// The command has been started.
    pub fn leave_own_process_out(&mut self) -> Result<()> {
        if let Some(notice) = self.notice.take() {
            inform_once(notice);
        }
        if let Some(User::Outside(futexes)) = &mut self.user {
            futexes.leave_own_process_out()?;
        }
        match &mut self.kernel {
            Some(kernel) => Ok(kernel.leave_own_process_out()?),
            None => Ok(()),
        }
    }

    /// Becomes readable when [`Self::take_news`] is due.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        match &self.user {
            Some(User::Outside(futexes)) => Some(futexes.news()),
            _ => None,
        }
    }

    /// Looks at processes that may not live for long.
    pub fn take_news(&self) {
        if let Some(User::Outside(futexes)) = &self.user {
            futexes.take_records();
        }
    }

    /// As [`ContentionSource::tick`].
    pub fn tick(&mut self) -> bool {
        let futexes_fill = match &mut self.user {
            Some(User::Outside(futexes)) => futexes.tick(),
            _ => false,
        };
        let Some(kernel) = &mut self.kernel else { return futexes_fill };
        if let Some(over) = kernel.keep_hooks_within_budget() {
            crate::holds::say_over_budget(over);
        }
        kernel.tick() || futexes_fill
    }

    /// Everything measured since the last call.
    pub fn drain(&mut self) -> Result<Interval> {
        let kernel = match &mut self.kernel {
            Some(kernel) => Some(kernel.drain()?),
            None => None,
        };
        Ok(match (kernel, &mut self.user) {
            (Some(mut interval), Some(user)) => {
                user.drain_into(&mut interval);
                interval
            }
            (Some(interval), None) => interval,
            (None, Some(user)) => user.drain()?,
            (None, None) => Interval::default(),
        })
    }

    /// Stops metering and hands over the last interval.
    pub fn stop(mut self) -> Result<Interval> {
        let kernel = match self.kernel.take() {
            Some(kernel) => Some(kernel.stop()?),
            None => None,
        };
        match (kernel, self.user.take()) {
            (Some(mut interval), Some(user)) => {
                user.stop_into(&mut interval);
                Ok(interval)
            }
            (Some(interval), None) => Ok(interval),
            (None, Some(user)) => user.stop(),
            (None, None) => Ok(Interval::default()),
        }
    }
}

impl User {
    fn drain_into(&mut self, interval: &mut Interval) {
        match self {
            Self::Inside(inside) => inside.source.drain_into(interval),
            Self::Outside(futexes) => futexes.drain_into(interval),
            Self::NotAtAll(unmetered) => unmetered.drain_into(interval),
        }
    }

    fn drain(&mut self) -> Result<Interval> {
        match self {
            Self::Inside(inside) => {
                let Ok(interval) = inside.source.drain();
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
            Self::Inside(mut inside) => {
                std::thread::sleep(GRACE);
                inside.source.drain_into(interval);
            }
            Self::Outside(futexes) => futexes.stop_into(interval),
            Self::NotAtAll(mut unmetered) => unmetered.drain_into(interval),
        }
    }

    fn stop(mut self) -> Result<Interval> {
        match self {
            Self::Outside(futexes) => Ok(futexes.stop()),
            Self::Inside(_) => {
                std::thread::sleep(GRACE);
                self.drain()
            }
            Self::NotAtAll(_) => self.drain(),
        }
    }
}

/// A kernel may allow function hooks and yet refuse ours: then there are kprobes, or all that is known without hooks, unless the user
/// chose how to hook.
fn start_kernel(choice: HookChoice, options: &Options) -> Result<ContentionSource, KernelError> {
    let Metered::Holds { hooks: Some(hooks) } = &options.metered else { return ContentionSource::start(options) };
    let refused = match ContentionSource::start(options) {
        Err(error) if choice == HookChoice::Auto => error,
        started => return started,
    };
    let sleeping = hooks.kinds.iter().all(|kind| SLEEPING_KINDS.contains(kind));
    if hooks.way == HookWay::Fentry && sleeping && try_hooks(HookWay::Kprobe).is_ok() {
        let hooks = Some(Hooks { way: HookWay::Kprobe, ..hooks.clone() });
        if let Ok(source) = ContentionSource::start(&Options { metered: Metered::Holds { hooks }, ..options.clone() }) {
            inform_once(format!("lockmeter: {refused}; holds are timed by kprobes"));
            return Ok(source);
        }
    }
    let without = Options { metered: Metered::Holds { hooks: None }, ..options.clone() };
    let source = ContentionSource::start(&without)?;
    inform_once(format!(
        "lockmeter: {refused}; no whole holds of kernel locks but mmap_lock's, of locks that sleep the part while others slept for them"
    ));
    Ok(source)
}

fn is_refusal(error: &KernelError) -> bool {
    !matches!(error.kind(), ErrorKind::NoSuchProcess | ErrorKind::NotAProcess | ErrorKind::NoSuchCgroup)
}

/// `None` if the command's own locks cannot be metered, which is said; without kernel locks there is nothing else, and it is an error.
fn start_user(
    arguments: &RecordArguments,
    options: &Options,
    has_kernel: bool,
    notice: &mut Option<String>,
) -> Result<Option<User>> {
    let outside = || start_outside(arguments.user || !has_kernel, Processes::Children, options);
    if let Some(Obstacle { why, instead, disturbs }) = preload::obstacle(&arguments.command) {
        if arguments.swap.is_some() {
            return Err(Failure::error(Status::NotAllowed, format!("{why}, nor swapped")));
        }
        let metered = match arguments.hold {
            false => "metering its locks from outside",
            // It has to be built anew or run otherwise to be metered from inside, which its user has a reason not to do.
            true if disturbs => "metering its waits from outside, where holds are not seen",
            true => {
                let instead = instead.map(|command| format!(", or run `{command}`")).unwrap_or_default();
                return Err(anyhow!("{why}; leave --hold out to meter its waits from outside{instead}"));
            }
        };
        let not_possible = || {
            let instead = instead.map(|command| format!(" (run `{command}` for that)")).unwrap_or_default();
            format!("{why}{instead}, and not from outside either")
        };
        let user = match FutexSource::start(Processes::Children, options.stacks) {
            // Its user has a reason to run it: it does so as below a shell.
            Err(error) if disturbs && is_refusal(&error) => {
                *notice = Some(format!("lockmeter: {why}, and not from outside either ({error}); it runs unmetered"));
                let unmetered = Unmetered { clock: IntervalClock::start(), is_counted: false };
                return Ok(Some(User::NotAtAll(unmetered)));
            }
            started => may_do_without(started, arguments.user || !has_kernel).with_context(not_possible)?,
        };
        *notice = user.is_some().then(|| format!("lockmeter: {why}; {metered}"));
        return Ok(user);
    }
    if let Some(language) = arguments.command.first().and_then(|program| preload::language_without_pthread(program)) {
        let unseen = format!("lockmeter: the locks of {language} can be seen from outside only");
        if arguments.hold || arguments.swap.is_some() {
            *notice = Some(format!(
                "{unseen}, which tells no holds and swaps nothing; metering those of its C libraries alone (leave --hold and --swap \
                 out to meter waits for {language}'s)"
            ));
        } else {
            match FutexSource::start(Processes::Children, options.stacks) {
                Ok(futexes) => {
                    *notice = Some(format!("{unseen}; metering them from there"));
                    return Ok(Some(User::Outside(Box::new(futexes))));
                }
                Err(error) => inform_once(format!("{unseen} ({error}); metering those of its C libraries")),
            }
        }
    }
    let library = match preload::library() {
        Ok(library) => library,
        Err(error) if arguments.hold || arguments.swap.is_some() => return Err(error),
        Err(error) => {
            inform_once(format!("lockmeter: {error}; metering the command's locks from outside"));
            return outside();
        }
    };
    let level = if arguments.hold { Level::Hold } else { Level::Wait };
    let session = Session::create_timing(level, if arguments.stacks.every { 0 } else { TIMED_HOLDS })?;
    let preloaded = std::env::var_os("LD_PRELOAD");
    let mut environment = session.environment(&library, preloaded.as_deref()).to_vec();
    if let Some(swaps) = &arguments.swap {
        environment.extend(swap_filter::environment(
            &session,
            swaps,
            arguments.lock.as_ref().map(ToString::to_string).as_deref(),
            &arguments.command,
        )?);
    }
    let source = session.source()?;
    Ok(Some(User::Inside(Box::new(Inside { source, environment, _session: session }))))
}

/// Meters futex waits. `None` if that cannot be, which is said, and kernel locks can be metered all the same: if these are
/// not asked for, it is an error.
fn start_outside(only_user: bool, processes: Processes, options: &Options) -> Result<Option<User>> {
    may_do_without(FutexSource::start(processes, options.stacks), only_user)
}

fn may_do_without(started: Result<FutexSource, KernelError>, only_user: bool) -> Result<Option<User>> {
    match started {
        Ok(futexes) => Ok(Some(User::Outside(Box::new(futexes)))),
        Err(error) if only_user || !is_refusal(&error) => Err(error.into()),
        Err(error) => {
            inform_once(format!("lockmeter: {error}; metering kernel locks only"));
            Ok(None)
        }
    }
}
