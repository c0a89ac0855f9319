#include "support/runs/fake/fake_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

void assert_contains(const char *text, const char *part)
{
    if (text == NULL || strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, text == NULL ? "nothing" : text);
    }
}

void assert_nothing_left(const fake_run *run)
{
    pid_t pids[FAKE_WORKERS_MAX] = {0};
    assert_true(fake_worker_pids(run, pids));
    assert_true(fake_await_gone(pids, run->n_workers, NULL));
    assert_false(fake_has(run, "link"));
}

void assert_file_contains(const fake_run *run, const char *file, const char *part)
{
    char *text = fake_read(run, file);
    assert_contains(text, part);
    free(text);
}

fake_outcome play(fake_run *run)
{
    fake_start(run);
    fake_outcome outcome = fake_finish(run);
    assert_nothing_left(run);
    return outcome;
}

void check_events_file(const fake_run *run, const char *const *names, int n)
{
    char *text = fake_read(run, "events.jsonl"), *rest = text;
    double before = 0;
    int found = 0;
    for (char *line = strsep(&rest, "\n"); line != NULL && *line != 0; line = strsep(&rest, "\n")) {
        json_t *json = json_loads(line, 0, NULL);
        if (json == NULL) {
            fail_msg("not JSON: %s", line);
        }
        double time = json_number_value(json_object_get(json, "time"));
        assert_true(time >= before);
        assert_non_null(json_object_get(json, "wall"));
        assert_non_null(json_object_get(json, "generation"));
        if (found < n &&
            strcmp(json_string_value(json_object_get(json, "event")), names[found]) == 0) {
            found++;
        }
        before = time;
        json_decref(json);
    }
    if (found < n) {
        fail_msg("event %s is missing", names[found]);
    }
    free(text);
}
