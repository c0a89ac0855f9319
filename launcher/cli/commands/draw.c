#include "launcher/cli/commands/draw.h"

#include "device/system/alloc.h"
#include "pipe/cost/schedule.h"

#include <math.h>
#include <string.h>

/* A played schedule: every op and when it runs, in ticks. */
typedef struct played {
    fl_op *ops;     /* [2 * M] of the current stage */
    fl_tick *ticks; /* [K][2 * M] */
    int n_ticks;
    double bubble; /* share of the stages' time in which they wait */
} played;

static void played_fini(played *p)
{
    fl_free(p->ops);
    fl_free(p->ticks);
}

static fl_status play(const fl_drawing *d, played *p)
{
    double forward[FL_MAX_STAGES], backward[FL_MAX_STAGES], link[FL_MAX_STAGES] = {0};
    void *ops = NULL, *ticks = NULL;
    size_t n_ops = 2 * (size_t)d->M;
    *p = (played){0};
    FL_TRY(fl_alloc_array(n_ops, sizeof(fl_op), &ops));
    fl_status status = fl_alloc_array((size_t)d->K * n_ops, sizeof(fl_tick), &ticks);
    if (status != FL_OK) {
        fl_free(ops);
        return status;
    }
    for (int k = 0; k < d->K; k++) {
        forward[k] = 1;
        backward[k] = d->backward_ticks;
    }
    p->ops = ops;
    p->ticks = ticks;
    double span = fl_schedule_play(d->schedule, d->K, d->M, forward, backward, link, p->ticks);
    p->n_ticks = (int)lrint(span);
    p->bubble = 1 - d->M * (1 + d->backward_ticks) / span;
    return FL_OK;
}

/* ---- text ---- */

static int n_digits(int value)
{
    return snprintf(NULL, 0, "%d", value);
}

/* A cell of one tick: "F2", "B2", a rest of a longer one, or a wait; and the space after it. */
static void draw_cell(FILE *stream, const char *text, int n_columns, int width)
{
    fprintf(stream, "%s%*s", text, width - n_columns, "");
}

static void draw_stage(const fl_drawing *d, const played *p, int stage, FILE *stream)
{
    const fl_tick *ticks = p->ticks + (size_t)stage * 2 * (size_t)d->M;
    int width = n_digits(d->M - 1) + 2, next = 0, end = 0;
    fl_schedule_ops(d->schedule, d->K, d->M, stage, p->ops);
    fprintf(stream, "stage %*d  ", n_digits(d->K - 1), stage);
    for (int tick = 0; tick < p->n_ticks; tick++) {
        if (next < 2 * d->M && tick == (int)lrint(ticks[next].begin)) {
            char text[16];
            int n =
                snprintf(text, sizeof text, "%c%d", p->ops[next].kind == FL_OP_FORWARD ? 'F' : 'B',
                         p->ops[next].micro_batch);
            draw_cell(stream, text, n, width);
            end = (int)lrint(ticks[next++].end);
        } else if (tick < end) {
            draw_cell(stream, d->unicode ? "\u2500" : "-", 1, width);
        } else {
            draw_cell(stream, d->unicode ? "\u00B7" : ".", 1, width);
        }
    }
    fprintf(stream, " %*d in flight\n", n_digits(d->M),
            fl_schedule_in_flight(d->schedule, d->K, d->M, stage));
}

fl_status fl_draw_text(const fl_drawing *d, FILE *stream)
{
    played p;
    FL_TRY(play(d, &p));
    fprintf(stream, "%s, K = %d, M = %d\n\n", d->schedule_name, d->K, d->M);
    for (int stage = 0; stage < d->K; stage++) {
        draw_stage(d, &p, stage, stream);
    }
    fprintf(stream, "\n%d ticks, of which each stage waits %d: a bubble of %.1f %%\n", p.n_ticks,
            p.n_ticks - d->M * (1 + d->backward_ticks), 100 * p.bubble);
    played_fini(&p);
    return FL_OK;
}

/* ---- JSON ---- */

static void json_stage(const fl_drawing *d, const played *p, int stage, FILE *stream)
{
    const fl_tick *ticks = p->ticks + (size_t)stage * 2 * (size_t)d->M;
    fl_schedule_ops(d->schedule, d->K, d->M, stage, p->ops);
    fprintf(stream, "    {\"stage\": %d, \"in_flight\": %d, \"ops\": [", stage,
            fl_schedule_in_flight(d->schedule, d->K, d->M, stage));
    for (int i = 0; i < 2 * d->M; i++) {
        fprintf(stream,
                "%s\n      {\"op\": \"%s\", \"micro_batch\": %d, \"begin\": %ld, \"end\": %ld}",
                i == 0 ? "" : ",", p->ops[i].kind == FL_OP_FORWARD ? "forward" : "backward",
                p->ops[i].micro_batch, lrint(ticks[i].begin), lrint(ticks[i].end));
    }
    fprintf(stream, "]}%s\n", stage == d->K - 1 ? "" : ",");
}

fl_status fl_draw_json(const fl_drawing *d, FILE *stream)
{
    played p;
    FL_TRY(play(d, &p));
    fprintf(stream,
            "{\n  \"schedule\": \"%s\", \"k\": %d, \"m\": %d,\n  \"ticks\": %d, "
            "\"backward_ticks\": %d, \"bubble\": %.6f,\n  \"stages\": [\n",
            d->schedule_name, d->K, d->M, p.n_ticks, d->backward_ticks, p.bubble);
    for (int stage = 0; stage < d->K; stage++) {
        json_stage(d, &p, stage, stream);
    }
    fprintf(stream, "  ]\n}\n");
    played_fini(&p);
    return FL_OK;
}
