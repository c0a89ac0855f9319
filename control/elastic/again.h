/* A change for which all workers wait at its step, and an attempt at which has failed. It is taken
 * up again before that step goes on:
 *
 *     an entry of elastic.script       is the next entry again
 *     a decision of the freeze policy  is pending again
 *     a change of a repeated run       is the next one of the recording again
 *
 * The plan is then chosen anew, for the workers that there are. A failure of a connection, of a
 * system call or of a deadline may pass, so the same workers try again, after a pause, until
 * FL_AGAIN_DEADLINES times fault.deadline have passed. A worker that has no memory for the plan
 * will have none the next time. */
#ifndef FL_CONTROL_ELASTIC_AGAIN_H
#define FL_CONTROL_ELASTIC_AGAIN_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { FL_AGAIN_DEADLINES = 3 };

typedef struct fl_elastic fl_elastic;

/* Failed attempts at the change that is due at `step`. */
typedef struct fl_again {
    int64_t step; /* 0: none has failed */
    int n;
    int64_t until_us; /* a failure after that is final */
    int64_t at_us;    /* no attempt begins before */
} fl_again;

/* Whether the change in elastic->transition is one that can be taken up again. */
bool fl_again_is_possible(const fl_elastic *elastic);

/* Whether an attempt that failed for this reason is to be repeated. */
bool fl_again_may_pass(const fl_elastic *elastic, fl_status why, int64_t now_us);

/* Count a failed attempt of the workers, and set the pause before the next one. */
void fl_again_count(fl_elastic *elastic, int64_t now_us);

/* Take the change up again. */
void fl_again_put_back(fl_elastic *elastic);

/* Whether the pause before the next attempt is not over. */
bool fl_again_pauses(const fl_elastic *elastic, int64_t now_us);

#endif
