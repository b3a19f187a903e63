//! What meters locks: the kernel's, and those of programs from inside or outside, in one interval.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lockmeter_kernel::contention::{ContentionSource, Metered, Options, Scope, StackBudget};
use lockmeter_kernel::futex::{self, FutexOptions, USUAL_SAMPLES};
use lockmeter_kernel::threads::{IntervalEnd, LookPace, ThreadSource};
use lockmeter_kernel::{ErrorKind, KernelError, SharedNames, SystemMap, confinement_of, prepare_kernel_names};
use lockmeter_meter::reader::{BeforeOthers, Level, Session, TIMED_HOLDS, UserSource};
use lockmeter_profile::{Interval, IntervalClock, Loss, OwnCpu, Source};
use rustix::event::epoll;

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
    /// Whether kernel locks are counted for each CPU apart.
    pub per_cpu: bool,
    /// Which locks to swap.
    pub swap: Option<SwapOptions>,
    /// Symbols of the kernel that it does not list.
    pub system_map: Option<SystemMap>,
    /// Whether waits that go on at the end are counted in the last interval, each with all of it that was metered. For who adds all intervals
    /// up: in the last one alone, these waits would be longer than it.
    pub counts_unfinished: bool,
    /// As [`FutexOptions::samples_a_second`].
    pub samples_a_second: u32,
    /// How often all threads are looked at.
    pub looks: LookPace,
    /// Whether the time of threads is metered where no locks of programs are, which need it.
    pub threads: bool,
    /// As [`FutexOptions::most_program_bytes`].
    pub most_program_bytes: Option<u64>,
}

impl LockOptions {
    /// All locks and the time of threads, for a report of the whole recording.
    pub fn usual(scope: Scope) -> Self {
        Self {
            scope,
            command: Vec::new(),
            which: Which::All,
            stacks: StackBudget::DEFAULT,
            holds: None,
            per_cpu: false,
            swap: None,
            system_map: None,
            counts_unfinished: true,
            samples_a_second: USUAL_SAMPLES,
            looks: LookPace::EACH_TICK,
            threads: true,
            most_program_bytes: None,
        }
    }
}

/// All sources of locks.
pub struct LockSources {
    kernel: Option<ContentionSource>,
    user: Option<User>,
    threads: Option<ThreadSource>,
    /// Readable when one of several has news.
    news_of_all: Option<OwnedFd>,
    /// Not yet handed over.
    notices: Vec<String>,
    /// Drained from programs before the other sources are: the kernel's drain waits until no CPU runs its programs any more, which takes
    /// a second where CPUs are busy.
    early: Interval,
    /// Where no kernel locks are metered, whose source has one.
    clock: IntervalClock,
    own_cpu: OwnCpu,
    counts_unfinished: bool,
}

/// So much may be drained early, or it would grow with a long interval.
const MOST_EARLY: usize = 100_000;

/// How the locks of programs are metered.
enum User {
    /// What the preloaded library does not see is metered from outside as well, where that may be looked at: locks inside other
    /// libraries, programs without it. Each wait is counted once.
    Inside(Box<Inside>),
    /// By the source of threads.
    Outside,
    /// Neither is possible, and the command runs all the same.
    NotAtAll(Unmetered),
}

/// A command that must not be metered from inside, where metering from outside is not allowed: counted as lost, once.
#[derive(Default)]
struct Unmetered {
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

/// The source of threads, to be started once it is known whether it is to meter their waits for futexes.
struct Threads<'a> {
    options: &'a LockOptions,
    names: Result<SharedNames, KernelError>,
    /// Where the source of kernel locks looks up what holders did.
    past_sleeps: Option<OwnedFd>,
    started: Option<ThreadSource>,
}

impl Threads<'_> {
    /// Has it meter locks of programs from outside.
    fn start_with_futexes(&mut self, is_beside_preloaded: bool) -> Result<(), KernelError> {
        futex::can_meter(self.options.scope.pids())?;
        let LockOptions { stacks, samples_a_second, most_program_bytes, .. } = *self.options;
        self.start(Some(FutexOptions { stacks, samples_a_second, is_beside_preloaded, most_program_bytes }))
    }

    fn start(&mut self, futexes: Option<FutexOptions>) -> Result<(), KernelError> {
        let past_sleeps = self.past_sleeps.as_ref().map(AsFd::as_fd);
        let mut source = ThreadSource::start(&self.options.scope, self.names.clone()?, futexes, past_sleeps)?;
        source.look_at_pace(self.options.looks);
        self.started = Some(source);
        Ok(())
    }

    /// Without the privileges for it there is none, as there are no kernel locks then.
    fn started_anyhow(mut self, notices: &mut Vec<String>) -> Option<ThreadSource> {
        if self.started.is_none() && self.names.is_ok() && self.options.threads {
            match self.start(None) {
                Err(error) if error.kind() != ErrorKind::NotPermitted => {
                    notices.push(format!("the threads' time is not metered: {error}"));
                }
                _ => {}
            }
        }
        self.started
    }
}

impl LockSources {
    /// Starts what the options ask for and what is allowed: kernel locks, locks of programs, or both.
    pub fn start(options: &LockOptions) -> Result<Self, RecorderError> {
        if options.holds.is_some() && options.which == Which::User && options.scope != Scope::Children {
            return Err(RecorderError::usage(
                "hold times of a program's own locks can be metered from inside only: start it under `-- COMMAND`",
            ));
        }
        let mut notices = Vec::new();
        let mut threads = Threads {
            options,
            names: prepare_kernel_names(options.system_map.as_ref()),
            past_sleeps: None,
            started: None,
        };
        let kernel = match options.which {
            Which::User => None,
            Which::All | Which::Kernel => Some(start_kernel(options, threads.names.clone(), &mut notices)?),
        };
        let can_do_without =
            |error| options.scope == Scope::Children && options.which != Which::Kernel && is_refusal(error);
        let kernel = match kernel {
            Some(Err(error)) if !can_do_without(&error) => return Err(error.into()),
            other => other,
        };
        let has_kernel = matches!(kernel, Some(Ok(_)));
        if let Some(Ok(kernel)) = &kernel {
            // Without them only what holders did is not known.
            threads.past_sleeps = kernel.past_sleeps().try_clone_to_owned().ok();
        }
        let user = match options.scope {
            _ if options.which == Which::Kernel => None,
            Scope::Children => start_user(options, has_kernel, &mut threads, &mut notices)?,
            _ => start_outside(options.which == Which::User, &mut threads, &mut notices)?,
        };
        let threads = threads.started_anyhow(&mut notices);
        if let Some(why) = threads.as_ref().and_then(ThreadSource::not_sampled) {
            notices.push(format!(
                "spinning of programs is not sampled, so reports show only what is counted of it: {why}"
            ));
        }
        let (clock, own_cpu) = (IntervalClock::start(), OwnCpu::start());
        let early = Interval::default();
        let counts_unfinished = options.counts_unfinished;
        let mut sources =
            Self { kernel: None, user, threads, news_of_all: None, notices, early, clock, own_cpu, counts_unfinished };
        sources.news_of_all = sources.watch_news()?;
        match kernel {
            Some(Ok(kernel)) => sources.kernel = Some(kernel),
            // That is said already.
            Some(Err(_)) if matches!(sources.user, Some(User::NotAtAll(_))) => return Ok(sources),
            Some(Err(error)) if sources.user.is_some() => {
                let notice = format!("only the command's own locks are metered, not kernel locks: {error}");
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
        sources.align_intervals()?;
        Ok(sources)
    }

    /// The kernel's source follows only what a process forks from now on.
    fn follow_existing_children(&mut self, options: &LockOptions) {
        let (Some(threads), Some(kernel)) = (&self.threads, &self.kernel) else { return };
        let named = options.scope.pids();
        if named.is_empty() {
            return;
        }
        for child in threads.processes().into_iter().filter(|child| !named.contains(child)) {
            // One that has ended meanwhile needs no following.
            let _ = kernel.follow(child);
        }
    }

    /// Has the first interval begin now, when everything is attached: a program's symbols take seconds to read, and its waits of that
    /// time are not seen, while the kernel's are.
    fn align_intervals(&mut self) -> Result<(), RecorderError> {
        if self.threads.is_some() {
            self.drain()?;
            if let Some(User::NotAtAll(unmetered)) = &mut self.user {
                unmetered.is_counted = false;
            }
        }
        if let Some(threads) = &mut self.threads {
            threads.begin();
        }
        self.tell_older_waits();
        Ok(())
    }

    /// The kernel's source does not see who waits already when it begins.
    fn tell_older_waits(&mut self) {
        let (Some(threads), Some(kernel)) = (&mut self.threads, &mut self.kernel) else { return };
        if let Err(error) = kernel.adopt(&threads.take_older_waits()) {
            self.notices
                .push(format!("waits for kernel locks that began before the recording are not counted: {error}"));
        }
    }

    /// How many processes are metered now; `None` if that is not known.
    pub fn processes(&self) -> Option<usize> {
        self.threads.as_ref().map(|threads| threads.processes().len())
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

    /// Right before the interval's time is taken, or more threads would be counted than there are.
    fn end_interval_of_threads(&mut self) -> Result<Option<IntervalEnd>, KernelError> {
        self.threads.as_mut().map(ThreadSource::end_interval).transpose()
    }

    const fn meters_outside(&self) -> bool {
        matches!(self.user, Some(User::Outside))
    }

    /// What the command needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        match &self.user {
            Some(User::Inside(inside)) => inside.environment.clone(),
            _ => Vec::new(),
        }
    }
}

/// One descriptor for several.
impl LockSources {
    /// `None` where no more than one source has any.
    fn watch_news(&self) -> Result<Option<OwnedFd>, RecorderError> {
        if self.news_of_each().count() < 2 {
            return Ok(None);
        }
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        for news in self.news_of_each() {
            epoll::add(&all, news, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(std::io::Error::from)?;
        }
        Ok(Some(all))
    }

    fn news_of_each(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let inside = match &self.user {
            Some(User::Inside(inside)) => inside.source.news(),
            _ => None,
        };
        [self.threads.as_ref().and_then(ThreadSource::news), inside].into_iter().flatten()
    }
}

impl Source for LockSources {
    type Error = RecorderError;

    fn command_started(&mut self) -> Result<(), RecorderError> {
        if let Some(threads) = &mut self.threads {
            threads.command_started();
        }
        match &mut self.kernel {
            Some(kernel) => Ok(kernel.command_started()?),
            None => Ok(()),
        }
    }

    fn news(&self) -> Option<BorrowedFd<'_>> {
        self.news_of_all.as_ref().map(AsFd::as_fd).or_else(|| self.news_of_each().next())
    }

    fn take_news(&mut self) -> bool {
        if let Some(threads) = &mut self.threads {
            threads.take_news();
        }
        if let Some(User::Inside(inside)) = &mut self.user
            && inside.source.take_news()
        {
            let _before_others = BeforeOthers::begin();
            inside.source.drain_into(&mut self.early);
        }
        self.early.totals.len() > MOST_EARLY
    }

    fn tick(&mut self) -> bool {
        let is_due = match self.threads.as_mut().map(ThreadSource::tick) {
            // With the locks of programs it is the recording's end, which the drain says.
            Some(Err(error)) if !self.meters_outside() => {
                self.threads = None;
                self.notices.push(format!("the threads' time is no longer metered: {error}"));
                false
            }
            Some(looked) => looked.unwrap_or(true),
            None => false,
        };
        let Some(kernel) = &mut self.kernel else { return is_due };
        self.notices.extend(kernel.keep_hooks_within_budget().map(hold_hooks::over_budget));
        kernel.tick() || is_due
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn drain(&mut self) -> Result<Interval, RecorderError> {
        let mut interval = std::mem::take(&mut self.early);
        let end = self.end_interval_of_threads()?;
        match &mut self.kernel {
            Some(kernel) => kernel.drain_into(&mut interval),
            None => self.clock.cut_into(&mut interval),
        }
        match &mut self.user {
            Some(User::Inside(inside)) => inside.source.drain_into(&mut interval),
            Some(User::NotAtAll(unmetered)) => unmetered.drain_into(&mut interval),
            Some(User::Outside) | None => {}
        }
        if let Some((threads, end)) = self.threads.as_mut().zip(end) {
            threads.drain_into(end, &mut interval)?;
        }
        self.tell_older_waits();
        interval.overhead.own_cpu_ns = self.own_cpu.used_ns();
        Ok(interval)
    }

    fn stop(mut self) -> Result<Interval, RecorderError> {
        let mut interval = std::mem::take(&mut self.early);
        let end = self.end_interval_of_threads()?;
        match self.kernel {
            Some(mut kernel) => kernel.stop_into(&mut interval),
            None => self.clock.cut_into(&mut interval),
        }
        match self.user {
            Some(User::Inside(inside)) => inside.source.stop_into(&mut interval),
            Some(User::NotAtAll(mut unmetered)) => unmetered.drain_into(&mut interval),
            Some(User::Outside) | None => {}
        }
        match self.threads.zip(end) {
            Some((threads, end)) if self.counts_unfinished => threads.stop_into(end, &mut interval)?,
            Some((mut threads, end)) => threads.drain_into(end, &mut interval)?,
            None => {}
        }
        interval.overhead.own_cpu_ns = self.own_cpu.used_ns();
        Ok(interval)
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
    let started = match &options.holds {
        Some(holds) => holds.start(&kernel, &names, notices),
        None => ContentionSource::start_with(&kernel, &names),
    };
    Ok(started.map(|mut source| {
        if options.per_cpu {
            source.keep_cpus_apart();
        }
        source
    }))
}

fn kernel_options(options: &LockOptions, metered: Metered) -> Options {
    Options { scope: options.scope.clone(), stacks: options.stacks, metered }
}

fn is_refusal(error: &KernelError) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::NoSuchProcess | ErrorKind::NotAProcess | ErrorKind::NoSuchCgroup | ErrorKind::OtherKernel
    )
}

/// `None` if the command's own locks cannot be metered, which is said; without kernel locks there is nothing else, and it is an error.
fn start_user(
    options: &LockOptions,
    has_kernel: bool,
    threads: &mut Threads<'_>,
    notices: &mut Vec<String>,
) -> Result<Option<User>, RecorderError> {
    let (only_user, hold) = (options.which == Which::User || !has_kernel, options.holds.is_some());
    if let Some(Obstacle { why, instead, disturbs, is_foreign }) = preload::obstacle(&options.command) {
        if options.swap.is_some() {
            return Err(RecorderError::not_allowed(format!("{why}, nor swapped")));
        }
        if is_foreign && hold {
            let sentence = format!("{why}; leave --hold out to meter the time of its threads");
            return Err(RecorderError::failed(sentence));
        }
        if is_foreign {
            notices.push(format!("{why}; metering the time of its threads alone"));
            return Ok(Some(User::NotAtAll(Unmetered::default())));
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
        let user = match threads.start_with_futexes(false) {
            // Its user has a reason to run it: it does so as below a shell.
            Err(error) if disturbs && is_refusal(&error) => {
                notices.push(format!("{why}, and not from outside either ({error}); it runs unmetered"));
                return Ok(Some(User::NotAtAll(Unmetered::default())));
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
                "{unseen}, where holds are not seen and nothing can be swapped; only locks of its C libraries are metered \
                (leave --hold and --swap out to meter waits for {language}'s locks)"
            ));
        } else {
            match threads.start_with_futexes(false) {
                Ok(()) => {
                    notices.push(format!("{unseen}; metering them from there"));
                    return Ok(Some(User::Outside));
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
            return start_outside(only_user, threads, notices);
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
    let _ = threads.start_with_futexes(true);
    Ok(Some(User::Inside(Box::new(Inside { source, environment, _session: session }))))
}

/// What to say of a command that the system's policy confines: whether that keeps the library from it is seen only when it has begun.
fn confined(command: &[OsString]) -> Option<String> {
    let program = preload::program_file(command.first()?)?;
    let program = program.canonicalize().unwrap_or(program);
    let confinement = confinement_of(&program)?;
    let name = program.display();
    Some(format!(
        "{confinement} confines {name}: if that keeps lockmeter's library from it, the report counts it as not metered; \
         `{}` lifts the confinement",
        confinement.how_to_lift()
    ))
}

/// Meters futex waits. `None` if that cannot be, which is said, and kernel locks can be metered all the same: if these are
/// not asked for, it is an error.
fn start_outside(
    only_user: bool,
    threads: &mut Threads<'_>,
    notices: &mut Vec<String>,
) -> Result<Option<User>, RecorderError> {
    may_do_without(threads.start_with_futexes(false), only_user, notices)
}

fn may_do_without(
    started: Result<(), KernelError>,
    only_user: bool,
    notices: &mut Vec<String>,
) -> Result<Option<User>, RecorderError> {
    match started {
        Ok(()) => Ok(Some(User::Outside)),
        Err(error) if only_user || !is_refusal(&error) => Err(error.into()),
        Err(error) => {
            notices.push(format!("{error}; metering kernel locks only"));
            Ok(None)
        }
    }
}
