#include "control/agent/host_start.h"

#include "device/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_EXECUTE = 127, SSH_FAILED = 255 /* and not what it has started */, TURN_MS = 20 };

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
static _Noreturn void become_ssh(const char *address, const char *command, int input, int output,
                                 pid_t parent)
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
    if (getppid() == parent && setsid() >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
        dup2(output, STDERR_FILENO) >= 0) {
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

static bool fork_ssh(const char *address, const char *command, int keys, fl_host_starter *out)
{
    int ends[2];
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    fflush(NULL);
    *out = (fl_host_starter){.pid = fork(), .said_fd = fcntl(ends[0], F_DUPFD_CLOEXEC, 3)};
    if (out->pid == 0) {
        become_ssh(address, command, keys, ends[1], self);
    }
    int error = errno;
    close(ends[0]);
    close(ends[1]);
    (void)fcntl(out->said_fd, F_SETFL, O_NONBLOCK);
    errno = error;
    return out->pid > 0;
}

bool fl_host_start(const fl_hosts *hosts, int i, const char *run_dir, fl_host_starter *out)
{
    char program[PATH_MAX], cwd[PATH_MAX], command[FL_HOST_COMMAND_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) {
        return false;
    }
    program[n] = '\0';
    bool has_cwd = getcwd(cwd, sizeof cwd) != NULL;
    if (!fl_host_start_command(hosts, i, program, run_dir, has_cwd ? cwd : NULL, command)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int keys = hosts->apart ? pass_keys(hosts) : -1;
    if (hosts->apart && keys < 0) {
        return false;
    }
    bool good = fork_ssh(hosts->ssh[i], command, keys, out);
    if (keys >= 0) {
        close(keys);
    }
    return good;
}

/* ---- what it says ---- */

/* A word that no terminal obeys, of the last line that is not empty. */
static void keep_line(fl_host_starter *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == '\r') {
            s->whole = true;
            continue;
        }
        if (s->whole) {
            s->whole = false;
            s->n_line = 0;
        }
        if (s->n_line < FL_HOST_SAID_MAX) {
            s->line[s->n_line++] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
        }
        s->line[s->n_line] = '\0';
    }
}

void fl_host_starter_read(fl_host_starter *s, bool shows)
{
    char text[4096];
    ssize_t n = 1;
    while (s->said_fd > 0 && n > 0) {
        n = read(s->said_fd, text, sizeof text);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            close(s->said_fd);
            s->said_fd = 0;
            return;
        }
        keep_line(s, text, (size_t)n);
        if (shows) {
            (void)!write(STDERR_FILENO, text, (size_t)n);
        }
    }
}

bool fl_host_starter_ended(fl_host_starter *s, const char *address, bool shows, char *why)
{
    int how = 0;
    if (s->pid <= 0 || waitpid(s->pid, &how, WNOHANG) != s->pid) {
        return false;
    }
    s->pid = 0;
    fl_host_starter_read(s, shows);
    bool is_killed = WIFSIGNALED(how);
    int code = is_killed ? WTERMSIG(how) : WEXITSTATUS(how);
    snprintf(why, FL_HOST_STARTER_WHY, "ssh, which was to start its agent, ended with %s %d%s%s%s",
             is_killed ? "signal" : "exit code", code, s->n_line > 0 ? ": \"" : "", s->line,
             s->n_line > 0 ? "\"" : "");
    size_t n = strlen(why);
    if (code == SSH_FAILED) {
        snprintf(why + n, FL_HOST_STARTER_WHY - n, "; try: ssh -o BatchMode=yes %s true", address);
    } else if (code == CANNOT_EXECUTE) {
        snprintf(why + n, FL_HOST_STARTER_WHY - n,
                 "; frostline must be there by the path that it has here");
    }
    return true;
}

void fl_host_starter_close(fl_host_starter *s, int64_t wait_ms, bool shows)
{
    int64_t until_us = fl_deadline_us(wait_ms);
    bool is_held = s->pid <= 0;
    while (!is_held && fl_left_ms(until_us) > 0) {
        struct pollfd item = {.fd = s->said_fd > 0 ? s->said_fd : -1, .events = POLLIN};
        poll(&item, 1, TURN_MS);
        fl_host_starter_read(s, shows);
        is_held = waitpid(s->pid, NULL, WNOHANG) == s->pid;
    }
    if (!is_held) {
        kill(s->pid, SIGTERM);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    fl_host_starter_read(s, shows);
    if (s->said_fd > 0) {
        close(s->said_fd);
    }
    *s = (fl_host_starter){.pid = 0};
}
