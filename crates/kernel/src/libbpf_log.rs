//! What libbpf and the verifier say.

/// Set to see what libbpf and the verifier say.
const DEBUG_VARIABLE: &str = "LOCKMETER_DEBUG";

/// What libbpf prints would bury the one sentence that a user needs.
pub fn quiet_libbpf() {
    if std::env::var_os(DEBUG_VARIABLE).is_none() {
        libbpf_rs::set_print(None);
    }
}
