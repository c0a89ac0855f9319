/* What a transition costs: its parts, against one step and the time that its bytes take on a link
 * of the same run, and against ending the run and starting another.
 *
 *   bench_transition [small | large [4 | 2]]     10 and 100 million parameters, on four workers
 *                                                and on two; default all
 *
 * A run goes to and fro between two plans; of the transitions in the direction asked for, the
 * median of each part is printed. The link is measured in the last transition of the same run, over
 * the very connections: before the vote, workers 0 and 1 send each other LINK_BYTES in turn. The
 * restart is the end of one run, from its last step on, with every layer's weights and moments
 * written to files, and the start of a fresh one that reads them, up to the end of its first step.
 */
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/data/toy.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LINK_BYTES = 64 << 20,
    PINGS = 4,
    SAMPLES = 4096,
    STEPS_MAX = 4096,
    TRANSITIONS_MAX = 64,
    RESTARTS_MAX = 3,
    LEAD = 8, /* steps before the first transition */
};

typedef struct size {
    const char *name;
    int64_t blocks, dim, heads;
    int batch, interval, rounds, restarts;
} size;

static const size sizes[] = {
    {"small", 6, 384, 6, 32, 9, 7, 3},
    {"large", 14, 768, 12, 32, 6, 2, 1},
};

typedef struct way {
    int workers;
    int k[2], r[2], m[2]; /* from, to */
} way;

static const way ways[] = {
    {4, {4, 2}, {1, 2}, {4, 2}},
    {2, {2, 1}, {1, 2}, {4, 1}},
};

/* Between the bench and a run's processes. */
typedef struct shared {
    int64_t link_us[PINGS];
    int64_t ended_us;  /* the last step of the run is done */
    bool saves, loads; /* the run at work ends, begins with files */
} shared;

static shared *across;
static uint32_t last_generation; /* of the script; 0: no script */
static char root[] = "build/bench/transition-XXXXXX";

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s: %s\n", fl_status_text(status), fl_errmsg());
        _exit(1);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    if (n == 0) {
        return 0.0;
    }
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* ---- in the workers ---- */

static void measure_link(fl_worker_state *w)
{
    void *data = NULL;
    must(fl_device_reserve(w->device, LINK_BYTES, &data));
    for (uint32_t i = 0; i < 2 * PINGS && w->rank < 2; i++) {
        bool sending = i % 2 == (uint32_t)w->rank;
        fl_transfer transfer = {1 - w->rank, sending, 1000 + i, data, LINK_BYTES, false, false};
        fl_transfers_options options = {.messages = w->messages, .device = w->device};
        fl_transfers *ready = NULL;
        must(fl_transfers_open(&options, &transfer, 1, &ready));
        int64_t begun = fl_now_us();
        must(fl_transfers_run(ready, fl_deadline_us(60000)));
        if (!sending && w->rank == 1) {
            across->link_us[i / 2] = fl_now_us() - begun;
        }
        fl_transfers_close(&ready);
    }
    fl_device_drop(w->device, data, LINK_BYTES);
}

static size_t save(FILE *file, const float *data, size_t n)
{
    return fwrite(data, sizeof(float), n, file);
}

static size_t load(FILE *file, float *data, size_t n)
{
    return fread(data, sizeof(float), n, file);
}

/* A layer's weights and moments, to or from its file. */
static void pass_layer(const fl_params *p, int layer, bool saving)
{
    char path[128];
    size_t passed = 0, count = (size_t)fl_params_layer_count(p, layer);
    snprintf(path, sizeof path, "%s/layer-%d", root, layer);
    FILE *file = fopen(path, saving ? "wb" : "rb");
    for (int i = 0; file != NULL && i < 2; i++) {
        size_t n = i == 0 ? count : count * (size_t)p->n_moments;
        float *data = (i == 0 ? p->weight : p->moments)[layer - p->first];
        passed += saving ? save(file, data, n) : load(file, data, n);
    }
    if (file == NULL || fclose(file) != 0 || passed != count * (size_t)(1 + p->n_moments)) {
        fprintf(stderr, "cannot %s %s\n", saving ? "write" : "read", path);
        _exit(1);
    }
}

static void pass_state(const fl_worker_state *w, bool saving)
{
    const fl_generation *m = w->now;
    if (m->pipeline == NULL || (saving && m->place.replica != 0)) {
        return;
    }
    const fl_params *p = fl_stage_params(fl_pipeline_stage(m->pipeline));
    for (int layer = p->first; layer < p->last; layer++) {
        pass_layer(p, layer, saving);
    }
}

void fl__test_point(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "vote") == 0 && w->next->plan.generation == last_generation) {
        measure_link(w);
    } else if (strcmp(point, "begin") == 0 && across->loads) {
        pass_state(w, false);
    } else if (strcmp(point, "end") == 0) {
        if (w->rank == 0) {
            across->ended_us = fl_now_us();
        }
        if (across->saves) {
            pass_state(w, true);
        }
    }
}

/* ---- runs ---- */

static void set(fl_job *job, const char *path, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    must(fl_job_set(job, path, text));
}

/* A run that begins with the way's plan `from` (0 or 1) and goes to and fro at the job's script. */
static void run(const size *s, const way *w, int from, int64_t steps, const fl_job *script,
                const char *dir)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_vit_config config = {.channels = 1,
                            .height = 14,
                            .width = 14,
                            .patch = 7,
                            .dim = s->dim,
                            .heads = s->heads,
                            .blocks = s->blocks,
                            .n_classes = 4};
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "the run in %s failed\n", dir);
            exit(1);
        }
        return;
    }
    int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    fl_job_defaults(&job);
    set(&job, "pipe.k", w->k[from]);
    set(&job, "autodp.r", w->r[from]);
    set(&job, "pipe.m", w->m[from]);
    set(&job, "devices.count", w->workers);
    set(&job, "train.batch", s->batch);
    set(&job, "train.epochs", 100);
    set(&job, "train.max_steps", steps);
    must(fl_job_set(&job, "devices.memory", "8GiB"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    job.elastic.n_script = script == NULL ? 0 : script->elastic.n_script;
    for (int64_t i = 0; i < job.elastic.n_script; i++) {
        job.elastic.script[i] = script->elastic.script[i];
    }
    must(fl_toy_dataset(SAMPLES, &data));
    must(fl_model_vit(&config, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    _exit(0);
}

static double number_in(const char *line, const char *name)
{
    char quoted[48];
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *at = strstr(line, quoted);
    return at == NULL ? -1.0 : strtod(at + strlen(quoted), NULL);
}

static FILE *open_in(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "%s is not there\n", path);
        exit(1);
    }
    return file;
}

/* One part of all transitions to K = k but the run's last. Returns how many there were. */
static int part(const char *dir, int k, const char *name, double *out)
{
    static char line[1 << 16];
    int n = 0;
    FILE *file = open_in(dir, "events.jsonl");
    while (n < TRANSITIONS_MAX && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "\"transition.done\"") != NULL && (int)number_in(line, "k") == k &&
            (uint32_t)number_in(line, "generation") != last_generation) {
            out[n++] = number_in(line, name);
        }
    }
    fclose(file);
    return n;
}

static double median_part(const char *dir, int k, const char *name)
{
    double values[TRANSITIONS_MAX];
    int n = part(dir, k, name, values);
    return median(values, n);
}

/* Milliseconds of the steps of plan K = k, by how many steps ago the plan began: `first` only that
 * one, else those from the second on. */
static double median_step(const char *dir, int k, bool first)
{
    static char line[4096];
    static double values[STEPS_MAX];
    int n = 0, before = -1;
    FILE *file = open_in(dir, "steps.jsonl");
    while (n < STEPS_MAX && fgets(line, sizeof line, file) != NULL) {
        int generation = (int)number_in(line, "generation");
        if ((int)number_in(line, "k") == k && generation > 1 && (generation != before) == first) {
            values[n++] = number_in(line, "ms");
        }
        before = generation;
    }
    fclose(file);
    return median(values, n);
}

static void remove_folder(const char *dir)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command) != 0) {
        fprintf(stderr, "cannot remove %s\n", dir);
    }
}

/* Ending a run of the old plan and starting one of the new, milliseconds. */
static double restart_ms(const size *s, const way *w, double *ending_ms)
{
    char dir[128];
    double end[RESTARTS_MAX], begin[RESTARTS_MAX];
    last_generation = 0;
    for (int i = 0; i < s->restarts; i++) {
        snprintf(dir, sizeof dir, "%s/restart", root);
        across->saves = true;
        across->loads = false;
        run(s, w, 0, 2, NULL, dir);
        end[i] = (double)(fl_now_us() - across->ended_us) * 1e-3;
        remove_folder(dir);
        across->saves = false;
        across->loads = true;
        int64_t begun = fl_now_us();
        run(s, w, 1, 1, NULL, dir);
        begin[i] = (double)(across->ended_us - begun) * 1e-3;
        remove_folder(dir);
    }
    across->loads = false;
    *ending_ms = median(end, s->restarts);
    return *ending_ms + median(begin, s->restarts);
}

static void compare(const size *s, const way *w)
{
    static fl_job script;
    char dir[128];
    double pings[PINGS], ending_ms;
    int n = 2 * s->rounds + 1; /* there, back, ..., and once more for the link */
    script.elastic.n_script = n;
    for (int i = 0; i < n; i++) {
        int to = i % 2 == 0;
        script.elastic.script[i] = (fl_script_entry){.step = LEAD + (int64_t)i * s->interval,
                                                     .f = -1,
                                                     .k = w->k[to],
                                                     .r = w->r[to],
                                                     .m = w->m[to]};
    }
    last_generation = (uint32_t)n + 1;
    snprintf(dir, sizeof dir, "%s/run", root);
    run(s, w, 0, LEAD + (int64_t)n * s->interval, &script, dir);
    for (int i = 0; i < PINGS; i++) {
        pings[i] = (double)LINK_BYTES / (double)across->link_us[i] * 1e-3; /* GB/s */
    }
    int k = w->k[1];
    double link = median(pings, PINGS), moved = median_part(dir, k, "moved_bytes");
    double stall = median_part(dir, k, "stall_ms"), step = median_step(dir, w->k[0], false);
    double migrate = median_part(dir, k, "migrate_ms"), on_link = moved / link * 1e-6;
    printf("\nK=%d, R=%d -> K=%d, R=%d, %s, median of %d\n", w->k[0], w->r[0], k, w->r[1], s->name,
           s->rounds);
    printf("  prepare %8.1f ms during training\n", median_part(dir, k, "prepare_ms"));
    printf("  wait    %8.1f ms for it to end\n", median_part(dir, k, "wait_ms"));
    printf("  vote    %8.1f ms\n", median_part(dir, k, "vote_ms"));
    printf("  migrate %8.1f ms: %.1f MB moved at %.2f GB/s, %.1f MB stayed in place\n", migrate,
           moved * 1e-6, moved / migrate * 1e-6, median_part(dir, k, "kept_bytes") * 1e-6);
    printf("  switch  %8.1f ms\n", median_part(dir, k, "switch_ms"));
    printf("  stall   %8.1f ms\n", stall);
    printf("  one step before %.1f ms; the first after %.1f ms, those that follow %.1f ms\n", step,
           median_step(dir, k, true), median_step(dir, k, false));
    printf("  limit   %8.1f ms: one step, and %.1f ms for the bytes on a link of %.2f GB/s\n",
           step + on_link, on_link, link);
    double after = median_step(dir, k, false);
    fflush(stdout); /* what follows takes long */
    remove_folder(dir);
    double restart = restart_ms(s, w, &ending_ms);
    printf("  restart %8.1f ms: %.1f to end, %.1f to the end of the first step; %.1f times the "
           "stall and a step\n",
           restart, ending_ms, restart - ending_ms, restart / (stall + after));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    across = mmap(NULL, sizeof *across, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (across == MAP_FAILED ||
        (mkdir("build/bench", 0755) != 0 && access("build/bench", W_OK) != 0) ||
        mkdtemp(root) == NULL) {
        fprintf(stderr, "run it in the source folder, with build/ there\n");
        return 1;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < sizeof ways / sizeof *ways; j++) {
            if ((argc < 2 || strcmp(argv[1], sizes[i].name) == 0) &&
                (argc < 3 || atoi(argv[2]) == ways[j].workers)) {
                compare(&sizes[i], &ways[j]);
            }
        }
    }
    remove_folder(root);
    return 0;
}
