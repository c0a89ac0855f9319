#include "support/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
    perror(what);
    abort();
}

static void exec_command(const char *folder, const char *command, const int out[2],
                         const int err[2])
{
    int in = open("/dev/null", O_RDONLY);
    bool good = in >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0 &&
                dup2(err[1], STDERR_FILENO) >= 0 && (folder == NULL || chdir(folder) == 0);
    if (good) {
        close(in);
        close(out[0]);
        close(out[1]);
        close(err[0]);
        close(err[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    }
    _exit(127);
}

/* Append what can be read; false at the end. */
static bool drain(int fd, char *text, size_t *used)
{
    char rest[4096];
    bool full = *used >= OUTPUT_MAX - 1;
    ssize_t n = full ? read(fd, rest, sizeof rest) : read(fd, text + *used, OUTPUT_MAX - 1 - *used);
    if (n > 0 && !full) {
        *used += (size_t)n;
        text[*used] = '\0';
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

static void catch (int out, int err, output *result)
{
    size_t n_out = 0, n_err = 0;
    struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            die("poll");
        }
        if (fds[0].fd >= 0 && fds[0].revents != 0 && !drain(out, result->out, &n_out)) {
            fds[0].fd = -1;
        }
        if (fds[1].fd >= 0 && fds[1].revents != 0 && !drain(err, result->err, &n_err)) {
            fds[1].fd = -1;
        }
    }
}

/* Remove what a run says of other runs on this machine: they may be other tests'. */
static void drop_lines_about_others(char *text)
{
    static const char about[] = " processors that this run uses are another run's, too\n";
    for (char *found; (found = strstr(text, about)) != NULL;) {
        char *line = found;
        while (line > text && line[-1] != '\n') {
            line--;
        }
        const char *rest = found + sizeof about - 1;
        memmove(line, rest, strlen(rest) + 1);
    }
}

void run_command(const char *folder, const char *command, output *result)
{
    int out[2], err[2], status = 0;
    memset(result, 0, sizeof *result);
    if (pipe(out) != 0 || pipe(err) != 0) {
        die("pipe");
    }
    pid_t child = fork();
    if (child < 0) {
        die("fork");
    }
    if (child == 0) {
        exec_command(folder, command, out, err);
    }
    close(out[1]);
    close(err[1]);
    catch (out[0], err[0], result);
    close(out[0]);
    close(err[0]);
    drop_lines_about_others(result->out);
    drop_lines_about_others(result->err);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    result->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

char *fresh_folder(const char *parent)
{
    char *path = NULL;
    if (asprintf(&path, "%s/test-XXXXXX", parent) < 0 || mkdtemp(path) == NULL) {
        die("mkdtemp");
    }
    return path;
}
