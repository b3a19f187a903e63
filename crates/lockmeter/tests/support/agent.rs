//! `lockmeter agent` as tests run it, and what it serves.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{BINARY, Folder, signal, until, wait};

const SERVING: &str = "metrics at http://";

/// An agent that serves. Killed when dropped.
pub struct Agent {
    pub child: Child,
    pub address: String,
    pub config: PathBuf,
    said: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    /// With this configuration, begun by `command` in the place of the binary itself. It records nothing unless it is told where.
    pub fn start(folder: &Folder, config: &str, mut command: Command) -> Self {
        let file = PathBuf::from(folder.file("agent.toml"));
        let recorder = if config.contains("[recorder]") { "" } else { "[recorder]\nfolder = \"\"" };
        fs::write(&file, format!("listen = \"127.0.0.1:0\"\ninterval = \"1s\"\n{config}\n{recorder}")).unwrap();
        command.args(["agent", "--config"]).arg(&file).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the agent does not serve: {said:?}") };
            if let Some((_, address)) = line.split_once(SERVING) {
                break address.trim_end_matches("/metrics").to_owned();
            }
            said.push(line);
        };
        let said = Arc::new(Mutex::new(said));
        let heard = Arc::clone(&said);
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
        Self { child, address, config: file, said }
    }

    pub fn plain(folder: &Folder, config: &str) -> Self {
        Self::start(folder, config, Command::new(BINARY))
    }

    /// Asked again where it is busy with other clients: an empty answer would be one without any series.
    pub fn metrics(&self) -> String {
        let mut answer = (0, String::new());
        until("the agent answers", || {
            answer = get(&self.address, "/metrics", "");
            answer.0 == 200
        });
        answer.1
    }

    /// The sum of a metric's series whose labels contain this.
    pub fn sum(&self, name: &str, labels: &str) -> f64 {
        let of_name =
            |line: &&str| line.starts_with(name) && !line[name.len()..].starts_with('_') && line.contains(labels);
        let text = self.metrics();
        text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has said a sentence with this.
    pub fn has_said(&self, part: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(part))
    }

    /// The ends of its sentences that begin so, in order.
    pub fn said_after(&self, begin: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter_map(|line| Some(line.split_once(begin)?.1.to_owned())).collect()
    }

    pub fn end(mut self) -> Option<i32> {
        signal(self.child.id(), libc::SIGTERM);
        wait(&mut self.child, "lockmeter agent").code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body.
pub fn get(address: &str, path: &str, accept: &str) -> (u32, String) {
    let (status, body) = get_bytes(address, path, accept);
    (status, String::from_utf8_lossy(&body).into_owned())
}

pub fn get_bytes(address: &str, path: &str, accept: &str) -> (u32, Vec<u8>) {
    ask(address, format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n").as_bytes())
}

/// Status 0 where the server answers nothing.
pub fn ask(address: &str, request: &[u8]) -> (u32, Vec<u8>) {
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, Vec::new()) };
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return (0, answer) };
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer[end + 4..].to_vec())
}
