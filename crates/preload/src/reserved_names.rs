//! The names with underscores under which older libraries reach the same functions: glibc keeps them for programs that were
//! linked before 2.34. One lock may be taken by one name and released by the other.

use lockmeter_meter::writer::{kind, mode};

use crate::entry::{
    interpose, interpose_acquire, interpose_mutex_lock, interpose_mutex_unlock, interpose_release_with_mode,
};
use crate::real::slots;
use crate::{mutex, rwlock};

interpose!(__pthread_mutex_init, 2, mutex::init);
interpose!(__pthread_mutex_destroy, 1, mutex::destroy);
interpose_mutex_lock!(__pthread_mutex_lock, slow: mutex::lock, real: slots::pthread_mutex_lock);
interpose!(__pthread_mutex_trylock, 1, mutex::trylock);
interpose_mutex_unlock!(
    __pthread_mutex_unlock,
    slow: mutex::unlock,
    real: slots::pthread_mutex_unlock,
    timed: mutex::unlock_timed,
);
interpose!(__pthread_rwlock_init, 2, rwlock::init);
interpose!(__pthread_rwlock_destroy, 1, rwlock::destroy);
interpose_acquire!(
    __pthread_rwlock_rdlock,
    kind: kind::RWLOCK,
    mode: mode::READ,
    slow: rwlock::rdlock,
    try_it: slots::pthread_rwlock_tryrdlock,
    real: slots::pthread_rwlock_rdlock,
    timed: rwlock::read_timed,
    special_byte: rwlock::SHARED_AT,
    special_bits: u8::MAX,
);
interpose!(__pthread_rwlock_tryrdlock, 1, rwlock::tryrdlock);
interpose_acquire!(
    __pthread_rwlock_wrlock,
    kind: kind::RWLOCK,
    mode: mode::WRITE,
    slow: rwlock::wrlock,
    try_it: slots::pthread_rwlock_trywrlock,
    real: slots::pthread_rwlock_wrlock,
    timed: rwlock::write_timed,
    special_byte: rwlock::SHARED_AT,
    special_bits: u8::MAX,
);
interpose!(__pthread_rwlock_trywrlock, 1, rwlock::trywrlock);
interpose_release_with_mode!(
    __pthread_rwlock_unlock,
    slow: rwlock::unlock,
    real: slots::pthread_rwlock_unlock,
    special_byte: rwlock::SHARED_AT,
    special_bits: u8::MAX,
);
