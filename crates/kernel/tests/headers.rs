//! The sources of the programs: what lies in which file.

use std::fs;
use std::path::{Path, PathBuf};

/// A header may place variables and maps (`.maps`, `.bss.…`), but a program in it would come with whatever includes it.
#[test]
fn no_header_defines_a_program() {
    let mut headers = Vec::new();
    find_headers(Path::new("src"), &mut headers);
    assert!(headers.len() > 20, "{headers:?}");
    for header in headers {
        let source = fs::read_to_string(&header).expect("a readable header");
        for section in source.split("SEC(\"").skip(1) {
            let section = section.split('"').next().unwrap_or_default();
            assert!(section.starts_with('.'), "{} defines a program in {section}", header.display());
        }
    }
}

fn find_headers(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find_headers(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "h") {
            found.push(path);
        }
    }
}
