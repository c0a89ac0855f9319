#include "support/formats/report_page.h"

#include "support/formats/markup.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void report_put(const char *name, const char *mode, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

const char *const report_events =
    "{\"time\":0.1,\"wall\":\"2026-01-31T09:30:00.000Z\",\"event\":\"run.started\",\"job\":\"toy\","
    "\"begun\":\"2026-01-31T09:20:05.000Z\","
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
    for (int i = 0; i < REPORT_EPOCHS * REPORT_EPOCH_STEPS; i++) {
        bool late = i >= 52;
        snprintf(line, sizeof line,
                 "{\"step\":%d,\"epoch\":%d,\"loss\":%.4f,\"grad_norm\":1,\"lr\":0.001,\"f\":%d,"
                 "\"k\":%d,\"r\":%d,\"m\":%d,\"ms\":%d,\"samples\":8}\n",
                 i, i / REPORT_EPOCH_STEPS, 2.0 / (1 + i), late ? 3 : 0, late ? 1 : 2, late ? 2 : 1,
                 late ? 2 : 4, late ? 10 : 20);
        report_put("steps.jsonl", i == 0 ? "w" : "a", line);
    }
    for (int e = 0; e < REPORT_EPOCHS; e++) {
        snprintf(line, sizeof line,
                 "{\"time\":%d,\"event\":\"epoch.finished\",\"epoch\":%d,\"steps\":25,"
                 "\"train_loss\":0.5,\"test_loss\":0.6,\"test_accuracy\":0.%d,\"mfu\":0.25,"
                 "\"seconds\":0.5,\"samples_per_s\":400,\"workers\":[{\"rank\":0,\"compute_s\":0.3,"
                 "\"wait_s\":0.1,\"reduce_wait_s\":0.05,\"optimizer_s\":0.02,\"data_s\":0.01}]}\n",
                 e + 2, e, 50 + 10 * e);
        report_put("events.jsonl", "a", line);
    }
}

void report_put_whole(void)
{
    report_put("events.jsonl", "w", report_events);
    put_epochs_and_steps();
    report_put("events.jsonl", "a",
               "{\"time\":9,\"event\":\"run.finished\",\"steps\":100,\"train_loss\":0.25,"
               "\"test_accuracy\":0.8125,\"seconds\":1.52,\"samples_per_s\":526}\n");
    report_put("job.yaml", "w",
               "name: toy\nmodel: {kind: vit, blocks: 6, dim: 32, heads: 4, patch: 7}\n"
               "devices: {memory: 4MiB}\n");
}

/* The page of the current run directory, checked; the caller frees it. */
char *report_page(fl_report *report)
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

void report_expect(const char *page, const char *text)
{
    if (strstr(page, text) == NULL) {
        fail_msg("the page does not hold: %s", text);
    }
}
