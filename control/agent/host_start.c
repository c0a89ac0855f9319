#include "control/agent/host_start.h"

#include <errno.h>
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
                           char text[FL_HOST_COMMAND_MAX])
{
    text_writer w = {.text = text, .size_bytes = FL_HOST_COMMAND_MAX};
    char key[PATH_MAX + sizeof "/" FL_HOSTS_KEY_FILE];
    snprintf(key, sizeof key, "%s/" FL_HOSTS_KEY_FILE, run_dir);
    put_text(&w, "exec");
    put_word(&w, program);
    put_text(&w, " agent --join");
    put_word(&w, hosts->agents);
    put_text(&w, " --key");
    put_word(&w, key);
    put_text(&w, " --name");
    put_word(&w, hosts->host[i].name);
    bool fits = w.used < FL_HOST_COMMAND_MAX;
    text[fits ? w.used : FL_HOST_COMMAND_MAX - 1] = '\0';
    return fits;
}

/* ---- the process ---- */

/* Ctrl-C at the terminal is for the controller: ssh gets a session of its own. Nothing that the
 * run has open stays open in it. */
static _Noreturn void become_ssh(const char *address, const char *command, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (getppid() == parent && setsid() >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
        (void)close_range(STDERR_FILENO + 1, ~0U, 0);
        execlp("ssh", "ssh", "-o", "BatchMode=yes", address, command, (char *)NULL);
    }
    _exit(CANNOT_EXECUTE);
}

pid_t fl_host_start(const fl_hosts *hosts, int i, const char *run_dir)
{
    char program[PATH_MAX], command[FL_HOST_COMMAND_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) {
        return -1;
    }
    program[n] = '\0';
    if (!fl_host_start_command(hosts, i, program, run_dir, command)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        become_ssh(hosts->ssh[i], command, self);
    }
    return pid;
}
