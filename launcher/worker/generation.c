#include "launcher/worker/generation.h"
#include "pipe/cost/plan.h"

#include "autodp/nccl/nccl.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/optimizer.h"
#include "pipe/plan/migrate_schedule.h"

#include <string.h>

static fl_status open_group(const fl_generation_options *o, fl_generation *m)
{
    const fl_job *job = o->worker->job;
    fl_group_options options = {.device = o->device,
                                .generation = m->plan.generation,
                                .index = m->place.replica * m->plan.K + m->place.stage,
                                .size = m->plan.K * m->plan.R,
                                .kv = o->kv,
                                .host = o->worker->host == NULL ? NULL : o->worker->host->address,
                                .open_timeout_ms = job->fault.deadline_ms,
                                .wait_timeout_ms = job->fault.deadline_ms,
                                .abort_set = o->abort_set,
                                .keeper = o->keeper,
                                .transport = o->transport,
                                .after_loss = o->after_loss,
                                .workers = m->plan.rank_of};
    fl_nccl_choose(job, o->worker->nccl, &options);
    return fl_group_open(&options, &m->group);
}

static fl_status plan_memory(const fl_generation_options *o, fl_generation *m)
{
    const fl_worker_context *w = o->worker;
    void *layers = NULL;
    FL_TRY(fl_capacity_of_plan(w->batches, &m->plan, &m->capacity));
    FL_TRY(fl_alloc_array((size_t)m->plan.n_layers, sizeof(fl_layer_memory), &layers));
    fl_status status =
        fl_memory_measure_capacity(w->model, w->batches->sizes, &m->capacity, layers);
    if (status == FL_OK) {
        fl_stage_place place = fl_plan_stage(&m->plan, m->place.stage);
        fl_memory_stage(w->model, w->job, layers, fl_frozen_layers(w->model, m->plan.F), &place,
                        &m->memory);
    }
    fl_free(layers);
    return status;
}

/* What the device does not count as used. */
static int64_t outside_bytes(const fl_stage_memory *m)
{
    return m->channel_bytes + m->loader_bytes + m->copies_bytes;
}

/* Whether both members fit into the device, or at least one at a time. A problem found later than
 * here could not be undone. */
static fl_status find_room(const fl_generation_options *o, fl_generation *m)
{
    const fl_worker_context *w = o->worker;
    const fl_stage_memory *now = &o->running->memory, *next = &m->memory;
    int n_moments = fl_optimizer_n_moments(w->job->train.optimizer);
    int64_t budget = (int64_t)o->device->budget_bytes;
    int64_t kept = fl_migrate_kept_bytes(w->model, &o->running->plan, &m->plan, o->rank, n_moments);
    kept += next->tier_bytes > 0 ? fl_cache_tiers_device_bytes(o->tiers) : 0;
    int64_t both = (int64_t)o->device->used_bytes + outside_bytes(now) + next->total_bytes - kept;
    int64_t least = fl_migrate_least_bytes(w->model, &o->running->plan, &m->plan, o->rank,
                                           n_moments, next->total_bytes);
    m->reserved = both > budget;
    if (m->reserved && least > budget) {
        return fl_fail(FL_EBUDGET, "%lld bytes are needed to change plans, the device has %lld",
                       (long long)least, (long long)budget);
    }
    return FL_OK;
}

static fl_status create_pipeline(const fl_generation_options *o, fl_generation *m,
                                 unsigned char *handed)
{
    fl_pipeline_options options = {.model = o->worker->model,
                                   .dataset = o->worker->dataset,
                                   .job = o->worker->job,
                                   .plan = &m->plan,
                                   .rank = o->rank,
                                   .device = o->device,
                                   .group = m->group,
                                   .sizes = o->worker->batches->sizes,
                                   .capacity = &m->capacity,
                                   .memory = &m->memory,
                                   .activations = o->worker->activations,
                                   .tiers = o->tiers,
                                   .source = o->source,
                                   .handed = handed,
                                   .reserve = m->reserved};
    if (handed != NULL) {
        fl_migrate_handed(o->worker->model, &o->running->plan, &m->plan, o->parked, o->rank,
                          handed);
    }
    return fl_pipeline_create(&options, &m->pipeline);
}

static fl_status open_pipeline(const fl_generation_options *o, fl_generation *m)
{
    unsigned char *handed = NULL;
    FL_TRY(plan_memory(o, m));
    if (o->running != NULL) {
        FL_TRY(find_room(o, m));
        FL_TRY(fl_alloc_array((size_t)m->plan.n_layers, sizeof *handed, (void **)&handed));
    }
    fl_status status = create_pipeline(o, m, handed);
    fl_free(handed);
    return status;
}

static fl_status open_migration(const fl_generation_options *o)
{
    return o->open_migration == NULL ? FL_OK : o->open_migration(o->context);
}

fl_status fl_generation_open(const fl_generation_options *options, fl_generation *member)
{
    memset(member, 0, sizeof *member);
    member->plan = *options->plan;
    member->place = fl_plan_place(&member->plan, options->rank);
    if (!member->place.active) {
        return open_migration(options);
    }
    FL_TRY(open_group(options, member));
    FL_TRY(open_pipeline(options, member));
    FL_TRY(open_migration(options));
    return fl_group_connect(member->group, fl_deadline_us(options->worker->job->fault.deadline_ms));
}

fl_params *fl_generation_params(const fl_generation *m)
{
    return m->pipeline == NULL ? NULL : fl_stage_params(fl_pipeline_stage(m->pipeline));
}

void fl_generation_close(fl_generation *member)
{
    fl_pipeline_destroy(&member->pipeline);
    fl_group_close(&member->group);
    fl_message_close(&member->messages);
}
