#include "launcher/run/runs/recording_read.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "launcher/run/runs/recording_job.h"
#include "pipe/cost/plan.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 512 * 1024, DECISIONS_MAX = 100000 };

typedef struct recording_reader {
    const char *run_dir;
    const fl_recording_facts *facts;
    fl_recording *recording;
    size_t capacity;
    int64_t line;       /* from 1 */
    int n_workers;      /* ranks */
    int n_started;      /* workers that the run began with */
    int64_t n_steps;    /* of the run that is read */
    int64_t resumed_at; /* the step at which it was resumed last; -1: it was not */
    fl_plan plan;       /* that ran last */
    bool started, planned, ended;
} recording_reader;

/* ---- fields ---- */

static fl_status damaged(const recording_reader *r, const char *format, ...) FL_PRINTF(2, 3);

static fl_status damaged(const recording_reader *r, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fl_fail(FL_EINVAL, "%s/events.jsonl:%" PRId64 ": %s", r->run_dir, r->line, what);
}

static fl_status get_integer(const recording_reader *r, const json_t *event, const char *key,
                             int64_t least, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(event, key);
    if (value == NULL) {
        return damaged(r, "no field \"%s\"", key);
    }
    *out = (int64_t)json_integer_value(value);
    if (!json_is_integer(value) || *out < least || *out > most) {
        return damaged(r, "\"%s\": an integer from %" PRId64 " to %" PRId64 " is expected", key,
                       least, most);
    }
    return FL_OK;
}

static fl_status get_int(const recording_reader *r, const json_t *event, const char *key, int least,
                         int most, int *out)
{
    int64_t value = 0;
    FL_TRY(get_integer(r, event, key, least, most, &value));
    *out = (int)value;
    return FL_OK;
}

/* n integers 0 .. most - 1; *n -1: as many as there are, at most `capacity`. */
static fl_status get_array(const recording_reader *r, const json_t *event, const char *key,
                           int capacity, int most, int *out, int *n)
{
    const json_t *array = json_object_get(event, key);
    size_t size = json_array_size(array);
    if (!json_is_array(array) || size > (size_t)capacity || (*n >= 0 && size != (size_t)*n)) {
        return damaged(r, "\"%s\": not the array that the plan needs", key);
    }
    for (size_t i = 0; i < size; i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 0 || value >= most) {
            return damaged(r, "\"%s\": entry %zu is not an integer from 0 to %d", key, i + 1,
                           most - 1);
        }
        out[i] = (int)value;
    }
    *n = (int)size;
    return FL_OK;
}

static fl_status get_departed(const recording_reader *r, const json_t *event, fl_plan *plan)
{
    int rank[FL_MAX_WORKERS], n = -1;
    FL_TRY(get_array(r, event, "departed", FL_MAX_WORKERS, plan->n_workers, rank, &n));
    for (int i = 0; i < n; i++) {
        plan->departed[rank[i]] = true;
    }
    return FL_OK;
}

static fl_status get_plan(const recording_reader *r, const json_t *event, fl_plan *plan)
{
    *plan = (fl_plan){.generation = 1,
                      .schedule = r->facts->job->pipe.schedule,
                      .n_layers = r->facts->n_layers,
                      .n_workers = r->n_workers};
    FL_TRY(get_int(r, event, "f", 0, FL_MAX_LAYERS, &plan->F));
    FL_TRY(get_int(r, event, "k", 1, FL_MAX_STAGES, &plan->K));
    assert(plan->K >= 1); /* by the range above */
    FL_TRY(get_int(r, event, "r", 1, FL_MAX_WORKERS / plan->K, &plan->R));
    FL_TRY(get_int(r, event, "m", 1, INT_MAX, &plan->M));
    int n_cuts = plan->K + 1, n_ranks = plan->K * plan->R;
    FL_TRY(
        get_array(r, event, "first", FL_MAX_STAGES + 1, FL_MAX_LAYERS + 1, plan->first, &n_cuts));
    FL_TRY(get_array(r, event, "ranks", FL_MAX_WORKERS, plan->n_workers, plan->rank_of, &n_ranks));
    FL_TRY(get_departed(r, event, plan));
    return fl_plan_check(plan) == FL_OK ? FL_OK : damaged(r, "%s", fl_errmsg());
}

/* ---- the events ---- */

/* A repetition starts no process of a worker again. */
static fl_status check_members(const recording_reader *r, const fl_plan *next, int64_t step)
{
    for (int rank = 0; rank < r->n_workers; rank++) {
        if (r->plan.departed[rank] && !next->departed[rank]) {
            return fl_fail(FL_EINVAL,
                           "--replay: in %s, worker %d joined at step %" PRId64
                           "%s: such a run cannot be repeated",
                           r->run_dir, rank, step, rank < r->n_started ? " after it was lost" : "");
        }
    }
    return FL_OK;
}

static fl_status add_recorded(recording_reader *r, fl_recorded recorded)
{
    fl_recording *rec = r->recording;
    if (rec->n > 0 && recorded.step < rec->of[rec->n - 1].step) {
        return damaged(r, "step %" PRId64 " after step %" PRId64, recorded.step,
                       rec->of[rec->n - 1].step);
    }
    if (rec->n == DECISIONS_MAX) {
        return damaged(r, "more than %d decisions", DECISIONS_MAX);
    }
    void *of = rec->of;
    FL_TRY(fl_alloc_room(&of, (size_t)rec->n, 1, sizeof *rec->of, &r->capacity));
    rec->of = of;
    rec->of[rec->n++] = recorded;
    return FL_OK;
}

static fl_status get_step(const recording_reader *r, const json_t *event, const char *key,
                          int64_t *step)
{
    return get_integer(r, event, key, 1, r->n_steps, step);
}

static fl_status add_plan(recording_reader *r, const json_t *event)
{
    fl_recorded recorded = {.kind = FL_RECORDED_PLAN};
    FL_TRY(get_step(r, event, "step", &recorded.step));
    if (recorded.step == r->facts->n_steps) {
        return FL_OK; /* decided in the last step: no step ran under it */
    }
    FL_TRY(fl_alloc(sizeof *recorded.plan, (void **)&recorded.plan));
    fl_status status = get_plan(r, event, recorded.plan);
    if (status == FL_OK) {
        status = check_members(r, recorded.plan, recorded.step);
    }
    if (status == FL_OK) {
        r->plan = *recorded.plan;
        status = add_recorded(r, recorded);
    }
    if (status != FL_OK) {
        fl_free(recorded.plan);
    }
    return status;
}

static fl_status add_change(recording_reader *r, const json_t *event)
{
    fl_recorded recorded = {.kind = FL_RECORDED_LR};
    const char *field = json_string_value(json_object_get(event, "field"));
    const json_t *value = json_object_get(event, "value");
    if (field == NULL) {
        return damaged(r, "no field \"field\"");
    }
    if (strcmp(field, "train.lr") != 0) {
        return FL_OK;
    }
    recorded.value = json_number_value(value);
    if (!json_is_number(value) || !(recorded.value > 0.0 && recorded.value <= 100.0)) {
        return damaged(r, "\"value\": a number above 0 and up to 100 is expected");
    }
    FL_TRY(get_step(r, event, "step", &recorded.step));
    return recorded.step == r->facts->n_steps ? FL_OK : add_recorded(r, recorded);
}

/* For lack of improvement the run ended at this very step, on request with its epoch. */
static fl_status add_ending(recording_reader *r, const json_t *event)
{
    bool early = json_object_get(event, "why") != NULL;
    fl_recorded recorded = {.kind = early ? FL_RECORDED_END : FL_RECORDED_END_EPOCH};
    FL_TRY(get_step(r, event, "step", &recorded.step));
    return recorded.step == r->facts->n_steps ? FL_OK : add_recorded(r, recorded);
}

/* A run that ended early makes its repetition end at the same step. */
static fl_status add_end(recording_reader *r, const json_t *event)
{
    fl_recorded recorded = {.kind = FL_RECORDED_STOP};
    FL_TRY(get_integer(r, event, "steps", 0, r->n_steps, &recorded.step));
    r->ended = true;
    const fl_recording *rec = r->recording;
    bool decided = rec->n > 0 && (rec->of[rec->n - 1].kind == FL_RECORDED_END_EPOCH ||
                                  rec->of[rec->n - 1].kind == FL_RECORDED_END);
    if (recorded.step == 0) {
        return damaged(r, "the run ended before its first step: there is nothing to repeat");
    }
    return decided || recorded.step == r->facts->n_steps ? FL_OK : add_recorded(r, recorded);
}

static fl_status differs(const recording_reader *r, const char *what, int64_t here, int64_t there)
{
    return fl_fail(FL_EINVAL, "--replay: %s has %" PRId64 " %s, this run has %" PRId64, r->run_dir,
                   there, what, here);
}

static fl_status check_data(const recording_reader *r, const json_t *event)
{
    char here[24];
    const char *there =
        json_string_value(json_object_get(json_object_get(event, "data"), "fingerprint"));
    const char *kernels = json_string_value(json_object_get(event, "kernels"));
    snprintf(here, sizeof here, "%016" PRIx64, r->facts->data_fingerprint);
    if (there != NULL && r->facts->data_fingerprint != 0 && strcmp(here, there) != 0) {
        return fl_fail(FL_EINVAL,
                       "--replay: data: %s was trained on other data (fingerprint %.16s, here %s)",
                       r->run_dir, there, here);
    }
    if (kernels != NULL && r->facts->kernels != NULL && strcmp(kernels, r->facts->kernels) != 0) {
        fl_log(FL_LOG_WARN,
               "%s ran with kernels for %.40s, this run has those for %s: losses will differ in "
               "the last bits",
               r->run_dir, kernels, r->facts->kernels);
    }
    return FL_OK;
}

/* The fields that run.started and run.resumed both have. */
static fl_status take_machine(recording_reader *r, const json_t *event)
{
    int64_t devices = 0;
    size_t n_workers = json_array_size(json_object_get(event, "workers"));
    int n_ranks = (int)n_workers;
    if (json_object_get(event, "max_workers") != NULL) {
        FL_TRY(get_int(r, event, "max_workers", 1, FL_MAX_WORKERS, &n_ranks));
    }
    FL_TRY(get_integer(r, event, "steps", 1, INT64_MAX, &r->n_steps));
    FL_TRY(get_integer(r, event, "devices", 1, INT_MAX, &devices));
    if (n_workers < 1 || n_workers > FL_MAX_WORKERS) {
        return damaged(r, "\"workers\": an array of 1 to %d workers is expected", FL_MAX_WORKERS);
    }
    if (devices != r->facts->n_devices || n_ranks > r->facts->n_ranks) {
        return differs(r, "devices", r->facts->n_devices, devices);
    }
    if (r->started && (int)n_workers != r->n_started) {
        return fl_fail(FL_EINVAL,
                       "--replay: %s was resumed with %zu workers, after %d: only a run with the "
                       "same workers throughout can be repeated",
                       r->run_dir, n_workers, r->n_started);
    }
    r->n_workers = n_ranks;
    r->n_started = (int)n_workers;
    return FL_OK;
}

static fl_status take_start(recording_reader *r, const json_t *event)
{
    int64_t samples = 0;
    FL_TRY(get_integer(r, event, "samples", 1, INT64_MAX, &samples));
    if (samples != r->facts->n_samples) {
        return differs(r, "training samples", r->facts->n_samples, samples);
    }
    FL_TRY(take_machine(r, event));
    r->started = true;
    return check_data(r, event);
}

/* Fields that only decide about plans, which the events have. */
static bool decides_plan(const char *path)
{
    static const char *const plans[] = {"pipe.k", "pipe.m", "pipe.partition", "autodp.r"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        if (strcmp(path, plans[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The resumed run had all of its workers again, which a repetition cannot start a second time. */
static fl_status check_departed(const recording_reader *r)
{
    for (int rank = 0; rank < r->n_started; rank++) {
        if (r->plan.departed[rank]) {
            return fl_fail(FL_EINVAL,
                           "--replay: %s was resumed at step %" PRId64
                           " after worker %d had left: only a run with the same workers throughout "
                           "can be repeated",
                           r->run_dir, r->resumed_at, rank);
        }
    }
    return FL_OK;
}

/* A repetition has one job for all of its steps. */
static fl_status take_resume(recording_reader *r, const json_t *event)
{
    const json_t *changed = json_object_get(event, "changed"), *field;
    size_t i;
    FL_TRY(get_integer(r, event, "step", 0, r->n_steps, &r->resumed_at));
    json_array_foreach((json_t *)changed, i, field)
    {
        const char *path = json_string_value(field);
        if (path != NULL && !fl_recording_may_differ(path) && !decides_plan(path)) {
            return fl_fail(FL_EINVAL,
                           "--replay: %s was resumed at step %" PRId64
                           " with another %.64s: only a run with the same job throughout can be "
                           "repeated",
                           r->run_dir, r->resumed_at, path);
        }
    }
    FL_TRY(check_departed(r));
    return take_machine(r, event);
}

/* Decides nothing where the checkpoint's plan ran on. */
static fl_status add_resumed_plan(recording_reader *r, const json_t *event)
{
    fl_plan plan;
    FL_TRY(get_plan(r, event, &plan));
    if (fl_plan_is_same(&plan, &r->plan) || r->resumed_at == r->facts->n_steps) {
        return FL_OK;
    }
    fl_recorded recorded = {.kind = FL_RECORDED_PLAN, .step = r->resumed_at};
    FL_TRY(fl_alloc(sizeof *recorded.plan, (void **)&recorded.plan));
    *recorded.plan = r->plan = plan;
    fl_status status = add_recorded(r, recorded);
    if (status != FL_OK) {
        fl_free(recorded.plan);
    }
    return status;
}

static fl_status take_chosen_plan(recording_reader *r, const json_t *event)
{
    if (r->planned && r->resumed_at > 0) {
        return add_resumed_plan(r, event);
    }
    r->planned = true;
    FL_TRY(get_plan(r, event, &r->recording->first));
    r->plan = r->recording->first;
    return FL_OK;
}

static const struct {
    const char *name;
    fl_status (*take)(recording_reader *r, const json_t *event);
} takers[] = {
    {"run.started", take_start},   {"run.resumed", take_resume}, {"plan.chosen", take_chosen_plan},
    {"transition.done", add_plan}, {"job.changed", add_change},  {"run.ending", add_ending},
    {"run.finished", add_end},     {"run.stopped", add_end},     {"run.failed", add_end},
};

static fl_status take_event(recording_reader *r, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    if (name == NULL) {
        return damaged(r, "no field \"event\"");
    }
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
        if (strcmp(name, takers[i].name) == 0) {
            bool first = takers[i].take == take_start;
            if (first == r->started) {
                return damaged(r, first ? "a second run.started" : "%s before run.started", name);
            }
            return takers[i].take(r, event);
        }
    }
    return FL_OK;
}

static fl_status take_line(recording_reader *r, const char *text, size_t n)
{
    json_error_t error;
    r->line++;
    if (n == 0 || text[n - 1] != '\n') {
        return damaged(r, n + 1 >= LINE_BYTES_MAX ? "longer than any event" : "cut before its end");
    }
    json_t *event = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    fl_status status = json_is_object(event) ? take_event(r, event)
                       : event == NULL       ? damaged(r, "%s", error.text)
                                             : damaged(r, "not an object");
    json_decref(event);
    return status;
}

/* getline would allocate memory for a line of any length. */
static fl_status read_lines(recording_reader *r, FILE *file)
{
    void *buffer = NULL;
    FL_TRY(fl_alloc(LINE_BYTES_MAX, &buffer));
    char *line = buffer;
    fl_status status = FL_OK;
    while (status == FL_OK && fgets(line, LINE_BYTES_MAX, file) != NULL) {
        status = take_line(r, line, strlen(line));
    }
    fl_free(buffer);
    if (status == FL_OK && ferror(file)) {
        return fl_fail(FL_EINVAL, "%s/events.jsonl: %s", r->run_dir, strerror(errno));
    }
    return status;
}

static fl_status open_events(const char *run_dir, FILE **out)
{
    char path[PATH_MAX];
    const char *why;
    snprintf(path, sizeof path, "%s/events.jsonl", run_dir);
    int fd = fl_regular_file_open(AT_FDCWD, path, &why);
    if (fd < 0) {
        return fl_fail(FL_EINVAL, "--replay: %s: %s", path, why);
    }
    *out = fdopen(fd, "r");
    if (*out == NULL) {
        close(fd);
        return fl_fail(FL_ENOMEM, "--replay: %s: %s", path, strerror(errno));
    }
    return FL_OK;
}

static fl_status read_events(recording_reader *r)
{
    FILE *file = NULL;
    FL_TRY(open_events(r->run_dir, &file));
    fl_status status = read_lines(r, file);
    fclose(file);
    if (status == FL_OK && !r->planned) {
        return fl_fail(FL_EINVAL, "%s/events.jsonl: no event plan.chosen: the run never began",
                       r->run_dir);
    }
    if (status == FL_OK && r->n_steps != r->facts->n_steps) {
        return differs(r, "steps", r->facts->n_steps, r->n_steps);
    }
    if (status == FL_OK && !r->ended) {
        fl_log(FL_LOG_WARN,
               "%s has no end: after its last decision the run goes on to the end of "
               "the job",
               r->run_dir);
    }
    return status;
}

fl_status fl_recording_read(const char *run_dir, const fl_recording_facts *facts,
                            fl_recording *recording)
{
    recording_reader r = {
        .run_dir = run_dir, .facts = facts, .recording = recording, .resumed_at = -1};
    FL_TRY(fl_recording_check_job(run_dir, facts->job));
    return read_events(&r);
}
