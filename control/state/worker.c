#include "control/state/worker.h"

#include "control/state/birth.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

/* Of one that is no member any more, whose process has ended. */
static const char *ended_text(const fl_worker *worker)
{
    return worker->lost || worker->lost_outside ? "lost"
           : worker->incarnation == 0           ? "left" /* before this controller */
                                                : "drained";
}

const char *fl_worker_state_text(const fl_worker *worker)
{
    if (worker->joins && worker->exited_us == 0) {
        return "joining";
    }
    if (worker->departed && worker->restarts_us > 0) {
        return "restarting";
    }
    if (worker->departed) {
        return worker->exited_us != 0 ? ended_text(worker) : "leaving";
    }
    if (worker->exited_us != 0 || worker->done) {
        return worker->done ? "done" : "gone";
    }
    if (!worker->ready) {
        return "starting";
    }
    return worker->place.active ? "active" : "standby";
}

const char *fl_worker_operation(const fl_worker *worker)
{
    return worker->exited_us != 0 ? "" : worker->operation;
}

bool fl_worker_is_awaited(const fl_worker *worker)
{
    return !worker->departed && !worker->done && worker->exited_us == 0;
}

bool fl_worker_any_is_done(const fl_worker *workers, int n_workers)
{
    for (int i = 0; i < n_workers; i++) {
        if (workers[i].done && !workers[i].departed) {
            return true;
        }
    }
    return false;
}

int64_t fl_workers_finished_steps(const fl_worker *workers, int n_workers, int64_t counted)
{
    int64_t steps = counted;
    for (int i = 0; i < n_workers; i++) {
        steps = workers[i].steps > steps ? workers[i].steps : steps;
    }
    return steps;
}

void fl_worker_begin_again(fl_worker *worker, int64_t now_us)
{
    char gpu_name[sizeof worker->gpu_name];
    memcpy(gpu_name, worker->gpu_name, sizeof gpu_name);
    fl_graph_sums_end(&worker->graphs);
    *worker = (fl_worker){.rank = worker->rank,
                          .graphs = worker->graphs,
                          .incarnation = worker->incarnation + 1,
                          .pid = worker->pid, /* until the new one is known */
                          .gpu = worker->gpu,
                          .place = {.replica = -1, .stage = -1},
                          .spawned_us = now_us,
                          .heard_us = now_us,
                          .joins = true,
                          .departed = true,
                          .exit_reported = true};
    memcpy(worker->gpu_name, gpu_name, sizeof gpu_name);
    snprintf(worker->operation, sizeof worker->operation, "starting");
}

void fl_worker_enter(fl_worker *worker, uint32_t generation)
{
    worker->since = generation;
    worker->joins = worker->departed = worker->exit_reported = false;
}

void fl_worker_depart(fl_worker *worker, int64_t now_us)
{
    worker->departed = true;
    worker->departed_us = now_us;
}

void fl_worker_birth_first(const fl_plan *plan, int64_t n_steps, fl_worker_birth *out)
{
    *out = (fl_worker_birth){.plan = *plan, .lr_factor = 1.0, .end_step = n_steps};
    for (int layer = 0; layer < plan->n_layers; layer++) {
        out->parked[layer] = -1;
    }
}

void fl_workers_init(fl_worker *workers, int n_workers, const fl_plan *plan, int64_t step)
{
    for (int rank = 0; rank < n_workers; rank++) {
        workers[rank] =
            (fl_worker){.rank = rank, .place = fl_plan_place(plan, rank), .steps = step};
        snprintf(workers[rank].operation, sizeof workers[rank].operation, "starting");
        if (plan->departed[rank]) {
            workers[rank].departed = workers[rank].exit_reported = true;
            workers[rank].departed_us = workers[rank].exited_us = fl_now_us();
        }
    }
}

void fl_workers_place(fl_worker *workers, int n_workers, const fl_plan *plan)
{
    for (int rank = 0; rank < n_workers; rank++) {
        workers[rank].place = fl_plan_place(plan, rank);
    }
}
