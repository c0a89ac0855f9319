/* What a check found: how it is printed, and what is kept of many. */
#include "launcher/doctor/checks/findings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

/* Messages quote files: no character of theirs reaches the terminal, and JSON stays JSON. */
static void test_findings__findings_are_printed(void **state)
{
    (void)state;
    fl_findings findings = {0};
    char *text = NULL;
    size_t n = 0;
    fl_finding_add(&findings, FL_VERDICT_OK, "one", "good");
    fl_finding *f = fl_finding_add(&findings, FL_VERDICT_ERROR, "two", "bad \x1b[31m \"quoted\"");
    fl_finding_advise(f, "mend it");
    FILE *out = open_memstream(&text, &n);
    fl_findings_print(&findings, out);
    fclose(out);
    assert_string_equal(text, "ok       one        good\n"
                              "error    two        bad \\033[31m \"quoted\"\n"
                              "                 -> mend it\n"
                              "1 ok, 0 warnings, 1 error\n");
    free(text);
    out = open_memstream(&text, &n);
    assert_int_equal(fl_findings_print_json(&findings, &(fl_json){0}, out), FL_OK);
    fclose(out);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "verdict")), "error");
    json_t *two = json_array_get(json_object_get(root, "checks"), 1);
    assert_string_equal(json_string_value(json_object_get(two, "advice")), "mend it");
    assert_string_equal(json_string_value(json_object_get(two, "found")), f->found);
    json_decref(root);
    free(text);
}

/* As of a host with many GPUs, or of one that says too much. Would catch: an error that something
 * good takes the place of, so that the host passes. */
static void test_findings__an_error_finds_room(void **state)
{
    (void)state;
    fl_findings findings = {0};
    fl_finding_add(&findings, FL_VERDICT_ERROR, "first", "bad");
    for (int i = 0; i < 2 * FL_FINDINGS_MAX; i++) {
        fl_finding_add(&findings, FL_VERDICT_OK, "many", "%d", i);
    }
    assert_int_equal(findings.n, FL_FINDINGS_MAX);
    fl_finding_advise(fl_finding_add(&findings, FL_VERDICT_ERROR, "same", "other"), "mend");
    fl_finding_add(&findings, FL_VERDICT_OK, "apart", "good");
    assert_int_equal(findings.n, FL_FINDINGS_MAX);
    assert_string_equal(findings.of[FL_FINDINGS_MAX - 1].check, "same");
    for (int i = 0; i < 2 * FL_FINDINGS_MAX; i++) {
        fl_finding_add(&findings, FL_VERDICT_ERROR, "worse", "%d", i);
    }
    assert_string_equal(findings.of[0].check, "first");
    assert_int_equal(findings.n, FL_FINDINGS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings__findings_are_printed),
        cmocka_unit_test(test_findings__an_error_finds_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
