#include "support/typed_shell.h"

#include "device/system/clock.h"

#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

void typed_start(typed_shell *shell, const char *folder, const char *const *command)
{
    struct winsize size = {.ws_row = 50, .ws_col = 2000}; /* no line is wrapped */
    memset(shell, 0, sizeof *shell);
    shell->pid = forkpty(&shell->fd, NULL, NULL, &size);
    assert_true(shell->pid >= 0);
    if (shell->pid == 0) {
        bool good = chdir(folder) == 0 && setenv("HOME", folder, 1) == 0 &&
                    setenv("TERM", "dumb", 1) == 0 && setenv("LC_ALL", "C.UTF-8", 1) == 0 &&
                    setenv("INPUTRC", "/dev/null", 1) == 0 && unsetenv("HISTFILE") == 0;
        if (good) {
            execvp(command[0], (char *const *)(uintptr_t)command);
        }
        _exit(127);
    }
}

void typed_keys(typed_shell *shell, const char *keys)
{
    size_t n = strlen(keys);
    assert_int_equal(write(shell->fd, keys, n), n);
}

/* Append what the shell has written; false if that is nothing. */
static bool read_more(typed_shell *shell, int64_t deadline_us)
{
    char bytes[4096];
    struct pollfd ready = {.fd = shell->fd, .events = POLLIN};
    ssize_t n = poll(&ready, 1, (int)fl_left_ms(deadline_us)) > 0
                    ? read(shell->fd, bytes, sizeof bytes)
                    : 0;
    for (ssize_t i = 0; i < n && shell->n < TYPED_MAX - 1; i++) {
        if (bytes[i] != '\r' && bytes[i] != '\0') {
            shell->seen[shell->n++] = bytes[i];
        }
    }
    shell->seen[shell->n] = '\0';
    return n > 0;
}

void typed_until(typed_shell *shell, const char *text, char said[TYPED_MAX])
{
    int64_t deadline_us = fl_deadline_us(PATIENCE_MS);
    const char *found = NULL;
    while ((found = strstr(shell->seen, text)) == NULL) {
        if (!read_more(shell, deadline_us)) {
            fail_msg("no \"%s\" in what the shell wrote: %s", text, shell->seen);
        }
    }
    size_t end = (size_t)(found - shell->seen) + strlen(text);
    memcpy(said, shell->seen, end);
    said[end] = '\0';
    shell->n -= end;
    memmove(shell->seen, shell->seen + end, shell->n + 1);
}

void typed_end(typed_shell *shell)
{
    kill(-shell->pid, SIGKILL); /* it leads a session of its own */
    close(shell->fd);
    assert_int_equal(waitpid(shell->pid, NULL, 0), shell->pid);
}
