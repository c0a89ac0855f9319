#include "freeze/rule.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fl__freeze_say(char why[FL_FREEZE_WHY_MAX], const char *format, ...)
{
    size_t used = strlen(why);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why + used, FL_FREEZE_WHY_MAX - used, format, arguments);
    va_end(arguments);
}

bool fl__freeze_has_norms(const fl_freeze_input *in, const double *norm, const char *which,
                          char why[FL_FREEZE_WHY_MAX])
{
    if (norm == NULL) {
        fl__freeze_say(why, "no norms of the %s", which);
        return false;
    }
    for (int i = in->F; i < in->L; i++) {
        if (!isfinite(norm[i]) || norm[i] < 0) {
            fl__freeze_say(why, "block %d has the norm %g in the %s", i + 1, norm[i], which);
            return false;
        }
    }
    return true;
}

static int none(const fl_freeze_input *in, char why[FL_FREEZE_WHY_MAX])
{
    fl__freeze_say(why, "freeze.policy is none");
    return in->F;
}

/* By fl_freeze_policy. */
static fl__freeze_rule *const rules[] = {none, fl__freeze_gradnorm, fl__freeze_schedule,
                                         fl__freeze_stability};

/* A policy may leave fewer than freeze.keep blocks active only when they were so before: by hand,
 * or by a script. */
static int keep_active(const fl_freeze_input *in, int wanted, char why[FL_FREEZE_WHY_MAX])
{
    int64_t most = in->L - in->job->freeze.keep;
    most = most > in->F ? most : in->F;
    if (wanted <= most) {
        return wanted;
    }
    fl__freeze_say(why, "; freeze.keep %lld of %d blocks allows %lld",
                   (long long)in->job->freeze.keep, in->L, (long long)most);
    return (int)most;
}

static int below_pins(const fl_freeze_input *in, int wanted, char why[FL_FREEZE_WHY_MAX])
{
    for (int i = 0; in->pinned != NULL && i < wanted; i++) {
        if (in->pinned[i]) {
            fl__freeze_say(why, "; block %d is pinned", i + 1);
            return i;
        }
    }
    return wanted;
}

void fl_freeze_decide(const fl_freeze_input *in, fl_freeze_decision *decision)
{
    assert(in->L >= 1 && in->F >= 0 && in->F <= in->L && in->steps_per_epoch >= 1);
    decision->why[0] = '\0';
    int wanted = rules[in->job->freeze.policy](in, decision->why); /* ② */
    wanted = keep_active(in, wanted, decision->why);               /* ③ */
    decision->F = below_pins(in, wanted, decision->why);
}
