/* What the control plane costs: processor time of the controller and of the workers' links, over
 * workers that only wait and report.
 *
 *     bench_control [steps a second] [workers] [samples a step]      20, 2 and 128 without them
 *
 * Times come from /proc/PID/task/TID/schedstat, which counts nanoseconds on a processor. */
#include "device/system/clock.h"
#include "support/runs/fake/fake_run.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 20, MEASURED_S = 10 };

/* The first line of a file of a thread; "" if it has ended. */
static void read_line(const char *tasks, const char *thread, const char *name, char *line, int size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s/%s", tasks, thread, name);
    FILE *file = fopen(path, "r");
    line[0] = 0;
    if (file != NULL) {
        if (fgets(line, size, file) == NULL) {
            line[0] = 0;
        }
        fclose(file);
    }
}

/* Nanoseconds that a process's threads have run; with links_only, those of the control link. */
static double run_ns(pid_t pid, bool links_only)
{
    char tasks[64], comm[64], line[128];
    double sum = 0;
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(tasks);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        read_line(tasks, entry->d_name, "comm", comm, sizeof comm);
        read_line(tasks, entry->d_name, "schedstat", line, sizeof line);
        if (!links_only || strncmp(comm, "fl-link", 7) == 0 || strncmp(comm, "ZMQ", 3) == 0) {
            sum += strtod(line, NULL);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return sum;
}

static double links_ns(const fake_run *run, const pid_t *pids)
{
    double sum = 0;
    for (int i = 0; i < run->n_workers; i++) {
        sum += run_ns(pids[i], true);
    }
    return sum / run->n_workers;
}

int main(int argc, char **argv)
{
    long rate = argc > 1 ? strtol(argv[1], NULL, 10) : 20;
    long n_workers = argc > 2 ? strtol(argv[2], NULL, 10) : 2;
    long batch = argc > 3 ? strtol(argv[3], NULL, 10) : 128;
    if (rate < 1 || n_workers < 1 || n_workers > FAKE_WORKERS_MAX || batch < 1) {
        fprintf(stderr, "usage: bench_control [steps a second] [workers, at most %d] [samples]\n",
                FAKE_WORKERS_MAX);
        return 2;
    }
    pid_t pids[FAKE_WORKERS_MAX];
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    run.n_workers = run.k = (int)n_workers;
    run.step_us = 1000000 / rate;
    run.batch = batch;
    run.n_samples = 1000 * batch;
    run.epochs = 1000;
    run.detect_ms = 5000;
    fake_start(&run);
    if (!fake_await_steps(&run, WARM_STEPS) || !fake_worker_pids(&run, pids)) {
        fprintf(stderr, "the run did not start\n");
        return 1;
    }
    double controller = run_ns(run.controller, false), links = links_ns(&run, pids);
    int64_t begun_us = fl_now_us(), step = atomic_load(&run.shared->done[0]);
    bool moved = true;
    while (moved && fl_now_us() - begun_us < MEASURED_S * 1000000) {
        moved = fake_await_steps(&run, atomic_load(&run.shared->done[0]) + 1);
    }
    controller = run_ns(run.controller, false) - controller;
    links = links_ns(&run, pids) - links;
    double ns = (double)(fl_now_us() - begun_us) * 1e3;
    double n_steps = (double)(atomic_load(&run.shared->done[0]) - step);
    kill(run.controller, SIGINT);
    (void)fake_finish(&run);
    fake_clean(&run);
    printf("%.1f steps/s, %d workers, %ld samples a step: controller %.2f %% of a core (%.0f us a "
           "step), "
           "each link %.2f %% (%.0f us a step)\n",
           n_steps / ns * 1e9, run.n_workers, batch, 100 * controller / ns,
           controller / n_steps * 1e-3, 100 * links / ns, links / n_steps * 1e-3);
    return 0;
}
