//! Users beside root, and what must stay theirs.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{BINARY, copy_program, lockmeter, preload_library, run, skip};

/// Two users of whom the system knows nothing.
pub const A: u32 = 61_001;
pub const B: u32 = 61_002;
/// One who records nothing: a recorder removes what its own user left, and tests run side by side.
pub const PLANTER: u32 = 61_003;
/// One who records in a single test.
pub const CLEANER: u32 = 61_004;
pub const ROOT: u32 = 0;

/// What the victim's file holds.
const MINE: &str = "nobody else's business\n";

/// A place that all users can go to, with lockmeter's programs, and a file of root's that nobody may touch.
pub struct Arena {
    folder: tempfile::TempDir,
    program: PathBuf,
    library: PathBuf,
    /// What users made outside of the folder.
    outside: std::cell::RefCell<Vec<PathBuf>>,
}

impl Arena {
    /// `None`, after a visible line, where there is nobody to play the other users.
    pub fn open(test: &str) -> Option<Self> {
        // SAFETY: takes nothing.
        if unsafe { libc::geteuid() } != ROOT {
            skip(test, "only root can play several users");
            return None;
        }
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let place = |from: &Path, mode| {
            let to = folder.path().join(from.file_name().unwrap());
            copy_program(from, &to);
            fs::set_permissions(&to, Permissions::from_mode(mode)).unwrap();
            to
        };
        let program = place(Path::new(BINARY), 0o755);
        let library = place(preload_library(), 0o755);
        let arena = Self { folder, program, library, outside: std::cell::RefCell::default() };
        fs::write(arena.victim(), MINE).unwrap();
        fs::set_permissions(arena.victim(), Permissions::from_mode(0o600)).unwrap();
        Some(arena)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Root's file.
    pub fn victim(&self) -> PathBuf {
        self.path("victim")
    }

    pub fn assert_victim_is_unharmed(&self) {
        let data = fs::metadata(self.victim()).expect("the victim's file is gone");
        assert_eq!(fs::read_to_string(self.victim()).unwrap(), MINE, "the victim's file was changed");
        assert_eq!((data.uid(), data.mode() & 0o7777, data.nlink() <= 2), (ROOT, 0o600, true));
    }

    /// A folder that belongs to a user and that nobody else can look into.
    pub fn folder_of(&self, user: u32, name: &str) -> PathBuf {
        own_folder(&self.path(name), user)
    }

    /// A folder of a user among those that recorders make: as of a recorder whose process has ended.
    pub fn session_of(&self, user: u32) -> PathBuf {
        let random = self.folder.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let count = self.outside.borrow().len();
        let path = own_folder(Path::new(&format!("/dev/shm/lockmeter-{}-{random}{count}", ended_process())), user);
        self.outside.borrow_mut().push(path.clone());
        path
    }

    /// Removes this at the end.
    pub fn will_remove(&self, path: &Path) {
        self.outside.borrow_mut().push(path.to_owned());
    }

    /// lockmeter with these arguments, run by a user who can reach nothing but the arena and what everybody can.
    pub fn lockmeter(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = lockmeter([]);
        if user != ROOT {
            command = Command::new(&self.program);
            command.stdin(Stdio::null()).uid(user).gid(user);
        }
        command.args(arguments).current_dir(self.folder.path()).env_remove("XDG_RUNTIME_DIR");
        command.env("LOCKMETER_PRELOAD", &self.library);
        command
    }

    /// Root records a short command. It must end well: what others left lying about is no reason to fail.
    pub fn root_records(&self, change: impl FnOnce(&mut Command)) -> Output {
        let recording = self.path("recording");
        let mut command =
            self.lockmeter(ROOT, &["record", "--user", "-o", recording.to_str().unwrap(), "--", "sh", "-c"]);
        command.arg("echo $LOCKMETER_DIR");
        change(&mut command);
        let output = run(command);
        assert!(output.status.success(), "{}", super::text(&output.stderr));
        output
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for path in self.outside.borrow().iter() {
            let _ = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
        }
    }
}

/// Makes a folder for a user.
pub fn own_folder(path: &Path, user: u32) -> PathBuf {
    DirBuilder::new().mode(0o700).create(path).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
    path.to_owned()
}

/// The id of a process that has ended.
pub fn ended_process() -> u32 {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    ended.id()
}

pub fn make_fifo(path: &Path, user: u32) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}

/// The device that gives zeros for ever.
pub fn make_zero_device(path: &Path, user: u32) {
    let zero = rustix::fs::makedev(1, 5);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::CharacterDevice, 0o600.into(), zero).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}
