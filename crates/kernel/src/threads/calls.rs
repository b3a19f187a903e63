//! What a thread that sleeps in a system call waits for, by the call: the one list of reasons.
//!
//! For a call that reads or writes, the kind of file decides. A call that is not listed counts as `other`.

use lockmeter_profile::ThreadState;

/// As many as the programs tell apart, `CALLS` in `tables.h`.
pub const CALLS: usize = 512;

/// `STATE_BY_FILE` in `tables.h`.
pub const BY_FILE: u8 = 0;

/// Calls that read or write whatever their first argument is.
const ON_ANY_FILE: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
];

const REASONS: &[(ThreadState, &[libc::c_long])] = &[
    (ThreadState::Futex, &[libc::SYS_futex, libc::SYS_futex_waitv, 455]),
    (
        ThreadState::Condition,
        &[
            libc::SYS_semop,
            libc::SYS_semtimedop,
            libc::SYS_msgsnd,
            libc::SYS_msgrcv,
            libc::SYS_mq_timedsend,
            libc::SYS_mq_timedreceive,
        ],
    ),
    (ThreadState::FileLock, &[libc::SYS_flock, libc::SYS_fcntl]),
    (
        ThreadState::DiskIo,
        &[
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_sync,
            libc::SYS_syncfs,
            libc::SYS_sync_file_range,
            libc::SYS_msync,
            libc::SYS_io_getevents,
            libc::SYS_io_submit,
            libc::SYS_open,
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_creat,
            libc::SYS_stat,
            libc::SYS_lstat,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_access,
            libc::SYS_faccessat,
            libc::SYS_getdents,
            libc::SYS_getdents64,
            libc::SYS_mkdir,
            libc::SYS_mkdirat,
            libc::SYS_rmdir,
            libc::SYS_unlink,
            libc::SYS_unlinkat,
            libc::SYS_rename,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_link,
            libc::SYS_linkat,
            libc::SYS_symlink,
            libc::SYS_readlink,
            libc::SYS_readlinkat,
            libc::SYS_truncate,
            libc::SYS_ftruncate,
            libc::SYS_fallocate,
            libc::SYS_sendfile,
            libc::SYS_readahead,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_execve,
            libc::SYS_execveat,
        ],
    ),
    (
        ThreadState::NetworkOrPoll,
        &[
            libc::SYS_poll,
            libc::SYS_ppoll,
            libc::SYS_select,
            libc::SYS_pselect6,
            libc::SYS_epoll_wait,
            libc::SYS_epoll_pwait,
            libc::SYS_epoll_pwait2,
            libc::SYS_io_uring_enter,
        ],
    ),
    (
        ThreadState::Sleep,
        &[
            libc::SYS_nanosleep,
            libc::SYS_clock_nanosleep,
            libc::SYS_pause,
            libc::SYS_rt_sigsuspend,
            libc::SYS_rt_sigtimedwait,
        ],
    ),
    (ThreadState::Child, &[libc::SYS_wait4, libc::SYS_waitid, libc::SYS_vfork]),
];

/// What each system call's sleep counts as.
pub fn states() -> [u8; CALLS] {
    let mut states = [ThreadState::Other.code(); CALLS];
    let mut tell = |call: libc::c_long, state: u8| {
        if let Some(entry) = usize::try_from(call).ok().and_then(|call| states.get_mut(call)) {
            *entry = state;
        }
    };
    ON_ANY_FILE.iter().for_each(|call| tell(*call, BY_FILE));
    for (state, calls) in REASONS {
        calls.iter().for_each(|call| tell(*call, state.code()));
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_listed_once() {
        let mut listed: Vec<_> = ON_ANY_FILE.iter().chain(REASONS.iter().flat_map(|(_, calls)| *calls)).collect();
        let all = listed.len();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), all);
        let states = states();
        assert_eq!(states[libc::SYS_futex as usize], ThreadState::Futex.code());
        assert_eq!(states[libc::SYS_read as usize], BY_FILE);
        assert_eq!(states[libc::SYS_getpid as usize], ThreadState::Other.code());
    }
}
