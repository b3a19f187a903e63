/*
 * runs-commands COMMAND: has libc run it by each of its functions that start a shell, and prints how it ended each time.
 *
 * Exit status: 0 ran, 9 could not do what it was told to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
	FILE *output;
	char line[256];

	if (argc < 2)
		return 9;
	printf("system: %d\n", WEXITSTATUS(system(argv[1])));
	output = popen(argv[1], "r");
	if (!output)
		return 9;
	while (fgets(line, sizeof(line), output))
		fputs(line, stdout);
	printf("popen: %d\n", WEXITSTATUS(pclose(output)));
	return 0;
}
