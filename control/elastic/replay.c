/* A run that repeats another: the decisions come from the recording, each at its step.
 *
 *     the workers wait at a recorded step ──> its decisions, one after the other ──> the last one's
 *     answer (or a pass) releases them
 *
 * A plan is prepared ahead and committed at its step, like any other. A setting must take effect
 * exactly at its step, so the controller sends it once all steps before it are done: the workers
 * then wait there. The job's script, its freeze policy and the tuner decide nothing. */
#include "control/elastic/elastic.h"

static const fl_recorded *next_recorded(const fl_elastic *elastic)
{
    const fl_recording *recording = elastic->run->options->recording;
    int i = elastic->replay.n_done;
    return i < recording->n ? &recording->of[i] : NULL;
}

/* Whether it is the last decision at its step. */
static bool is_last_at_step(const fl_elastic *elastic)
{
    const fl_recording *recording = elastic->run->options->recording;
    int i = elastic->replay.n_done;
    return i + 1 == recording->n || recording->of[i + 1].step != recording->of[i].step;
}

static void finish_setting(fl_elastic *elastic)
{
    int64_t step = next_recorded(elastic)->step;
    bool last = is_last_at_step(elastic);
    elastic->replay.n_done++;
    if (last) {
        fl_router_command(
            elastic->router, &elastic->plan,
            &(fl_command){.kind = FL_COMMAND_PASS, .due_step = step, .due = FL_DUE_REPLAY});
    }
}

static void send_setting(fl_elastic *elastic, const fl_recorded *recorded)
{
    fl_replay *replay = &elastic->replay;
    replay->setting = (fl_setting){.kind = recorded->kind == FL_RECORDED_LR ? FL_SETTING_LR
                                                                            : FL_SETTING_END_EPOCH,
                                   .serial = FL_REPLAY_SERIAL + replay->n_done,
                                   .value = recorded->value};
    replay->waits = true;
    fl_router_command(elastic->router, &elastic->plan,
                      &(fl_command){.kind = FL_COMMAND_SETTING, .setting = replay->setting});
}

const fl_setting *fl_replay_setting_done(fl_elastic *elastic, int64_t serial)
{
    fl_replay *replay = &elastic->replay;
    if (!replay->waits || serial != replay->setting.serial) {
        return NULL;
    }
    replay->waits = false;
    finish_setting(elastic);
    return &replay->setting;
}

bool fl_replay_next_plan(fl_elastic *elastic, fl_plan *next, int64_t *step, fl_due_kind *answers)
{
    const fl_recorded *recorded = next_recorded(elastic);
    if (recorded == NULL || recorded->kind != FL_RECORDED_PLAN || elastic->replay.waits ||
        elastic->run->stats->steps + elastic->due.lead < recorded->step) {
        return false;
    }
    *next = *recorded->plan;
    *step = recorded->step;
    *answers = is_last_at_step(elastic) ? FL_DUE_REPLAY : FL_DUE_NONE;
    elastic->replay.n_done++;
    return true;
}

void fl_replay_watch(fl_elastic *elastic)
{
    const fl_recorded *recorded = next_recorded(elastic);
    if (recorded == NULL || recorded->kind == FL_RECORDED_PLAN || elastic->replay.waits ||
        elastic->run->stats->steps < recorded->step) {
        return;
    }
    if (recorded->kind == FL_RECORDED_STOP) {
        elastic->stop(elastic->context, "the run that is repeated ended here");
    } else if (recorded->kind == FL_RECORDED_END) {
        elastic->replay.n_done++;
        elastic->end(elastic->context, recorded->step);
        fl_router_command(elastic->router, &elastic->plan,
                          &(fl_command){.kind = FL_COMMAND_END,
                                        .due_step = recorded->step,
                                        .due = FL_DUE_REPLAY});
    } else {
        send_setting(elastic, recorded);
    }
}
