/* Gathers what the workers' flight recorders show, on request. */
#include "control/observe/flight_dump.h"

#include "control/events/fields.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { RECENT = 16 };

fl_status fl_flight_dump_init(fl_flight_dump *dump, const fl_run_facts *run)
{
    *dump = (fl_flight_dump){.run = run};
    return fl_alloc_array((size_t)run->n_workers, sizeof *dump->workers, (void **)&dump->workers);
}

void fl_flight_dump_fini(fl_flight_dump *dump)
{
    fl_free(dump->workers);
    dump->workers = NULL;
}

static bool is_phase(const fl_flight_entry *e)
{
    return fl_flight_category_of(e->kind) == FL_FLIGHT_IS_PHASE;
}

/* The newest entry of a kind on the main track: open, or finished and still in the ring. */
static fl_flight_entry newest(const fl_flight *flight, int rank, const fl_flight_view *view,
                              fl_flight_kind kind)
{
    fl_flight_entry found = {.kind = FL_FLIGHT_NONE};
    for (int i = view->depth - 1; i >= 0; i--) {
        if (view->open[i].kind == kind) {
            return view->open[i];
        }
    }
    (void)fl_flight_newest(flight, rank, 0, kind, &found);
    return found;
}

static bool later(const fl_flight_entry *a, const fl_flight_entry *b)
{
    return b->kind == FL_FLIGHT_NONE || a->entered_ns > b->entered_ns;
}

/* The all-reduce started last, on any communication thread: the main thread waits only for an
 * all-reduce that it has started. */
static fl_flight_entry newest_reduce(const fl_flight *flight, int rank, const fl_flight_entry *at)
{
    fl_flight_entry found = {.kind = FL_FLIGHT_NONE};
    if (at->kind == FL_FLIGHT_REDUCE_WAIT) {
        return *at;
    }
    /* Over NCCL there is no such thread, and the main one leaves before the device has it. */
    (void)fl_flight_newest(flight, rank, 0, FL_FLIGHT_REDUCE_WAIT, &found);
    for (int track = 1; track < FL_FLIGHT_TRACKS; track++) {
        fl_flight_view view;
        fl_flight_look(flight, rank, track, &view);
        const fl_flight_entry *e = view.depth > 0 ? &view.open[0] : &view.last;
        if (e->kind == FL_FLIGHT_REDUCE && later(e, &found)) {
            found = *e;
        }
    }
    return found;
}

static fl_wait_graph_worker look_at(const fl_flight *flight, int rank)
{
    fl_wait_graph_worker w = {.at = {.kind = FL_FLIGHT_NONE}};
    fl_flight_view view;
    fl_flight_look_training(flight, rank, &view);
    w.last = view.last;
    if (view.depth > 0) {
        w.at = view.open[view.depth - 1];
    }
    for (int i = 0; i < view.depth; i++) {
        w.phase = is_phase(&view.open[i]) ? view.open[i] : w.phase;
    }
    w.sum = newest(flight, rank, &view, FL_FLIGHT_SUM);
    w.gather = newest(flight, rank, &view, FL_FLIGHT_GATHER);
    w.reduce = newest_reduce(flight, rank, &w.at);
    return w;
}

const char *fl_flight_dump_explain(fl_flight_dump *dump, int lost, char *text, size_t size_bytes)
{
    const fl_run_facts *run = dump->run;
    const fl_plan_input *input = run->options->plan_input;
    for (int i = 0; i < run->n_started; i++) {
        dump->workers[i] = look_at(run->flight, i);
    }
    return fl_wait_graph_explain(dump->workers, run->n_started, run->plan,
                                 input == NULL ? NULL : input->model, lost, fl_now_ns(), text,
                                 size_bytes);
}

int fl_flight_dump_culprit(const fl_flight_dump *dump)
{
    return fl_wait_graph_culprit(dump->workers, dump->run->n_started, dump->run->plan);
}

/* The first generation is opened by the thread that trains, a later one by one beside it. */
static fl_flight_entry opening_of(const fl_flight *flight, int rank)
{
    fl_flight_entry none = {.kind = FL_FLIGHT_NONE};
    for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
        fl_flight_view view;
        fl_flight_look(flight, rank, track, &view);
        const fl_flight_entry *e = view.depth > 0 ? &view.open[view.depth - 1] : &none;
        if (fl_wait_graph_opens(e->kind)) {
            return *e;
        }
    }
    return none;
}

const char *fl_flight_dump_openings(const fl_flight_dump *dump, char *text, size_t size_bytes)
{
    fl_flight_entry call[FL_MAX_WORKERS];
    for (int rank = 0; rank < dump->run->n_started; rank++) {
        call[rank] = opening_of(dump->run->flight, rank);
    }
    return fl_wait_graph_openings(call, dump->run->n_started, text, size_bytes);
}

/* ---- as JSON ---- */

/* The clocks of other hosts are known to some microseconds: nothing begins after now. */
static double seconds_ago(int64_t now_ns, int64_t at_ns)
{
    return at_ns < now_ns ? (double)(now_ns - at_ns) * 1e-9 : 0.0;
}

static void entry_fields(fl_json *j, const fl_flight_entry *e, int64_t now_ns)
{
    fl_json_object(j, NULL);
    fl_json_text(j, "operation", fl_flight_text(e->kind));
    fl_json_integer(j, "generation", e->generation);
    fl_json_integer(j, "step", e->step);
    if (e->micro_batch >= 0) {
        fl_json_integer(j, "micro_batch", e->micro_batch);
    }
    if (e->item >= 0) {
        fl_json_integer(j, "item", e->item);
    }
    if (e->peer >= 0) {
        fl_json_integer(j, "peer", e->peer);
    }
    if (e->bytes > 0) {
        fl_json_integer(j, "bytes", e->bytes);
    }
    fl_json_rounded(j, "entered_s_ago", seconds_ago(now_ns, e->entered_ns), 6);
    if (e->left_ns > 0) {
        fl_json_rounded(j, "left_s_ago", seconds_ago(now_ns, e->left_ns), 6);
    }
    fl_json_close(j, '}');
}

static const char *role_text(fl_flight_role role)
{
    return role == FL_FLIGHT_MAIN       ? "main"
           : role == FL_FLIGHT_REDUCER  ? "all-reduce"
           : role == FL_FLIGHT_PREPARER ? "transition"
           : role == FL_FLIGHT_DEVICE   ? "device"
           : role == FL_FLIGHT_AWAITED  ? "device waits"
                                        : "none";
}

/* The worker goes on meanwhile: what is read later may be newer, so it is all read before the time.
 */
static void track_fields(fl_json *j, const fl_flight *flight, int rank, int track)
{
    fl_flight_view view;
    fl_flight_entry recent[RECENT];
    uint64_t lost = 0;
    fl_flight_look(flight, rank, track, &view);
    if (view.role == FL_FLIGHT_NOBODY) {
        return;
    }
    uint64_t written = fl_flight_written(flight, rank, track);
    uint64_t cursor = written > RECENT ? written - RECENT : 0;
    int n = fl_flight_read(flight, rank, track, &cursor, recent, RECENT, &lost);
    int64_t now_ns = fl_now_ns();
    fl_json_object(j, NULL);
    fl_json_text(j, "thread", role_text(view.role));
    fl_json_array(j, "inside");
    for (int i = 0; i < view.depth; i++) {
        entry_fields(j, &view.open[i], now_ns);
    }
    fl_json_close(j, ']');
    fl_json_array(j, "recent");
    for (int i = 0; i < n; i++) {
        entry_fields(j, &recent[i], now_ns);
    }
    fl_json_close(j, ']');
    fl_json_close(j, '}');
}

void fl_flight_dump_json(fl_flight_dump *dump, fl_json *j)
{
    const fl_run_facts *run = dump->run;
    char text[FL_FLIGHT_DUMP_BYTES];
    fl_json_text(j, "waits", fl_flight_dump_explain(dump, run->phase->lost, text, sizeof text));
    fl_json_array(j, "workers");
    for (int rank = 0; rank < run->n_started; rank++) {
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", rank);
        fl_fields_host(j, run->hosts, rank);
        fl_json_array(j, "threads");
        for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
            track_fields(j, run->flight, rank, track);
        }
        fl_json_close(j, ']');
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

void fl_flight_dump_write(fl_flight_dump *dump)
{
    fl_json j = {.text = NULL};
    fl_json_object(&j, NULL);
    fl_flight_dump_json(dump, &j);
    fl_json_close(&j, '}');
    fl_json_newline(&j);
    int fd = openat(dump->run->options->dir_fd, "flight.json",
                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || j.broken || write(fd, j.text, j.n) != (ssize_t)j.n) {
        fl_log(FL_LOG_WARN, "cannot write flight.json: %s",
               j.broken ? "out of memory" : strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    fl_json_fini(&j);
}
