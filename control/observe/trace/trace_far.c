/* Each worker of another host is asked again and again, one question at a time:
 *
 *     ① what it has done in the steps of the trace since the last answer
 *     ② an answer goes into the trace, with the times of that host's clock
 *     ③ after the last step, the first complete answer to a question that was asked later ends it
 *     ④ at the end, the clock as it was measured first and last puts the times right
 *
 * A host that does not answer within ANSWER_US is left out of the trace, which names it. */
#include "control/observe/trace/trace_far.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    TURN_US = 20000,     /* between two questions, where an answer had all */
    AGAIN_US = 1000000,  /* until a question is asked again */
    ANSWER_US = 3000000, /* for an answer, when the steps are over */
};

static const int64_t DRIFT_NS =
                         INT64_C(5000000000), /* over less, errors of offsets look like a drift */
    DAY_NS = INT64_C(86400000000000),         /* nothing that is read now is older */
    AHEAD_NS = INT64_C(1000000000); /* nor later than now, but for the error of the clock */

typedef struct far_worker {
    fl_records_request request;
    bool asked;        /* and not answered */
    bool asked_at_end; /* after the steps were over */
    bool done;
    int64_t asked_us, next_us, answered_us;
    int64_t n; /* operations in the trace */
} far_worker;

typedef struct far_host {
    int64_t joined_us; /* of the agent whose clock this is */
    fl_clock_estimate first, last;
    size_t n_aligned; /* of the trace's operations, those before are right */
    char missing[FL_TRACE_NAME_MAX];
} far_host;

struct fl_trace_far {
    const fl_run_facts *run;
    far_worker *workers; /* [run->n_workers] */
    far_host *hosts;     /* [run->n_workers] by host */
    int64_t over_us;     /* 0: the steps are not over */
    bool has_devices;
};

fl_status fl_trace_far_create(const fl_run_facts *run, fl_trace_far **out)
{
    fl_trace_far *far = NULL;
    size_t n = (size_t)run->n_workers;
    FL_TRY(fl_alloc(sizeof *far, (void **)&far));
    far->run = run;
    fl_status status = fl_alloc_array(n, sizeof *far->workers, (void **)&far->workers);
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *far->hosts, (void **)&far->hosts);
    }
    *out = far;
    if (status != FL_OK) {
        fl_trace_far_destroy(out);
    }
    return status;
}

void fl_trace_far_destroy(fl_trace_far **far)
{
    if (*far != NULL) {
        fl_free((*far)->workers);
        fl_free((*far)->hosts);
        fl_free(*far);
        *far = NULL;
    }
}

static int n_hosts(const fl_trace_far *far)
{
    return far->run->hosts == NULL ? 0 : far->run->hosts->n;
}

/* Its agent answers, as far as the controller knows. */
static bool is_in(const fl_trace_far *far, int host)
{
    fl_host_state state = far->run->host_records[host].state;
    return state == FL_HOST_STATE_JOINED || state == FL_HOST_STATE_DRAINING;
}

static void begin_worker(far_worker *w)
{
    *w = (far_worker){.n = w->n, .request.number = w->request.number};
    for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
        w->request.cursor[track] = FL_RECORDS_OLDEST;
    }
}

void fl_trace_far_begin(fl_trace_far *far)
{
    far->over_us = 0;
    far->has_devices = false;
    for (int i = 0; i < far->run->n_workers; i++) {
        far->workers[i].n = 0;
        begin_worker(&far->workers[i]);
        far->hosts[i] = (far_host){.joined_us = 0};
    }
}

/* ---- ④ ---- */

/* The offset of the host's clock at a moment of it: between the first and the last measurement if
 * there is a while between them, else the better one. */
static int64_t offset_at(const far_host *h, int64_t there_ns)
{
    const fl_clock_estimate *a = &h->first, *b = &h->last;
    int64_t passed_ns = b->at_ns - a->at_ns;
    if (passed_ns < DRIFT_NS) {
        return a->error_ns < b->error_ns ? a->offset_ns : b->offset_ns;
    }
    double slope = (double)(b->offset_ns - a->offset_ns) / (double)passed_ns;
    double at_ns = (double)(there_ns - b->offset_ns - a->at_ns);
    return a->offset_ns + (int64_t)(slope * at_ns);
}

/* Times that no host can have had make an operation none. */
static void align_event(const far_host *h, fl_trace_event *event, int64_t now_ns, int64_t *n_lost)
{
    fl_flight_entry *e = &event->e;
    int64_t offset_ns = offset_at(h, e->entered_ns);
    e->entered_ns -= offset_ns;
    e->left_ns -= offset_ns;
    if (e->entered_ns < now_ns - DAY_NS || e->left_ns > now_ns + AHEAD_NS ||
        e->left_ns - e->entered_ns > FL_TRACE_DURATION_MAX_NS) {
        e->kind = FL_FLIGHT_NONE;
        ++*n_lost;
    }
}

/* With one host's clock, as far as it is known; without, its operations are none. */
static void align_host(fl_trace_far *far, int host, fl_trace_data *trace)
{
    far_host *h = &far->hosts[host];
    const fl_host *of = &far->run->hosts->host[host];
    int64_t now_ns = fl_now_ns();
    for (size_t i = h->n_aligned; i < trace->n; i++) {
        fl_trace_event *event = &trace->events[i];
        if (event->rank < of->first || event->rank >= of->first + of->n) {
            continue;
        }
        if (h->last.known) {
            align_event(h, event, now_ns, &trace->about.lost);
        } else {
            event->e.kind = FL_FLIGHT_NONE;
            trace->about.lost++;
        }
    }
    h->n_aligned = trace->n;
}

/* Another agent of the host has another clock, and other recorders. */
static void note_clock(fl_trace_far *far, int host, fl_trace_data *trace)
{
    far_host *h = &far->hosts[host];
    const fl_host_record *record = &far->run->host_records[host];
    const fl_host *of = &far->run->hosts->host[host];
    if (!is_in(far, host)) {
        return;
    }
    if (h->joined_us != record->joined_us) {
        align_host(far, host, trace);
        *h = (far_host){.joined_us = record->joined_us, .n_aligned = h->n_aligned};
        for (int rank = of->first; rank < of->first + of->n && rank < far->run->n_workers; rank++) {
            begin_worker(&far->workers[rank]);
        }
    }
    if (record->clock.known) {
        h->first = h->first.known ? h->first : record->clock;
        h->last = record->clock;
    }
}

/* ---- ② ---- */

static fl_status take_entry(fl_trace_far *far, int rank, fl_flight_role role,
                            const fl_flight_entry *e, fl_trace_data *trace)
{
    far_worker *w = &far->workers[rank];
    fl_trace_about *about = &trace->about;
    bool in = e->step >= about->first_step && e->step < about->first_step + about->n_steps;
    if (!in || e->kind == FL_FLIGHT_NONE) {
        return FL_OK;
    }
    if (w->n >= FL_TRACE_EVENTS_MAX / far->run->n_started) { /* the others need room, too */
        w->done = true;
        about->lost++;
        return FL_OK;
    }
    w->n++;
    return fl_trace_add(trace, &(fl_trace_event){rank, (int32_t)fl_trace_role(e->kind, role), *e});
}

static fl_status take_answer(fl_trace_far *far, int rank, const fl_flight_records *records,
                             fl_trace_data *trace, int64_t now_us)
{
    far_worker *w = &far->workers[rank];
    const fl_flight_entry *entry = records->entry;
    if (records->number != w->request.number) {
        return FL_OK; /* it has been asked again, and this is the first answer */
    }
    w->asked = false;
    w->answered_us = now_us;
    w->done = w->asked_at_end && records->all;
    w->next_us = records->all ? now_us + TURN_US : now_us;
    trace->about.lost += records->n_lost;
    for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
        fl_flight_role role = track == 0 ? FL_FLIGHT_MAIN : records->role[track];
        far->has_devices = far->has_devices || role == FL_FLIGHT_DEVICE;
        for (int i = 0; i < records->n[track]; i++) {
            FL_TRY(take_entry(far, rank, role, entry++, trace));
        }
        w->request.cursor[track] = records->cursor[track];
    }
    return FL_OK;
}

/* ---- ① ---- */

static fl_status turn_worker(fl_trace_far *far, int rank, const fl_trace_source *source,
                             fl_trace_data *trace, int64_t now_us)
{
    far_worker *w = &far->workers[rank];
    const fl_flight_records *records = w->asked ? source->take(source->context, rank) : NULL;
    if (records != NULL) {
        FL_TRY(take_answer(far, rank, records, trace, now_us));
    }
    bool is_due = w->asked ? now_us - w->asked_us > AGAIN_US : now_us >= w->next_us;
    if (!w->done && is_due) {
        w->request.number++;
        w->request.first_step = trace->about.first_step;
        w->request.n_steps = trace->about.n_steps;
        w->asked = source->ask(source->context, rank, &w->request);
        w->asked_at_end = far->over_us != 0;
        w->asked_us = now_us;
        w->next_us = now_us + TURN_US;
    }
    return FL_OK;
}

fl_status fl_trace_far_turn(fl_trace_far *far, const fl_trace_source *source, fl_trace_data *trace,
                            bool over, int64_t now_us)
{
    far->over_us = over && far->over_us == 0 ? now_us : far->over_us;
    for (int host = 1; host < n_hosts(far); host++) {
        const fl_host *of = &far->run->hosts->host[host];
        note_clock(far, host, trace);
        for (int rank = of->first; rank < of->first + of->n && rank < far->run->n_workers; rank++) {
            if (is_in(far, host) && far->run->workers[rank].incarnation > 0) {
                FL_TRY(turn_worker(far, rank, source, trace, now_us));
            }
        }
    }
    return FL_OK;
}

/* ---- ③ ---- */

/* Its worker that has not answered for the longest time, of those that are to answer; NULL: all
 * have answered, or it is not there any more. */
static const far_worker *awaited_of(const fl_trace_far *far, int host)
{
    const fl_host *of = &far->run->hosts->host[host];
    const far_worker *longest = NULL;
    for (int rank = of->first; rank < of->first + of->n && rank < far->run->n_workers; rank++) {
        const far_worker *w = &far->workers[rank];
        bool waits = is_in(far, host) && far->run->workers[rank].incarnation > 0 && !w->done;
        if (waits && (longest == NULL || w->answered_us < longest->answered_us)) {
            longest = w;
        }
    }
    return longest;
}

static void give_up_host(fl_trace_far *far, int host, const char *why)
{
    far_host *h = &far->hosts[host];
    const fl_host *of = &far->run->hosts->host[host];
    snprintf(h->missing, sizeof h->missing, "%s", why);
    for (int rank = of->first; rank < of->first + of->n && rank < far->run->n_workers; rank++) {
        far->workers[rank].done = true;
    }
}

void fl_trace_far_give_up(fl_trace_far *far, const char *why)
{
    for (int host = 1; host < n_hosts(far); host++) {
        if (awaited_of(far, host) != NULL) {
            give_up_host(far, host, why);
        }
    }
}

bool fl_trace_far_is_done(fl_trace_far *far, int64_t now_us)
{
    bool all = true;
    for (int host = 1; host < n_hosts(far); host++) {
        const far_worker *w = awaited_of(far, host);
        int64_t since_us =
            w != NULL && w->answered_us > far->over_us ? w->answered_us : far->over_us;
        if (w != NULL && far->over_us != 0 && now_us - since_us > ANSWER_US) {
            char why[64];
            snprintf(why, sizeof why, "its agent did not answer for %d s", ANSWER_US / 1000000);
            give_up_host(far, host, why);
            w = NULL;
        }
        all = all && w == NULL;
    }
    return all;
}

bool fl_trace_far_has_devices(const fl_trace_far *far)
{
    return far->has_devices;
}

/* ---- the end ---- */

static void describe_host(const fl_trace_far *far, int host, fl_trace_host *out)
{
    const far_host *h = &far->hosts[host];
    const fl_host *of = &far->run->hosts->host[host];
    const fl_clock_estimate *a = &h->first, *b = &h->last;
    bool first = a->error_ns < b->error_ns;
    bool is_line = b->at_ns - a->at_ns >= DRIFT_NS;
    snprintf(out->name, sizeof out->name, "%s", of->name);
    snprintf(out->missing, sizeof out->missing, "%s", h->missing);
    out->first = of->first;
    out->n = of->n;
    out->offset_ns = first && !is_line ? a->offset_ns : b->offset_ns;
    out->error_ns = first != is_line ? a->error_ns : b->error_ns;
    out->drift_ppb = b->drift_ppb;
}

static void drop_none(fl_trace_data *trace)
{
    size_t n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        const fl_trace_host *host = fl_trace_host_of(trace, event->rank);
        if (event->e.kind != FL_FLIGHT_NONE && (host == NULL || host->missing[0] == '\0')) {
            trace->events[n++] = *event;
        }
    }
    trace->n = n;
}

fl_status fl_trace_far_finish(fl_trace_far *far, fl_trace_data *trace)
{
    if (n_hosts(far) == 0) {
        return FL_OK;
    }
    FL_TRY(fl_trace_make_hosts(trace, n_hosts(far)));
    for (int host = 0; host < trace->n_hosts; host++) {
        if (host > 0) {
            align_host(far, host, trace);
        }
        describe_host(far, host, &trace->hosts[host]);
    }
    drop_none(trace);
    return FL_OK;
}
