//! Names a static lock and a function of this very program from their addresses, as a meter would from outside.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use lockmeter_symbols::{MappedFile, ProcessPath, UserNames};

static JOB_QUEUE: Mutex<u32> = Mutex::new(0);

#[inline(never)]
fn take_a_job() -> u32 {
    *JOB_QUEUE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn main() -> Result<(), Box<dyn Error>> {
    take_a_job();
    let mut names = UserNames::new();
    let own = [own_file(&mut names)?];

    let place = names.static_place(&own, (&raw const JOB_QUEUE) as u64).ok_or("the lock lies in no file")?;
    println!("lock:     {}", place.lock().name);
    // An address within the function, as a stack has it.
    let frames = names.frames(&own, take_a_job as *const () as u64 + 1);
    let function = frames[0].function.as_deref().ok_or("the function has no name")?;
    println!("function: {function}");
    assert!(place.lock().name.contains("JOB_QUEUE") && function.contains("take_a_job"));
    Ok(())
}

/// Where this program's file is mapped.
fn own_file(names: &mut UserNames) -> Result<MappedFile, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let ranges: Vec<(u64, u64)> = maps
        .lines()
        .filter(|line| line.ends_with(&*program.to_string_lossy()))
        .filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        })
        .collect();
    let (Some((start, _)), Some((_, end))) = (ranges.first(), ranges.last()) else {
        return Err("the program is not mapped".into());
    };
    // A position-independent program begins at address 0 of its file. Its zeroed data may follow what is mapped.
    let room_for_zeroed_data = 1 << 20;
    let memory = *start..*end + room_for_zeroed_data;
    let path = ProcessPath { pid: std::process::id(), path: Path::new(&program), sees_other_files: false };
    Ok(names.file_of_process(path, memory, *start, &[], None))
}
