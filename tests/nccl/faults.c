#include "tests/nccl/faults.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAULTS_MAX = 8, CALL_BYTES = 32 };

static struct {
    int version; /* 0: its own */
    bool without_streams;
    char file[256]; /* "": always */
    int n;
    struct {
        char call[CALL_BYTES];
        int in; /* calls until it happens */
        fault fault;
    } fault[FAULTS_MAX];
} wanted;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static fault_kind kind_of(const char *name)
{
    static const char *const names[] = {"",      "fail", "error", "late", "stall", "hang",
                                        "crash", "kill", "stop",  "fork", "say"};
    for (int kind = FAULT_FAIL; kind <= FAULT_SAY; kind++) {
        if (strcmp(name, names[kind]) == 0) {
            return (fault_kind)kind;
        }
    }
    fprintf(stderr, "FROSTLINE_NCCL_STANDIN: there is no option '%s'\n", name);
    abort();
}

static void read_option(const char *name, char *value)
{
    if (strcmp(name, "version") == 0) {
        wanted.version = atoi(value);
        return;
    }
    if (strcmp(name, "streams") == 0) {
        wanted.without_streams = strcmp(value, "none") == 0;
        return;
    }
    if (strcmp(name, "while") == 0) {
        snprintf(wanted.file, sizeof wanted.file, "%s", value);
        return;
    }
    const char *call = strsep(&value, ":"), *in = strsep(&value, ":");
    if (wanted.n == FAULTS_MAX) {
        abort();
    }
    snprintf(wanted.fault[wanted.n].call, CALL_BYTES, "%s", call);
    wanted.fault[wanted.n].in = in == NULL ? 1 : atoi(in);
    wanted.fault[wanted.n].fault =
        (fault){.kind = kind_of(name), .value = value == NULL ? 0 : atoll(value)};
    wanted.n++;
}

__attribute__((constructor)) static void read_environment(void)
{
    char text[1024] = "", *rest = text, *part;
    const char *given = getenv("FROSTLINE_NCCL_STANDIN");
    snprintf(text, sizeof text, "%s", given == NULL ? "" : given);
    while ((part = strsep(&rest, ",")) != NULL) {
        char *value = strchr(part, '=');
        if (value != NULL) {
            *value++ = '\0';
            read_option(part, value);
        }
    }
    fault_of("Load");
}

fault fault_of(const char *call)
{
    fault found = {FAULT_NONE, 0};
    pthread_mutex_lock(&lock);
    bool now = wanted.file[0] == '\0' || access(wanted.file, F_OK) == 0;
    for (int i = 0; i < wanted.n && now; i++) {
        if (strcmp(wanted.fault[i].call, call) == 0 && --wanted.fault[i].in == 0) {
            found = wanted.fault[i].fault;
        }
    }
    pthread_mutex_unlock(&lock);
    if (found.kind == FAULT_CRASH) {
        __builtin_trap(); /* no thread can block that */
    }
    if (found.kind == FAULT_KILL || found.kind == FAULT_STOP) {
        raise(found.kind == FAULT_KILL ? SIGKILL : SIGSTOP);
    }
    if (found.kind == FAULT_SAY) {
        printf("said by the library\n");
        fflush(stdout);
    }
    if (found.kind == FAULT_FORK && fork() == 0) {
        found.kind = FAULT_HANG;
    }
    while (found.kind == FAULT_HANG) {
        pause();
    }
    return found;
}

void nccl_standin_end_faults(void)
{
    pthread_mutex_lock(&lock);
    wanted.n = 0;
    pthread_mutex_unlock(&lock);
}

int fault_version(int version)
{
    return wanted.version == 0 ? version : wanted.version;
}

bool fault_without_streams(void)
{
    return wanted.without_streams;
}
