//! Whether the system's policy (SELinux, AppArmor) confines a program, which may keep lockmeter's library from it.
//!
//! What a policy allows in detail is compiled, and not to be read here. So this says only that a program is confined; whether it was metered
//! all the same is seen when it has begun.

use std::fmt;
use std::fs;
use std::path::Path;

/// SELinux domains that are as good as no confinement.
const UNCONFINED: [&str; 4] = ["unconfined_t", "unconfined_service_t", "kernel_t", "sysadm_t"];

/// What confines a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confinement {
    /// An AppArmor profile that is enforced.
    AppArmor {
        /// The profile.
        profile: String,
    },
    /// A domain of SELinux, which is enforced.
    SeLinux {
        /// The domain.
        domain: String,
    },
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AppArmor { profile } => write!(f, "AppArmor's profile {profile}"),
            Self::SeLinux { domain } => write!(f, "SELinux's domain {domain}"),
        }
    }
}

impl Confinement {
    /// How to lift it while a program is metered.
    pub fn how_to_lift(&self) -> String {
        match self {
            Self::AppArmor { profile } => format!("aa-complain {profile}"),
            Self::SeLinux { domain } => format!("semanage permissive -a {domain}"),
        }
    }
}

/// What this system has of policies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Policies {
    /// Whether SELinux is enforced; `None` where there is none.
    pub(crate) is_selinux_enforced: Option<bool>,
    /// How many profiles AppArmor enforces; `None` where there is none, or where they must not be read.
    pub(crate) enforced_profiles: Option<usize>,
    /// What confines this process, and so what it starts, unless that changes.
    pub(crate) own: Option<Confinement>,
}

/// What confines a program with this file when this process starts it, as far as this process may know.
pub fn confinement_of(program: &Path) -> Option<Confinement> {
    confinement_below(Path::new("/"), program)
}

pub(crate) fn policies() -> Policies {
    policies_below(Path::new("/"))
}

fn confinement_below(root: &Path, program: &Path) -> Option<Confinement> {
    let attached = profiles(root).into_iter().flatten().find(|profile| profile.is_enforced && profile.is_for(program));
    let attached = attached.map(|profile| Confinement::AppArmor { profile: profile.name });
    attached.or_else(|| policies_below(root).own)
}

fn policies_below(root: &Path) -> Policies {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let is_selinux_enforced = read("sys/fs/selinux/enforce").map(|enforce| enforce.trim() == "1");
    let own = match is_selinux_enforced {
        Some(true) => read("proc/self/attr/current").and_then(|context| selinux_domain(&context)),
        _ => {
            // Where several modules have attributes, AppArmor's are in a folder of their own.
            let own = read("proc/self/attr/apparmor/current").or_else(|| read("proc/self/attr/current"));
            own.and_then(|label| apparmor_profile(&label))
        }
    };
    let enforced = |profiles: Vec<Profile>| profiles.iter().filter(|profile| profile.is_enforced).count();
    Policies { is_selinux_enforced, enforced_profiles: profiles(root).map(enforced), own }
}

/// The domain of `user:role:domain:level`, if it confines anything.
fn selinux_domain(context: &str) -> Option<Confinement> {
    let domain = context.trim_end_matches(['\0', '\n']).split(':').nth(2)?;
    let is_confined = !domain.is_empty() && !UNCONFINED.contains(&domain);
    is_confined.then(|| Confinement::SeLinux { domain: domain.to_owned() })
}

/// The profile of `PROFILE (enforce)`; none of `unconfined`, and none that only complains.
fn apparmor_profile(label: &str) -> Option<Confinement> {
    let profile = label.trim_end_matches(['\0', '\n']).strip_suffix(" (enforce)")?;
    Some(Confinement::AppArmor { profile: profile.to_owned() })
}

/// A profile that AppArmor has loaded.
#[derive(Debug)]
struct Profile {
    name: String,
    /// A pattern of the paths of the programs that it is for.
    attachment: String,
    is_enforced: bool,
}

impl Profile {
    fn is_for(&self, program: &Path) -> bool {
        program.to_str().is_some_and(|program| matches(self.attachment.as_bytes(), program.as_bytes()))
    }
}

/// `None` where there is no AppArmor, or it must not be looked into.
fn profiles(root: &Path) -> Option<Vec<Profile>> {
    let folders = fs::read_dir(root.join("sys/kernel/security/apparmor/policy/profiles")).ok()?;
    let profile = |folder: &Path| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).map(|text| text.trim_end().to_owned()).ok();
        let is_enforced = read("mode")? == "enforce";
        Some(Profile { name: read("name")?, attachment: read("attach")?, is_enforced })
    };
    Some(folders.flatten().filter_map(|folder| profile(&folder.path())).collect())
}

/// Whether AppArmor takes a path for one of a pattern: `*` and `?` stand for anything but `/`, `**` for that, too, `{a,b}` for either, and
/// `[ab]` for one of these bytes.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let after = |from: usize| pattern.get(from..).unwrap_or_default();
    match pattern {
        [] => path.is_empty(),
        [b'*', b'*', ..] => (0..=path.len()).any(|taken| matches(after(2), &path[taken..])),
        [b'*', ..] => {
            let name = path.iter().take_while(|byte| **byte != b'/').count();
            (0..=name).any(|taken| matches(after(1), &path[taken..]))
        }
        [b'?', ..] => path.first().is_some_and(|byte| *byte != b'/') && matches(after(1), &path[1..]),
        [b'[', ..] => match (pattern.iter().position(|byte| *byte == b']'), path.first()) {
            (Some(end), Some(byte)) => pattern[1..end].contains(byte) && matches(after(end + 1), &path[1..]),
            _ => false,
        },
        [b'{', ..] => match closing(pattern) {
            Some(end) => alternatives(&pattern[1..end]).into_iter().any(|alternative| {
                let instead = [alternative, after(end + 1)].concat();
                matches(&instead, path)
            }),
            None => false,
        },
        [b'\\', byte, ..] => path.first() == Some(byte) && matches(after(2), &path[1..]),
        [byte, ..] => path.first() == Some(byte) && matches(after(1), &path[1..]),
    }
}

/// Where the brace is that closes the one at the begin.
fn closing(pattern: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    pattern.iter().position(|byte| {
        depth = match byte {
            b'{' => depth + 1,
            b'}' => depth.saturating_sub(1),
            _ => depth,
        };
        depth == 0
    })
}

/// What stands between the commas, but for those inside inner braces.
fn alternatives(inside: &[u8]) -> Vec<&[u8]> {
    let mut depth = 0_usize;
    inside
        .split(|byte| {
            depth = match byte {
                b'{' => depth + 1,
                b'}' => depth.saturating_sub(1),
                _ => depth,
            };
            *byte == b',' && depth == 0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path: PathBuf = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn own(files: &[(&str, &str)]) -> Option<String> {
        policies_below(system(files).path()).own.map(|own| own.to_string())
    }

    #[test]
    fn a_process_is_confined_by_what_is_enforced_alone() {
        let current = "proc/self/attr/current";
        assert_eq!(own(&[(current, "/usr/bin/man (enforce)\n")]).as_deref(), Some("AppArmor's profile /usr/bin/man"));
        assert_eq!(own(&[(current, "unconfined\n")]), None);
        assert_eq!(own(&[(current, "/usr/bin/man (complain)\n")]), None);
        assert_eq!(own(&[]), None);
        let enforce = ("sys/fs/selinux/enforce", "1");
        let of = |domain: &str| format!("system_u:system_r:{domain}:s0-s0:c0.c1023\0");
        assert_eq!(own(&[enforce, (current, &of("httpd_t"))]).as_deref(), Some("SELinux's domain httpd_t"));
        assert_eq!(own(&[enforce, (current, &of("unconfined_t"))]), None);
        assert_eq!(own(&[("sys/fs/selinux/enforce", "0"), (current, &of("httpd_t"))]), None, "only warned of");
        // With several modules, `current` may be that of another than AppArmor.
        let both = [("proc/self/attr/apparmor/current", "cups (enforce)\n"), (current, "_\n")];
        assert_eq!(own(&both).as_deref(), Some("AppArmor's profile cups"));
    }

    #[test]
    fn a_program_is_confined_by_the_profile_for_its_path() {
        let root = system(&[
            ("sys/kernel/security/apparmor/policy/profiles/mariadbd.1/name", "mariadbd\n"),
            (
                "sys/kernel/security/apparmor/policy/profiles/mariadbd.1/attach",
                "/usr/{,local/}sbin/{mysqld,mariadbd}\n",
            ),
            ("sys/kernel/security/apparmor/policy/profiles/mariadbd.1/mode", "enforce\n"),
            ("sys/kernel/security/apparmor/policy/profiles/tried.2/name", "tried\n"),
            ("sys/kernel/security/apparmor/policy/profiles/tried.2/attach", "/usr/bin/tried\n"),
            ("sys/kernel/security/apparmor/policy/profiles/tried.2/mode", "complain\n"),
        ]);
        let of =
            |path: &str| confinement_below(root.path(), Path::new(path)).map(|confinement| confinement.to_string());
        assert_eq!(of("/usr/local/sbin/mysqld").as_deref(), Some("AppArmor's profile mariadbd"));
        assert_eq!(of("/usr/sbin/mariadbd").as_deref(), Some("AppArmor's profile mariadbd"));
        assert_eq!(of("/usr/bin/mysqld"), None);
        assert_eq!(of("/usr/bin/tried"), None, "only complained of");
        assert_eq!(policies_below(root.path()).enforced_profiles, Some(1));
    }

    #[test]
    fn patterns_match_as_apparmors_do() {
        for (pattern, path, is_match) in [
            ("/usr/bin/*", "/usr/bin/man", true),
            ("/usr/bin/*", "/usr/bin/x/man", false),
            ("/usr/**", "/usr/bin/x/man", true),
            ("/usr/bin/m?n", "/usr/bin/man", true),
            ("/usr/bin/m?n", "/usr/bin/m/n", false),
            ("/usr/bin/m[ae]n", "/usr/bin/men", true),
            ("/usr/bin/m[ae]n", "/usr/bin/min", false),
            ("/{a,b{c,d}}/e", "/bd/e", true),
            ("/{a,b{c,d}}/e", "/b/e", false),
            (r"/a\*b", "/a*b", true),
            (r"/a\*b", "/acb", false),
            ("/{a", "/a", false),
            ("", "/a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), is_match, "{pattern} {path}");
        }
    }

    /// Where the machine confines anything, what it says is understood.
    #[test]
    fn this_machines_policies_are_understood() {
        let policies = policies();
        if policies.is_selinux_enforced.is_none() && policies.enforced_profiles.is_none() {
            eprintln!("SKIPPED: policies of a real machine: it has neither SELinux nor AppArmor");
            return;
        }
        let label = fs::read_to_string("/proc/self/attr/current").unwrap();
        let is_enforced = label.contains("(enforce)") || policies.is_selinux_enforced == Some(true);
        assert!(is_enforced || policies.own.is_none(), "{label:?} {policies:?}");
    }
}
