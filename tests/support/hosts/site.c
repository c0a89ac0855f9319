#include "support/hosts/site.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_HOSTS = 3 };

int site_make(void **state)
{
    site *s = calloc(1, sizeof *s);
    net_hosts_make(&s->h, N_HOSTS, (const int[]){1, 1, 1});
    *state = s;
    return 0;
}

int site_remove(void **state)
{
    site *s = *state;
    for (int i = s->n_services - 1; i >= 0; i--) {
        kill(s->service[i], SIGKILL);
        waitpid(s->service[i], NULL, 0);
    }
    for (int i = 0; i < s->h.n && s->h.exist; i++) {
        net_hosts_shell("ip netns pids %s | xargs -r kill -9", s->h.host[i].space);
    }
    int failed = net_hosts_remove(&s->h);
    free(s);
    return failed;
}

int site_processor(int host)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return 0;
    }
    int left = host % CPU_COUNT(&allowed), cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &allowed) || left-- > 0) {
        cpu++;
    }
    return cpu;
}

/* ---- commands ---- */

void site_start(site *s, int i, const char *format, ...)
{
    char command[NET_HOSTS_TEXT], all[NET_HOSTS_TEXT + 256], place[96] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (i >= 0) {
        snprintf(place, sizeof place, "nsenter --net=/run/netns/%s taskset -c %d ",
                 s->h.host[i].space, site_processor(i));
    }
    snprintf(all, sizeof all, "exec %s%s >> %s/services.log 2>&1 < /dev/null", place, command,
             s->h.dir);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", all, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0 && s->n_services < SITE_SERVICES_MAX);
    s->service[s->n_services++] = pid;
}

bool site_on_host(const site *s, int i, const char *format, ...)
{
    char command[NET_HOSTS_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return net_hosts_shell("nsenter --net=/run/netns/%s %s", s->h.host[i].space, command);
}

void site_write(const site *s, const char *name, const char *format, ...)
{
    char path[FOLDER_SIZE + 32];
    va_list args;
    snprintf(path, sizeof path, "%s/%s", s->h.dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    fclose(file);
}

/* ---- what is shown of a failure ---- */

static void show_said(void)
{
    fprintf(stderr, "%s\n", net_hosts_said()); /* print_message cuts it */
}

/* A line for each: number, parent, state, signals that wait, name; then the functions of the kernel
 * in which it is, if this user may see them. */
static void show_processes(const site *s, int i)
{
    net_hosts_shell("for p in $(ip netns pids %s); do echo \"host %s: $(ps -o "
                    "pid=,ppid=,stat=,psr=,pending=,etimes=,comm= -p $p) $(sed 's/.*] //; s/+.*//' "
                    "/proc/$p/stack 2>/dev/null | head -n 4 | tr '\\n' ' ')\"; done",
                    s->h.host[i].space, s->h.host[i].name);
    show_said();
}

void site_show(const site *s)
{
    net_hosts_shell("cd %s && tail -n 30 codes *.log run/worker-*.log 2>/dev/null; wc -l "
                    "run/steps.jsonl; ls -d run*",
                    s->h.dir);
    show_said();
    net_hosts_shell("cd %s && grep -vE 'epoch.finished|snapshot.taken|costs' run/events.jsonl | "
                    "tail -n 12 | cut -c -400",
                    s->h.dir);
    show_said();
    if (s->has_slurm) { /* without a controller, each of them tries for a minute */
        (void)site_on_host(s, 0, "timeout 10 sh -c 'squeue; sinfo -N -l; scontrol show job' 2>&1");
        show_said();
    }
    for (int i = 0; i < s->h.n && s->h.exist; i++) {
        show_processes(s, i);
    }
}
