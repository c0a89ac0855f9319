#include "control/elastic/again.h"

#include "control/elastic/elastic.h"

enum { FIRST_PAUSE_MS = 100, DOUBLINGS = 6, PAUSES_A_DEADLINE = 4 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t deadline_us(const fl_elastic *elastic)
{
    return elastic->run->options->job->fault.deadline_ms * 1000;
}

bool fl_again_is_possible(const fl_elastic *elastic)
{
    const fl_transition *e = &elastic->transition;
    return elastic->run->options->recording != NULL || e->due == FL_DUE_SCRIPT ||
           e->due == FL_DUE_POLICY;
}

static bool is_first(const fl_elastic *elastic)
{
    return elastic->transition.again.step != elastic->transition.due_step;
}

bool fl_again_may_pass(const fl_elastic *elastic, fl_status why, int64_t now_us)
{
    bool passes = fl_status_is_regroup(why) || why == FL_EIO;
    bool in_time = is_first(elastic) || now_us < elastic->transition.again.until_us;
    return fl_again_is_possible(elastic) && passes && in_time;
}

/* The second attempt follows at once. */
static int64_t pause_us(const fl_elastic *elastic, int n_failed)
{
    int doublings = n_failed - 2 < DOUBLINGS ? n_failed - 2 : DOUBLINGS;
    return n_failed < 2 ? 0
                        : smaller((int64_t)FIRST_PAUSE_MS * 1000 << doublings,
                                  deadline_us(elastic) / PAUSES_A_DEADLINE);
}

void fl_again_count(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    fl_again *a = &e->again;
    if (is_first(elastic)) {
        int64_t begun_us = e->deadline_us - deadline_us(elastic);
        *a = (fl_again){.step = e->due_step,
                        .until_us = begun_us + FL_AGAIN_DEADLINES * deadline_us(elastic)};
    }
    a->n++;
    a->at_us = now_us + pause_us(elastic, a->n);
}

void fl_again_put_back(fl_elastic *elastic)
{
    fl_transition *e = &elastic->transition;
    if (elastic->run->options->recording != NULL) {
        elastic->replay.n_done--;
    } else if (e->due == FL_DUE_SCRIPT) {
        e->n_scripted--;
    } else if (e->due == FL_DUE_POLICY) {
        fl_decide_again(elastic, e->due_step);
    }
    e->due = FL_DUE_NONE;
}

bool fl_again_pauses(const fl_elastic *elastic, int64_t now_us)
{
    return now_us < elastic->transition.again.at_us;
}
