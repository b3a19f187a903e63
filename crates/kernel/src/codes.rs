//! The numbers that the programs and the loader both know, compared by their names: the programs' headers are C, the model is Rust.

use lockmeter_profile::{Context, Happened, HolderState, Kind, Loss, Mode, SystemCall, ThreadState};

use crate::{contention, futex, latency};

const LOCK_KIND: &str = include_str!("bpf/lock_kind.bpf.h");
const CONTENTION: &str = include_str!("contention/tables.h");
const FUTEX: &str = include_str!("futex/tables.h");
const THREAD_STATE: &str = include_str!("bpf/thread_state.h");
const LATENCY: &str = include_str!("latency/tables.h");

/// The names in an enum of a header, without what all begin with, and their numbers.
fn codes(header: &str, name: &str, prefix: &str) -> Vec<(String, u8)> {
    let (_, body) = header.split_once(&format!("enum {name} {{")).unwrap_or_else(|| panic!("no enum {name}"));
    let (body, _) = body.split_once('}').unwrap();
    let mut without_comments = String::new();
    for (at, part) in body.split("/*").enumerate() {
        without_comments += if at == 0 { part } else { part.split_once("*/").unwrap().1 };
    }
    let mut next = 0;
    let entry = |entry: &str| {
        let (name, code) = entry.split_once('=').map_or((entry, None), |(name, code)| (name, Some(code)));
        let code = code.map_or(next, |code| code.trim().parse().unwrap());
        next = code + 1;
        Some((name.trim().strip_prefix(prefix)?.to_lowercase(), code))
    };
    without_comments.split(',').filter(|entry| !entry.trim().is_empty()).filter_map(entry).collect()
}

fn code(header: &str, name: &str, entry: &str) -> u8 {
    let known = codes(header, name, "");
    known.iter().find(|(known, _)| known == entry).unwrap_or_else(|| panic!("no {entry} in {known:?}")).1
}

#[test]
fn kinds_and_modes_are_those_of_the_model() {
    let (kinds, modes) = (codes(LOCK_KIND, "kind", "KIND_"), codes(LOCK_KIND, "mode", "MODE_"));
    assert!(kinds.len() == 8 && modes.len() == 3, "{kinds:?} {modes:?}");
    for (name, code) in kinds {
        assert_eq!(Kind::from_code(code).map(Kind::name), Some(name.replace('_', "-").as_str()));
    }
    for (name, code) in modes {
        assert_eq!(Mode::from_code(code).map(Mode::name), Some(name.as_str()));
    }
}

#[test]
fn contexts_are_those_of_the_model() {
    let contexts = codes(LOCK_KIND, "context", "CONTEXT_");
    assert_eq!(contexts.len(), Context::ALL.len(), "{contexts:?}");
    for (name, code) in contexts {
        assert_eq!(Context::from_code(code).map(Context::name), Some(name.as_str()));
        // Mode and context share a byte of the word.
        let meta = 2 | 3 << 8 | u32::from(code) << 12;
        assert_eq!(crate::lock_codes::kind_mode_of(meta), Some((Kind::Rwlock, Mode::Write)));
        assert_eq!(crate::lock_codes::context_of(meta), Context::from_code(code));
    }
    assert!(LOCK_KIND.contains("#define CONTEXT_SHIFT 12"));
}

#[test]
fn what_happened_is_what_the_model_calls_so() {
    let first = code(CONTENTION, "happened", "happened_holder");
    let parts = codes(CONTENTION, "part", "PART_");
    assert_eq!(parts.len(), 6, "{parts:?}");
    for (part, at) in parts {
        assert_eq!(Happened::from_code(first + at).map(Happened::name), Some(format!("holder-{part}").as_str()));
    }
    let [untimed, stood_for] = contention::NOT_IN_THE_MODEL;
    for (name, code) in codes(CONTENTION, "happened", "HAPPENED_") {
        match name.as_str() {
            "holder" => {}
            "untimed" => assert_eq!(code, untimed),
            "stood_for" => assert_eq!(code, stood_for),
            name => assert_eq!(Happened::from_code(code).map(Happened::name), Some(name.replace('_', "-").as_str())),
        }
    }
}

#[test]
fn states_of_threads_are_those_of_the_model() {
    let states = codes(THREAD_STATE, "state", "STATE_");
    // The first asks for a file; the prefix leaves the number of all out.
    assert_eq!(states.len(), ThreadState::ALL.len() + 1, "{states:?}");
    for (name, code) in states.iter().skip(1) {
        assert_eq!(ThreadState::from_code(*code).map(ThreadState::name), Some(name.replace('_', "-").as_str()));
        // The call has its place above all of them.
        let did = HolderState { state: ThreadState::from_code(*code).unwrap(), call: Some(SystemCall(74)) };
        assert_eq!(crate::thread_states::holder_state_of(u32::from(*code) | 75 << 5), Some(did));
    }
    assert!(THREAD_STATE.contains("#define DID_CALL_SHIFT 5"));
}

#[test]
fn blockers_have_the_same_numbers() {
    let named = contention::BLOCKERS.map(|(name, code)| (name.to_owned(), u8::try_from(code).unwrap()));
    assert_eq!(codes(CONTENTION, "blocker", "BLOCKER_"), named);
}

#[test]
fn losses_come_in_the_same_order() {
    let listed = |header, name, prefix| {
        let codes = codes(header, name, prefix);
        codes.into_iter().map(|(name, _)| name).filter(|name| name != "causes").collect::<Vec<_>>()
    };
    let names = |causes: &[Loss]| causes.iter().map(|loss| loss.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(listed(CONTENTION, "loss", "LOSS_"), names(&contention::LOSS_CAUSES));
    assert_eq!(listed(FUTEX, "loss", "LOSS_"), names(&futex::LOSS_CAUSES));
    assert_eq!(listed(LATENCY, "run_loss", "RUN_LOSS_"), names(&latency::LOSS_CAUSES));
}
