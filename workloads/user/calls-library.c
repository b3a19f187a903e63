/*
 * Calls the library that it is linked to.
 *
 *     calls-library [wait]
 *
 * With `wait` it begins when standard input ends.
 *
 * Exit status: 7.
 */
#include <stdio.h>

void run_library(void);

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		while (getchar() != EOF)
			;
	run_library();
	return 7;
}
