//! Files of pictures.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use lockmeter_profile::recording::write_file;

/// Pixels of the PNG for one of the SVG.
const PNG_ZOOM: &str = "2";

/// Writes a picture, and the PNG beside it where `rsvg-convert` is installed; says whether it was.
pub fn write(path: &Path, svg: &str) -> io::Result<bool> {
    write_file(path, svg.as_bytes())?;
    let mut convert = Command::new("rsvg-convert");
    convert.args(["--zoom", PNG_ZOOM]).arg(path).stderr(Stdio::null());
    // It would follow a link that another user has put where the picture goes.
    let Ok(converted) = convert.output() else { return Ok(false) };
    if converted.status.success() {
        write_file(path.with_extension("png"), &converted.stdout)?;
    }
    Ok(converted.status.success())
}
