/* The page of a run that was resumed, went back or regrouped: its plans, hosts and workers. */
#include "support/formats/report_page.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STARTED                                                                                    \
    "{\"time\":0,\"event\":\"run.started\",\"job\":\"toy\",\"workers\":[{\"rank\":0}]}\n"          \
    "{\"time\":0,\"event\":\"plan.chosen\",\"generation\":1,\"f\":0,\"k\":3,\"r\":1,\"m\":18,"     \
    "\"why\":\"fits\",\"candidates\":[]}\n"

/* The page of a run with these events; the caller frees it. */
static char *page_of(const char *events)
{
    fl_report report;
    report_put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    report_put("events.jsonl", "w", events);
    char *page = report_page(&report);
    assert_int_equal(report.events_file.n_bad, 0);
    fl_report_fini(&report);
    return page;
}

static int count_of(const char *page, const char *text)
{
    int n = 0;
    for (const char *at = strstr(page, text); at != NULL; at = strstr(at + 1, text)) {
        n++;
    }
    return n;
}

/* The return to step 800 gave the run K = 2; the page had that change in the row of a comparison of
 * M at step 833. */
static void test_report__a_return_changes_the_plan_where_it_happens(void **state)
{
    (void)state;
    char *page = page_of(
        STARTED
        "{\"time\":8,\"event\":\"run.resumed\",\"generation\":1,\"step\":800,\"checkpoint\":"
        "\"checkpoints/step-000000800\",\"why\":\"worker 2 was killed\",\"repeated_steps\":7,"
        "\"workers\":[{\"rank\":0}]}\n"
        "{\"time\":8,\"event\":\"plan.chosen\",\"generation\":1,\"f\":0,\"k\":2,\"r\":1,\"m\":24,"
        "\"why\":\"its plan needs three workers\",\"candidates\":[]}\n"
        "{\"time\":9,\"event\":\"transition.prepare\",\"generation\":1,\"next_generation\":2,"
        "\"f\":0,\"k\":2,\"r\":1,\"m\":12,\"why\":\"comparing M = 12 with M = 24\"}\n"
        "{\"time\":9,\"event\":\"transition.done\",\"generation\":2,\"f\":0,\"k\":2,\"r\":1,"
        "\"m\":12,\"step\":833,\"why\":\"comparing M = 12 with M = 24\"}\n");
    report_expect(page, "<tr><td>800</td><td class=\"text\">K 3 \u2192 2, M 18 \u2192 24</td><td>-<"
                        "/td><td>-</td><td>-</td><td>-</td></tr>\n<tr class=\"why\"><td></td><td "
                        "colspan=\"5\">the run goes back to checkpoints/step-000000800: its plan "
                        "needs three workers</td></tr>");
    report_expect(page, "Other micro-batches tried: 1</summary>");
    report_expect(page, "<tr><td>833</td><td class=\"text\">M 24 \u2192 12</td>");
    assert_null(strstr(page, "Time of each part")); /* no transition but the one of a comparison */
    free(page);
}

/* Would catch: a resume that has no row, or that has one though the plan runs on. */
static void test_report__a_resume_is_a_change_only_with_another_plan(void **state)
{
    (void)state;
    char *page = page_of(
        STARTED
        "{\"time\":2,\"event\":\"run.resumed\",\"step\":5,\"checkpoint\":\"checkpoints/step-5\","
        "\"workers\":[{\"rank\":0}]}\n"
        "{\"time\":2,\"event\":\"plan.chosen\",\"f\":0,\"k\":3,\"r\":1,\"m\":18,"
        "\"why\":\"the checkpoint's plan runs on\",\"candidates\":[]}\n");
    assert_null(strstr(page, "How the plan changed"));
    free(page);
    page = page_of(
        STARTED
        "{\"time\":2,\"event\":\"run.resumed\",\"step\":5,\"checkpoint\":\"checkpoints/step-5\","
        "\"workers\":[{\"rank\":0}]}\n"
        "{\"time\":2,\"event\":\"plan.chosen\",\"f\":0,\"k\":3,\"r\":1,\"m\":9,"
        "\"why\":\"pipe.m asks for it\",\"candidates\":[]}\n");
    report_expect(page, "<tr><td>5</td><td class=\"text\">M 18 \u2192 9</td>");
    report_expect(page, "the run is resumed from checkpoints/step-5: pipe.m asks for it<");
    assert_null(strstr(page, "Other micro-batches tried"));
    free(page);
}

/* A host was lost while it was drained: the page had the transition, which never took place, as a
 * change, and not the one that followed. The new start numbers its generations from the first. */
static void test_report__a_transition_that_never_finished_is_no_change(void **state)
{
    (void)state;
    char *page = page_of(
        STARTED
        "{\"time\":3,\"event\":\"transition.prepare\",\"generation\":1,\"next_generation\":2,"
        "\"f\":0,\"k\":1,\"r\":2,\"m\":1,\"why\":\"host nb is drained\"}\n"
        "{\"time\":4,\"event\":\"run.resumed\",\"generation\":1,\"step\":0,\"checkpoint\":"
        "\"the start of the run\",\"why\":\"host nb was lost\",\"workers\":[{\"rank\":0}]}\n"
        "{\"time\":4,\"event\":\"plan.chosen\",\"generation\":1,\"f\":0,\"k\":2,\"r\":1,\"m\":6,"
        "\"why\":\"fits\",\"candidates\":[]}\n"
        "{\"time\":5,\"event\":\"transition.done\",\"generation\":2,\"f\":0,\"k\":1,\"r\":1,"
        "\"m\":6,\"step\":40,\"why\":\"worker 1 was killed\"}\n");
    report_expect(page,
                  "<tr><td>-</td><td class=\"text\">not finished: K 3 \u2192 1, R 1 \u2192 2, "
                  "M 18 \u2192 1</td>");
    report_expect(page, "<tr><td>0</td><td class=\"text\">K 3 \u2192 2, M 18 \u2192 6</td>");
    report_expect(page, "<tr><td>40</td><td class=\"text\">K 2 \u2192 1</td>");
    free(page);
}

#define AGAIN(step)                                                                                \
    "{\"time\":5,\"event\":\"worker.restarted\",\"rank\":1,\"step\":" step                         \
    ",\"why\":\"host joined\"}\n"

/* Host nb is drained and joins again, then it is lost and joins again. Would catch: a worker among
 * the losses that was drained; the number of steps of the run's start. */
static void test_report__a_drained_worker_is_no_loss(void **state)
{
    (void)state;
    char *page = page_of(STARTED AGAIN("50"));
    assert_null(strstr(page, "what happened"));
    free(page);
    page = page_of(
        STARTED AGAIN("50") "{\"time\":6,\"event\":\"worker.lost\",\"rank\":1,\"step\":60}\n" AGAIN(
            "70")
            AGAIN("80") "{\"time\":7,\"wall\":\"2026-01-31T11:00:00.000Z\",\"event\":\"run."
                        "resumed\",\"step\":0,"
                        "\"checkpoint\":\"the start of the run\",\"why\":\"host nb was lost\","
                        "\"repeated_steps\":80}\n");
    assert_null(strstr(page, "<td>50</td><td class=\"all\">"));
    report_expect(page, "<td>70</td><td class=\"all\">worker 1 is started again (host joined)");
    assert_null(strstr(page, "<td>80</td><td class=\"all\">worker"));
    report_expect(page, "UTC to the start of the run: host nb was lost (80 steps again).");
    free(page);
}

/* Would catch: a regroup that has two rows or none, and a regroup or a worker that joins among the
 * comparisons of M, and a change that was cancelled without what it was for. */
static void test_report__a_regroup_is_one_change(void **state)
{
    (void)state;
    char *page = page_of(
        STARTED
        "{\"time\":3,\"event\":\"transition.prepare\",\"generation\":1,\"next_generation\":2,"
        "\"f\":2,\"k\":3,\"r\":1,\"m\":18,\"why\":\"freezing\"}\n"
        "{\"time\":4,\"event\":\"transition.cancelled\",\"generation\":1,\"next_generation\":2,"
        "\"why\":\"worker 2 was killed\"}\n"
        "{\"time\":4,\"event\":\"transition.done\",\"generation\":3,\"f\":0,\"k\":3,\"r\":1,"
        "\"m\":12,\"step\":41,\"why\":\"worker 2 was killed\"}\n"
        "{\"time\":4,\"event\":\"run.recovered\",\"generation\":3,\"f\":0,\"k\":3,\"r\":1,"
        "\"m\":12,\"step\":41,\"why\":\"worker 2 was killed\"}\n"
        "{\"time\":5,\"event\":\"run.recovered\",\"generation\":4,\"f\":0,\"k\":1,\"r\":1,"
        "\"m\":4,\"step\":102,\"why\":\"worker 1 was killed\"}\n"
        "{\"time\":6,\"event\":\"transition.prepare\",\"generation\":4,\"next_generation\":5,"
        "\"f\":0,\"k\":1,\"r\":1,\"m\":4,\"why\":\"worker 1 joins\"}\n"
        "{\"time\":6,\"event\":\"transition.done\",\"generation\":5,\"f\":0,\"k\":1,\"r\":1,"
        "\"m\":4,\"step\":304,\"why\":\"worker 1 joins\"}\n"
        "{\"time\":7,\"event\":\"transition.prepare\",\"generation\":5,\"next_generation\":6,"
        "\"f\":0,\"k\":1,\"r\":1,\"m\":4,\"why\":\"worker 2 joins\"}\n"
        "{\"time\":7,\"event\":\"transition.cancelled\",\"generation\":5,\"next_generation\":6,"
        "\"why\":\"worker 2, which was to join, has ended\"}\n");
    report_expect(page, "cancelled: F 0 \u2192 2</td>");
    report_expect(page, ">freezing; cancelled: worker 2 was killed</td>");
    report_expect(page, "<tr><td>41</td><td class=\"text\">M 18 \u2192 12</td>");
    report_expect(page, "<tr><td>102</td><td class=\"text\">K 3 \u2192 1, M 12 \u2192 4</td>");
    report_expect(page, "<tr><td>304</td><td class=\"text\">same plan</td>");
    report_expect(page, "cancelled: same plan</td>");
    report_expect(page, ">worker 2 joins; cancelled: worker 2, which was to join, has ended</td>");
    assert_int_equal(count_of(page, "<tr><td>41</td><td class=\"text\">"), 1);
    assert_null(strstr(page, "Other micro-batches tried"));
    free(page);
}

#define HOSTS                                                                                      \
    "\"hosts\":[{\"host\":\"a\",\"address\":\"10.0.0.1\",\"first_worker\":0,\"workers\":1},"       \
    "{\"host\":\"b\",\"address\":\"10.0.0.2\",\"first_worker\":1,\"workers\":1},{\"host\":\"c\","  \
    "\"address\":\"10.0.0.3\",\"first_worker\":2,\"workers\":1}]"
#define JOINED(host, ip, time)                                                                     \
    "{\"time\":" time ",\"event\":\"host.joined\",\"host\":\"" host "\",\"address\":\"10.0.0." ip  \
    "\",\"first_worker\":1,\"workers\":1,\"step\":0}\n"

/* Would catch: a lost host among those of the newest start, and a host that joins again with each
 * return though it never left. */
static void test_report__a_return_keeps_the_hosts_that_did_not_leave(void **state)
{
    (void)state;
    static const char joined[] = "<td class=\"text\">joined</td>";
    char *page = page_of(
        "{\"time\":0,\"event\":\"run.started\",\"workers\":[]," HOSTS "}\n" JOINED("b", "2", "1")
            JOINED(
                "c", "3",
                "1") "{\"time\":2,\"event\":\"host.lost\",\"host\":\"b\",\"address\":\"10.0.0.2\","
                     "\"first_worker\":1,\"workers\":1,\"step\":9,\"why\":\"silent\"}\n"
                     "{\"time\":3,\"event\":\"run.resumed\",\"why\":\"host b was lost\",\"step\":5,"
                     "\"workers\":[{\"rank\":0,\"host\":\"a\",\"pid\":7},{\"rank\":1,\"host\":"
                     "\"b\",\"pid\":0},"
                     "{\"rank\":2,\"host\":\"c\",\"pid\":8}]," HOSTS "}\n" JOINED("c", "3", "3"));
    report_expect(page, "with 2 workers on 2 hosts at its newest start");
    assert_int_equal(count_of(page, joined), 2);
    free(page);
    page = page_of("{\"time\":0,\"event\":\"run.started\",\"workers\":[]," HOSTS "}\n" JOINED(
        "b", "2", "1") "{\"time\":2,\"event\":\"host.lost\",\"host\":\"b\",\"address\":\"10.0.0."
                       "2\"}\n" JOINED("b", "2", "3") "{\"time\":4,\"event\":\"run.resumed\","
                                                      "\"step\":5,\"workers\":[]," HOSTS
                                                      "}\n" JOINED("b", "2", "5"));
    assert_int_equal(count_of(page, joined), 3); /* it left; the run had ended */
    free(page);
    page = page_of("{\"time\":0,\"event\":\"run.started\",\"workers\":[]," HOSTS "}\n" JOINED(
        "b", "2",
        "1") "{\"time\":2,\"event\":\"host.lost\",\"host\":\"b\",\"address\":\"10.0.0.2\"}\n"
             "{\"time\":3,\"event\":\"run.resumed\",\"why\":\"host b was "
             "lost\",\"step\":0,\"workers\":[]}\n" JOINED(
                 "c", "3", "1.5")); /* all before was cut off, and written again */
    const char *c_joined = strstr(page, "<td>1.50 s</td>"),
               *b_lost = strstr(page, "<td>2.00 s</td>");
    assert_true(c_joined != NULL && b_lost != NULL && c_joined < b_lost);
    assert_int_equal(count_of(page, joined), 2);
    free(page);
}

/* Would catch: a run that is resumed on fewer hosts, and its page does not tell which is missing.
 */
static void test_report__a_resume_without_a_host_names_it(void **state)
{
    (void)state;
    char *page = page_of("{\"time\":0,\"event\":\"run.started\",\"workers\":[]," HOSTS "}\n"
                         "{\"time\":2,\"event\":\"run.resumed\",\"step\":5,\"ended\":\"stopped\","
                         "\"workers\":[]," HOSTS "}\n"
                         "{\"time\":3,\"event\":\"run.resumed\",\"step\":9,\"ended\":\"stopped\","
                         "\"workers\":[],\"hosts\":[{\"host\":\"a\"},{\"host\":\"d\"}]}\n"
                         "{\"time\":4,\"event\":\"run.resumed\",\"step\":12,\"ended\":\"stopped\","
                         "\"workers\":[]}\n");
    report_expect(page, "after 5 steps (before: stopped; cut off: 0 later steps).</p>");
    report_expect(page,
                  "after 9 steps (before: stopped; cut off: 0 later steps; without b, c).</p>");
    report_expect(page, "after 12 steps (before: stopped; cut off: 0 later steps).</p>");
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_report__a_return_changes_the_plan_where_it_happens,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_resume_is_a_change_only_with_another_plan,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_transition_that_never_finished_is_no_change,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_drained_worker_is_no_loss, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_regroup_is_one_change, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_resume_without_a_host_names_it, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_return_keeps_the_hosts_that_did_not_leave,
                                        make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
