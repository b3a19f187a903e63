//! The names with underscores under which older libraries reach the same functions: glibc keeps them for programs that were
//! linked before 2.34. One lock may be taken by one name and released by the other.

use crate::entry::interpose;
use crate::{mutex, rwlock};

interpose!(__pthread_mutex_init, 2, mutex::init);
interpose!(__pthread_mutex_destroy, 1, mutex::destroy);
interpose!(__pthread_mutex_lock, 1, mutex::lock);
interpose!(__pthread_mutex_trylock, 1, mutex::trylock);
interpose!(__pthread_mutex_unlock, 1, mutex::unlock);
interpose!(__pthread_rwlock_init, 2, rwlock::init);
interpose!(__pthread_rwlock_destroy, 1, rwlock::destroy);
interpose!(__pthread_rwlock_rdlock, 1, rwlock::rdlock);
interpose!(__pthread_rwlock_tryrdlock, 1, rwlock::tryrdlock);
interpose!(__pthread_rwlock_wrlock, 1, rwlock::wrlock);
interpose!(__pthread_rwlock_trywrlock, 1, rwlock::trywrlock);
interpose!(__pthread_rwlock_unlock, 1, rwlock::unlock);
