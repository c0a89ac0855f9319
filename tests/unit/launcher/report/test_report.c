/* The page of a run shows its results, and what became of its workers and hosts. */
#include "support/formats/report_page.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_report__shows_the_results_of_a_run(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<h1>toy <span class=\"state finished\">finished</span>",
        "A vision transformer of 6 blocks (32 wide, 4 heads) on 800 samples, 8 to a batch",
        "Begun 2026-01-31 09:20:05 UTC",
        "<dt>Test accuracy</dt><dd>81.25 %",
        "<dt>Training loss</dt><dd>0.2500",
        "F=0, K=2 \u00d7 R=1 \u00d7 M=4<br/>F=3, K=1 \u00d7 R=2 \u00d7 M=2",
        "F 0 \u2192 3, K 2 \u2192 1, R 1 \u2192 2, M 4 \u2192 2</td><td>12.5</td><td>8.0</td>",
        "<td>8.0</td><td>10.0</td><td>+25 %</td>",
        "cancelled: F 3 \u2192 4",
        ("<tr><td>50</td><td>1.30 s</td><td>3.0 MiB</td><td>1.0 MiB</td><td>1.500</td>"
         "<td>25.5</td><td class=\"text\">written</td></tr>"),
        ("<tr><td>60</td><td>1.40 s</td><td>-</td><td>-</td><td>-</td><td>-</td>"
         "<td class=\"text\">failed: worker 1: No space left</td></tr>"),
        "The run directory holds no checkpoint.",
        "worker 1 refuses",
        ("<tr><td>49</td><td>1</td><td>1</td><td>6</td><td>92</td><td>8</td>"
         "<td class=\"text\"></td></tr>"),
        ("<tr><td>1</td><td>1</td><td class=\"text\">training</td><td>4</td><td>68</td>"
         "<td>17</td><td class=\"text\">calls</td><td>20.5</td>"),
        "<td>1.9 MiB</td><td>1.9 GiB/s</td>", /* in 1 ms */
        "<td>0</td><td>2.0 MiB</td><td>50 %</td>",
        "<td>1</td><td class=\"text\">slow</td><td>1.75</td>",
        "over the memory budget",
        "calm",
        "MFU at the end 25.0 %",
        "epoch 3: read 1, read and computed further 2, computed 3",
        "epoch 2: compute 0.30 s, wait 0.10 s, all-reduce 0.05 s, optimizer 0.02 s, data 0.01 s",
        "data 0.01 s, other 0.02 s",
        "name: toy",
    };
    fl_report report;
    report_put_whole();
    char *page = report_page(&report);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        report_expect(page, parts[i]);
    }
    assert_int_equal(report.n_steps, REPORT_EPOCHS * REPORT_EPOCH_STEPS);
    assert_int_equal(report.steps_file.n_bad + report.events_file.n_bad, 0);
    assert_null(strstr(page, "could not be read"));
    assert_null(strstr(page, "<td>77</td>")); /* counts that a later report holds */
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a page that grows with the steps. */
static void test_report__a_long_run_makes_no_larger_page(void **state)
{
    (void)state;
    fl_report report;
    report_put("events.jsonl", "w", report_events);
    char path[128];
    snprintf(path, sizeof path, "%s/steps.jsonl", root);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 100000; i++) {
        fprintf(file,
                "{\"step\":%d,\"epoch\":%d,\"loss\":%d,\"ms\":%d,\"samples\":8,\"f\":%d,\"k\":1,"
                "\"r\":1,\"m\":%d}\n",
                i, i / 1000, i % 17, 1 + i % 5, i % 3, i % 11);
    }
    fclose(file);
    char *page = report_page(&report);
    assert_int_equal(report.n_steps, 100000);
    assert_true(strlen(page) < 400 * 1024);
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a caption that calls the mean of several epochs one epoch, a last evaluation that is
 * thinned out, no dot for the test at the end, "0.1" seconds for each epoch, and NCCL on CPUs. */
static void test_report__many_epochs_are_taken_together(void **state)
{
    (void)state;
    enum { MANY = 400 };
    fl_report report;
    char line[512];
    report_put("events.jsonl", "w", report_events);
    report_put("steps.jsonl", "w", "");
    for (int e = 0; e < MANY; e++) {
        snprintf(line, sizeof line, "{\"step\":%d,\"epoch\":%d,\"loss\":1,\"ms\":1}\n", e, e);
        report_put("steps.jsonl", "a", line);
        snprintf(line, sizeof line,
                 "{\"event\":\"evaluation\",\"step\":%d,\"epoch\":%d,\"validation_loss\":0.5,"
                 "\"validation_accuracy\":0.5}\n"
                 "{\"event\":\"epoch.finished\",\"epoch\":%d,\"seconds\":0.0625,\"workers\":"
                 "[{\"rank\":0,\"compute_s\":0.03,\"wait_s\":0,\"reduce_wait_s\":0,"
                 "\"optimizer_s\":0,\"data_s\":0}]}\n",
                 e, e, e);
        report_put("events.jsonl", "a", line);
    }
    report_put("events.jsonl", "a",
               "{\"event\":\"evaluation\",\"step\":399,\"epoch\":399,\"test_loss\":0.75,"
               "\"test_accuracy\":0.8125}\n");
    char *page = report_page(&report);
    report_expect(page, "Each column is the mean of 7 epochs. Wait: ");
    report_expect(page, "One column per epoch. Samples of training");
    report_expect(page, "step 399, epoch 400: validation loss 0.5");
    report_expect(page, "step 399, epoch 400: test loss 0.75");
    report_expect(page, "step 399, epoch 400: accuracy, %, 50<");
    report_expect(page, "step 399, epoch 400: accuracy, %, 81.25<");
    report_expect(page, "<td>0.062</td></tr>");
    assert_null(strstr(page, "NCCL"));
    free(page);
    fl_report_fini(&report);
}

/* The page has the numbers of the newest start, and each resume. */
static void test_report__a_resumed_run_shows_where_it_continued(void **state)
{
    (void)state;
    fl_report report;
    report_put("events.jsonl", "w", report_events);
    report_put(
        "events.jsonl", "a",
        "{\"time\":9,\"wall\":\"2026-01-31T11:00:00.000Z\",\"event\":\"run.resumed\",\"step\":3,"
        "\"checkpoint\":\"checkpoints/step-000000003\",\"cut_steps\":2,\"cut_events\":1,"
        "\"ended\":\"stopped\",\"steps\":12,\"epochs\":30,\"workers\":[{\"rank\":0}]}\n");
    report_put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    char *page = report_page(&report);
    report_expect(page,
                  "Resumed 2026-01-31 11:00:00 UTC from the checkpoint after 3 steps (before: "
                  "stopped; cut off: 2 later steps).");
    report_expect(page, "for 30 epochs at most, with 1 worker.");
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a loss that the page hides, a return to a snapshot that is shown as a checkpoint,
 * and a section of losses in a run that had none. */
static void test_report__losses_and_what_followed(void **state)
{
    (void)state;
    fl_report report;
    report_put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    report_put("events.jsonl", "w", report_events);
    char *page = report_page(&report);
    assert_null(strstr(page, "what happened"));
    free(page);
    fl_report_fini(&report);
    report_put(
        "events.jsonl", "a",
        "{\"time\":5,\"event\":\"worker.lost\",\"rank\":1,\"how\":\"killed\",\"steps\":40}\n"
        "{\"time\":5,\"event\":\"worker.lost\",\"rank\":2,\"how\":\"host lost\",\"step\":41,"
        "\"steps\":26}\n"
        "{\"time\":5.1,\"event\":\"run.recovered\",\"why\":\"worker 1 was killed\",\"step\":41,"
        "\"k\":1,\"r\":1,\"m\":2,\"f\":0,\"detect_ms\":4400,\"collect_ms\":30,"
        "\"move_ms\":12.5}\n"
        "{\"time\":6,\"event\":\"worker.restarted\",\"rank\":1,\"step\":44,\"why\":\"lost\"}\n"
        "{\"time\":7,\"event\":\"snapshot.taken\",\"step\":60,\"bytes\":4096,\"copy_ms\":1.5}\n"
        "{\"time\":9,\"wall\":\"2026-01-31T11:00:00.000Z\",\"event\":\"run.resumed\",\"step\":60,"
        "\"checkpoint\":\"the snapshot in memory\",\"why\":\"worker 0 was killed\","
        "\"lost_at\":8.25,\"repeated_steps\":7,\"cut_steps\":5,\"cut_events\":1,\"ended\":"
        "\"failed\",\"steps\":120,"
        "\"epochs\":30}\n"
        "{\"time\":9.5,\"event\":\"run.returned\",\"step\":60,\"without_training_ms\":2250.5,"
        "\"all_without_training_ms\":6693}\n");
    page = report_page(&report);
    report_expect(page, "<td>40</td><td class=\"all\">worker 1 is lost: killed"); /* without step */
    report_expect(page, "<td>41</td><td class=\"all\">worker 2 is lost: host lost");
    report_expect(page, "the others go on, K=1 R=1 M=2: worker 1 was killed</td><td>4,442.5</td>");
    report_expect(page, "<th>without training, ms</th>");
    report_expect(page, "</td><td>2,250.5</td><td>7</td>");
    report_expect(page,
                  "<tr><td>8.25 s</td><td>67</td><td class=\"all\">the run goes back"); /* lost */
    report_expect(page,
                  "Went back 2026-01-31 11:00:00 UTC to the snapshot in memory after 60 steps: "
                  "worker 0 was killed (7 steps again).");
    assert_null(strstr(page, "Resumed"));
    report_expect(page, "<dt>Time without training</dt><dd>6.69 s");
    report_expect(page, "<td>44</td><td class=\"all\">worker 1 is started again (lost)");
    report_expect(page,
                  "<td>67</td><td class=\"all\">the run goes back to the snapshot in memory (step "
                  "60): worker 0 was killed");
    report_expect(page, "<td>7</td>");
    report_expect(page, "Snapshots in memory: 1, the last after 60 steps");
    assert_null(strstr(page, "the run continued from it"));
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a lost host that the page hides, and a section of hosts of a run on one host. */
static void test_report__hosts_and_when_they_left(void **state)
{
    (void)state;
    fl_report report;
    report_put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    report_put("events.jsonl", "w", report_events);
    char *page = report_page(&report);
    assert_null(strstr(page, "<h2>Hosts"));
    assert_null(strstr(page, "<th class=\"text\">host</th>"));
    free(page);
    fl_report_fini(&report);
    report_put(
        "events.jsonl", "w",
        "{\"time\":0,\"event\":\"run.started\",\"job\":\"toy\",\"workers\":[],\"hosts\":[{\"host\":"
        "\"a\",\"address\":\"10.0.0.1\",\"first_worker\":0,\"workers\":2},{\"host\":\"b\","
        "\"address\":\"10.0.0.2\",\"first_worker\":2,\"workers\":1}]}\n"
        "{\"time\":1,\"event\":\"worker.ready\",\"rank\":2,\"host\":\"b\","
        "\"memory_peak_bytes\":1048576}\n"
        "{\"time\":5,\"event\":\"host.lost\",\"host\":\"b\",\"address\":\"10.0.0.2\","
        "\"first_worker\":2,\"workers\":1,\"step\":40,\"why\":\"it has been silent for 5 s\"}\n"
        "{\"time\":5,\"event\":\"cache.opened\",\"policy\":\"auto\"}\n"
        "{\"time\":5,\"event\":\"cache.tiers\",\"rank\":0}\n"
        "{\"time\":5,\"event\":\"cache.decided\",\"rank\":0,\"step\":5,\"epoch\":0,\"hits\":1,"
        "\"state\":\"on\"}\n"
        "{\"time\":5.1,\"event\":\"worker.lost\",\"rank\":2,\"host\":\"b\",\"how\":\"killed\","
        "\"steps\":40}\n");
    page = report_page(&report);
    report_expect(page,
                  "<th class=\"text\">address</th><th>ranks</th><th class=\"text\">layer costs");
    report_expect(page, "<th class=\"text\">address</th><th>ranks</th><th class=\"text\">event");
    report_expect(page, "<td class=\"text\">a</td><td class=\"text\">10.0.0.1</td><td>0 to 1</td>");
    report_expect(page,
                  "<td>40</td><td class=\"text\">b</td><td class=\"text\">10.0.0.2</td><td>2</td>"
                  "<td class=\"text\">lost</td><td class=\"text\">it has been silent for 5 s</td>");
    report_expect(page, "worker 2 of host b is lost: killed");
    report_expect(page, "<tr><th>worker</th><th class=\"text\">host</th><th>peak</th>");
    report_expect(page, "<td>2</td><td class=\"text\">b</td><td>1.0 MiB</td>");
    report_expect(page, "<th>computed</th><th>read on GPU</th><th>read, pinned</th><th>read, ");
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a host that came when the run was resumed, or later, and has no row; and one that
 * has a row for each time that the run has gone on. */
static void test_report__hosts_that_came_later(void **state)
{
    (void)state;
    fl_report report;
    report_put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    report_put(
        "events.jsonl", "w",
        "{\"time\":0,\"event\":\"run.started\",\"job\":\"toy\",\"workers\":[]}\n"
        "{\"time\":1,\"event\":\"run.resumed\",\"hosts\":[{\"host\":\"a\",\"address\":"
        "\"10.0.0.1\",\"first_worker\":0,\"workers\":2,\"profile\":\"stated\"},{\"host\":\"d\","
        "\"address\":\"10.0.0.4\",\"first_worker\":2,\"workers\":1,\"profile\":\"cached\"}]}\n"
        "{\"time\":2,\"event\":\"host.joined\",\"host\":\"d\",\"address\":\"10.0.0.4\","
        "\"first_worker\":2,\"workers\":1,\"step\":4}\n"
        "{\"time\":3,\"event\":\"host.joined\",\"host\":\"e\",\"address\":\"10.0.0.5\","
        "\"first_worker\":3,\"workers\":1,\"step\":9}\n"
        "{\"time\":4,\"event\":\"run.resumed\",\"hosts\":[{\"host\":\"a\",\"address\":"
        "\"10.0.0.1\",\"first_worker\":0,\"workers\":2,\"profile\":\"stated\"}, 7]}\n");
    char *page = report_page(&report);
    report_expect(page, "<td class=\"text\">d</td><td class=\"text\">10.0.0.4</td><td>2</td><td "
                        "class=\"text\">cached</td></tr>");
    report_expect(page, "<td class=\"text\">e</td><td class=\"text\">10.0.0.5</td><td>3</td><td "
                        "class=\"text\">-</td></tr>");
    const char *first = strstr(page, "<td>0 to 1</td>");
    assert_non_null(first);
    assert_null(strstr(first + 1, "<td>0 to 1</td>"));
    free(page);
    fl_report_fini(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_report__shows_the_results_of_a_run, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__many_epochs_are_taken_together, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_long_run_makes_no_larger_page, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_resumed_run_shows_where_it_continued,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__losses_and_what_followed, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__hosts_and_when_they_left, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__hosts_that_came_later, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
