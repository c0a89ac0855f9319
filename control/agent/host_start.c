#include "control/agent/host_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CANNOT_EXECUTE = 127 };

/* ---- the command ---- */

typedef struct text_writer {
    char *text;
    size_t used, size_bytes;
} text_writer;

static void put_char(text_writer *w, char c)
{
    if (w->used + 1 < w->size_bytes) {
        w->text[w->used] = c;
    }
    w->used++;
}

static void put_text(text_writer *w, const char *text)
{
    for (; *text != '\0'; text++) {
        put_char(w, *text);
    }
}

/* In single quotes; one in the word becomes '\''. */
static void put_word(text_writer *w, const char *word)
{
    put_text(w, " '");
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            put_text(w, "'\\''");
        } else {
            put_char(w, *word);
        }
    }
    put_char(w, '\'');
}

bool fl_host_start_command(const fl_hosts *hosts, int i, const char *program, const char *run_dir,
                           const char *cwd, char text[FL_HOST_COMMAND_MAX])
{
    text_writer w = {.text = text, .size_bytes = FL_HOST_COMMAND_MAX};
    char key[PATH_MAX + sizeof "/" FL_HOSTS_KEY_FILE];
    snprintf(key, sizeof key, "%s/" FL_HOSTS_KEY_FILE, run_dir);
    if (hosts->apart && cwd != NULL) { /* its paths are relative to it, where the host has it */
        put_text(&w, "cd");
        put_word(&w, cwd);
        put_text(&w, " 2>/dev/null; ");
    }
    put_text(&w, "exec");
    put_word(&w, program);
    put_text(&w, " agent --join");
    put_word(&w, hosts->agents);
    put_text(&w, " --key");
    put_word(&w, hosts->apart ? "-" : key);
    put_text(&w, " --name");
    put_word(&w, hosts->host[i].name);
    bool fits = w.used < FL_HOST_COMMAND_MAX;
    text[fits ? w.used : FL_HOST_COMMAND_MAX - 1] = '\0';
    return fits;
}

/* ---- the process ---- */

/* Ctrl-C at the terminal is for the controller: ssh gets a session of its own. Nothing that the
 * run has open stays open in it. */
static _Noreturn void become_ssh(const char *address, const char *command, int input, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (input >= 0 && dup2(input, STDIN_FILENO) < 0) {
        _exit(CANNOT_EXECUTE);
    }
    if (getppid() == parent && setsid() >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
        (void)close_range(STDERR_FILENO + 1, ~0U, 0);
        execlp("ssh", "ssh", "-o", "BatchMode=yes", address, command, (char *)NULL);
    }
    _exit(CANNOT_EXECUTE);
}

/* The reading end of a pipe that has the keys in it: no file of the host has them. -1, with errno.
 */
static int pass_keys(const fl_hosts *hosts)
{
    int ends[2];
    char text[2 * FL_CURVE_KEY + 3];
    int n = snprintf(text, sizeof text, "%s\n%s\n", hosts->keys.server, hosts->keys.secret);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    bool good = write(ends[1], text, (size_t)n) == n; /* a pipe takes that many at once */
    explicit_bzero(text, sizeof text);
    close(ends[1]);
    if (!good) {
        close(ends[0]);
        return -1;
    }
    return ends[0];
}

pid_t fl_host_start(const fl_hosts *hosts, int i, const char *run_dir)
{
    char program[PATH_MAX], cwd[PATH_MAX], command[FL_HOST_COMMAND_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) {
        return -1;
    }
    program[n] = '\0';
    bool has_cwd = getcwd(cwd, sizeof cwd) != NULL;
    if (!fl_host_start_command(hosts, i, program, run_dir, has_cwd ? cwd : NULL, command)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int keys = hosts->apart ? pass_keys(hosts) : -1;
    if (hosts->apart && keys < 0) {
        return -1;
    }
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        become_ssh(hosts->ssh[i], command, keys, self);
    }
    if (keys >= 0) {
        close(keys);
    }
    return pid;
}
