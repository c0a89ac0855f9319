/* The training group over NCCL: opening, closing, failures, and the table. Sums of scalars, the
 * watch over connections, and all pairs that cannot use NCCL belong to the host group. */
#include "autodp/nccl/nccl_group.h"
#include "autodp/nccl/nccl.h"

#include "autodp/group/host_group.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures ---- */

void fl__nccl_break(nccl_group *g, fl_status why, const char *format, ...)
{
    va_list arguments;
    if (g->failed != FL_OK) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(g->message, sizeof g->message, format, arguments);
    va_end(arguments);
    g->failed = why;
    if (g->net != NULL && !g->closing) {
        fl_net_abort(g->net, fl_status_is_regroup(why) ? why : FL_ESTALE);
    }
    pthread_cond_signal(&g->alarm);
    pthread_cond_signal(&g->work);
    pthread_cond_broadcast(&g->changed);
}

fl_status fl__nccl_result(nccl_group *g, fl_status status)
{
    char message[sizeof g->message];
    if (status == FL_OK) {
        return FL_OK;
    }
    pthread_mutex_lock(&g->mutex);
    fl_status failed = g->failed;
    snprintf(message, sizeof message, "%s", g->message);
    pthread_mutex_unlock(&g->mutex);
    return failed == FL_OK ? status : fl_fail(failed, "%s", message);
}

fl_status fl__nccl_device_result(nccl_group *g, fl_status status)
{
    if (status != FL_OK) {
        pthread_mutex_lock(&g->mutex);
        fl__nccl_break(g, status, "%s", fl_errmsg());
        pthread_mutex_unlock(&g->mutex);
    }
    return fl__nccl_result(g, status);
}

/* The net knows first; what it knows is the reason, unless the group has one of its own. */
fl_status fl__nccl_state(nccl_group *g)
{
    pthread_mutex_lock(&g->mutex);
    fl_status status = g->failed;
    pthread_mutex_unlock(&g->mutex);
    return fl__nccl_result(g, status != FL_OK ? status : fl_group_state(g->host));
}

int64_t fl__nccl_limit(const nccl_group *g, int64_t deadline_us)
{
    return fl_net_wait_limit(g->net, deadline_us);
}

int64_t fl__nccl_wait_limit(const nccl_group *g, int64_t deadline_us)
{
    int64_t longest_us = fl_deadline_us(g->wait_timeout_ms);
    return fl__nccl_limit(g, deadline_us < longest_us ? deadline_us : longest_us);
}

/* ---- opening and closing ---- */

/* Whatever a thread that does not come back from NCCL may use stays for ever. */
static void leave_group(nccl_group *g)
{
    pthread_mutex_lock(&g->mutex);
    g->net = NULL;
    pthread_mutex_unlock(&g->mutex);
    fl_log(FL_LOG_WARN,
           "generation %u: a call of NCCL does not return; its thread and its memory are left "
           "behind",
           g->base.generation);
    fl_group_close(&g->host);
}

static void group_close(fl_group *group)
{
    nccl_group *g = (nccl_group *)group;
    if (g->host != NULL) {
        bool ended = fl__nccl_lanes_end(g);
        if (!fl__nccl_threads_stop(g) || !ended) {
            leave_group(g);
            return;
        }
        fl__nccl_lanes_free(g);
    }
    fl_group_close(&g->host);
    fl_nccl_survey_free(&g->survey);
    fl_free(g->workers);
    pthread_cond_destroy(&g->work);
    pthread_cond_destroy(&g->changed);
    pthread_cond_destroy(&g->alarm);
    pthread_mutex_destroy(&g->mutex);
    fl_free(g);
}

/* Which pairs use NCCL, and why the others do not. One member says it for all, in a run, whose
 * workers have names. */
static void note_choice(nccl_group *g, const int *workers)
{
    char version[FL_NCCL_VERSION_TEXT], reason[512] = "";
    fl_group_comm *comm = &g->base.comm;
    int n_pairs = g->base.size * (g->base.size - 1) / 2, n = 0;
    for (int a = 0; a < g->base.size; a++) {
        for (int b = a + 1; b < g->base.size; b++) {
            n += fl_nccl_survey_pair(&g->survey, a, b);
        }
    }
    comm->n_pairs = n_pairs;
    comm->n_device_pairs = n;
    fl_nccl_survey_list(&g->survey, g->base.index, workers, comm->host_pairs);
    if (g->base.index != 0 || n_pairs == 0 || workers == NULL) {
        return;
    }
    if (fl_nccl_survey_check(&g->survey, 0) != FL_OK) {
        snprintf(reason, sizeof reason, "; %s", fl_errmsg());
    }
    fl_log(FL_LOG_INFO, "generation %u: %d of %d pairs of workers exchange data over NCCL%s%s%s",
           g->base.generation, n, n_pairs, n > 0 ? " " : "",
           n > 0 ? fl_nccl_version_text(g->nccl.version, version) : "", reason);
}

static fl_status keep_workers(nccl_group *g, const int *workers)
{
    size_t n = (size_t)g->base.size;
    if (workers == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_array(n, sizeof *workers, (void **)&g->workers));
    memcpy(g->workers, workers, n * sizeof *workers);
    return FL_OK;
}

static fl_status open_parts(nccl_group *g, const fl_group_options *options)
{
    fl_group_options host = *options;
    host.backend = NULL;
    FL_TRY(keep_workers(g, options->workers));
    FL_TRY(fl_group_open(&host, &g->host));
    g->net = fl_host_group_net(g->host);
    int64_t deadline_us = fl_deadline_us(options->open_timeout_ms);
    fl_nccl_kept_facts kept = fl__nccl_kept(g);
    FL_TRY(fl_nccl_survey_make(g->host, options, g->keeper != NULL ? &kept : NULL, deadline_us,
                               &g->survey, &g->nccl));
    FL_TRY(options->every_pair ? fl_nccl_survey_check(&g->survey, options->index) : FL_OK);
    note_choice(g, options->workers);
    return fl__nccl_parent_open(g, deadline_us);
}

static fl_status group_open(const fl_group_options *options, fl_group **out)
{
    nccl_group *g = NULL;
    FL_TRY(fl_alloc(sizeof *g, (void **)&g));
    g->base = (fl_group){.device = options->device,
                         .index = options->index,
                         .size = options->size,
                         .generation = options->generation};
    g->keeper = options->keeper;
    g->after_loss = options->after_loss;
    g->open_timeout_ms = options->open_timeout_ms;
    g->wait_timeout_ms = options->wait_timeout_ms;
    pthread_mutex_init(&g->mutex, NULL);
    fl_condition_init(&g->work);
    fl_condition_init(&g->changed);
    fl_condition_init(&g->alarm);
    fl_status status = open_parts(g, options);
    if (status != FL_OK) {
        fl_failure failure;
        fl_failure_keep(&failure, status);
        group_close(&g->base);
        return fl_failure_raise(&failure);
    }
    *out = &g->base;
    return FL_OK;
}

/* Members wait for each other there, so what an opening takes is the longest time of any. */
static fl_status agree_on_time(nccl_group *g, int64_t deadline_us)
{
    double *us = NULL;
    if (g->base.comm.n_device_pairs == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_array((size_t)g->base.size, sizeof *us, (void **)&us));
    us[g->base.index] = (double)g->base.comm.us;
    fl_status status = fl__nccl_sum(g, us, g->base.size, deadline_us);
    for (int i = 0; status == FL_OK && i < g->base.size; i++) {
        g->base.comm.us = (int64_t)us[i] > g->base.comm.us ? (int64_t)us[i] : g->base.comm.us;
    }
    fl_free(us);
    return status;
}

static fl_status group_connect(fl_group *group, int64_t deadline_us)
{
    nccl_group *g = (nccl_group *)group;
    FL_TRY(fl__nccl_state(g));
    int64_t begun_us = fl_now_us();
    if (g->parent != NULL) {
        FL_TRY(fl__nccl_split_lanes(g, &begun_us, deadline_us));
    }
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        FL_TRY(lane->kind == NCCL_PARENT ? FL_OK : fl__nccl_lane_begin(lane, deadline_us));
    }
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        FL_TRY(lane->kind == NCCL_PARENT ? FL_OK : fl__nccl_lane_connected(lane, deadline_us));
    }
    g->base.comm.us += g->lanes != NULL ? fl_now_us() - begun_us : 0;
    FL_TRY(agree_on_time(g, deadline_us));
    FL_TRY(fl__nccl_register_all(g, deadline_us));
    return fl__nccl_parent_keep(g);
}

static void group_abort(fl_group *group, fl_status why)
{
    fl_group_abort(((nccl_group *)group)->host, why);
}

static fl_status group_state(fl_group *group)
{
    return fl__nccl_state((nccl_group *)group);
}

static fl_status group_all_reduce(fl_group *group, double *values, int n, int64_t deadline_us)
{
    nccl_group *g = (nccl_group *)group;
    FL_TRY(fl__nccl_state(g));
    return fl__nccl_result(g, g->host->ops->group_all_reduce(g->host, values, n, deadline_us));
}

static void group_stats_get(const fl_group *group, fl_group_stats *out)
{
    const nccl_group *g = (const nccl_group *)group;
    int64_t sent = atomic_load(&g->sent_bytes);
    fl_group_stats_get(g->host, out);
    out->sent_bytes += sent;
    out->device_bytes += sent;
    out->received_bytes += atomic_load(&g->received_bytes);
    out->reduce_wait_us += atomic_load(&g->reduce_wait_us);
}

const fl_group_ops fl_nccl_group_ops = {
    .version = FL_GROUP_OPS_VERSION,
    .size_bytes = sizeof(fl_group_ops),
    .kind = "nccl",
    .group_open = group_open,
    .group_connect = group_connect,
    .group_close = group_close,
    .group_abort = group_abort,
    .group_state = group_state,
    .group_all_reduce = group_all_reduce,
    .group_stats_get = group_stats_get,
    .channel_open = fl__nccl_channel_open,
    .channel_close = fl__nccl_channel_close,
    .channel_send_from = fl__nccl_channel_send_from,
    .channel_place = fl__nccl_channel_place,
    .channel_flush = fl__nccl_channel_flush,
    .channel_post = fl__nccl_channel_post,
    .channel_receive_to = fl__nccl_channel_receive_to,
    .mover_open = fl__nccl_mover_open,
    .mover_close = fl__nccl_mover_close,
    .mover_start = fl__nccl_mover_start,
    .mover_wait = fl__nccl_mover_wait,
    .bucket_create = fl__nccl_bucket_create,
    .bucket_destroy = fl__nccl_bucket_destroy,
    .bucket_part = fl__nccl_bucket_part,
    .bucket_start = fl__nccl_bucket_start,
    .bucket_wait = fl__nccl_bucket_wait,
    .bucket_can_capture = fl__nccl_bucket_can_capture,
    .bucket_capture = fl__nccl_bucket_capture,
    .bucket_capture_join = fl__nccl_bucket_capture_join,
    .bucket_launched = fl__nccl_bucket_launched,
    .captured_create = fl__nccl_captured_create,
    .captured_destroy = fl__nccl_captured_destroy,
    .captured_launch = fl__nccl_captured_launch,
};
