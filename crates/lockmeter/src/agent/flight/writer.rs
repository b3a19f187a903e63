//! Writes recordings beside the metering, which a slow or hung disk must not stop.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use lockmeter_agent::metrics::Exemplar;
use lockmeter_agent::server::{Shared, locked};
use lockmeter_cli::messages::say;
use lockmeter_profile::About;
use lockmeter_profile::recording::{PackedInterval, RecordingWriter};

use super::folder::{RecordingFolder, Room};
use super::triggers::Pulled;
use crate::history::Step;

/// What is kept, as the history has it.
pub type Kept = Arc<Step<PackedInterval>>;

/// How long the end of the agent waits for the last recording.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A recording to be written.
pub struct Job {
    pub about: About,
    pub folder: PathBuf,
    pub room: Room,
    pub pulled: Pulled,
    pub unix_ns: u64,
    /// How far the wall clock is ahead of the intervals. One figure for all of them, so that they stay in order.
    pub stepped_ns: i64,
    /// What was metered before.
    pub before: Vec<Kept>,
}

enum Message {
    Begin(Box<Job>),
    /// Metered since.
    More(Kept),
    End,
}

/// The thread that writes, as its orderer sees it.
pub struct Writer {
    messages: mpsc::Sender<Message>,
    /// Whether it has a recording that is not yet finished.
    busy: Arc<AtomicBool>,
    done: mpsc::Receiver<()>,
}

/// A recording that is being written.
struct Begun {
    folder: RecordingFolder,
    path: PathBuf,
    writer: RecordingWriter,
    stepped_ns: i64,
}

impl Writer {
    pub fn start(store: Shared) -> io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let (is_done, done) = mpsc::channel();
        let busy = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&busy);
        thread::Builder::new().name("recorder".into()).spawn(move || {
            while let Ok(message) = inbox.recv() {
                if let Message::Begin(job) = message {
                    write(&job, &inbox, &store);
                    of_thread.store(false, Ordering::Release);
                }
            }
            // Nobody may be waiting for it.
            let _ = is_done.send(());
        })?;
        Ok(Self { messages, busy, done })
    }

    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Begins a recording; there must be none.
    pub fn begin(&self, job: Job) {
        self.busy.store(true, Ordering::Release);
        self.send(Message::Begin(Box::new(job)));
    }

    pub fn more(&self, kept: &Kept) {
        self.send(Message::More(Arc::clone(kept)));
    }

    pub fn end(&self) {
        self.send(Message::End);
    }

    fn send(&self, message: Message) {
        // The thread ends only after its sender.
        let _ = self.messages.send(message);
    }

    /// Ends what is being written, and waits for it for a while.
    pub fn finish(self) {
        let Self { messages, done, .. } = self;
        drop(messages);
        let _ = done.recv_timeout(LAST_WORDS);
    }
}

/// Writes one recording to its end, and counts how that went.
fn write(job: &Job, inbox: &mpsc::Receiver<Message>, store: &Shared) {
    let mut begun = Begun::new(job);
    while let Ok(Message::More(step)) = inbox.recv() {
        begun = begun.and_then(|begun| begun.with(&[step]));
    }
    let (trigger, reason) = (job.pulled.trigger.name(), &job.pulled.reason);
    match begun.and_then(|begun| begun.finish(job)) {
        Ok(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let exemplar = Exemplar { recording: name, value: 1.0, unix_seconds: job.unix_ns as f64 * 1e-9 };
            locked(store).count_recording(trigger, "written", Some(exemplar), job.pulled.wait.as_ref());
            say(format_args!("lockmeter: wrote {}, because of {reason}", path.display()));
        }
        Err(why) => {
            locked(store).count_recording(trigger, "failed", None, None);
            say(format_args!("lockmeter: cannot record {reason}: {why}"));
        }
    }
}

impl Begun {
    /// With what was metered before: if the machine hangs meanwhile, that is written.
    fn new(job: &Job) -> Result<Self, String> {
        let folder = RecordingFolder::open(&job.folder)?;
        let path = folder.name(job.unix_ns, job.pulled.trigger);
        let bytes: usize = job.before.iter().flat_map(|step| &step.intervals).map(PackedInterval::memory_bytes).sum();
        folder.make_room(job.room, bytes as u64, &path)?;
        let writer = RecordingWriter::create(&path, &job.about).map_err(|error| error.to_string())?;
        Self { folder, path, writer, stepped_ns: job.stepped_ns }.with(&job.before)
    }

    /// After an error the recording ends, with what was written before.
    fn with(mut self, steps: &[Kept]) -> Result<Self, String> {
        for mut interval in steps.iter().flat_map(|step| &step.intervals).filter_map(PackedInterval::unpack) {
            interval.move_by(self.stepped_ns);
            self.writer.append(&interval).map_err(|error| error.to_string())?;
        }
        Ok(self)
    }

    fn finish(self, job: &Job) -> Result<PathBuf, String> {
        let bytes = self.writer.written_bytes();
        self.writer.finish().map_err(|error| error.to_string())?;
        // It is larger than it was thought to become.
        self.folder.make_room(job.room, bytes, &self.path)?;
        Ok(self.path)
    }
}
