/* Events in words, as top shows them. */
#include "launcher/top/top_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    check("{\"time\": 3, \"event\": \"host.lost\", \"host\": \"b\", \"why\": \"silent\"}",
          "    3.0 s  host b is lost: silent");
    check("{\"time\": 0, \"event\": \"run.failed\", \"message\": \"one\\u001b[31m\\ntwo\"}",
          "    0.0 s  failed: one?[31m");
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
        cmocka_unit_test(test_words__fall_back_to_the_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
