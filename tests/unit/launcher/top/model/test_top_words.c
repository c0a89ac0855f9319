/* Events in words, as top shows them. */
#include "launcher/top/model/top_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *line, const char *expected)
{
    char text[256];
    json_t *event = json_loads(line, 0, NULL);
    assert_non_null(event);
    assert_string_equal(fl_top_words(event, text, sizeof text), expected);
    json_decref(event);
}

/* Would catch: "cache.used rank=0 step=12 ..." cut off at 80 columns, epochs that count from 0. */
static void test_words__are_for_people(void **state)
{
    (void)state;
    check("{\"time\": 12.345, \"event\": \"cache.used\", \"rank\": 1, \"epoch\": 2, \"state\": "
          "\"on\", "
          "\"hits\": 40, \"misses\": 2}",
          "   12.3 s  cache on, epoch 3, worker 1: 40 hits, 2 misses");
    check("{\"time\": 1, \"event\": \"epoch.finished\", \"epoch\": 0, \"train_loss\": 0.43125, "
          "\"test_accuracy\": 0.852}",
          "    1.0 s  epoch 1 finished: loss 0.4313, accuracy 85.20 %");
    check("{\"time\": 1, \"event\": \"epoch.finished\", \"epoch\": 0, \"train_loss\": 0.5, "
          "\"test_accuracy\": null}",
          "    1.0 s  epoch 1 finished: loss 0.5");
    check("{\"time\": 0, \"event\": \"worker.ready\", \"rank\": 3, \"memory_peak_bytes\": 1572864}",
          "    0.0 s  worker 3 is ready, 1.5 MiB at most");
    check("{\"time\": 3, \"event\": \"worker.lost\", \"rank\": 3, \"host\": \"b\", \"how\": "
          "\"killed\", \"message\": \"gone\"}",
          "    3.0 s  worker 3 of host b lost (killed): gone");
    check("{\"time\": 3, \"event\": \"host.refused\", \"host\": \"b\", \"why\": \"no lo\"}",
          "    3.0 s  host b cannot take part: no lo");
    check("{\"time\": 3, \"event\": \"host.lost\", \"host\": \"b\", \"why\": \"silent\"}",
          "    3.0 s  host b is lost: silent");
    check("{\"time\": 0, \"event\": \"run.failed\", \"message\": \"one\\u001b[31m\\ntwo\"}",
          "    0.0 s  failed: one?[31m");
}

/* Would catch: "host b has joined, 1 workers". */
static void test_words__count_in_the_singular(void **state)
{
    (void)state;
    check("{\"time\": 1, \"event\": \"run.resumed\", \"checkpoint\": \"the snapshot in memory\", "
          "\"step\": 60, \"ended\": \"failed\", \"why\": \"worker 0 was killed\"}",
          "    1.0 s  gone back to the snapshot in memory, 60 steps done: worker 0 was killed");
    check("{\"time\": 1, \"event\": \"run.resumed\", \"checkpoint\": \"checkpoints/step-5\", "
          "\"step\": 5, \"ended\": \"stopped\"}",
          "    1.0 s  resumed from the checkpoint after 5 steps (stopped before)");
    check("{\"time\": 1, \"event\": \"host.joined\", \"host\": \"b\", \"workers\": 1, "
          "\"first_worker\": 2}",
          "    1.0 s  host b has joined, 1 worker from worker 2 on");
    check("{\"time\": 1, \"event\": \"host.joined\", \"host\": \"b\", \"workers\": 2, "
          "\"first_worker\": 2}",
          "    1.0 s  host b has joined, 2 workers from worker 2 on");
    check("{\"time\": 1, \"event\": \"checkpoint.written\", \"step\": 1}",
          "    1.0 s  checkpoint after 1 step");
    check("{\"time\": 1, \"event\": \"cache.used\", \"rank\": 1, \"epoch\": 2, \"state\": "
          "\"on\", \"hits\": 1, \"misses\": 1}",
          "    1.0 s  cache on, epoch 3, worker 1: 1 hit, 1 miss");
}

/* Would catch: an event that this version writes, shown as its name and its fields. */
static void test_words__are_there_for_every_event(void **state)
{
    (void)state;
    char line[8192];
    int n = 0;
    bool events = false;
    FILE *file = fopen(FL_SOURCE_DIR "/docs/runs.md", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        events = line[0] == '#' ? strcmp(line, "### Events\n") == 0 : events;
        char *cell = events && strncmp(line, "| `", 3) == 0 ? line + 2 : NULL;
        char *end = cell == NULL ? NULL : strchr(cell, '|');
        for (char *name = end == NULL ? NULL : strtok(cell, "|"); name != NULL; name = NULL) {
            char *save = NULL;
            for (char *part = strtok_r(name, "`", &save); part != NULL;
                 part = strtok_r(NULL, "`", &save)) {
                bool is_name = strcspn(part, " ,|\n") == strlen(part) && strcmp(part, "why") != 0;
                if (is_name && !fl_top_words_have(part)) {
                    fail_msg("no words for %s", part);
                }
                n += is_name;
            }
        }
    }
    fclose(file);
    assert_true(n > 40);
    check("{\"time\": 2, \"event\": \"evaluation\", \"step\": 19, \"test_loss\": 0.5, "
          "\"test_accuracy\": 0.75, \"seconds\": 1}",
          "    2.0 s  evaluated after step 20: loss 0.5, accuracy 75.00 %");
    check("{\"time\": 2, \"event\": \"evaluation\", \"step\": 19, \"validation_loss\": 0.5, "
          "\"validation_mae\": 0.75}",
          "    2.0 s  evaluated after step 20: validation loss 0.5");
    check("{\"time\": 2, \"event\": \"snapshot.taken\", \"step\": 20, \"bytes\": 1048576, "
          "\"copy_ms\": 1.25}",
          "    2.0 s  snapshot in memory after 20 steps: 1.0 MiB, 1.25 ms without training");
}

/* An event of a later version, or one that lacks a field, is shown by its fields. */
static void test_words__fall_back_to_the_fields(void **state)
{
    (void)state;
    check("{\"time\": 1.5, \"event\": \"new.thing\", \"rank\": 4}",
          "    1.500 new.thing            rank=4");
    check("{\"time\": 1.5, \"event\": \"worker.ready\", \"rank\": 4}",
          "    1.500 worker.ready         rank=4");
    check("{}", "    0.000 -                   ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words__are_for_people),
        cmocka_unit_test(test_words__count_in_the_singular),
        cmocka_unit_test(test_words__are_there_for_every_event),
        cmocka_unit_test(test_words__fall_back_to_the_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
