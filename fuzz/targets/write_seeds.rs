//! `write-seeds TARGET FOLDER`: the target's seeds as files. Without arguments: the names of all targets.

use std::path::Path;
use std::process::ExitCode;

use lockmeter_fuzz::{TARGETS, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder] = arguments.as_slice() else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    };
    let Some(target) = target(name) else {
        eprintln!("write-seeds: no target `{name}`; without arguments it lists them");
        return ExitCode::from(2);
    };
    for (nth, seed) in (target.seeds)().iter().enumerate() {
        let path = Path::new(folder).join(format!("seed-{nth}"));
        if let Err(error) = std::fs::write(&path, seed) {
            eprintln!("write-seeds: cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
