#include "support/hosts/net_hosts.h"

#include "support/lines.h"
#include "support/shell.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static output said;

bool net_hosts_shell(const char *format, ...)
{
    char command[NET_HOSTS_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    run_command(NULL, command, &said);
    return said.exit_code == 0;
}

const char *net_hosts_said(void)
{
    return said.out;
}

/* ---- the hosts ---- */

static void remove_spaces(const net_hosts *h)
{
    for (int i = 0; i < h->n; i++) {
        net_hosts_shell("ip netns del %s 2>/dev/null", h->host[i].space);
    }
    net_hosts_shell("ip netns del fn%dx 2>/dev/null", (int)getpid());
}

/* The bridge has a name space of its own. */
static bool connect_host(const net_host *host, int i)
{
    int id = (int)getpid();
    return net_hosts_shell("ip netns add %s && "
                           "ip -n %s link add fl0 type veth peer name p%d netns fn%dx && "
                           "ip -n %s addr add %s/24 dev fl0 && ip -n %s link set lo up && "
                           "ip -n %s link set fl0 up && ip -n fn%dx link set p%d master br0 up",
                           host->space, host->space, i, id, host->space, host->address, host->space,
                           host->space, id, i);
}

static bool make_spaces(net_hosts *h)
{
    int id = (int)getpid();
    bool good = net_hosts_shell("ip netns add fn%dx && ip -n fn%dx link add br0 type bridge && "
                                "ip -n fn%dx link set br0 up",
                                id, id, id);
    for (int i = 0; i < h->n && good; i++) {
        good = connect_host(&h->host[i], i);
    }
    return good;
}

/* They are named a, b, ...; the address of the first is network.1. */
static void name_hosts(net_hosts *h, int n, const char *network)
{
    char letters[NET_HOSTS_MAX + 1] = "";
    *h = (net_hosts){.n = n};
    make_folder(h->dir);
    for (int i = 0; i < n; i++) {
        net_host *host = &h->host[i];
        host->n_devices = 1;
        letters[i] = (char)('a' + i);
        snprintf(host->name, sizeof host->name, "%c", 'a' + i);
        snprintf(host->space, sizeof host->space, "fn%d%c", (int)getpid(), 'a' + i);
        snprintf(host->address, sizeof host->address, "%s.%d", network, i + 1);
    }
    net_hosts_write_file(h, letters);
}

void net_hosts_make(net_hosts *h, int n, const int *n_devices)
{
    char letters[NET_HOSTS_MAX + 1] = "abcd";
    name_hosts(h, n, "10.213.8");
    for (int i = 0; i < n; i++) {
        h->host[i].n_devices = n_devices[i];
    }
    letters[n] = '\0';
    net_hosts_write_file(h, letters);
    h->exist = make_spaces(h);
}

void net_hosts_make_loopback(net_hosts *h, int n)
{
    name_hosts(h, n, "127.0.0");
    h->loopback = true;
    h->lock_fd = open("/tmp/frostline-loopback.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(h->lock_fd >= 0);
    assert_int_equal(flock(h->lock_fd, LOCK_EX), 0);
}

int net_hosts_set_up(void **state, int n, const int *n_devices)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make(h, n, n_devices);
    *state = h;
    return 0;
}

int net_hosts_tear_down(void **state)
{
    int failed = net_hosts_remove(*state);
    free(*state);
    return failed;
}

/* The frames go to an address that no host has. */
void net_hosts_cut(const net_hosts *h, int from, int to, bool cut)
{
    const char *space = h->host[from].space, *address = h->host[to].address;
    bool done = cut ? net_hosts_shell("ip -n %s neigh replace %s lladdr 02:00:00:00:00:99 "
                                      "dev fl0 nud permanent",
                                      space, address)
                    : net_hosts_shell("ip -n %s neigh del %s dev fl0", space, address);
    if (!done) {
        fail_msg("%s to %s: %s", space, address, said.err);
    }
}

static void end_process(pid_t *pid)
{
    if (*pid > 0) {
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
        *pid = 0;
    }
}

void net_hosts_stop(net_hosts *h, pid_t pid)
{
    assert_true(h->n_stopped < NET_HOSTS_STOPPED_MAX);
    h->stopped[h->n_stopped++] = pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
}

/* Another process may have the number by now: that one is not stopped. */
static void kill_stopped(const net_hosts *h)
{
    for (int i = 0; i < h->n_stopped; i++) {
        if (net_hosts_shell("grep -q '^State:.T' /proc/%d/status", (int)h->stopped[i])) {
            kill(h->stopped[i], SIGKILL);
        }
    }
}

int net_hosts_remove(net_hosts *h)
{
    kill_stopped(h);
    end_process(&h->head);
    for (int i = 0; i < h->n; i++) {
        end_process(&h->host[i].agent);
    }
    if (!h->loopback) {
        remove_spaces(h);
    } else {
        close(h->lock_fd);
    }
    return remove_folder(h->dir);
}

void net_hosts_write_file(const net_hosts *h, const char *letters)
{
    char path[FOLDER_SIZE + 16];
    snprintf(path, sizeof path, "%s/hosts.yaml", h->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "hosts:\n");
    for (const char *c = letters; *c != '\0'; c++) {
        const net_host *host = &h->host[*c - 'a'];
        fprintf(file, "  - {name: %s, devices: %d, address: %s}\n", host->name, host->n_devices,
                host->address);
    }
    fprintf(file, "links:\n  between_hosts: {latency_us: 50, bandwidth: 1GiB}\n");
    fclose(file);
}

/* ---- processes ---- */

/* before: what the host does first, and how it becomes the program. Its mounts are its own. */
static pid_t start_after(const net_hosts *h, int i, const char *before, const char *log,
                         const char *arguments)
{
    char command[NET_HOSTS_TEXT + 512], enter[64] = "";
    if (!h->loopback) {
        snprintf(enter, sizeof enter, "ip netns exec %s", h->host[i].space);
    }
    snprintf(command, sizeof command,
             "exec %s sh -c \"%s '%s/frostline' %s\" >> %s/%s 2>&1 < /dev/null", enter, before,
             FL_BINARY_DIR, arguments, h->dir, log);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static void start_head(net_hosts *h, const char *before, const char *job)
{
    char arguments[NET_HOSTS_TEXT];
    char dir[FOLDER_SIZE + 24] = "";
    if (strncmp(job, "--resume", 8) != 0) {
        snprintf(dir, sizeof dir, " --run-dir %s/run", h->dir);
    }
    snprintf(arguments, sizeof arguments, "run %s%s --hosts %s/hosts.yaml --listen tcp://%s:5570",
             job, dir, h->dir, h->host[0].address);
    h->head = start_after(h, 0, before, "head.log", arguments);
}

void net_hosts_start_head(net_hosts *h, const char *job)
{
    start_head(h, "exec", job);
}

void net_hosts_start_head_limited(net_hosts *h, const char *job, int n_files)
{
    char before[64];
    snprintf(before, sizeof before, "ulimit -n %d && exec", n_files);
    start_head(h, before, job);
}

pid_t net_hosts_start(const net_hosts *h, int i, const char *log, const char *arguments)
{
    return start_after(h, i, "exec", log, arguments);
}

void net_hosts_show_logs(const net_hosts *h)
{
    net_hosts_shell("cd %s && tail -n 40 *.log run/worker-*.log", h->dir);
    fprintf(stderr, "%s\n", said.out); /* print_message cuts it */
}

static bool has_key(const net_hosts *h)
{
    char path[FOLDER_SIZE + 32];
    snprintf(path, sizeof path, "%s/run/hosts.key", h->dir);
    return access(path, F_OK) == 0;
}

void net_hosts_await_key(net_hosts *h)
{
    NET_AWAIT(has_key(h) || waitpid(h->head, NULL, WNOHANG) != 0);
    if (!has_key(h)) {
        net_hosts_show_logs(h);
        fail_msg("the head has ended");
    }
}

/* key: below DIR, once `before` was done. */
static void start_agent(net_hosts *h, int i, const char *before, const char *key,
                        const char *options)
{
    char arguments[NET_HOSTS_TEXT], log[16];
    net_hosts_await_key(h);
    snprintf(log, sizeof log, "%s.log", h->host[i].name);
    snprintf(arguments, sizeof arguments, "agent --join tcp://%s:5570 --key %s/%s --name %s %s",
             h->host[0].address, h->dir, key, h->host[i].name, options);
    h->host[i].agent = start_after(h, i, before, log, arguments);
}

void net_hosts_start_agent(net_hosts *h, int i)
{
    net_hosts_start_agent_for(h, i, "");
}

void net_hosts_start_agent_for(net_hosts *h, int i, const char *options)
{
    start_agent(h, i, "exec", "run/hosts.key", options);
}

void net_hosts_start_agent_after(net_hosts *h, int i, const char *command)
{
    char before[NET_HOSTS_TEXT];
    snprintf(before, sizeof before, "cd %s && %s && cd - > /dev/null && exec", h->dir, command);
    start_agent(h, i, before, "run/hosts.key", "");
}

void net_hosts_start_agent_with(net_hosts *h, int i, const char *shown, const char *path)
{
    char mount[512];
    snprintf(mount, sizeof mount, "mount --bind %s %s", shown, path);
    net_hosts_start_agent_after(h, i, mount);
}

void net_hosts_start_agent_env(net_hosts *h, int i, const char *variables)
{
    char before[512];
    snprintf(before, sizeof before, "exec env %s", variables);
    start_agent(h, i, before, "run/hosts.key", "");
}

void net_hosts_start_agent_ahead(net_hosts *h, int i, int ahead_s)
{
    char before[128];
    snprintf(before, sizeof before, "exec unshare --time --monotonic %d --fork --kill-child",
             ahead_s);
    start_agent(h, i, before, "run/hosts.key", "");
}

void net_hosts_start_agent_apart(net_hosts *h, int i)
{
    char before[512], key[32];
    snprintf(key, sizeof key, "key-%s", h->host[i].name);
    snprintf(
        before, sizeof before,
        "cd %s && mkdir -p %s && cp run/hosts.key %s && mount -t tmpfs none run && cd %s && exec",
        h->dir, h->host[i].name, key, h->host[i].name);
    start_agent(h, i, before, key, "");
}

int net_hosts_await_exit(pid_t *pid)
{
    int how = 0;
    NET_AWAIT(waitpid(*pid, &how, WNOHANG) == *pid);
    *pid = 0;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

void net_hosts_expect(net_hosts *h, int head_code)
{
    net_hosts_expect_codes(h, head_code, 0);
}

void net_hosts_expect_codes(net_hosts *h, int head_code, int agent_code)
{
    int code = net_hosts_await_exit(&h->head), other = agent_code;
    for (int i = 1; i < h->n; i++) {
        int agent = h->host[i].agent > 0 ? net_hosts_await_exit(&h->host[i].agent) : agent_code;
        other = agent != agent_code ? agent : other;
    }
    if (code != head_code || other != agent_code) {
        net_hosts_show_logs(h);
        fail_msg("head %d, agents %d", code, other);
    }
}

void net_hosts_run_alone(const net_hosts *h, const char *more)
{
    if (!net_hosts_shell("'%s/frostline' run " NET_JOB "--run-dir %s/alone --set devices.count=1 "
                         "%s",
                         FL_BINARY_DIR, h->dir, more)) {
        fail_msg("%s\n%s", said.out, said.err);
    }
}

pid_t net_hosts_child_of(pid_t parent)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    int n = file == NULL ? 0 : fscanf(file, "%d", &child);
    if (file != NULL) {
        fclose(file);
    }
    return n == 1 ? child : 0;
}

int net_hosts_n_files(pid_t pid)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

bool net_hosts_have_kernels(const char *name)
{
    bool has = net_hosts_shell("FROSTLINE_KERNELS=%s '%s/frostline' validate " NET_JOB
                               "--set devices.count=1 2>&1",
                               name, FL_BINARY_DIR);
    if (!has) {
        print_message("skipped: this processor has no kernels %s\n", name);
    }
    return has;
}
