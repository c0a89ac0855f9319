/* What a worker opens before it trains and closes behind it (① to ③ and ⑧ of worker.c), and what
 * the link's thread may abort meanwhile. */
#include "launcher/worker/worker_state.h"

#include "device/alloc.h"
#include "device/log.h"

enum { HEARTBEATS_PER_DETECT = 10 };

typedef fl_worker_state worker;

/* ---- what the link's thread may do ---- */

/* The controller says that this generation is over, or is gone itself. */
static void on_abort(void *context, uint32_t generation, fl_status why)
{
    worker *w = context;
    (void)generation;
    pthread_mutex_lock(&w->lock);
    w->aborted = why;
    if (w->messages != NULL) {
        fl_message_abort(w->messages, why);
    }
    if (w->next_messages != NULL) {
        fl_message_abort(w->next_messages, why);
    }
    for (int i = 0; i < 2; i++) {
        if (w->groups[i] != NULL) {
            fl_group_abort(w->groups[i], why);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

static fl_status aborted(worker *w)
{
    pthread_mutex_lock(&w->lock);
    fl_status why = w->aborted;
    pthread_mutex_unlock(&w->lock);
    return why;
}

bool fl_worker_given_up(void *state)
{
    return aborted(state) != FL_OK;
}

fl_status fl_worker_go_on(worker *w)
{
    fl_status why = aborted(w);
    return why == FL_OK ? FL_OK : fl_fail(why, "the controller ended this generation");
}

fl_status fl_worker_publish(void *state, fl_group *group)
{
    worker *w = state;
    pthread_mutex_lock(&w->lock);
    w->groups[w->groups[0] == NULL ? 0 : 1] = group;
    pthread_mutex_unlock(&w->lock);
    return fl_worker_go_on(w);
}

void fl_worker_withdraw(worker *w, fl_group *group)
{
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < 2; i++) {
        w->groups[i] = w->groups[i] == group ? NULL : w->groups[i];
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- ① to ③ ---- */

/* Workers take the run's processors in turn, if there are enough for each to have its own. */
static fl_status open_device(worker *w)
{
    const fl_job *job = w->c->job;
    const fl_cores *all = w->c->cores;
    int cores = (int)job->devices.cores, first = w->rank * cores;
    const int *mine = first + cores <= all->n ? all->cpu + first : NULL;
    for (int i = 0; mine != NULL && i < cores; i++) {
        fl_log(FL_LOG_INFO, "on processor %d%s", mine[i],
               all->mark[first + i] < 0 && all->n_shared > 0 ? ", as is another run" : "");
    }
    return fl_device_cpu_create(cores, mine, (size_t)job->devices.memory_bytes, &w->device);
}

fl_status fl_worker_open_messages(worker *w, const fl_plan *plan, bool (*given_up)(void *context),
                                  fl_message_group **out)
{
    const fl_job *job = w->c->job;
    int ranks[FL_MAX_WORKERS], n = 0;
    for (int rank = 0; rank < plan->n_workers; rank++) {
        if (!plan->departed[rank]) {
            ranks[n++] = rank;
        }
    }
    fl_message_options options = {.membership = plan->generation,
                                  .rank = w->rank,
                                  .size = n,
                                  .ranks = ranks,
                                  .kv = fl_link_kv(w->link),
                                  .open_timeout_ms = job->fault.deadline_ms,
                                  .wait_timeout_ms = job->fault.deadline_ms,
                                  .given_up = given_up,
                                  .context = w};
    return fl_message_open(&options, out);
}

static fl_status open_messages(worker *w)
{
    fl_message_group *messages = NULL;
    FL_TRY(fl_worker_open_messages(w, w->c->plan, fl_worker_given_up, &messages));
    pthread_mutex_lock(&w->lock);
    w->messages = messages;
    pthread_mutex_unlock(&w->lock);
    return fl_worker_go_on(w);
}

static fl_status open_member(worker *w)
{
    fl_generation_options options = {.worker = w->c,
                                     .plan = w->c->plan,
                                     .rank = w->rank,
                                     .device = w->device,
                                     .kv = fl_link_kv(w->link),
                                     .draw = true,
                                     .opened = fl_worker_publish,
                                     .given_up = fl_worker_given_up,
                                     .context = w};
    FL_TRY(fl_alloc(sizeof *w->now, (void **)&w->now));
    FL_TRY(fl_parked_init(&w->parked, w->device, w->c->plan->n_layers));
    return fl_generation_open(&options, w->now);
}

fl_status fl_worker_open(worker *w, const char *endpoint)
{
    fl_link_options link = {.endpoint = endpoint,
                            .rank = w->rank,
                            .generation = w->c->plan->generation,
                            .heartbeat_ms = w->c->job->fault.detect_ms / HEARTBEATS_PER_DETECT,
                            .on_abort = on_abort,
                            .context = w};
    FL_TRY(fl_link_open(&link, &w->link));
    FL_TRY(open_device(w));
    FL_TRY(open_messages(w));
    FL_TRY(open_member(w));
    for (int i = 0; i < 2; i++) {
        FL_TRY(
            fl_alloc_array((size_t)w->c->job->train.batch, sizeof(int64_t), (void **)&w->ids[i]));
    }
    return FL_OK;
}

/* ---- ⑧ ---- */

static void close_member(worker *w, fl_generation **member)
{
    if (*member != NULL) {
        fl_worker_withdraw(w, (*member)->group);
        fl_generation_close(*member);
        fl_free(*member);
        *member = NULL;
    }
}

void fl_worker_close(worker *w)
{
    fl_transition_settle(w);
    close_member(w, &w->now);
    pthread_mutex_lock(&w->lock);
    fl_message_group *messages = w->messages;
    w->messages = NULL;
    pthread_mutex_unlock(&w->lock);
    fl_message_close(&messages);
    fl_parked_fini(&w->parked);
    fl_device_destroy(&w->device);
    fl_link_close(&w->link);
    fl_free(w->ids[0]);
    fl_free(w->ids[1]);
}
