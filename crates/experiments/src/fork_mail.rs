//! Mail delivery that forks a process for each message, after exim in MOSBENCH: the load on which an rwsem fell behind a mutex (2013).
//!
//! A master accepts connections and forks for each; the child writes the message to the spool, appends it to a mailbox and exits.
//! Forks meet at `anon_vma`'s rwsem and at page tables, deliveries at the spool's directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::processes;
use crate::work_folder::{self, TempDir};

/// How to deliver.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How long each step lasts.
    pub duration: Duration,
    /// Mailboxes that messages go to in turn.
    pub mailboxes: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Whether spool and mailbox reach the disk before a message is acknowledged.
    pub fsync: bool,
}

/// What was delivered with this many clients.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Step {
    /// Clients that send one message after another.
    pub clients: usize,
    /// Messages acknowledged.
    pub messages: u64,
    /// Messages that were not: the master could not fork, or the child could not write.
    pub failed: u64,
    /// How long.
    pub elapsed_ns: u64,
    /// Of the whole machine.
    pub context_switches: u64,
}

impl Step {
    /// Messages a second.
    pub fn per_second(&self) -> f64 {
        self.messages as f64 / Duration::from_nanos(self.elapsed_ns).as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Context switches of the machine for each message.
    pub fn switches_per_message(&self) -> f64 {
        self.context_switches as f64 / self.messages.max(1) as f64
    }
}

const ACCEPTED: u8 = b'+';

/// A spool with its mailboxes; removed at the end.
pub struct PostOffice {
    folder: TempDir,
}

impl PostOffice {
    /// Makes the folders, below `parent`.
    pub fn open(parent: &Path) -> io::Result<Self> {
        let folder = work_folder::create(parent, "lockmeter-mail-")?;
        fs::create_dir(folder.path().join("spool"))?;
        fs::create_dir(folder.path().join("boxes"))?;
        Ok(Self { folder })
    }

    /// Delivers with this many clients at once. `go_on` is asked ten times a second.
    pub fn deliver(&self, plan: &Plan, clients: usize, mut go_on: impl FnMut() -> bool) -> io::Result<Step> {
        let address = self.folder.path().join("socket");
        let _ = fs::remove_file(&address);
        let listener = UnixListener::bind(&address)?;
        let master = processes::fork(|| self.accept(&listener, plan))?;
        drop(listener);
        let (stop, messages, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let (begin, switches) = (Instant::now(), processes::context_switches());
        std::thread::scope(|scope| {
            for client in 0..clients {
                let (address, stop, messages, failed) = (&address, &stop, &messages, &failed);
                scope.spawn(move || {
                    let mut mailbox = client;
                    while !stop.load(Ordering::Relaxed) {
                        let sent = send(address, mailbox % plan.mailboxes, plan.message_bytes);
                        let counter = if sent.is_ok() { messages } else { failed };
                        counter.fetch_add(1, Ordering::Relaxed);
                        mailbox += clients;
                    }
                });
            }
            const LOOK: Duration = Duration::from_millis(100);
            while begin.elapsed() < plan.duration && go_on() {
                std::thread::sleep(LOOK.min(plan.duration.saturating_sub(begin.elapsed())));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let step = Step {
            clients,
            messages: messages.into_inner(),
            failed: failed.into_inner(),
            elapsed_ns: u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            context_switches: processes::context_switches().saturating_sub(switches),
        };
        processes::end(master);
        Ok(step)
    }

    /// The master: never returns by itself, its parent ends it.
    fn accept(&self, listener: &UnixListener, plan: &Plan) -> bool {
        // SAFETY: integers only. The kernel buries the children, so that none waits for us.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        for number in 0_u64.. {
            let Ok((connection, _)) = listener.accept() else { return false };
            // Where no more children can be had, the closed connection tells the client.
            let _ = processes::fork(|| self.receive(connection, number, plan).is_ok());
        }
        true
    }

    /// A child: one message, from the connection to the mailbox.
    fn receive(&self, mut connection: UnixStream, number: u64, plan: &Plan) -> io::Result<()> {
        let mut head = [0; 8];
        connection.read_exact(&mut head)?;
        let (mailbox, length) = head.split_at(4);
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).unwrap_or(0);
        let mut message = vec![0; word(length) as usize];
        connection.read_exact(&mut message)?;
        let spooled = self.folder.path().join("spool").join(format!("{}-{number}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&spooled)?;
        file.write_all(&message)?;
        if plan.fsync {
            file.sync_all()?;
        }
        self.append(word(mailbox), &message, plan.fsync)?;
        fs::remove_file(&spooled)?;
        connection.write_all(&[ACCEPTED])
    }

    fn append(&self, mailbox: u32, message: &[u8], fsync: bool) -> io::Result<()> {
        let path = self.folder.path().join("boxes").join(mailbox.to_string());
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        lock(&file)?;
        // A mailbox that grew for minutes would fill the disk.
        if file.metadata()?.len() > MAILBOX_BYTES {
            file.set_len(0)?;
        }
        file.write_all(message)?;
        if fsync { file.sync_all() } else { Ok(()) }
    }
}

const MAILBOX_BYTES: u64 = 16 << 20;

/// A mailbox's lock, which its closing releases.
fn lock(file: &File) -> io::Result<()> {
    // SAFETY: an open descriptor and a number.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A client: one message, until it is acknowledged.
fn send(address: &Path, mailbox: usize, bytes: usize) -> io::Result<()> {
    let mut connection = UnixStream::connect(address)?;
    let word = |value| u32::try_from(value).unwrap_or(0).to_ne_bytes();
    let mut message = [word(mailbox), word(bytes)].concat();
    message.resize(message.len() + bytes, b'm');
    connection.write_all(&message)?;
    let mut answer = [0];
    connection.read_exact(&mut answer)?;
    if answer[0] == ACCEPTED { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
