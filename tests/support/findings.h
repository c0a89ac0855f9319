/* What checks found, for assertions. */
#ifndef FL_TESTS_SUPPORT_FINDINGS_H
#define FL_TESTS_SUPPORT_FINDINGS_H

#include "launcher/doctor/checks/findings.h"

/* The first finding of this check. The test fails if it has found nothing. */
const fl_finding *find_check(const fl_findings *findings, const char *check);

/* That finding has this verdict and says what was found; whatever is not ok says what to do. */
void assert_verdict(const fl_findings *findings, const char *check, fl_verdict verdict);

#endif
