/* Helpers that the policies share; internal to freeze/. */
#ifndef FL_FREEZE_RULE_H
#define FL_FREEZE_RULE_H

#include "freeze/policy.h"

/* The F that a policy wants, before freeze.keep and pins; it begins `why` (which is empty). */
typedef int fl__freeze_rule(const fl_freeze_input *in, char why[FL_FREEZE_WHY_MAX]);

fl__freeze_rule fl__freeze_gradnorm, fl__freeze_schedule, fl__freeze_stability;

/* Add to `why`; what does not fit is cut. */
void fl__freeze_say(char why[FL_FREEZE_WHY_MAX], const char *format, ...) FL_PRINTF(2, 3);

/* Whether norm has what a policy needs of the active blocks; if not, `why` says it. */
bool fl__freeze_has_norms(const fl_freeze_input *in, const double *norm, const char *which,
                          char why[FL_FREEZE_WHY_MAX]);

#endif
