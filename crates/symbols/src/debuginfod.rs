//! Debug files from debuginfod servers, for users who ask for it.
//!
//! elfutils' own client fetches them. It gets nothing of this process's environment, which may be another user's; it writes to a folder
//! that nobody else can change; and it gets so much time. What it fetched is a debug file like any other: it must have the program's build
//! id, and nothing but its symbols is read. Why: `docs/decisions/2026-11-27-debuginfod-by-its-own-client.md`.

use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::build_id::BuildId;
use crate::elf_image::ElfImage;
use crate::target_file::{TargetFile, are_folders_only_ours};

/// Of Debian's package `debuginfod`, and of elfutils elsewhere. Not looked for in `PATH`.
const CLIENT: &str = "/usr/bin/debuginfod-find";

/// One file may take so long, and all of them together: meanwhile the recorder takes nothing in.
const LONGEST_FETCH: Duration = Duration::from_secs(20);
const LONGEST_OF_ALL: Duration = Duration::from_secs(60);

/// Files that are asked for, and what their symbols may take.
const MOST_FILES: u32 = 64;
const MOST_SYMBOL_BYTES: u64 = 256 << 20;

/// The client fetches no larger file.
const LARGEST_FILE_BYTES: u64 = 2 << 30;

/// How often to look whether the client has ended.
const POLL: Duration = Duration::from_millis(5);

/// The longest path that the client is believed to print.
const LONGEST_PATH: u64 = 4 << 10;

/// What is asked, and what may be spent on it yet. There is one for all sources of names: they share the limits.
static SERVERS: Mutex<Option<Servers>> = Mutex::new(None);

/// What is told to a person who waits meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// Told again and again.
    ForSoLong {
        /// The time that was spent, also on files before.
        spent: Duration,
        /// No more is spent on all files together.
        at_most: Duration,
    },
    /// It has answered, or takes too long.
    Over,
}

/// Whom that is told.
pub type WhileAsking = Box<dyn FnMut(Asking) + Send>;

struct Servers {
    /// With blanks between them.
    urls: String,
    cache: PathBuf,
    time_left: Duration,
    files_left: u32,
    bytes_left: u64,
    tell: WhileAsking,
}

/// Has the symbols of stripped programs asked for at these servers (URLs with blanks between them), from now on.
pub fn ask_servers(urls: &str, tell: WhileAsking) -> io::Result<()> {
    let is_url = |url: &str| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if let Some(bad) = urls.split_ascii_whitespace().find(|url| !is_url(url)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{bad} begins with neither http:// nor https://"),
        ));
    }
    if !Path::new(CLIENT).exists() {
        let sentence = format!("{CLIENT} is missing; install elfutils' client (Debian: package debuginfod)");
        return Err(io::Error::new(io::ErrorKind::NotFound, sentence));
    }
    let servers = Servers {
        urls: urls.to_owned(),
        cache: own_cache()?,
        time_left: LONGEST_OF_ALL,
        files_left: MOST_FILES,
        bytes_left: MOST_SYMBOL_BYTES,
        tell,
    };
    *SERVERS.lock().unwrap_or_else(PoisonError::into_inner) = Some(servers);
    Ok(())
}

/// Whether servers are asked.
pub(crate) fn are_asked() -> bool {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The symbols of a build, if servers are asked and one of them has them.
pub(crate) fn symbols(build_id: &BuildId) -> Option<ElfImage> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.symbols(build_id)
}

impl Servers {
    fn symbols(&mut self, build_id: &BuildId) -> Option<ElfImage> {
        if self.files_left == 0 || self.time_left.is_zero() {
            return None;
        }
        self.files_left -= 1;
        let begin = Instant::now();
        let path = self.fetch(build_id);
        (self.tell)(Asking::Over);
        self.time_left = self.time_left.saturating_sub(begin.elapsed());
        let file = TargetFile::open(&path?).ok().filter(|file| BuildId::of_file(file).as_ref() == Some(build_id))?;
        let symbols = ElfImage::copy_of_symbols(&file).ok()?;
        self.bytes_left = self.bytes_left.checked_sub(symbols.copied_bytes())?;
        Some(symbols)
    }

    /// Where the client has put the debug file of this build.
    fn fetch(&mut self, build_id: &BuildId) -> Option<PathBuf> {
        let limit = LONGEST_FETCH.min(self.time_left);
        let seconds = limit.as_secs().max(1).to_string();
        let mut client = Command::new(CLIENT);
        client.arg("debuginfo").arg(build_id.to_string()).env_clear();
        client.env("DEBUGINFOD_URLS", &self.urls).env("DEBUGINFOD_CACHE_PATH", &self.cache);
        client.env("DEBUGINFOD_MAXSIZE", LARGEST_FILE_BYTES.to_string());
        client.env("DEBUGINFOD_MAXTIME", &seconds).env("DEBUGINFOD_TIMEOUT", &seconds);
        let mut client =
            client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/").spawn().ok()?;
        let spent = LONGEST_OF_ALL.saturating_sub(self.time_left);
        let tell = |so_long| (self.tell)(Asking::ForSoLong { spent: spent + so_long, at_most: LONGEST_OF_ALL });
        if !ends_well(&mut client, limit, tell) {
            return None;
        }
        let mut path = Vec::new();
        client.stdout.take()?.take(LONGEST_PATH).read_to_end(&mut path).ok()?;
        let path = path.strip_suffix(b"\n").unwrap_or(&path);
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
        path.starts_with(&self.cache).then_some(path)
    }
}

fn ends_well(client: &mut Child, limit: Duration, mut tell: impl FnMut(Duration)) -> bool {
    let begin = Instant::now();
    loop {
        match client.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if begin.elapsed() < limit => {
                tell(begin.elapsed());
                std::thread::sleep(POLL);
            }
            _ => {
                // It may have ended by itself.
                let _ = client.kill();
                let _ = client.wait();
                return false;
            }
        }
    }
}

/// The folder in which the client keeps what it has fetched. Root's is the system's: `HOME` may be another user's.
fn own_cache() -> io::Result<PathBuf> {
    let folder = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/cache/lockmeter")
    } else {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        home.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "HOME is not set"))?.join("lockmeter")
    };
    let folder = folder.join("debuginfod");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    check_own(&folder)?;
    Ok(folder)
}

/// An error if somebody else can look into the folder or change what is in it.
fn check_own(folder: &Path) -> io::Result<()> {
    let data = std::fs::symlink_metadata(folder)?;
    let is_private = data.uid() == rustix::process::geteuid().as_raw() && data.mode() & 0o077 == 0;
    if is_private && are_folders_only_ours(&folder.join("file")) {
        return Ok(());
    }
    let sentence = format!("other users may use {}; remove it, or set its mode to 0700", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_cache_that_others_can_change_is_refused() {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
        let cache = folder.path().join("debuginfod");
        fs::create_dir(&cache).unwrap();
        let with_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        with_mode(&cache, 0o700);
        check_own(&cache).unwrap();
        with_mode(&cache, 0o755);
        assert!(check_own(&cache).is_err(), "others see what was asked for");
        with_mode(&cache, 0o700);
        with_mode(folder.path(), 0o777);
        assert!(check_own(&cache).is_err(), "others can put another folder in its place");
    }
}
