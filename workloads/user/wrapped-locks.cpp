/*
 * Locks on the heap as C++ programs have them: two in a class that wraps pthread's, a std::mutex that nobody initialises by a call,
 * and a reader-writer lock that is made of a condition variable.  Each is held for 2 ms at a time by each of two threads.
 */
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

/* Whom the threads wait for before each kind of work: else the one may be done with it before the other begins. */
static pthread_barrier_t both;

static void work()
{
	std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/* Lets the other thread have the lock: glibc's mutexes are not fair. */
static void let_others()
{
	std::this_thread::sleep_for(std::chrono::microseconds(500));
}

class Mutex
{
      public:
	__attribute__((noinline)) Mutex()
	{
		pthread_mutex_init(&mutex, nullptr);
	}
	__attribute__((noinline)) void Lock()
	{
		pthread_mutex_lock(&mutex);
	}
	__attribute__((noinline)) void Unlock()
	{
		pthread_mutex_unlock(&mutex);
	}

      private:
	pthread_mutex_t mutex;
};

class ExclusiveLock
{
      public:
	__attribute__((noinline)) void lock()
	{
		std::unique_lock<std::mutex> inner(mutex);
		while (taken)
			freed.wait(inner);
		taken = true;
	}
	__attribute__((noinline)) void unlock()
	{
		std::unique_lock<std::mutex> inner(mutex);
		taken = false;
		freed.notify_one();
	}

      private:
	std::mutex mutex;
	std::condition_variable freed;
	bool taken = false;
};

struct Pool {
	__attribute__((noinline)) Pool() : mutex(std::make_unique<Mutex>())
	{
	}
	__attribute__((noinline)) void take()
	{
		mutex->Lock();
		work();
		mutex->Unlock();
	}
	std::unique_ptr<Mutex> mutex;
};

/* Its lock is made by the same call as the pool's. */
struct Cache {
	__attribute__((noinline)) Cache() : mutex(std::make_unique<Mutex>())
	{
	}
	__attribute__((noinline)) void look()
	{
		mutex->Lock();
		work();
		mutex->Unlock();
	}
	std::unique_ptr<Mutex> mutex;
};

struct Account {
	__attribute__((noinline)) void deposit()
	{
		std::lock_guard<std::mutex> guard(mutex);
		work();
	}
	std::mutex mutex;
};

struct Journal {
	__attribute__((noinline)) void append()
	{
		lock.lock();
		work();
		lock.unlock();
	}
	ExclusiveLock lock;
};

struct Server {
	__attribute__((noinline)) Server()
	    : pool(std::make_unique<Pool>()), cache(std::make_unique<Cache>()), account(std::make_unique<Account>()),
	      journal(std::make_unique<Journal>())
	{
	}
	__attribute__((noinline)) void serve()
	{
		pthread_barrier_wait(&both);
		for (int i = 0; i < 20; i++) {
			pool->take();
			let_others();
		}
		pthread_barrier_wait(&both);
		for (int i = 0; i < 20; i++) {
			cache->look();
			let_others();
		}
		pthread_barrier_wait(&both);
		for (int i = 0; i < 20; i++) {
			account->deposit();
			let_others();
		}
		pthread_barrier_wait(&both);
		for (int i = 0; i < 20; i++) {
			journal->append();
			let_others();
		}
	}
	std::unique_ptr<Pool> pool;
	std::unique_ptr<Cache> cache;
	std::unique_ptr<Account> account;
	std::unique_ptr<Journal> journal;
};

int main()
{
	pthread_barrier_init(&both, nullptr, 2);

	auto server = std::make_unique<Server>();
	std::thread other([&] { server->serve(); });

	server->serve();
	other.join();
	return 0;
}
