// absl::Mutex behind C functions, for the bench.
#include <absl/synchronization/mutex.h>
#include <new>

extern "C" {

size_t bench_abseil_size() { return sizeof(absl::Mutex); }
void bench_abseil_init(void *at) { new (at) absl::Mutex; }
void bench_abseil_lock(void *mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS { static_cast<absl::Mutex *>(mutex)->Lock(); }
void bench_abseil_unlock(void *mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS { static_cast<absl::Mutex *>(mutex)->Unlock(); }
void bench_abseil_read_lock(void *mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static_cast<absl::Mutex *>(mutex)->ReaderLock();
}
void bench_abseil_read_unlock(void *mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static_cast<absl::Mutex *>(mutex)->ReaderUnlock();
}
}
