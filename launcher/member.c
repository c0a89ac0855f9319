#include "launcher/member.h"

#include "device/alloc.h"
#include "pipe/migrate_schedule.h"

#include <string.h>

static fl_status open_group(const fl_member_options *o, fl_member *m)
{
    const fl_job *job = o->worker->job;
    fl_group_options options = {.generation = m->plan.generation,
                                .index = m->place.replica * m->plan.K + m->place.stage,
                                .size = m->plan.K * m->plan.R,
                                .kv = o->kv,
                                .open_timeout_ms = job->fault.deadline_ms,
                                .wait_timeout_ms = job->fault.deadline_ms,
                                .given_up = o->given_up,
                                .context = o->context};
    FL_TRY(fl_group_open(&options, &m->group));
    return o->opened(o->context, m->group);
}

static fl_status plan_memory(const fl_member_options *o, fl_member *m)
{
    const fl_worker_context *w = o->worker;
    fl_shape input;
    int64_t n_targets;
    void *layers = NULL;
    FL_TRY(w->dataset->ops->max_shape(w->dataset->self, &input, &n_targets));
    FL_TRY(fl_alloc_array((size_t)m->plan.n_layers, sizeof(fl_layer_memory), &layers));
    fl_status status =
        fl_memory_measure(w->model, &input, fl_plan_max_samples(w->job, &m->plan), layers);
    if (status == FL_OK) {
        int stage = m->place.stage;
        fl_memory_stage(w->model, w->job, layers, fl_frozen_layers(w->model, m->plan.F),
                        m->plan.schedule, m->plan.K, m->plan.M, stage, m->plan.first[stage],
                        m->plan.first[stage + 1], &m->memory);
    }
    fl_free(layers);
    return status;
}

static fl_status open_pipeline(const fl_member_options *o, fl_member *m)
{
    fl_pipeline_options options = {.model = o->worker->model,
                                   .dataset = o->worker->dataset,
                                   .job = o->worker->job,
                                   .plan = &m->plan,
                                   .rank = o->rank,
                                   .device = o->device,
                                   .group = m->group,
                                   .memory = &m->memory,
                                   .draw = o->draw};
    FL_TRY(plan_memory(o, m));
    return fl_pipeline_create(&options, &m->pipeline);
}

fl_status fl_member_open(const fl_member_options *options, fl_member *member)
{
    memset(member, 0, sizeof *member);
    member->plan = *options->plan;
    member->place = fl_plan_place(&member->plan, options->rank);
    if (!member->place.active) {
        return FL_OK;
    }
    FL_TRY(open_group(options, member));
    return open_pipeline(options, member);
}

void fl_member_close(fl_member *member)
{
    fl_pipeline_destroy(&member->pipeline);
    fl_group_close(&member->group);
}
