//! `lockmeter record` as a running process.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use super::{Folder, PATIENCE, lockmeter, signal, until, wait};

/// What `record` prints once its programs are attached and the file is open.
const METERING: &str = "lockmeter: metering ";

/// A recorder that meters. Killed when dropped.
pub struct Recorder {
    child: Child,
    /// Where it writes.
    pub file: String,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// How a recorder ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
    /// The recording.
    pub file: String,
}

impl Recorder {
    /// Starts `lockmeter record --kernel -o FOLDER/NAME ARGUMENTS` and returns when it meters.
    pub fn start(folder: &Folder, name: &str, arguments: &[&str]) -> Self {
        Self::start_all(folder, name, &[&["--kernel"], arguments].concat())
    }

    /// Starts `lockmeter record -o FOLDER/NAME ARGUMENTS` and returns when it meters.
    pub fn start_all(folder: &Folder, name: &str, arguments: &[&str]) -> Self {
        let file = folder.file(name);
        let mut command = lockmeter(["record", "-o", &file]);
        command.args(arguments).current_dir(folder.path());
        Self::spawn(command, file)
    }

    /// Starts a whole command line that records into `file`, and returns when it meters.
    pub fn spawn(mut command: Command, file: String) -> Self {
        let shown = format!("{command:?}");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let stderr = Arc::new(Mutex::new(String::new()));
        let (meters, begun) = mpsc::channel();
        let said = Arc::clone(&stderr);
        let reader = thread::spawn(move || {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                said.lock().unwrap().push_str(&text);
                if text.contains(METERING) {
                    let _ = meters.send(());
                }
                line.clear();
            }
            let _ = lines.read_to_end(&mut Vec::new());
        });
        let recorder = Self { child, file, stderr, reader: Some(reader) };
        // The sender is gone when standard error is closed: then it ended without metering.
        if begun.recv_timeout(PATIENCE).is_err() {
            panic!("{shown} does not meter; it said:\n{}", recorder.stderr.lock().unwrap());
        }
        recorder
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, number: libc::c_int) {
        signal(self.child.id(), number);
    }

    /// Sends a signal and waits until the recorder has it: one more that comes before would be one with it.
    pub fn signal_alone(&self, number: libc::c_int) {
        self.signal(number);
        until("the signal has reached the recorder", || !self.is_pending(number));
    }

    fn is_pending(&self, number: libc::c_int) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let pending = ["SigPnd:", "ShdPnd:"].map(|name| {
            let set = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(set.trim(), 16).unwrap()
        });
        pending.iter().any(|set| set & 1 << (number - 1) != 0)
    }

    /// What it has said so far, on standard error.
    pub fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it as Ctrl-C does and waits for its end.
    pub fn stop(self) -> Ended {
        self.signal(libc::SIGINT);
        self.wait()
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> Ended {
        let status = wait(&mut self.child, "the recorder");
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        let stderr = self.stderr.lock().unwrap().clone();
        Ended { status, stderr, file: self.file.clone() }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// The recording, after making sure that the recorder ended well.
    pub fn recording(self) -> String {
        assert!(self.status.success(), "the recorder ended with {}:\n{}", self.status, self.stderr);
        self.file
    }
}
