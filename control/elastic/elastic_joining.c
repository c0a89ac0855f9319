#include "control/elastic/elastic_joining.h"

/* Whether a worker is a member under the next plan, and not under the present one. */
static bool joins(const fl_transition *e, int rank)
{
    return e->before.departed[rank] && !e->next.departed[rank];
}

void fl_elastic_tell_joining(const fl_elastic *elastic, const fl_command *command)
{
    const fl_transition *e = &elastic->transition;
    fl_wire_message frame = fl_router_frame(&elastic->plan, FL_WIRE_COMMAND);
    frame.command = *command;
    for (int rank = 0; rank < elastic->plan.n_workers; rank++) {
        if (joins(e, rank)) {
            fl_router_send_to(elastic->router, rank, &frame);
        }
    }
}

int fl_elastic_count_preparing(const fl_elastic *elastic)
{
    int n = fl_plan_members(&elastic->plan);
    for (int rank = 0; rank < elastic->plan.n_workers; rank++) {
        n += joins(&elastic->transition, rank);
    }
    return n;
}

void fl_elastic_enter_joining(fl_elastic *elastic)
{
    const fl_transition *e = &elastic->transition;
    fl_elastic_tell_joining(
        elastic, &(fl_command){.kind = FL_COMMAND_COMMIT, .due_step = e->due_step, .due = e->due});
    for (int rank = 0; rank < elastic->plan.n_workers; rank++) {
        if (joins(e, rank)) {
            fl_worker_enter(&elastic->workers[rank], elastic->plan.generation);
        }
    }
}
