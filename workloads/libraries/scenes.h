/* What the programs of this folder have in common: threads that do one thing until the input ends, which is recognised by a name. */
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

/* So that it has a frame of its own, which a report can name. */
#define APART __attribute__((noinline, noclone))
/* Stands after a call, which then is no jump: its caller stays on the stack. */
#define STAY __asm__ volatile("" ::: "memory")

inline std::atomic<bool> over;

/* Long enough that the others sleep for the lock, whatever they try first. */
inline void hold()
{
	std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

inline void compute(int milliseconds)
{
	auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
	while (std::chrono::steady_clock::now() < until)
		;
}

inline void await_end_of_input()
{
	while (std::getchar() != EOF)
		;
}

/* Has this many threads repeat this until the input ends. */
inline void repeat(int threads, std::function<void()> work)
{
	std::vector<std::thread> all;
	for (int thread = 0; thread < threads; thread++)
		all.emplace_back([&work] {
			while (!over)
				work();
		});
	await_end_of_input();
	over = true;
	for (std::thread &thread : all)
		thread.join();
}

/* The same, beside one thread that repeats something else. */
inline void repeat_beside(std::function<void()> other, int threads, std::function<void()> work)
{
	std::thread beside([&other] {
		while (!over)
			other();
	});
	repeat(threads, work);
	beside.join();
}

/* Until the input ends; for scenes in which threads wait that nobody can end. */
[[noreturn]] inline void until_input_ends()
{
	await_end_of_input();
	std::_Exit(0);
}

struct Scene {
	const char *name;
	void (*play)();
};

template <size_t many> int play(const Scene (&scenes)[many], int arguments, char **argument)
{
	for (const Scene &scene : scenes)
		if (arguments == 2 && !std::strcmp(scene.name, argument[1])) {
			scene.play();
			return 0;
		}
	std::fprintf(stderr, "usage: %s SCENE, one of:", argument[0]);
	for (const Scene &scene : scenes)
		std::fprintf(stderr, " %s", scene.name);
	std::fputc('\n', stderr);
	return 2;
}
