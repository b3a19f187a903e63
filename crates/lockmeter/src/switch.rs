//! `lockmeter on` and `lockmeter off`: metering switched in a running program.

use anyhow::Result;
use lockmeter_meter::reader::{Level, Session};

use crate::arguments::SwitchArguments;

pub fn on(arguments: &SwitchArguments) -> Result<()> {
    Ok(Session::switch(arguments.pid, None)?)
}

pub fn off(arguments: &SwitchArguments) -> Result<()> {
    Ok(Session::switch(arguments.pid, Some(Level::Off))?)
}
