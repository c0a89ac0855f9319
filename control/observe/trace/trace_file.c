#include "control/observe/trace/trace.h"

#include "control/events/fields.h"
#include "control/events/json.h"
#include "device/system/alloc.h"
#include "device/system/files/input_file.h"

#include <jansson.h>
#include <string.h>

enum { MAIN_THREAD = 1 }; /* thread numbers are roles */

static const double DURATION_MAX_US = (double)FL_TRACE_DURATION_MAX_NS * 1e-3;

/* ---- writing ---- */

static const char *role_text(int role)
{
    return role == FL_FLIGHT_MAIN      ? "steps"
           : role == FL_FLIGHT_REDUCER ? "all-reduce"
           : role == FL_FLIGHT_DEVICE  ? "device"
                                       : "transition";
}

static fl_status put_object(fl_json *j, const char *before, FILE *file)
{
    if (j->broken) {
        return fl_fail(FL_ENOMEM, "no memory for a line of the trace");
    }
    fputs(before, file);
    if (fwrite(j->text, 1, j->n, file) != j->n) {
        return fl_fail(FL_EIO, "the trace could not be written");
    }
    fl_json_reset(j);
    return FL_OK;
}

/* The operation's name in Perfetto: equal for equal work. */
static void name_of(const fl_trace_about *about, const fl_trace_event *event, char *text,
                    size_t size)
{
    const fl_flight_entry *e = &event->e;
    bool layered = event->role != FL_FLIGHT_DEVICE &&
                   (e->kind == FL_FLIGHT_FORWARD || e->kind == FL_FLIGHT_BACKWARD);
    if (layered && e->item >= 0 && e->item < about->n_layers) {
        snprintf(text, size, "%s %d %s", fl_flight_text(e->kind), e->item,
                 about->layer[e->item].kind);
    } else if (layered) {
        snprintf(text, size, "%s %d", fl_flight_text(e->kind), e->item);
    } else {
        snprintf(text, size, "%s", fl_flight_text(e->kind));
    }
}

static void write_event(fl_json *j, const fl_trace_about *about, const fl_trace_event *event,
                        int64_t zero_ns)
{
    const fl_flight_entry *e = &event->e;
    char name[96];
    name_of(about, event, name, sizeof name);
    fl_json_object(j, NULL);
    fl_json_text(j, "name", name);
    fl_json_text(j, "cat", fl_flight_category_text(fl_flight_category_of(e->kind)));
    fl_json_text(j, "ph", "X");
    fl_json_integer(j, "pid", event->rank);
    fl_json_integer(j, "tid", event->role);
    fl_json_rounded(j, "ts", (double)(e->entered_ns - zero_ns) * 1e-3, 3);
    fl_json_rounded(j, "dur", (double)(e->left_ns - e->entered_ns) * 1e-3, 3);
    fl_json_object(j, "args");
    fl_json_text(j, "operation", fl_flight_text(e->kind));
    fl_json_integer(j, "generation", e->generation);
    fl_json_integer(j, "step", e->step);
    fl_json_integer(j, "micro_batch", e->micro_batch);
    fl_json_integer(j, "item", e->item);
    fl_json_integer(j, "peer", e->peer);
    fl_json_integer(j, "bytes", e->bytes);
    fl_json_close(j, '}');
    fl_json_close(j, '}');
}

static void write_name(fl_json *j, const char *what, int pid, int tid, const char *name)
{
    fl_json_object(j, NULL);
    fl_json_text(j, "name", what);
    fl_json_text(j, "ph", "M");
    fl_json_integer(j, "pid", pid);
    fl_json_integer(j, "tid", tid);
    fl_json_object(j, "args");
    fl_json_text(j, "name", name);
    fl_json_close(j, '}');
    fl_json_close(j, '}');
}

static fl_status write_names(fl_json *j, const fl_trace_data *trace, FILE *file)
{
    const fl_trace_about *about = &trace->about;
    char name[160];
    for (int rank = 0; rank < about->n_workers; rank++) {
        fl_place place = {.active = false};
        if (about->n_plans > 0) {
            place = fl_plan_place(&about->plan[0], rank);
        }
        if (place.active) {
            snprintf(name, sizeof name, "worker %d: stage %d of replica %d", rank, place.stage,
                     place.replica);
        } else {
            snprintf(name, sizeof name, "worker %d: standby", rank);
        }
        const fl_trace_host *host = fl_trace_host_of(trace, rank);
        if (host != NULL) {
            size_t n = strlen(name);
            snprintf(name + n, sizeof name - n, ", host %s", host->name);
        }
        write_name(j, "process_name", rank, MAIN_THREAD, name);
        FL_TRY(put_object(j, rank == 0 ? "\n" : ",\n", file));
        for (int role = FL_FLIGHT_MAIN; role < FL_FLIGHT_ROLES; role++) {
            write_name(j, "thread_name", rank, role, role_text(role));
            FL_TRY(put_object(j, ",\n", file));
        }
    }
    return FL_OK;
}

static void write_plan(fl_json *j, const fl_plan *plan)
{
    fl_json_object(j, NULL);
    fl_json_integer(j, "generation", plan->generation);
    fl_fields_plan(j, plan);
    fl_json_text(j, "schedule", fl_schedule_text(plan->schedule));
    fl_json_array(j, "rank_of");
    for (int i = 0; i < plan->K * plan->R; i++) {
        fl_json_integer(j, NULL, fl_plan_active(plan, i));
    }
    fl_json_close(j, ']');
    fl_json_close(j, '}');
}

static void write_hosts(fl_json *j, const fl_trace_data *trace)
{
    fl_json_array(j, "hosts");
    for (int i = 0; i < trace->n_hosts; i++) {
        const fl_trace_host *host = &trace->hosts[i];
        fl_json_object(j, NULL);
        fl_json_text(j, "host", host->name);
        fl_json_integer(j, "first_worker", host->first);
        fl_json_integer(j, "workers", host->n);
        fl_json_integer(j, "offset_ns", host->offset_ns);
        fl_json_integer(j, "error_ns", host->error_ns);
        fl_json_integer(j, "drift_ppb", host->drift_ppb);
        fl_json_text(j, "missing", host->missing);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void write_about(fl_json *j, const fl_trace_data *trace)
{
    const fl_trace_about *about = &trace->about;
    fl_json_object(j, NULL);
    fl_json_integer(j, "version", 1);
    fl_json_text(j, "job", about->job);
    fl_json_integer(j, "workers", about->n_workers);
    fl_json_integer(j, "first_step", about->first_step);
    fl_json_integer(j, "steps", about->n_steps);
    fl_json_integer(j, "batch", about->batch);
    fl_json_integer(j, "lost", about->lost);
    if (trace->n_hosts > 0) {
        write_hosts(j, trace);
    }
    fl_json_array(j, "layers");
    for (int i = 0; i < about->n_layers; i++) {
        fl_json_object(j, NULL);
        fl_json_text(j, "kind", about->layer[i].kind);
        fl_json_rounded(j, "fwd_us", about->layer[i].fwd_us, 6);
        fl_json_rounded(j, "bwd_us", about->layer[i].bwd_us, 6);
        fl_json_rounded(j, "call_us", about->layer[i].call_us, 6);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    fl_json_array(j, "plans");
    for (int i = 0; i < about->n_plans; i++) {
        write_plan(j, &about->plan[i]);
    }
    fl_json_close(j, ']');
    fl_json_close(j, '}');
}

static fl_status write_all(const fl_trace_data *trace, fl_json *j, FILE *file)
{
    int64_t zero_ns = trace->n > 0 ? trace->events[0].e.entered_ns : 0;
    for (size_t i = 1; i < trace->n; i++) {
        int64_t at = trace->events[i].e.entered_ns;
        zero_ns = at < zero_ns ? at : zero_ns;
    }
    write_about(j, trace);
    FL_TRY(put_object(j, "{\"displayTimeUnit\": \"ms\",\n\"frostline\": ", file));
    fputs(",\n\"traceEvents\": [", file);
    FL_TRY(write_names(j, trace, file));
    for (size_t i = 0; i < trace->n; i++) {
        write_event(j, &trace->about, &trace->events[i], zero_ns);
        FL_TRY(put_object(j, i == 0 && trace->about.n_workers == 0 ? "\n" : ",\n", file));
    }
    fputs("\n]}\n", file);
    return ferror(file) ? fl_fail(FL_EIO, "the trace could not be written") : FL_OK;
}

fl_status fl_trace_write(const fl_trace_data *trace, FILE *file)
{
    fl_json j = {.text = NULL};
    fl_status status = write_all(trace, &j, file);
    fl_json_fini(&j);
    return status;
}

/* ---- reading ---- */

static fl_status integer(const json_t *object, const char *key, int64_t least, int64_t most,
                         int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most) {
        return fl_fail(FL_EFORMAT, "\"%s\" is not a number from %lld to %lld", key,
                       (long long)least, (long long)most);
    }
    *out = json_integer_value(value);
    return FL_OK;
}

static fl_status small(const json_t *object, const char *key, int least, int most, int *out)
{
    int64_t value = 0;
    FL_TRY(integer(object, key, least, most, &value));
    *out = (int)value;
    return FL_OK;
}

static fl_status real(const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || !(json_number_value(value) >= -1e15) ||
        !(json_number_value(value) <= 1e15)) {
        return fl_fail(FL_EFORMAT, "\"%s\" is not a number", key);
    }
    *out = json_number_value(value);
    return FL_OK;
}

static fl_status text(const json_t *object, const char *key, char *out, size_t size_bytes)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL || strlen(value) >= size_bytes) {
        return fl_fail(FL_EFORMAT, "\"%s\" is not a text of less than %zu bytes", key, size_bytes);
    }
    memcpy(out, value, strlen(value) + 1);
    return FL_OK;
}

static fl_status numbers(const json_t *object, const char *key, int n, int most, int *out)
{
    const json_t *list = json_object_get(object, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n) {
        return fl_fail(FL_EFORMAT, "\"%s\" is not a list of %d numbers", key, n);
    }
    for (int i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > most) {
            return fl_fail(FL_EFORMAT, "\"%s\" has something else than numbers up to %d", key,
                           most);
        }
        out[i] = (int)json_integer_value(value);
    }
    return FL_OK;
}

static fl_status read_plan(const json_t *object, int n_workers, int n_layers, fl_plan *plan)
{
    char schedule[16];
    int64_t generation = 0;
    *plan = (fl_plan){.n_workers = n_workers, .n_layers = n_layers};
    FL_TRY(integer(object, "generation", 0, UINT32_MAX, &generation));
    plan->generation = (uint32_t)generation;
    FL_TRY(small(object, "f", 0, FL_MAX_LAYERS, &plan->F));
    FL_TRY(small(object, "k", 1, FL_MAX_STAGES, &plan->K));
    FL_TRY(small(object, "r", 1, n_workers, &plan->R));
    FL_TRY(small(object, "m", 1, 4096, &plan->M));
    FL_TRY(text(object, "schedule", schedule, sizeof schedule));
    plan->schedule = strcmp(schedule, "gpipe") == 0 ? FL_GPIPE : FL_1F1B;
    if (plan->K * plan->R > n_workers) {
        return fl_fail(FL_EFORMAT, "a plan of %d x %d for %d workers", plan->K, plan->R, n_workers);
    }
    FL_TRY(numbers(object, "first", plan->K + 1, FL_MAX_LAYERS, plan->first));
    return numbers(object, "rank_of", plan->K * plan->R, n_workers - 1, plan->rank_of);
}

static fl_status read_layers(const json_t *list, fl_trace_about *about)
{
    if (!json_is_array(list) || json_array_size(list) > FL_MAX_LAYERS) {
        return fl_fail(FL_EFORMAT, "\"layers\" is not a list of at most %d", FL_MAX_LAYERS);
    }
    about->n_layers = (int)json_array_size(list);
    for (int i = 0; i < about->n_layers; i++) {
        const json_t *object = json_array_get(list, (size_t)i);
        fl_trace_layer *layer = &about->layer[i];
        FL_TRY(text(object, "kind", layer->kind, sizeof layer->kind));
        FL_TRY(real(object, "fwd_us", &layer->fwd_us));
        FL_TRY(real(object, "bwd_us", &layer->bwd_us));
        FL_TRY(real(object, "call_us", &layer->call_us));
    }
    return FL_OK;
}

static fl_status read_host(const json_t *object, fl_trace_host *host)
{
    FL_TRY(text(object, "host", host->name, sizeof host->name));
    FL_TRY(small(object, "first_worker", 0, FL_MAX_WORKERS - 1, &host->first));
    FL_TRY(small(object, "workers", 1, FL_MAX_WORKERS, &host->n));
    FL_TRY(integer(object, "offset_ns", INT64_MIN, INT64_MAX, &host->offset_ns));
    FL_TRY(integer(object, "error_ns", 0, INT64_MAX, &host->error_ns));
    FL_TRY(integer(object, "drift_ppb", INT64_MIN, INT64_MAX, &host->drift_ppb));
    return text(object, "missing", host->missing, sizeof host->missing);
}

/* Of a run on several hosts. */
static fl_status read_hosts(const json_t *list, fl_trace_data *trace)
{
    size_t n = json_array_size(list);
    if (list == NULL) {
        return FL_OK;
    }
    if (!json_is_array(list) || n < 1 || n > FL_MAX_WORKERS) {
        return fl_fail(FL_EFORMAT, "\"hosts\" is not a list of 1 to %d", FL_MAX_WORKERS);
    }
    FL_TRY(fl_trace_make_hosts(trace, (int)n));
    for (size_t i = 0; i < n; i++) {
        FL_TRY(read_host(json_array_get(list, i), &trace->hosts[i]));
    }
    return FL_OK;
}

static fl_status read_about(const json_t *object, fl_trace_about *about)
{
    const json_t *plans = json_object_get(object, "plans");
    int64_t version = 0;
    if (!json_is_object(object)) {
        return fl_fail(FL_EFORMAT, "no \"frostline\": it is not a trace of this program");
    }
    FL_TRY(integer(object, "version", 1, 1, &version));
    FL_TRY(text(object, "job", about->job, sizeof about->job));
    FL_TRY(small(object, "workers", 1, FL_MAX_WORKERS, &about->n_workers));
    FL_TRY(integer(object, "first_step", 0, INT64_MAX / 2, &about->first_step));
    FL_TRY(integer(object, "steps", 1, FL_TRACE_STEPS_MAX, &about->n_steps));
    FL_TRY(integer(object, "batch", 1, INT64_MAX / 2, &about->batch));
    FL_TRY(integer(object, "lost", 0, INT64_MAX / 2, &about->lost));
    FL_TRY(read_layers(json_object_get(object, "layers"), about));
    if (!json_is_array(plans) || json_array_size(plans) > FL_TRACE_PLANS) {
        return fl_fail(FL_EFORMAT, "\"plans\" is not a list of at most %d", FL_TRACE_PLANS);
    }
    about->n_plans = (int)json_array_size(plans);
    for (int i = 0; i < about->n_plans; i++) {
        FL_TRY(read_plan(json_array_get(plans, (size_t)i), about->n_workers, about->n_layers,
                         &about->plan[i]));
    }
    return FL_OK;
}

static fl_status read_kind(const json_t *args, fl_flight_kind *kind)
{
    char operation[64];
    FL_TRY(text(args, "operation", operation, sizeof operation));
    for (int i = FL_FLIGHT_NONE + 1; i < FL_FLIGHT_KINDS; i++) {
        if (strcmp(fl_flight_text((fl_flight_kind)i), operation) == 0) {
            *kind = (fl_flight_kind)i;
            return FL_OK;
        }
    }
    return fl_fail(FL_EFORMAT, "unknown operation \"%s\"", operation);
}

static fl_status read_event(const json_t *object, const fl_trace_about *about, fl_trace_event *out)
{
    const json_t *args = json_object_get(object, "args");
    int64_t generation = 0;
    double ts = 0.0, dur = 0.0;
    fl_flight_entry *e = &out->e;
    memset(out, 0, sizeof *out);
    FL_TRY(small(object, "pid", 0, about->n_workers - 1, &out->rank));
    FL_TRY(small(object, "tid", FL_FLIGHT_MAIN, FL_FLIGHT_ROLES - 1, &out->role));
    FL_TRY(real(object, "ts", &ts));
    FL_TRY(real(object, "dur", &dur));
    FL_TRY(read_kind(args, &e->kind));
    FL_TRY(integer(args, "generation", 0, UINT32_MAX, &generation));
    FL_TRY(integer(args, "step", 0, INT64_MAX / 2, &e->step));
    FL_TRY(small(args, "micro_batch", -1, INT32_MAX, &e->micro_batch));
    FL_TRY(small(args, "item", -1, INT32_MAX, &e->item));
    FL_TRY(small(args, "peer", -1, FL_MAX_WORKERS, &e->peer));
    FL_TRY(integer(args, "bytes", 0, INT64_MAX / 2, &e->bytes));
    if (!(dur >= 0.0 && dur <= DURATION_MAX_US)) { /* so that sums of durations stay finite */
        return fl_fail(FL_EFORMAT, "\"dur\" is below 0, or more than an hour");
    }
    e->generation = (uint32_t)generation;
    e->entered_ns = (int64_t)(ts * 1e3 + (ts < 0 ? -0.5 : 0.5));
    e->left_ns = e->entered_ns + (int64_t)(dur * 1e3 + 0.5);
    return FL_OK;
}

static fl_status read_events(const json_t *list, fl_trace_data *trace)
{
    if (!json_is_array(list)) {
        return fl_fail(FL_EFORMAT, "\"traceEvents\" is not a list");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        const char *phase = json_string_value(json_object_get(object, "ph"));
        fl_trace_event event;
        if (phase == NULL || strcmp(phase, "X") != 0) {
            continue; /* names, and events that other programs add */
        }
        fl_status status = read_event(object, &trace->about, &event);
        if (status != FL_OK) {
            return fl_within(status, "traceEvents[%zu]", i);
        }
        FL_TRY(fl_trace_add(trace, &event));
    }
    return FL_OK;
}

/* The state of reading the file's text. */
typedef struct trace_text {
    fl_input in;
    fl_status status;
} trace_text;

static size_t next_text(void *buffer, size_t capacity, void *context)
{
    trace_text *text = context;
    size_t n = 0;
    text->status = fl_input_read(&text->in, buffer, capacity, &n);
    return text->status == FL_OK ? n : (size_t)-1;
}

static fl_status load_json(const char *path, json_t **root)
{
    json_error_t error;
    trace_text text = {.status = FL_OK};
    FL_TRY(fl_input_open(path, &text.in));
    *root = json_load_callback(next_text, &text, JSON_REJECT_DUPLICATES, &error);
    fl_input_close(&text.in);
    if (*root != NULL || text.status != FL_OK) {
        return text.status;
    }
    return fl_fail(FL_EFORMAT, "%s:%d:%d: %s; a trace-A-B.json of a run directory expected", path,
                   error.line, error.column, error.text);
}

fl_status fl_trace_read(const char *path, fl_trace_data *trace)
{
    json_t *root = NULL;
    FL_TRY(load_json(path, &root));
    fl_status status = read_about(json_object_get(root, "frostline"), &trace->about);
    if (status == FL_OK) {
        status = read_hosts(json_object_get(json_object_get(root, "frostline"), "hosts"), trace);
    }
    if (status == FL_OK) {
        status = read_events(json_object_get(root, "traceEvents"), trace);
    }
    json_decref(root);
    return status == FL_OK ? FL_OK : fl_within(status, "%s", path);
}
