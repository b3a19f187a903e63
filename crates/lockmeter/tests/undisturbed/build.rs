//! The programs of `workloads/undisturbed`, built once a variant, and anew when their source is newer.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use super::support::{text, workload_sources};

/// What turns a source into a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compiler {
    Gcc,
    Clang,
    Musl,
}

impl Compiler {
    pub fn command(self, is_cpp: bool) -> &'static str {
        match (self, is_cpp) {
            (Self::Gcc, false) => "gcc",
            (Self::Gcc, true) => "g++",
            (Self::Clang, false) => "clang",
            (Self::Clang, true) => "clang++",
            (Self::Musl, _) => "musl-gcc",
        }
    }
}

/// One source, compiled with these flags.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Build {
    /// The file's name without its ending.
    pub source: &'static str,
    pub compiler: Compiler,
    pub flags: Vec<&'static str>,
    /// Several programs of the same source and flags: libraries that must be different files.
    pub copy: usize,
}

impl Build {
    pub fn new(source: &'static str) -> Self {
        Self { source, compiler: Compiler::Gcc, flags: Vec::new(), copy: 0 }
    }

    pub fn library(source: &'static str, flags: &[&'static str]) -> Self {
        Self { flags: [&["-shared", "-fPIC"], flags].concat(), ..Self::new(source) }
    }

    /// The built file.
    pub fn path(&self) -> PathBuf {
        self.try_path().unwrap_or_else(|why| panic!("{} {:?} does not build: {why}", self.source, self.flags))
    }

    /// The built file, or what the compiler said.
    pub fn try_path(&self) -> Result<PathBuf, String> {
        type Slot = Arc<OnceLock<Result<PathBuf, String>>>;
        static BUILT: Mutex<Option<HashMap<Build, Slot>>> = Mutex::new(None);
        let slot = {
            let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            Arc::clone(built.get_or_insert_default().entry(self.clone()).or_default())
        };
        slot.get_or_init(|| self.build()).clone()
    }

    fn build(&self) -> Result<PathBuf, String> {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("undisturbed").join(format!("{:016x}", hasher.finish()));
        fs::create_dir_all(&folder).unwrap();
        // Its own name: a program says it in messages, and the kernel gives it to threads.
        let program = folder.join(self.source);
        let source = sources().join(self.file_name());
        if modified(&program) > changed(&source) {
            return Ok(program);
        }
        let unfinished = folder.join(format!("unfinished-{}", std::process::id()));
        if self.copy > 0 {
            fs::copy(Self { copy: 0, ..self.clone() }.path(), &unfinished).unwrap();
            fs::rename(unfinished, &program).unwrap();
            return Ok(program);
        }
        let mut compiler = self.compile(&source);
        compiler.arg("-o").arg(&unfinished);
        let output = compiler.output().map_err(|error| format!("{}: {error}", compiler.get_program().display()))?;
        if !output.status.success() {
            return Err(text(&output.stderr).trim().to_owned());
        }
        fs::rename(unfinished, &program).unwrap();
        Ok(program)
    }

    fn compile(&self, source: &Path) -> Command {
        let is_cpp = source.extension().is_some_and(|ending| ending == "cc");
        let mut compiler = Command::new(self.compiler.command(is_cpp));
        let standard = if is_cpp { "-std=gnu++17" } else { "-std=gnu11" };
        compiler.args([standard, "-D_GNU_SOURCE", "-O2", "-g", "-pthread"]).arg(source).args(&self.flags);
        compiler
    }

    fn file_name(&self) -> String {
        let c = format!("{}.c", self.source);
        if sources().join(&c).exists() { c } else { format!("{}.cc", self.source) }
    }
}

pub fn sources() -> PathBuf {
    workload_sources().join("undisturbed")
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// When the source, or a header that it may include, was changed.
fn changed(source: &Path) -> Option<SystemTime> {
    let files = fs::read_dir(sources()).unwrap().flatten().map(|file| file.path());
    let headers = files.filter(|path| path.extension().is_some_and(|ending| ending == "h"));
    headers.chain([source.to_owned()]).filter_map(|path| modified(&path)).max()
}
