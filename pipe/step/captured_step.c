#include "pipe/step/captured_step.h"

#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/clock.h"

fl_step_way fl_step_way_next(double n_ready, double n_captured, int n_members)
{
    return n_captured >= n_members ? FL_STEP_LAUNCHES
           : n_ready >= n_members  ? FL_STEP_CAPTURES
                                   : FL_STEP_BY_PIECES;
}

void fl_captured_step_begin(fl_captured_step *c, int64_t n)
{
    c->way = n == c->n ? c->agreed : FL_STEP_BY_PIECES;
    c->agreed = FL_STEP_BY_PIECES;
    c->n = n;
    c->ready = !c->sums;
}

/* ---- capture ---- */

static fl_status capture_layer(void *context, int slot, int layer)
{
    fl_captured_step *c = context;
    (void)slot;
    return fl_reduce_capture_layer(c->reduce, layer, fl_deadline_us(c->deadline_ms));
}

static fl_status join(void *context)
{
    fl_captured_step *c = context;
    return fl_reduce_capture_join(c->reduce);
}

/* If it fails on one member, no member launches: the others learn at the commit point that one has
 * none. What breaks the group is found by whoever uses it next. */
static void capture(fl_captured_step *c, int slot, bool want_grad_in)
{
    fl_graph *graph = NULL;
    fl_captured_destroy(&c->graph);
    fl_status status =
        fl_stage_capture_backward(c->stage, slot, want_grad_in, capture_layer, join, c, &graph);
    c->reduce->captured = 0;
    status = status == FL_OK ? fl_captured_create(c->group, graph, &c->graph) : status;
    if (status != FL_OK) {
        c->failed = true;
        fl_log(FL_LOG_WARN, "a step's sums are not captured: %s", fl_errmsg());
    }
}

/* ---- launch ---- */

/* From here on a failure is one of the step: the other members have launched theirs. */
static fl_status launch(void *context)
{
    fl_captured_step *c = context;
    fl_flight_enter(FL_FLIGHT_LAUNCH, -1, -1, 0);
    FL_TRY(fl_captured_launch(c->graph, c->stream));
    fl_flight_leave();
    return fl_reduce_launched(c->reduce);
}

fl_status fl_captured_step_backward(fl_captured_step *c, int slot, bool want_grad_in, void *to,
                                    fl_stage_layer_done *by_pieces, void *context,
                                    fl_tensor *grad_in)
{
    bool can = c->equal && !c->failed && to == NULL && c->n % c->n_cuts == 0 && c->sums &&
               fl_stage_has_backward_graphs(c->stage, slot);
    if (c->sums && c->way == FL_STEP_LAUNCHES) {
        return fl_stage_backward_captured(c->stage, slot, want_grad_in, launch, c, grad_in);
    }
    if (can && c->way == FL_STEP_CAPTURES) {
        capture(c, slot, want_grad_in);
    }
    c->ready = c->ready || (can && !c->failed);
    return fl_stage_backward(c->stage, slot, want_grad_in, to, by_pieces, context, grad_in);
}

/* ---- agreement ---- */

void fl_captured_step_put(const fl_captured_step *c, double *ready, double *captured)
{
    bool has = c->sums ? c->graph != NULL && !c->failed : c->way != FL_STEP_BY_PIECES;
    *captured = has;
    *ready = has || c->ready;
}

void fl_captured_step_agree(fl_captured_step *c, double n_ready, double n_captured, int n_members)
{
    c->agreed = fl_step_way_next(n_ready, n_captured, n_members);
}

void fl_captured_step_interrupt(fl_captured_step *c)
{
    c->agreed = FL_STEP_BY_PIECES;
    fl_captured_destroy(&c->graph); /* the stream's workspace may grow meanwhile */
}

void fl_captured_step_fini(fl_captured_step *c)
{
    fl_captured_destroy(&c->graph);
}
