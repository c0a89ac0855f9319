#include "control/agent/join/host_start.h"

#include "control/agent/join/awaited.h"
#include "control/agent/wire/host_wire.h"
#include "device/system/child.h"
#include "device/system/clock.h"
#include "device/system/program.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CANNOT_EXECUTE = 127,
    SSH_FAILED = 255 /* and not what it has started */,
    TURN_MS = 20,
    KILL_MS = 1000,
    RUN_BYTES = 1024, /* of a path in a command that is printed; "..." stands for a longer one */
    COMMANDS_BYTES = 2800 /* of all such commands: a line of the log has 4096 */
};

/* ---- the command ---- */

bool fl_host_start_command(const fl_hosts *hosts, int i, const char *program, const char *run_dir,
                           const char *cwd, char text[FL_HOST_COMMAND_MAX])
{
    fl_shell_text w = {.text = text, .size_bytes = FL_HOST_COMMAND_MAX};
    char key[PATH_MAX + sizeof "/" FL_HOSTS_KEY_FILE];
    snprintf(key, sizeof key, "%s/" FL_HOSTS_KEY_FILE, run_dir);
    if (hosts->apart && cwd != NULL) { /* its paths are relative to it, where the host has it */
        fl_shell_text_cd(&w, cwd);
    }
    fl_shell_text_put(&w, "exec");
    fl_shell_text_word(&w, program);
    fl_shell_text_put(&w, " agent --join");
    fl_shell_text_word(&w, hosts->agents);
    fl_shell_text_put(&w, " --key");
    fl_shell_text_word(&w, hosts->apart ? "-" : key);
    fl_shell_text_put(&w, " --name");
    fl_shell_text_word(&w, hosts->host[i].name);
    fl_shell_text_put(&w, " --until-eof");
    return fl_shell_text_end(&w);
}

/* A line for each of them: the command that starts its agent. False if they do not fit. */
static bool put_commands(const fl_hosts *hosts, const bool *awaited, const char *start, char *text,
                         size_t size_bytes)
{
    size_t used = 0;
    for (int i = 1; i < hosts->n && used < size_bytes; i++) {
        if (awaited[i]) {
            used += (size_t)snprintf(text + used, size_bytes - used, "\n%s --name %s", start,
                                     hosts->host[i].name);
        }
    }
    return used < size_bytes;
}

/* ": " and, each in a line of its own as a user pastes it, the commands; where these are too long,
 * the one in which the hostname is the name. */
static void put_start(const fl_hosts *hosts, const bool *awaited, int n, const char *program,
                      const char *run_dir, char *text)
{
    char run[RUN_BYTES], agents[4 * FL_HOSTS_ENDPOINT_MAX], start[COMMANDS_BYTES];
    char commands[COMMANDS_BYTES], folder[PATH_MAX];
    snprintf(start, sizeof start, "%s agent --join %s --key %s/" FL_HOSTS_KEY_FILE, program,
             fl_shell_shown(hosts->agents, agents, sizeof agents),
             fl_shell_shown(fl_hosts_key_folder(hosts, run_dir, folder), run, sizeof run));
    if (put_commands(hosts, awaited, start, commands, sizeof commands)) {
        snprintf(text, FL_HOST_AWAITED_TEXT, "; %s starts the agent:%s",
                 n == 1 ? "there, this command" : "on each of them, its command", commands);
    } else {
        snprintf(text, FL_HOST_AWAITED_TEXT,
                 "; on each of them, this command starts the agent, with --name NAME where the "
                 "hostname is another one:\n%s",
                 start);
    }
}

const char *fl_host_start_awaited(const fl_hosts *hosts, const char *program, const char *run_dir,
                                  int64_t limit_ms, char text[FL_HOST_AWAITED_TEXT])
{
    char others[FL_COUNT_BYTES], names[FL_AWAITED_TEXT], start[FL_HOST_AWAITED_TEXT] = "";
    const char *how = ", whose agents ssh starts";
    bool awaited[FL_MAX_WORKERS] = {false};
    int n = 0;
    for (int i = 1; i < hosts->n; i++) {
        awaited[i] = !hosts->host[i].absent;
        n += awaited[i];
    }
    if (hosts->again) {
        how = " to join again";
    } else if (program == NULL) {
        how = ", whose agents have been measured";
    } else if (hosts->meeting[0] != '\0') {
        how = ", the other tasks of this start";
    } else if (!hosts->by_ssh) {
        how = "";
        put_start(hosts, awaited, n, program, run_dir, start);
    }
    snprintf(text, FL_HOST_AWAITED_TEXT, "waits for %s%s, %lld s at most: %s%.2800s",
             fl_count(n, "other host", others), how, (long long)limit_ms / 1000,
             fl_awaited_names(hosts, awaited, names), start);
    return text;
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
    if (getppid() == parent && setsid() >= 0 && dup2(input, STDIN_FILENO) >= 0 &&
        dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0) {
        (void)close_range(STDERR_FILENO + 1, ~0U, 0);
        execlp("ssh", "ssh", "-o", "BatchMode=yes", address, command, (char *)NULL);
    }
    _exit(CANNOT_EXECUTE);
}

/* A pipe for standard input, with the keys in it where no file of the host has them, else with an
 * empty line: the agent then knows that its end is that of ssh. False, with errno. */
static bool make_input(const fl_hosts *hosts, int ends[2])
{
    char text[2 * FL_CURVE_KEY + 3] = "\n";
    if (hosts->apart) {
        snprintf(text, sizeof text, "%s\n%s\n", hosts->keys.server, hosts->keys.secret);
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    size_t n = strlen(text);
    bool good = write(ends[1], text, n) == (ssize_t)n; /* a pipe takes that many at once */
    explicit_bzero(text, sizeof text);
    if (!good) {
        close(ends[0]);
        close(ends[1]);
    }
    return good;
}

/* A starter without a process is all zeros, so descriptor 0 is not used. */
static int move_up(int fd)
{
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int error = errno;
    close(fd);
    errno = error;
    return moved;
}

/* In the parent. False, with errno: it is not known when it ends, and it was ended. */
static bool keep_ssh(pid_t pid, int input, int said, fl_host_starter *out)
{
    int ended = pidfd_open(pid, 0);
    *out = (fl_host_starter){.pid = pid,
                             .input_fd = move_up(input),
                             .said_fd = move_up(said),
                             .ended_fd = ended < 0 ? ended : move_up(ended)};
    if (out->input_fd > 0 && out->said_fd > 0 && out->ended_fd > 0) {
        (void)fcntl(out->said_fd, F_SETFL, O_NONBLOCK);
        return true;
    }
    int error = errno;
    kill(pid, SIGKILL);
    (void)fl_child_reap(pid, KILL_MS, NULL);
    out->pid = 0;
    fl_host_starter_forget(out);
    errno = error;
    return false;
}

/* input: both ends, which are closed. */
static bool fork_ssh(const char *address, const char *command, const int input[2],
                     fl_host_starter *out)
{
    int ends[2];
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        close(input[0]);
        close(input[1]);
        return false;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        become_ssh(address, command, input[0], ends[1], self);
    }
    int error = errno;
    close(input[0]);
    close(ends[1]);
    if (pid > 0) {
        return keep_ssh(pid, input[1], ends[0], out);
    }
    close(input[1]);
    close(ends[0]);
    errno = error;
    return false;
}

bool fl_host_start(const fl_hosts *hosts, int i, const char *run_dir, fl_host_starter *out)
{
    char program[PATH_MAX], cwd[PATH_MAX], command[FL_HOST_COMMAND_MAX];
    if (fl_program_path(program, sizeof program) != FL_OK) {
        return false;
    }
    const char *host = hosts->host[i].name;
    bool has_cwd = getcwd(cwd, sizeof cwd) != NULL;
    if (!fl_host_start_command(hosts, i, program, run_dir, has_cwd ? cwd : NULL, command)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int input[2];
    bool good = make_input(hosts, input) && fork_ssh(hosts->ssh[i], command, input, out);
    snprintf(out->host, sizeof out->host, "%s", host);
    return good;
}

/* ---- what it says ---- */

/* One write, so that lines of other processes come before or after it. */
static void show_line(fl_host_starter *s, bool ended)
{
    char text[sizeof s->line + FL_HOST_TEXT + 16];
    int n = s->goes_on ? 0 : snprintf(text, sizeof text, "host %s: ", s->host);
    memcpy(text + n, s->line, s->n_line);
    size_t size = (size_t)n + s->n_line;
    text[size] = '\n';
    (void)!write(STDERR_FILENO, text, size + ended);
    s->goes_on = !ended;
    s->n_line = 0;
}

static void show_text(fl_host_starter *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            show_line(s, true);
            continue;
        }
        if (s->n_line == sizeof s->line) {
            show_line(s, false);
        }
        s->line[s->n_line++] = text[i];
    }
}

/* A line that has no end. */
static void show_rest(fl_host_starter *s)
{
    if (s->n_line > 0 || s->goes_on) {
        show_line(s, true);
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
            show_rest(s);
            close(s->said_fd);
            s->said_fd = 0;
            return;
        }
        fl_last_line_add(&s->last, text, (size_t)n);
        if (shows) {
            show_text(s, text, (size_t)n);
        }
    }
}

static bool has_ended(const fl_host_starter *s)
{
    struct pollfd item = {.fd = s->ended_fd, .events = POLLIN};
    return s->pid > 0 && poll(&item, 1, 0) == 1;
}

/* Its exit code, or the signal; -1: not known, because another process has started it, or because
 * it is stuck in the kernel. */
static int reap(fl_host_starter *s, bool *is_killed)
{
    int how = -1;
    bool known = fl_child_reap(s->pid, KILL_MS, &how) && how != -1;
    *is_killed = known && WIFSIGNALED(how);
    s->pid = 0;
    return !known ? -1 : *is_killed ? WTERMSIG(how) : WEXITSTATUS(how);
}

static void add_advice(const char *address, int code, char *why)
{
    size_t n = strlen(why);
    if (code == SSH_FAILED || code < 0) {
        snprintf(why + n, FL_HOST_STARTER_WHY - n, "; try: ssh -o BatchMode=yes %s true", address);
    } else if (code == CANNOT_EXECUTE) {
        snprintf(why + n, FL_HOST_STARTER_WHY - n,
                 "; frostline must be there by the path that it has here");
    }
}

bool fl_host_starter_ended(fl_host_starter *s, const char *address, bool shows, char *why)
{
    char end[32] = "";
    bool is_killed;
    if (!has_ended(s)) {
        return false;
    }
    fl_host_starter_read(s, shows);
    show_rest(s);
    int code = reap(s, &is_killed);
    fl_host_starter_forget(s);
    s->unfit = !is_killed && code == FL_HOST_EXIT_UNFIT;
    if (code >= 0) {
        snprintf(end, sizeof end, " with %s %d", is_killed ? "signal" : "exit code", code);
    }
    snprintf(why, FL_HOST_STARTER_WHY, "ssh, which was to start its agent, ended%s%s%s%s", end,
             s->last.n > 0 ? ": \"" : "", s->last.text, s->last.n > 0 ? "\"" : "");
    add_advice(address, is_killed ? 0 : code, why);
    return true;
}

/* ---- its end ---- */

static void close_fd(int *fd)
{
    if (*fd > 0) {
        close(*fd);
    }
    *fd = 0;
}

void fl_host_starter_forget(fl_host_starter *s)
{
    close_fd(&s->input_fd);
    close_fd(&s->said_fd);
    close_fd(&s->ended_fd);
}

void fl_host_starter_cut(fl_host_starter *s)
{
    close_fd(&s->input_fd);
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
    }
}

/* True once it has ended. */
static bool await_end(fl_host_starter *s, int64_t wait_ms, bool shows)
{
    int64_t until_us = fl_deadline_us(wait_ms);
    while (!has_ended(s) && fl_left_ms(until_us) > 0) {
        struct pollfd items[] = {{.fd = s->said_fd > 0 ? s->said_fd : -1, .events = POLLIN},
                                 {.fd = s->ended_fd, .events = POLLIN}};
        poll(items, 2, TURN_MS);
        fl_host_starter_read(s, shows);
    }
    return has_ended(s);
}

void fl_host_starter_close(fl_host_starter *s, int64_t wait_ms, bool shows)
{
    bool is_killed;
    if (s->pid > 0 && !await_end(s, wait_ms, shows)) {
        fl_host_starter_cut(s);
        if (!await_end(s, KILL_MS, shows)) {
            kill(s->pid, SIGKILL);
        }
    }
    if (s->pid > 0) {
        fl_host_starter_read(s, shows);
        show_rest(s);
        (void)reap(s, &is_killed);
    }
    fl_host_starter_forget(s);
    *s = (fl_host_starter){.pid = 0};
}
