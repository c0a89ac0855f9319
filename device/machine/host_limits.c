/* Limits of control groups, version 2 and version 1:
 *   /proc/self/cgroup             "0::/a/b" (v2), "4:cpu,cpuacct:/a/b" (v1)
 *   /sys/fs/cgroup/a/b/cpu.max    "150000 100000" or "max 100000"; each parent's limit holds, too
 *   /sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us, cpu.cfs_period_us
 * A container often sees only its own group, as the root of the tree: a path that is not there is
 * passed over, up to the root. */
#include "device/machine/host_limits.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024 };

/* The first line of a file; false if there is none. */
static bool read_line(const char *path, char *line, size_t size_bytes)
{
    FILE *file = fopen(path, "re");
    bool good = file != NULL && fgets(line, (int)size_bytes, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return good;
}

static double read_number(const char *folder, const char *name)
{
    char path[PATH_MAX + 64], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_line(path, line, sizeof line) ? strtod(line, NULL) : 0.0;
}

static void lower(double *limit, double value)
{
    if (value > 0.0 && (*limit <= 0.0 || value < *limit)) {
        *limit = value;
    }
}

/* cpu.max of one group: processors; 0: no limit. */
static double quota_of(const char *folder)
{
    char path[PATH_MAX + 64], line[LINE_BYTES];
    double quota = 0.0, period = 0.0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_line(path, line, sizeof line)) {
        return sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0.0 ? quota / period : 0.0;
    }
    quota = read_number(folder, "cpu.cfs_quota_us"); /* -1: no limit */
    period = read_number(folder, "cpu.cfs_period_us");
    return quota > 0.0 && period > 0.0 ? quota / period : 0.0;
}

static double memory_of(const char *folder)
{
    double bytes = read_number(folder, "memory.max"); /* "max" reads as 0 */
    return bytes > 0.0 ? bytes : read_number(folder, "memory.limit_in_bytes");
}

/* The group and all its parents, up to the root of its tree. */
static void look_at_group(const char *tree, char *group, double *quota, double *memory)
{
    for (;;) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%.2000s%.2000s", tree, group);
        lower(quota, quota_of(folder));
        lower(memory, memory_of(folder));
        char *slash = strrchr(group, '/');
        if (slash == NULL) {
            return;
        }
        *slash = 0;
    }
}

/* One line of /proc/self/cgroup. */
static void look_at_line(const char *root, char *line, double *quota, double *memory)
{
    char *controllers = strchr(line, ':'), tree[PATH_MAX];
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) {
        return;
    }
    *group++ = 0;
    controllers++;
    group[strcspn(group, "\n")] = 0;
    snprintf(tree, sizeof tree, "%.2000s/sys/fs/cgroup%s%.100s", root,
             controllers[0] == 0 ? "" : "/", controllers);
    bool ours = controllers[0] == 0 || strstr(controllers, "cpu") != NULL ||
                strstr(controllers, "memory") != NULL;
    if (ours) {
        look_at_group(tree, group, quota, memory);
    }
}

static void look_at_groups(const char *root, double *quota, double *memory)
{
    char path[PATH_MAX], line[LINE_BYTES];
    snprintf(path, sizeof path, "%.2000s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        look_at_line(root, line, quota, memory);
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Bytes that a line of /proc/meminfo tells; 0: there is no such line. */
static int64_t meminfo(const char *root, const char *key)
{
    char path[PATH_MAX], line[LINE_BYTES];
    size_t length = strlen(key);
    int64_t kib = 0;
    snprintf(path, sizeof path, "%.2000s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    while (kib == 0 && file != NULL && fgets(line, sizeof line, file) != NULL) {
        bool found = strncmp(line, key, length) == 0 && line[length] == ':';
        kib = found ? strtoll(line + length + 1, NULL, 10) : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib > 0 ? 1024 * kib : 0;
}

/* `bytes`, or what the groups allow, if that is less. */
static int64_t limited(int64_t bytes, double allowed)
{
    bool less = allowed > 0.0 && (bytes == 0 || allowed < (double)bytes);
    return less ? (int64_t)allowed : bytes;
}

void fl_host_limits_read(const char *root, fl_host_limits *out)
{
    cpu_set_t set;
    double quota = 0.0, memory = 0.0;
    look_at_groups(root, &quota, &memory);
    *out = (fl_host_limits){.quota = quota, .total_bytes = meminfo(root, "MemTotal")};
    out->affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    bool limits = quota > 0.0 && quota < out->affinity;
    out->processors = limits ? (int)fmax(1.0, floor(quota)) : out->affinity;
    out->memory_bytes = limited(out->total_bytes, memory);
    out->available_bytes = limited(meminfo(root, "MemAvailable"), memory);
}

int fl_host_limits_processors(void)
{
    fl_host_limits machine;
    fl_host_limits_read("", &machine);
    return machine.processors;
}
