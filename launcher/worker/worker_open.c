/* Opens a worker before it trains, and closes it afterwards (① to ③ and ⑧ of worker.c). */
#include "launcher/worker/worker_state.h"

#include "autodp/nccl/interface.h"
#include "autodp/sampler.h"
#include "autodp/tls/tls.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/cost/time/learn.h"
#include "pipe/state/checkpoint/checkpoint_source.h"

#include <string.h>

typedef fl_worker_state worker;

/* The run ends, or the controller is gone: every wait is aborted. */
static void on_abort(void *context, uint32_t generation, fl_status why)
{
    worker *w = context;
    (void)generation;
    fl_abort_set_abort_all(&w->abort_set, why);
}

/* A worker was lost: the generations so far are broken, later ones can be opened. */
static void on_break(void *context, uint32_t until)
{
    worker *w = context;
    fl_abort_set_abort_until(&w->abort_set, until, FL_EPEER);
}

static void find_unanswered(void *context, fl_net_unanswered *worst)
{
    worker *w = context;
    fl_abort_set_look(&w->abort_set, worst);
}

fl_status fl_worker_check_abort(worker *w)
{
    return fl_abort_set_check(&w->abort_set, w->now->plan.generation);
}

/* ---- ① to ③ ---- */

/* Workers take the run's processors in turn, if each can have its own. */
static fl_status open_device(worker *w)
{
    const fl_job *job = w->c->job;
    const fl_cores *all = w->c->cores;
    int cores = (int)job->devices.cores;
    int first = (w->rank - (w->c->host == NULL ? 0 : w->c->host->first)) * cores;
    const int *mine = first + cores <= all->n ? all->cpu + first : NULL;
    for (int i = 0; mine != NULL && i < cores; i++) {
        fl_log(FL_LOG_INFO, "on processor %d%s", mine[i],
               all->mark[first + i] < 0 && all->n_shared > 0 ? ", as is another run" : "");
    }
    fl_crowding_init(&w->crowding, mine, cores);
    const fl_device_options device = {.kind = job->devices.kind,
                                      .n_threads = cores,
                                      .cpu_ids = mine,
                                      .number = fl_device_survey_number(w->c->devices, w->rank),
                                      .tf32 = job->train.precision == FL_PRECISION_TF32,
                                      .algorithms = w->c->algorithms,
                                      .budget_bytes = (size_t)job->devices.memory_bytes};
    return fl_device_open(&device, &w->device);
}

fl_status fl_worker_open_messages(worker *w, const fl_plan *plan, fl_message_group **out)
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
                                  .host = w->c->host == NULL ? NULL : w->c->host->address,
                                  .open_timeout_ms = job->fault.deadline_ms,
                                  .wait_timeout_ms = job->fault.deadline_ms,
                                  .abort_set = &w->abort_set,
                                  .transport = w->transport};
    return fl_message_open(&options, out);
}

static fl_status open_first(worker *w, const fl_state_source *source)
{
    fl_generation_options options = {.worker = w->c,
                                     .plan = &w->birth->plan,
                                     .rank = w->rank,
                                     .device = w->device,
                                     .tiers = w->tiers,
                                     .kv = fl_link_kv(w->link),
                                     .source = source,
                                     .abort_set = &w->abort_set,
                                     .keeper = &w->keeper,
                                     .transport = w->transport};
    if (w->c->profile != NULL) {
        fl_profile_comm_times(w->c->profile, w->keeper.took_us);
    }
    FL_TRY(fl_alloc(sizeof *w->now, (void **)&w->now));
    FL_TRY(fl_generation_open(&options, w->now));
    fl_worker_report_comm(w);
    return FL_OK;
}

/* With the moments that this worker keeps of frozen layers. */
static fl_status open_from(worker *w, const fl_state_source *source)
{
    int n_moments = fl_optimizer_n_moments(w->c->job->train.optimizer);
    FL_TRY(open_first(w, source));
    memcpy(w->parked.since, w->birth->since, (size_t)w->parked.n_layers * sizeof *w->parked.since);
    if (fl_generation_params(w->now) != NULL) {
        fl_generation_params(w->now)->since = w->parked.since;
    }
    return fl_parked_load(&w->parked, w->c->model, n_moments, w->birth->parked, w->rank, source);
}

/* The head has the checkpoint, and sends the others their layers. saved: on the head. */
static fl_status open_apart(worker *w, const fl_state_source *saved)
{
    fl_snapshot own = {0};
    fl_snapshot_view view = {.snapshot = &own};
    fl_status status = fl_worker_get_saved(w, saved, &own);
    if (status == FL_OK) {
        fl_state_source got = fl_snapshot_source(&view);
        status = open_from(w, w->rank < w->c->n_head ? saved : &got);
    }
    fl_snapshot_close(&own);
    return status;
}

static fl_status open_saved(worker *w, int folder_fd)
{
    int n_moments = fl_optimizer_n_moments(w->c->job->train.optimizer);
    fl_checkpoint_source saved;
    fl_state_source source = fl_checkpoint_source_open(w->c->model, folder_fd, n_moments, &saved);
    fl_status status = w->c->apart ? open_apart(w, &source) : open_from(w, &source);
    fl_checkpoint_source_close(&saved);
    return status;
}

static fl_status open_snapshot(worker *w)
{
    fl_snapshot own = {0};
    fl_snapshot_view view = {.snapshot = &own};
    fl_status status = w->c->n_head == 0 ? FL_OK : fl_worker_get_snapshot(w, &own);
    if (status == FL_OK) {
        fl_state_source source = fl_snapshot_source(w->c->from != NULL ? w->c->from : &view);
        status = open_from(w, &source);
    }
    fl_snapshot_close(&own);
    return status;
}

/* Each worker takes its own layers: from the snapshot or the checkpoint that the run continues,
 * from the user's file, or drawn. */
static fl_status open_member(worker *w)
{
    fl_init_state init = {.init = w->c->init,
                          .drawn = {.model = w->c->model, .seed = w->c->job->train.seed}};
    fl_state_source source = fl_init_weights_source(&init);
    FL_TRY(fl_parked_init(&w->parked, w->device, w->birth->plan.n_layers));
    if (w->birth->joins) {
        return open_first(w, NULL); /* without a stage */
    }
    if (w->c->from != NULL || w->c->from_head) {
        return open_snapshot(w);
    }
    if (w->c->apart && w->c->saved_fd == NULL && w->c->continues_saved) {
        return open_apart(w, NULL);
    }
    return w->c->saved_fd == NULL ? open_first(w, &source) : open_saved(w, *w->c->saved_fd);
}

static fl_status open_batches(worker *w)
{
    const fl_job *job = w->c->job;
    for (int i = 0; i < 2; i++) {
        FL_TRY(fl_alloc_array((size_t)fl_sampler_batch(job), sizeof(int64_t),
                              (void **)&w->test_ids[i]));
    }
    FL_TRY(
        fl_batch_stream_init(&w->batches, job->train.seed, w->c->n_samples, fl_sampler_batch(job)));
    fl_batch_stream_reset(&w->batches, w->step, w->cursor);
    return fl_kept_reports_init(&w->kept, w->birth->plan.n_workers, fl_sampler_batch(job),
                                fl_model_n_blocks(w->c->model));
}

/* Between hosts, the key with which workers prove themselves to the head proves them to each other,
 * too. */
static fl_status choose_transport(worker *w)
{
    if (w->c->keys == NULL || w->c->job->autodp.security == FL_SECURITY_NONE) {
        return FL_OK;
    }
    w->transport = &w->tls;
    FL_TRY(fl_tls_transport(w->c->keys->secret, &w->tls));
    fl_job_ports(w->c->job, w->tls.ports);
    return FL_OK;
}

/* Before the process has other threads. With TLS between hosts, NCCL is for the pairs of a host. */
static void choose_interface(const worker *w)
{
    const fl_host *host = w->c->host;
    bool plain = w->c->job->autodp.security == FL_SECURITY_NONE;
    if (host != NULL && !fl_device_kind_has_host_memory(w->c->job->devices.kind) &&
        fl_nccl_choose_interface(plain ? host->address : NULL) != FL_OK) {
        fl_log(FL_LOG_WARN, "NCCL chooses a network interface by itself: %s", fl_errmsg());
    }
}

fl_status fl_worker_open(worker *w, const char *endpoint)
{
    fl_link_options link = {.endpoint = endpoint,
                            .keys = w->c->keys,
                            .rank = w->rank,
                            .incarnation = w->birth->incarnation,
                            .generation = w->birth->plan.generation,
                            .detect_ms = w->c->job->fault.detect_ms,
                            .on_abort = on_abort,
                            .on_break = on_break,
                            .look = find_unanswered,
                            .context = w};
    choose_interface(w);
    FL_TRY(fl_link_open(&link, &w->link));
    FL_TRY(choose_transport(w));
    FL_TRY(open_device(w));
    FL_TRY(fl_cache_tiers_create(w->c->job, w->device, w->c->activations, &w->tiers));
    if (!w->birth->joins) {
        FL_TRY(fl_worker_open_messages(w, &w->birth->plan, &w->messages));
    }
    FL_TRY(open_member(w));
    FL_TRY(fl_worker_checkpoint_open(w));
    FL_TRY(fl_worker_snapshots_open(w));
    return open_batches(w);
}

/* ---- ⑧ ---- */

static void close_member(fl_generation **member)
{
    if (*member != NULL) {
        fl_generation_close(*member);
        fl_free(*member);
        *member = NULL;
    }
}

void fl_worker_close(worker *w)
{
    fl_crowding_end(&w->crowding); /* before the first of its threads ends */
    fl_transition_settle(w);
    fl_checkpoint_writer_destroy(&w->writer);
    fl_snapshot_writer_destroy(&w->snapshots);
    close_member(&w->now);
    fl_comm_keeper_clear(&w->keeper);
    fl_message_close(&w->messages);
    fl_parked_fini(&w->parked);
    fl_cache_tiers_destroy(&w->tiers);
    fl_device_destroy(&w->device);
    fl_link_close(&w->link);
    fl_batch_stream_fini(&w->batches);
    fl_kept_reports_fini(&w->kept);
    fl_free(w->test_ids[0]);
    fl_free(w->test_ids[1]);
}
