#include "control/agent/measure/process_look.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NAME_BYTES = 64 };

/* A line of /proc/PID/task/TID/stat: "TID (name) state", then numbers; major faults are field 12.
 */
static bool read_thread(const char *path, char name[NAME_BYTES], char *thread_state,
                        int64_t *n_major_faults)
{
    char line[512];
    long long faults = 0;
    FILE *file = fopen(path, "re");
    size_t n = file == NULL ? 0 : fread(line, 1, sizeof line - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    line[n] = 0;
    const char *open = strchr(line, '('), *close = strrchr(line, ')'); /* a name may hold both */
    if (open == NULL || close == NULL ||
        sscanf(close + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %lld", thread_state, &faults) != 2) {
        return false;
    }
    snprintf(name, NAME_BYTES, "%.*s", (int)(close - open - 1), open + 1);
    *n_major_faults = faults;
    return true;
}

static bool is_of_link(const char *name)
{
    return strcmp(name, "fl-link") == 0 || strncmp(name, "ZMQbg/", 6) == 0;
}

static bool read_cpu_time(pid_t pid, int64_t *cpu_us)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) {
        return false;
    }
    *cpu_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return true;
}

bool fl_process_look_at(pid_t pid, fl_process_look *out)
{
    char folder[64], path[384], name[NAME_BYTES], thread_state;
    const struct dirent *entry;
    int64_t faults;
    int n_threads = 0;
    *out = (fl_process_look){0};
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    DIR *threads = read_cpu_time(pid, &out->cpu_us) ? opendir(folder) : NULL;
    if (threads == NULL) {
        return false;
    }
    while ((entry = readdir(threads)) != NULL) {
        snprintf(path, sizeof path, "%s/%s/stat", folder, entry->d_name);
        if (entry->d_name[0] != '.' && read_thread(path, name, &thread_state, &faults)) {
            fl_thread_look *threads_of = is_of_link(name) ? &out->link : &out->work;
            n_threads++;
            threads_of->n_major_faults += faults;
            threads_of->is_runnable = threads_of->is_runnable || thread_state == 'R';
        }
    }
    closedir(threads);
    return n_threads > 0;
}
