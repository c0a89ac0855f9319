/* The page of a run, made of run directories as they may be found: whole, cut, broken, hostile. */
#include "launcher/report/page.h"

#include "control/events/runfiles.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "support/formats/markup.h"
#include "support/runs/runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { EPOCHS = 4, EPOCH_STEPS = 25, MUTATIONS = 1000, FILE_MAX = 1 << 16 };

static void near(double value, double expected, double by)
{
    if (!(fabs(value - expected) <= by)) {
        fail_msg("%g, expected %g", value, expected);
    }
}

static void put(const char *name, const char *mode, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static const char *const whole_events =
    "{\"time\":0.1,\"wall\":\"2026-01-31T09:30:00.000Z\",\"event\":\"run.started\",\"job\":\"toy\","
    "\"version\":\"0.1.0\",\"samples\":800,\"batch\":8,\"steps\":100,\"epochs\":4,\"workers\":"
    "[{\"rank\":0},{\"rank\":1}]}\n"
    "{\"time\":0.1,\"event\":\"plan.chosen\",\"plan\":\"F=0\",\"f\":0,\"k\":2,\"r\":1,\"m\":4,"
    "\"why\":\"fits\",\"candidates\":[{\"k\":2,\"r\":1,\"m\":4,\"step_ms\":3,\"bubble\":0.2,"
    "\"memory_bytes\":4096},{\"k\":1,\"r\":1,\"m\":4,\"why_not\":\"over the memory budget\"}]}\n"
    "{\"time\":0.2,\"event\":\"cache.opened\",\"policy\":\"auto\",\"memory_bytes\":1048576,"
    "\"disk_bytes\":0}\n"
    "{\"time\":0.2,\"event\":\"worker.ready\",\"rank\":1,\"memory_peak_bytes\":3145728}\n"
    "{\"time\":0.2,\"event\":\"worker.ready\",\"rank\":0,\"memory_peak_bytes\":2097152}\n"
    "{\"time\":0.2,\"event\":\"run.running\"}\n"
    "{\"time\":1,\"event\":\"freeze.decided\",\"step\":50,\"f\":0,\"f_next\":3,\"why\":\"calm\"}\n"
    "{\"time\":1,\"event\":\"transition.prepare\",\"next_generation\":2,\"f\":3,\"k\":1,\"r\":2,"
    "\"m\":2}\n"
    "{\"time\":1,\"event\":\"transition.done\",\"generation\":2,\"f\":3,\"k\":1,\"r\":2,\"m\":2,"
    "\"step\":52,\"step_ms\":12.5,\"predicted_step_ms\":8,\"stall_ms\":1.25,\"migrate_ms\":1,"
    "\"moved_bytes\":2000000,\"why\":\"pays\"}\n"
    "{\"time\":1.1,\"event\":\"transition.measured\",\"generation\":2,\"measured_step_ms\":10}\n"
    "{\"time\":1.2,\"event\":\"transition.prepare\",\"next_generation\":3,\"f\":4}\n"
    "{\"time\":1.2,\"event\":\"transition.cancelled\",\"next_generation\":3,"
    "\"why\":\"worker 1 refuses\"}\n"
    "{\"time\":1.3,\"event\":\"cache.decided\",\"rank\":0,\"step\":52,\"epoch\":2,\"f\":3,"
    "\"state\":\"on\",\"hits\":1,\"upgrades\":2,\"misses\":3}\n"
    "{\"time\":1.3,\"event\":\"graphs\",\"rank\":1,\"step\":24,\"generation\":1,"
    "\"captures\":77,\"launches\":78,\"calls\":79,\"by_shape\":[]}\n"
    "{\"time\":1.3,\"event\":\"graphs\",\"rank\":1,\"step\":49,\"generation\":1,"
    "\"captures\":6,\"launches\":92,\"calls\":8,\"by_shape\":[{\"for\":\"training\","
    "\"samples\":4,\"rows\":68,\"longest\":17,\"way\":\"calls\",\"calls_us\":20.5,"
    "\"graphs_us\":31.25},7]}\n"
    "{\"time\":1.3,\"event\":\"checkpoint.written\",\"checkpoint\":\"checkpoints/step-000000050\","
    "\"step\":50,\"bytes\":3145728,\"linked_bytes\":1048576,\"copy_ms\":1.5,\"write_ms\":20,"
    "\"commit_ms\":4}\n"
    "{\"time\":1.4,\"event\":\"checkpoint.failed\",\"step\":60,\"why\":\"worker 1: No space "
    "left\"}\n"
    "{\"time\":1.4,\"event\":\"worker.slow\",\"rank\":1,\"slowness\":1.75}\n";

static void put_epochs_and_steps(void)
{
    char line[512];
    for (int i = 0; i < EPOCHS * EPOCH_STEPS; i++) {
        bool late = i >= 52;
        snprintf(line, sizeof line,
                 "{\"step\":%d,\"epoch\":%d,\"loss\":%.4f,\"grad_norm\":1,\"lr\":0.001,\"f\":%d,"
                 "\"k\":%d,\"r\":%d,\"m\":%d,\"ms\":%d,\"samples\":8}\n",
                 i, i / EPOCH_STEPS, 2.0 / (1 + i), late ? 3 : 0, late ? 1 : 2, late ? 2 : 1,
                 late ? 2 : 4, late ? 10 : 20);
        put("steps.jsonl", i == 0 ? "w" : "a", line);
    }
    for (int e = 0; e < EPOCHS; e++) {
        snprintf(line, sizeof line,
                 "{\"time\":%d,\"event\":\"epoch.finished\",\"epoch\":%d,\"steps\":25,"
                 "\"train_loss\":0.5,\"test_loss\":0.6,\"test_accuracy\":0.%d,\"mfu\":0.25,"
                 "\"seconds\":0.5,\"samples_per_s\":400,\"workers\":[{\"rank\":0,\"compute_s\":0.3,"
                 "\"wait_s\":0.1,\"reduce_wait_s\":0.05,\"optimizer_s\":0.02,\"data_s\":0.01}]}\n",
                 e + 2, e, 50 + 10 * e);
        put("events.jsonl", "a", line);
    }
}

static void put_whole(void)
{
    put("events.jsonl", "w", whole_events);
    put_epochs_and_steps();
    put("events.jsonl", "a",
        "{\"time\":9,\"event\":\"run.finished\",\"steps\":100,\"train_loss\":0.25,"
        "\"test_accuracy\":0.8125,\"seconds\":1.52,\"samples_per_s\":526}\n");
    put("job.yaml", "w",
        "name: toy\nmodel: {kind: vit, blocks: 6, dim: 32, heads: 4, patch: 7}\n"
        "devices: {memory: 4MiB}\n");
}

/* The page of the current run directory, checked; the caller frees it. */
static char *page_of(fl_report *report)
{
    fl_run_entry run;
    fl_html html = {0};
    assert_int_equal(fl_run_look(root, &run), FL_OK);
    assert_int_equal(fl_report_read(&run, report), FL_OK);
    fl_page_write(&html, report, "now");
    assert_false(html.broken);
    assert_true(markup_check(html.text, html.n) > 10);
    char *text = calloc(1, html.n + 1);
    assert_non_null(text);
    memcpy(text, html.text, html.n);
    fl_html_fini(&html);
    assert_null(strstr(text, "&lt;th")); /* a heading that was added as text */
    return text;
}

static void expect(const char *page, const char *text)
{
    if (strstr(page, text) == NULL) {
        fail_msg("the page does not hold: %s", text);
    }
}

/* ---- a whole run ---- */

static void test_report__shows_the_results_of_a_run(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<h1>toy <span class=\"state finished\">finished</span>",
        "A vision transformer of 6 blocks (32 wide, 4 heads) on 800 samples, 8 to a batch",
        "Begun 2026-01-31 09:30:00 UTC",
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
        "<td>1.9 MiB</td><td>2.00</td>", /* 2 MB in 1 ms */
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
    put_whole();
    char *page = page_of(&report);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        expect(page, parts[i]);
    }
    assert_int_equal(report.n_steps, EPOCHS * EPOCH_STEPS);
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
    put("events.jsonl", "w", whole_events);
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
    char *page = page_of(&report);
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
    put("events.jsonl", "w", whole_events);
    put("steps.jsonl", "w", "");
    for (int e = 0; e < MANY; e++) {
        snprintf(line, sizeof line, "{\"step\":%d,\"epoch\":%d,\"loss\":1,\"ms\":1}\n", e, e);
        put("steps.jsonl", "a", line);
        snprintf(line, sizeof line,
                 "{\"event\":\"evaluation\",\"step\":%d,\"epoch\":%d,\"validation_loss\":0.5,"
                 "\"validation_accuracy\":0.5}\n"
                 "{\"event\":\"epoch.finished\",\"epoch\":%d,\"seconds\":0.0625,\"workers\":"
                 "[{\"rank\":0,\"compute_s\":0.03,\"wait_s\":0,\"reduce_wait_s\":0,"
                 "\"optimizer_s\":0,\"data_s\":0}]}\n",
                 e, e, e);
        put("events.jsonl", "a", line);
    }
    put("events.jsonl", "a",
        "{\"event\":\"evaluation\",\"step\":399,\"epoch\":399,\"test_loss\":0.75,"
        "\"test_accuracy\":0.8125}\n");
    char *page = page_of(&report);
    expect(page, "Each column is the mean of 7 epochs. Wait: ");
    expect(page, "One column per epoch. Samples of training");
    expect(page, "step 399, epoch 400: validation loss 0.5");
    expect(page, "step 399, epoch 400: test loss 0.75");
    expect(page, "step 399, epoch 400: accuracy, %, 50<");
    expect(page, "step 399, epoch 400: accuracy, %, 81.25<");
    expect(page, "<td>0.062</td></tr>");
    assert_null(strstr(page, "NCCL"));
    free(page);
    fl_report_fini(&report);
}

/* ---- runs that did not end well ---- */

static void test_report__says_why_a_run_failed(void **state)
{
    (void)state;
    fl_report report;
    put("events.jsonl", "w", whole_events);
    put("events.jsonl", "a",
        "{\"event\":\"run.failed\",\"message\":\"worker 1 was killed by signal 9;\\nlast "
        "lines\"}\n");
    char *page = page_of(&report);
    expect(page, "<span class=\"state failed\">");
    expect(page, "worker 1 was killed by signal 9;\nlast lines</pre>");
    expect(page, "steps.jsonl could not be read: No such file or directory");
    expect(page, "It could not be read: job.yaml: No such file or directory");
    free(page);
    fl_report_fini(&report);
}

static void test_report__counts_what_it_cannot_read(void **state)
{
    (void)state;
    fl_report report;
    put("events.jsonl", "w", "{\"event\":\"run.started\",\"job\":\"toy\"}\n[1]\n{\"no\":1}\n");
    put("steps.jsonl", "w",
        "{\"step\":0,\"epoch\":0,\"loss\":null,\"ms\":1}\nrubbish\n{\"step\":-4,\"epoch\":0}\n"
        "{\"step\":1,\"epoch\":0,\"ms\":-1}\n{\"step\":1,\"step\":2}\n\xFF\xFE\n"
        "{\"step\":1,\"epoch\":0,\"loss\":1e999,\"ms\":2}\n{\"step\":1,\"epoch\":0,\"loss\":1,"
        "\"ms\":2}\n{\"step\":2,\"epo");
    char *page = page_of(&report);
    assert_int_equal(report.n_steps, 2);
    assert_int_equal(report.steps_file.n, 9);
    assert_int_equal(report.steps_file.n_bad, 7);
    assert_int_equal(report.steps_file.first_bad, 2);
    assert_int_equal(report.events_file.n_bad, 2);
    expect(page, "steps.jsonl: 7 of 9 lines could not be read; the first is line 2: ");
    expect(page, "events.jsonl: 2 of 3 lines could not be read; the first is line 2: not an "
                 "object.");
    free(page);
    fl_report_fini(&report);
}

static void test_report__a_line_without_end_does_not_hide_the_next(void **state)
{
    (void)state;
    fl_report report;
    char *longest = calloc(1, 3 * FL_LINE_BYTES_MAX);
    assert_non_null(longest);
    memset(longest, '[', 3 * FL_LINE_BYTES_MAX - 2);
    put("events.jsonl", "w", "{\"event\":\"run.started\",\"job\":\"toy\"}\n");
    put("events.jsonl", "a", longest);
    put("events.jsonl", "a", "\n{\"event\":\"run.finished\",\"steps\":7}\n");
    char *page = page_of(&report);
    assert_int_equal(report.n_events, 2);
    assert_int_equal(report.events_file.n_bad, 1);
    expect(page, "longer than any line that a run writes");
    free(longest);
    free(page);
    fl_report_fini(&report);
}

/* A hole of 64 GiB takes no disk, but would take long to read. */
static void test_report__nothing_is_read_behind_zeros(void **state)
{
    (void)state;
    fl_report report;
    char path[256];
    put("events.jsonl", "w", "{\"event\":\"run.started\",\"job\":\"toy\"}\n{\"ev");
    snprintf(path, sizeof path, "%s/events.jsonl", root);
    assert_int_equal(truncate(path, INT64_C(1) << 36), 0);
    put("events.jsonl", "a", "\n{\"event\":\"run.finished\",\"steps\":7}\n");
    char *page = page_of(&report);
    assert_int_equal(report.n_events, 1);
    assert_int_equal(report.events_file.n, 2);
    expect(page, "events.jsonl: 1 of 2 lines could not be read; the first is line 2: zero bytes, "
                 "behind which nothing is read.");
    free(page);
    fl_report_fini(&report);
}

/* A resumed run continues its files without a gap or a repeated step. Lines that repeat a step are
 * damage: curves and times over them would go back. */
static void test_report__a_repeated_step_is_a_line_that_cannot_be_read(void **state)
{
    (void)state;
    fl_report report;
    put("events.jsonl", "w", whole_events);
    put("steps.jsonl", "w", "");
    static const int step[] = {0, 1, 2, 3, 1, 2, 3, 4};
    for (int i = 0; i < 8; i++) {
        char line[96];
        snprintf(line, sizeof line, "{\"step\":%d,\"epoch\":0,\"loss\":%d,\"ms\":1000}\n", step[i],
                 i);
        put("steps.jsonl", "a", line);
    }
    char *page = page_of(&report);
    assert_int_equal(report.n_steps, 5);
    assert_int_equal(report.steps_file.n_bad, 3);
    near(report.step[4].end_s, 5, 1e-9);
    near(report.step[1].loss, 1, 0);
    expect(page,
           "3 of 8 lines could not be read; the first is line 5: not after the step before it");
    free(page);
    fl_report_fini(&report);
}

/* The page has the numbers of the newest start, and each resume. */
static void test_report__a_resumed_run_shows_where_it_continued(void **state)
{
    (void)state;
    fl_report report;
    put("events.jsonl", "w", whole_events);
    put("events.jsonl", "a",
        "{\"time\":9,\"wall\":\"2026-01-31T11:00:00.000Z\",\"event\":\"run.resumed\",\"step\":3,"
        "\"checkpoint\":\"checkpoints/step-000000003\",\"cut_steps\":2,\"cut_events\":1,"
        "\"ended\":\"stopped\",\"steps\":12,\"epochs\":30,\"workers\":[{\"rank\":0}]}\n");
    put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    char *page = page_of(&report);
    expect(page, "Resumed 2026-01-31 11:00:00 UTC from the checkpoint after 3 steps (before: "
                 "stopped; cut off: 2 later steps).");
    expect(page, "for 30 epochs at most, with 1 worker.");
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a loss that the page hides, a return to a snapshot that is shown as a checkpoint,
 * and a section of losses in a run that had none. */
static void test_report__losses_and_what_followed(void **state)
{
    (void)state;
    fl_report report;
    put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    put("events.jsonl", "w", whole_events);
    char *page = page_of(&report);
    assert_null(strstr(page, "what happened"));
    free(page);
    fl_report_fini(&report);
    put("events.jsonl", "a",
        "{\"time\":5,\"event\":\"worker.lost\",\"rank\":1,\"how\":\"killed\",\"steps\":40}\n"
        "{\"time\":5.1,\"event\":\"run.recovered\",\"why\":\"worker 1 was killed\",\"step\":41,"
        "\"k\":1,\"r\":1,\"m\":2,\"f\":0,\"collect_ms\":30,\"move_ms\":12.5}\n"
        "{\"time\":6,\"event\":\"worker.restarted\",\"rank\":1,\"why\":\"lost\"}\n"
        "{\"time\":7,\"event\":\"snapshot.taken\",\"step\":60,\"bytes\":4096,\"copy_ms\":1.5}\n"
        "{\"time\":9,\"wall\":\"2026-01-31T11:00:00.000Z\",\"event\":\"run.resumed\",\"step\":60,"
        "\"checkpoint\":\"the snapshot in memory\",\"why\":\"worker 0 was killed\","
        "\"repeated_steps\":7,\"cut_steps\":5,\"cut_events\":1,\"ended\":\"failed\",\"steps\":120,"
        "\"epochs\":30}\n");
    page = page_of(&report);
    expect(page, "worker 1 is lost: killed");
    expect(page, "the others go on, K=1 R=1 M=2: worker 1 was killed</td><td>42.5</td>");
    expect(page, "worker 1 is started again (lost)");
    expect(page, "<td>67</td><td class=\"all\">the run goes back to the snapshot in memory (step "
                 "60): worker 0 was killed");
    expect(page, "<td>7</td>");
    expect(page, "from the snapshot in memory after 60 steps");
    expect(page, "Snapshots in memory: 1, the last after 60 steps");
    assert_null(strstr(page, "the run continued from it"));
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a lost host that the page hides, and a section of hosts of a run on one host. */
static void test_report__hosts_and_when_they_left(void **state)
{
    (void)state;
    fl_report report;
    put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    put("events.jsonl", "w", whole_events);
    char *page = page_of(&report);
    assert_null(strstr(page, "<h2>Hosts"));
    assert_null(strstr(page, "<th class=\"text\">host</th>"));
    free(page);
    fl_report_fini(&report);
    put("events.jsonl", "w",
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
    page = page_of(&report);
    expect(page, "<td class=\"text\">a</td><td class=\"text\">10.0.0.1</td><td>0 to 1</td>");
    expect(page, "<td>40</td><td class=\"text\">b</td><td class=\"text\">10.0.0.2</td><td>2</td>"
                 "<td class=\"text\">lost</td><td class=\"text\">it has been silent for 5 s</td>");
    expect(page, "worker 2 of host b is lost: killed");
    expect(page, "<tr><th>worker</th><th class=\"text\">host</th><th>peak</th>");
    expect(page, "<td>2</td><td class=\"text\">b</td><td>1.0 MiB</td>");
    expect(page, "<th>computed</th><th>read on GPU</th><th>read, pinned</th><th>read, ");
    free(page);
    fl_report_fini(&report);
}

/* Would catch: a host that came when the run was resumed, or later, and has no row; and one that
 * has a row for each time that the run has gone on. */
static void test_report__hosts_that_came_later(void **state)
{
    (void)state;
    fl_report report;
    put("steps.jsonl", "w", "{\"step\":0,\"epoch\":0,\"loss\":1,\"ms\":1000}\n");
    put("events.jsonl", "w",
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
    char *page = page_of(&report);
    expect(page, "<td class=\"text\">d</td><td class=\"text\">10.0.0.4</td><td>2</td><td "
                 "class=\"text\">cached</td></tr>");
    expect(page, "<td class=\"text\">e</td><td class=\"text\">10.0.0.5</td><td>3</td><td "
                 "class=\"text\">-</td></tr>");
    const char *first = strstr(page, "<td>0 to 1</td>");
    assert_non_null(first);
    assert_null(strstr(first + 1, "<td>0 to 1</td>"));
    free(page);
    fl_report_fini(&report);
}

static void test_report__a_pipe_in_place_of_a_file_is_not_waited_for(void **state)
{
    (void)state;
    fl_report report;
    char path[128];
    put("events.jsonl", "w", whole_events);
    snprintf(path, sizeof path, "%s/steps.jsonl", root);
    assert_int_equal(mkfifo(path, 0600), 0);
    char *page = page_of(&report);
    expect(page, "steps.jsonl could not be read: not a regular file");
    free(page);
    fl_report_fini(&report);
}

/* ---- hostile runs ---- */

static void test_report__no_name_or_message_brings_markup_in(void **state)
{
    (void)state;
    static const char evil[] = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\\\"'";
    static const char *const field[] = {"job",    "wall",  "version", "why",     "message", "plan",
                                        "policy", "state", "choice",  "why_not", "reason",  "comm"};
    static const char *const event[] = {
        "run.started",   "plan.chosen",          "cache.opened",
        "cache.decided", "freeze.decided",       "plan.considered",
        "tune.done",     "transition.done",      "run.failed",
        "run.stopping",  "transition.cancelled", "checkpoint.failed",
        "graphs",        "transport.chosen"};
    fl_report report;
    put("events.jsonl", "w", "");
    put("job.yaml", "w", "name: '</pre><script>'\n");
    for (size_t e = 0; e < sizeof event / sizeof event[0]; e++) {
        put("events.jsonl", "a",
            "{\"epoch\":1,\"generation\":1,\"next_generation\":1,\"event\":\"");
        put("events.jsonl", "a", event[e]);
        put("events.jsonl", "a", "\"");
        for (size_t f = 0; f < sizeof field / sizeof field[0]; f++) {
            put("events.jsonl", "a", ",\"");
            put("events.jsonl", "a", field[f]);
            put("events.jsonl", "a", "\":\"");
            put("events.jsonl", "a", evil);
            put("events.jsonl", "a", "\"");
        }
        put("events.jsonl", "a", "}\n");
    }
    put("events.jsonl", "a", "{\"event\":\"<script>\",\"<b>\":{\"<i>\":[\"<u>\"]}}\n");
    char *page = page_of(&report); /* which has refused any element that runs or loads */
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<img"));
    expect(page, "&lt;script&gt;");
    free(page);
    fl_report_fini(&report);
}

static size_t read_file(const char *name, char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, FILE_MAX, file);
    fclose(file);
    return n;
}

static void write_file(const char *name, const char *text, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Change a few places: other bytes, other numbers, a cut, a piece twice. */
static size_t mutate(char *text, size_t n, uint64_t seed)
{
    static const char *const number[] = {
        "-1", "1e308", "9223372036854775807", "-9e18", "null", "\"x\"", "[]", "{}", "0", "1e-308"};
    uint64_t draws = 0;
    int n_changes = 1 + (int)(fl_mix64(seed, draws++) % 6);
    for (int i = 0; i < n_changes && n > 64; i++) {
        size_t at = fl_mix64(seed, draws++) % (n - 32);
        uint64_t how = fl_mix64(seed, draws++);
        if (how % 4 == 0) {
            text[at] = (char)(how >> 8);
        } else if (how % 4 == 1) {
            char *colon = memchr(text + at, ':', n - 32 - at);
            const char *with = number[(how >> 8) % 10];
            if (colon != NULL) { /* what is left of the old value mostly breaks the line */
                size_t length = strcspn(colon + 1, ",}\n");
                size_t fits = strlen(with);
                memset(colon + 1, ' ', length);
                memcpy(colon + 1, with, fits <= length ? fits : length);
            }
        } else if (how % 4 == 2 && i == 0) {
            n = at + 32;
        } else {
            memmove(text + at, text + at / 2, 24);
        }
    }
    return n;
}

/* Would catch: files whose contents cause a crash, an endless drawing or an invalid page. */
static void test_report__any_damage_leaves_a_page(void **state)
{
    (void)state;
    static char events[FILE_MAX], steps[FILE_MAX], job[FILE_MAX], text[FILE_MAX];
    put_whole();
    size_t n_events = read_file("events.jsonl", events), n_steps = read_file("steps.jsonl", steps),
           n_job = read_file("job.yaml", job);
    for (uint64_t i = 0; i < MUTATIONS; i++) {
        fl_report report;
        memcpy(text, events, n_events);
        write_file("events.jsonl", text, mutate(text, n_events, 3 * i));
        memcpy(text, steps, n_steps);
        write_file("steps.jsonl", text, mutate(text, n_steps, 3 * i + 1));
        memcpy(text, job, n_job);
        write_file("job.yaml", text, mutate(text, n_job, 3 * i + 2));
        free(page_of(&report));
        fl_report_fini(&report);
    }
}

static void test_report__an_allocation_that_fails_is_reported(void **state)
{
    (void)state;
    fl_run_entry run;
    fl_report report;
    int n_failed = 0;
    put_whole();
    assert_int_equal(fl_run_look(root, &run), FL_OK);
    for (uint64_t n = 1; n < 40; n++) {
        fl_html html = {0};
        fl_alloc_fail_at(n);
        fl_status status = fl_report_read(&run, &report);
        if (status == FL_OK) {
            fl_page_write(&html, &report, "now");
        }
        fl_alloc_fail_at(0);
        n_failed += status != FL_OK || html.broken;
        fl_html_fini(&html);
        fl_report_fini(&report);
    }
    assert_true(n_failed >= 5);
}

int main(void)
{
    static const CMFixtureFunction up = make_root, down = remove_root;
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)
        TEST(test_report__shows_the_results_of_a_run),
        TEST(test_report__many_epochs_are_taken_together),
        TEST(test_report__a_long_run_makes_no_larger_page),
        TEST(test_report__says_why_a_run_failed),
        TEST(test_report__counts_what_it_cannot_read),
        TEST(test_report__a_line_without_end_does_not_hide_the_next),
        TEST(test_report__nothing_is_read_behind_zeros),
        TEST(test_report__a_repeated_step_is_a_line_that_cannot_be_read),
        TEST(test_report__a_resumed_run_shows_where_it_continued),
        TEST(test_report__losses_and_what_followed),
        TEST(test_report__hosts_and_when_they_left),
        TEST(test_report__hosts_that_came_later),
        TEST(test_report__a_pipe_in_place_of_a_file_is_not_waited_for),
        TEST(test_report__no_name_or_message_brings_markup_in),
        TEST(test_report__any_damage_leaves_a_page),
        TEST(test_report__an_allocation_that_fails_is_reported),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
