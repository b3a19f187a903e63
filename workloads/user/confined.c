/*
 * Executes a program that must not open any file for writing, by a policy of the kernel's (Landlock) that outlasts the execution: as SELinux
 * and AppArmor confine programs.
 *
 *     confined PROGRAM [ARGUMENT...]
 *
 * Ends with 77 where the kernel has no Landlock.
 */
#include <linux/landlock.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NOT_POSSIBLE_HERE = 77 };

int main(int argc, char **argv)
{
	struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE};
	int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);

	if (argc < 2 || ruleset < 0)
		return NOT_POSSIBLE_HERE;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, ruleset, 0))
		return NOT_POSSIBLE_HERE;
	close(ruleset);
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
