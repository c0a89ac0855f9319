/* An interactive shell on a terminal of its own, in which a test types. What goes wrong, or takes
 * too long, fails the test. */
#ifndef FL_TESTS_SUPPORT_TYPED_SHELL_H
#define FL_TESTS_SUPPORT_TYPED_SHELL_H

#include <sys/types.h>

enum { TYPED_MAX = 1 << 16 };

typedef struct typed_shell {
    int fd; /* the terminal's other end */
    pid_t pid;
    size_t n;             /* bytes in `seen` */
    char seen[TYPED_MAX]; /* what the shell has written that typed_until has not taken */
} typed_shell;

/* Start `command` (NULL ends it) in `folder`, which is its HOME, too. */
void typed_start(typed_shell *shell, const char *folder, const char *const *command);

/* Type these keys. */
void typed_keys(typed_shell *shell, const char *keys);

/* Read until the shell has written `text`, and take what it has written up to the end of that. A
 * line ends with '\n' alone. */
void typed_until(typed_shell *shell, const char *text, char said[TYPED_MAX]);

/* End the shell and all that it started. */
void typed_end(typed_shell *shell);

#endif
