/* frostline diff: the first step at which two runs computed something else, and the first layer
 * whose weights differ, where the runs kept hashes of them. */
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "launcher/cli/cli.h"
#include "launcher/job/job.h"
#include "launcher/report/read/lines.h"
#include "launcher/run/runs/runs.h"

#include <frostline/model.h>
#include <frostline/plan.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIFFERS = 1, HASH_BYTES = 17 };

/* One line of steps.jsonl. A number that is no number there (null) is NAN here. */
typedef struct step_line {
    int64_t step;
    double loss, grad_norm, lr;
    int f, k, r, m;
} step_line;

/* One line of weights.jsonl. */
typedef struct hash_line {
    int64_t step;
    int layer;
    char name[FL_LAYER_NAME_MAX]; /* of the layer; empty: a run from before layers had names */
    char hash[HASH_BYTES];
} hash_line;

typedef struct kept_run {
    char dir[PATH_MAX];
    step_line *step; /* [n_steps] */
    int64_t n_steps;
    size_t steps_capacity;
    hash_line *hash; /* [n_hashes], by step and layer */
    int64_t n_hashes;
    size_t hashes_capacity;
    int64_t every; /* the job's train.hash_weights; 0: none, or the job is not known */
    int n_layers;  /* 0: not known */
} kept_run;

/* ---- reading ---- */

static double real_or_nan(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static fl_status take_step(void *context, json_t *line, bool *good, const char **why)
{
    kept_run *run = context;
    step_line s = {.step = fl_line_whole(line, "step", 0, INT64_MAX, -1),
                   .loss = real_or_nan(line, "loss"),
                   .grad_norm = real_or_nan(line, "grad_norm"),
                   .lr = real_or_nan(line, "lr"),
                   .f = (int)fl_line_whole(line, "f", 0, 1000000, -1),
                   .k = (int)fl_line_whole(line, "k", 0, 1000000, -1),
                   .r = (int)fl_line_whole(line, "r", 0, 1000000, -1),
                   .m = (int)fl_line_whole(line, "m", 0, INT32_MAX, -1)};
    void *array = run->step;
    *why = "no step with f, k, r and m";
    if (s.step < 0 || s.f < 0 || s.k < 0 || s.r < 0 || s.m < 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_room(&array, (size_t)run->n_steps, 1, sizeof s, &run->steps_capacity));
    run->step = array;
    run->step[run->n_steps++] = s;
    *good = true;
    return FL_OK;
}

static fl_status take_hash(void *context, json_t *line, bool *good, const char **why)
{
    kept_run *run = context;
    hash_line h = {.step = fl_line_whole(line, "step", 0, INT64_MAX, -1),
                   .layer = (int)fl_line_whole(line, "layer", 0, 1000000, -1)};
    const char *hash = fl_line_text(line, "hash");
    void *array = run->hash;
    *why = "no step, layer and hash";
    if (h.step < 0 || h.layer < 0 || strlen(hash) != HASH_BYTES - 1) {
        return FL_OK;
    }
    memcpy(h.hash, hash, HASH_BYTES);
    snprintf(h.name, sizeof h.name, "%s", fl_line_text(line, "name"));
    FL_TRY(fl_alloc_room(&array, (size_t)run->n_hashes, 1, sizeof h, &run->hashes_capacity));
    run->hash = array;
    run->hash[run->n_hashes++] = h;
    *good = true;
    return FL_OK;
}

static fl_status check_lines(const kept_run *run, const fl_lines *lines)
{
    if (lines->missing[0] != 0) {
        return fl_fail(FL_EINVAL, "%s/%s: %s", run->dir, lines->name, lines->missing);
    }
    if (lines->n_bad > 0) {
        return fl_fail(FL_EINVAL, "%s/%s:%" PRId64 ": %s", run->dir, lines->name, lines->first_bad,
                       lines->why);
    }
    return FL_OK;
}

/* A run of a program, or an old one, has no such job: then nothing is known to be missing. */
static void read_promise(kept_run *run)
{
    char path[PATH_MAX + 16];
    fl_job job;
    snprintf(path, sizeof path, "%s/job.yaml", run->dir);
    run->every = fl_job_load_kept(path, NULL, 0, &job) == FL_OK ? job.train.hash_weights : 0;
}

static fl_status take_layers(void *context, json_t *line, bool *good, const char **why)
{
    kept_run *run = context;
    if (strcmp(fl_line_text(line, "event"), "run.started") == 0) {
        run->n_layers =
            (int)fl_line_whole(json_object_get(line, "model"), "layers", 1, FL_MAX_LAYERS, 0);
    }
    *why = "";
    *good = true;
    return FL_OK;
}

static int by_step_and_layer(const void *a, const void *b)
{
    const hash_line *x = a, *y = b;
    return x->step != y->step     ? (x->step > y->step) - (x->step < y->step)
           : x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer)
                                  : 0;
}

/* A run that went back, and lost no line by that, has some twice. */
static void drop_repeated(kept_run *run)
{
    int64_t n = 0;
    for (int64_t i = 0; i < run->n_hashes; i++) {
        const hash_line *last = n == 0 ? NULL : &run->hash[n - 1], *h = &run->hash[i];
        if (last == NULL || by_step_and_layer(last, h) != 0 || strcmp(last->hash, h->hash) != 0) {
            run->hash[n++] = *h;
        }
    }
    run->n_hashes = n;
}

static fl_status read_hashes(kept_run *run, int dir_fd)
{
    fl_lines lines;
    FL_TRY(fl_lines_read(dir_fd, "events.jsonl", take_layers, run, &lines));
    read_promise(run);
    FL_TRY(fl_lines_read(dir_fd, "weights.jsonl", take_hash, run, &lines));
    if (faccessat(dir_fd, "weights.jsonl", F_OK, 0) != 0) {
        return FL_OK; /* the job did not ask for it, or all are missing */
    }
    FL_TRY(check_lines(run, &lines));
    if (run->n_hashes > 0) {
        qsort(run->hash, (size_t)run->n_hashes, sizeof *run->hash, by_step_and_layer);
        drop_repeated(run);
    }
    return FL_OK;
}

static fl_status read_run(const char *name, kept_run *run)
{
    fl_lines lines;
    FL_TRY(fl_run_find_dir(name, run->dir));
    int dir_fd = open(run->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return fl_fail(FL_EINVAL, "%s: %s", run->dir, strerror(errno));
    }
    fl_status status = fl_lines_read(dir_fd, "steps.jsonl", take_step, run, &lines);
    if (status == FL_OK) {
        status = check_lines(run, &lines);
    }
    if (status == FL_OK) {
        status = read_hashes(run, dir_fd);
    }
    close(dir_fd);
    return status;
}

static void forget_run(kept_run *run)
{
    fl_free(run->step);
    fl_free(run->hash);
}

/* ---- comparing ---- */

/* Bit for bit, so that -0 differs from 0; a number that was none equals another such. */
static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void print_plan(const step_line *s)
{
    printf("F=%d, K=%d x R=%d x M=%d", s->f, s->k, s->r, s->m);
}

static void print_number(const char *name, double a, double b)
{
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    if (same_bits(a, b)) {
        printf("  %-10s %.17g in both\n", name, a);
    } else {
        printf("  %-10s %.17g (0x%016" PRIx64 ") and %.17g (0x%016" PRIx64 ")\n", name, a, x, b, y);
    }
}

static bool same_step(const step_line *a, const step_line *b)
{
    return a->step == b->step && same_bits(a->loss, b->loss) &&
           same_bits(a->grad_norm, b->grad_norm) && same_bits(a->lr, b->lr) && a->f == b->f;
}

static void print_step(const step_line *a, const step_line *b)
{
    printf("step %" PRId64 " differs:\n", a->step);
    print_number("loss", a->loss, b->loss);
    print_number("grad_norm", a->grad_norm, b->grad_norm);
    print_number("lr", a->lr, b->lr);
    printf("  %-10s ", "plan");
    print_plan(a);
    printf(" and ");
    print_plan(b);
    printf("\n");
}

/* The index of the first step that differs; without a difference, the smaller number of steps. */
static int64_t first_difference(const kept_run *a, const kept_run *b)
{
    int64_t n = a->n_steps < b->n_steps ? a->n_steps : b->n_steps, i = 0;
    while (i < n && same_step(&a->step[i], &b->step[i])) {
        i++;
    }
    return i;
}

static bool compare_steps(const kept_run *a, const kept_run *b)
{
    int64_t i = first_difference(a, b);
    if (i < a->n_steps && i < b->n_steps && a->step[i].step != b->step[i].step) {
        printf("line %" PRId64 " of steps.jsonl is step %" PRId64 " and step %" PRId64 "\n", i + 1,
               a->step[i].step, b->step[i].step);
        return false;
    }
    if (i < a->n_steps && i < b->n_steps) {
        print_step(&a->step[i], &b->step[i]);
        return false;
    }
    if (a->n_steps != b->n_steps) {
        const kept_run *longer = a->n_steps > b->n_steps ? a : b;
        char n[FL_COUNT_BYTES];
        printf("the first %s %s equal; %s has %" PRId64 " more\n",
               i == 1 ? "step" : fl_count(i, "step", n), i == 1 ? "is" : "are", longer->dir,
               longer->n_steps - i);
        return false;
    }
    return true;
}

static void print_hashes(const hash_line *a, const hash_line *b)
{
    printf("weights after step %" PRId64 ": layer %d", a->step, a->layer);
    if (a->name[0] != '\0') {
        printf(", %s,", a->name);
    }
    printf(" is the first that differs (%s and %s)\n", a->hash, b->hash);
}

static bool has_hash(const kept_run *run, const hash_line *h)
{
    return run->n_hashes > 0 && bsearch(h, run->hash, (size_t)run->n_hashes, sizeof *run->hash,
                                        by_step_and_layer) != NULL;
}

/* first: the first of the n that are missing */
static void print_missing(const kept_run *run, int64_t n, const hash_line *first, const char *more)
{
    char text[FL_COUNT_BYTES];
    printf("%s lacks %s of weights %s; the first: layer %d after step %" PRId64 "\n", run->dir,
           fl_count(n, "hash", text), more, first->layer, first->step);
}

/* What the job has promised. */
static bool check_promise(const kept_run *run)
{
    char asked[96];
    hash_line first = {0};
    int64_t n = 0;
    for (int64_t i = 0; run->every > 0 && i < run->n_steps; i++) {
        hash_line h = {.step = run->step[i].step + 1};
        for (h.layer = 0; h.step % run->every == 0 && h.layer < run->n_layers; h.layer++) {
            if (!has_hash(run, &h)) {
                first = n++ == 0 ? h : first;
            }
        }
    }
    if (n > 0) {
        snprintf(asked, sizeof asked, "that its job asks for (train.hash_weights: %" PRId64 ")",
                 run->every);
        print_missing(run, n, &first, asked);
    }
    return n == 0;
}

static bool check_against(const kept_run *run, const kept_run *other)
{
    hash_line first = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < other->n_hashes; i++) {
        if (!has_hash(run, &other->hash[i])) {
            first = n++ == 0 ? other->hash[i] : first;
        }
    }
    if (n > 0) {
        print_missing(run, n, &first, "that the other run has");
    }
    return n == 0;
}

static bool compare_hashes(const kept_run *a, const kept_run *b)
{
    int64_t i = 0, j = 0, n = 0;
    while (i < a->n_hashes && j < b->n_hashes) {
        int order = by_step_and_layer(&a->hash[i], &b->hash[j]);
        if (order == 0 && strcmp(a->hash[i].hash, b->hash[j].hash) != 0) {
            print_hashes(&a->hash[i], &b->hash[j]);
            return false;
        }
        n += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    if (n > 0) {
        printf("%" PRId64 " hashes of weights are equal\n", n);
    }
    bool whole_a = check_promise(a) && check_against(a, b);
    bool whole_b = check_promise(b) && check_against(b, a);
    return whole_a && whole_b;
}

static int compare_runs(const kept_run *a, const kept_run *b)
{
    bool steps = compare_steps(a, b);
    bool hashes = compare_hashes(a, b);
    if (steps && hashes) {
        char n[FL_COUNT_BYTES];
        printf("equal to the last bit: %s\n", fl_count(a->n_steps, "step", n));
    }
    return steps && hashes ? FL_EXIT_DONE : DIFFERS;
}

static int run_diff(const fl_args *args)
{
    kept_run a = {0}, b = {0};
    if (args->n_operands != 2) {
        fl_complain("frostline diff: two runs are needed; see frostline diff --help");
        return FL_EXIT_BAD_INPUT;
    }
    fl_status status = read_run(args->operands[0], &a);
    if (status == FL_OK) {
        status = read_run(args->operands[1], &b);
    }
    int code = FL_EXIT_DONE;
    if (status == FL_OK) {
        code = compare_runs(&a, &b);
    } else {
        fl_complain("%s", fl_errmsg());
        code = fl_exit_of(status);
    }
    forget_run(&a);
    forget_run(&b);
    return code;
}

const fl_cli_command fl_cli_command_diff = {
    .name = "diff",
    .operand = "RUN RUN",
    .takes_more = true,
    .summary = "Compare what two runs computed, to the last bit.",
    .details = "RUN is a run directory, or the name of one or of a job below runs/; of several,\n"
               "the newest. Names the first step at which loss, gradient norm, learning rate or\n"
               "F differ, with the bits of each number and both plans, and the first layer\n"
               "whose weights differ, where the jobs set train.hash_weights. Ends with 0 if the\n"
               "runs are equal, with 1 if they differ or one lacks hashes of weights that the\n"
               "other has or its job asks for, with 2 if a run cannot be read.\n",
    .exit_codes = {{FL_EXIT_DEFECT, "the runs differ, or one lacks hashes of weights"}},
    .run = run_diff,
};
