#include "support/findings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

const fl_finding *find_check(const fl_findings *findings, const char *check)
{
    for (int i = 0; i < findings->n; i++) {
        if (strcmp(findings->of[i].check, check) == 0) {
            return &findings->of[i];
        }
    }
    fail_msg("no finding is called %s", check);
    return NULL;
}

void assert_verdict(const fl_findings *findings, const char *check, fl_verdict verdict)
{
    const fl_finding *f = find_check(findings, check);
    assert_string_equal(fl_verdict_text(f->verdict), fl_verdict_text(verdict));
    assert_true(f->found[0] != '\0');
    assert_true(verdict == FL_VERDICT_OK || f->advice[0] != '\0');
}
