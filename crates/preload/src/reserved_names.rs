//! The names with underscores under which older libraries reach the same functions: glibc keeps them for programs that were
//! linked before 2.34. One lock may be taken by one name and released by the other.

use lockmeter_meter::writer::{kind, mode};

use crate::entry::{interpose, interpose_acquire, interpose_mutex_lock, interpose_mutex_unlock, interpose_release};
use crate::real::slots;
use crate::{mutex, rwlock};

interpose!(__pthread_mutex_init, 2, mutex::init);
interpose!(__pthread_mutex_destroy, 1, mutex::destroy);
interpose_mutex_lock!(__pthread_mutex_lock, mutex::lock, slots::pthread_mutex_lock);
interpose!(__pthread_mutex_trylock, 1, mutex::trylock);
interpose_mutex_unlock!(__pthread_mutex_unlock, mutex::unlock, slots::pthread_mutex_unlock, mutex::unlock_timed);
interpose!(__pthread_rwlock_init, 2, rwlock::init);
interpose!(__pthread_rwlock_destroy, 1, rwlock::destroy);
interpose_acquire!(
    __pthread_rwlock_rdlock,
    kind::RWLOCK,
    mode::READ,
    rwlock::rdlock,
    slots::pthread_rwlock_tryrdlock,
    slots::pthread_rwlock_rdlock,
    rwlock::read_timed,
    28,
    0xff
);
interpose!(__pthread_rwlock_tryrdlock, 1, rwlock::tryrdlock);
interpose_acquire!(
    __pthread_rwlock_wrlock,
    kind::RWLOCK,
    mode::WRITE,
    rwlock::wrlock,
    slots::pthread_rwlock_trywrlock,
    slots::pthread_rwlock_wrlock,
    rwlock::write_timed,
    28,
    0xff
);
interpose!(__pthread_rwlock_trywrlock, 1, rwlock::trywrlock);
interpose_release!(__pthread_rwlock_unlock, kind::RWLOCK, rwlock::unlock, slots::pthread_rwlock_unlock, @ 28, 0xff);
