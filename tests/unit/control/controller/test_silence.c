/* All workers fall silent together: how long they are held, and what the terminal says of it. Would
 * catch: a line that they answer again, although none of them has. */
#include "control/controller/faults/silence.h"
#include "control/controller/parts/parts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 2, BEGIN_US = 100000000, SILENCE_US = 3000000, TURN_US = 100000, POLL_US = 1000 };

static fl_controller controller; /* large */
static fl_worker workers[N];

static void make_running(void)
{
    memset(&controller, 0, sizeof controller);
    controller.workers = workers;
    controller.n_workers = N;
    controller.shutdown.phase.state = FL_CONTROLLER_RUNNING;
    controller.shutdown.limits =
        (fl_watch_limits){.silence_us = SILENCE_US, .circle_us = 20 * SILENCE_US};
    for (int i = 0; i < N; i++) {
        workers[i] = (fl_worker){.rank = i, .heard_us = BEGIN_US, .linked = true, .ready = true};
    }
}

/* Turns of the loop, at least one, until `until_us`: of TURN_US, or short ones while a client asks.
 * Returns whether the workers are held at the end; *n_held counts the turns in which they were. */
static bool turn_until(int64_t *now_us, int64_t until_us, int64_t turn_us, int *n_held)
{
    bool holds;
    do {
        *now_us += turn_us;
        holds = fl_silence_holds(&controller, *now_us);
        *n_held += holds;
        for (int i = 0; i < N && holds; i++) {
            workers[i].heard_us += turn_us; /* as the controller forgives the time */
        }
    } while (*now_us < until_us);
    return holds;
}

static void answer(int rank, int64_t now_us)
{
    workers[rank].heard_us = now_us;
    fl_silence_heard(&controller, &workers[rank]);
}

/* The lines that the terminal gets meanwhile go to this file. */
static FILE *begin_catch(int *own)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    *own = dup(STDERR_FILENO);
    assert_true(*own >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    return file;
}

static void end_catch(FILE *file, int own, char *text, size_t size)
{
    fflush(stderr);
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static void test_silence__ends_when_one_answers(void **state)
{
    (void)state;
    int own, n_held = 0;
    int64_t now_us = BEGIN_US, asked_us = BEGIN_US + 2 * SILENCE_US;
    char text[1024];
    make_running();
    answer(0, now_us);
    answer(1, now_us);
    FILE *file = begin_catch(&own);
    bool early = turn_until(&now_us, BEGIN_US + SILENCE_US / 2, TURN_US, &n_held);
    bool held = turn_until(&now_us, asked_us, TURN_US, &n_held);
    int n_before = n_held;
    bool asked = turn_until(&now_us, asked_us + SILENCE_US, POLL_US, &n_held);
    workers[1].heard_us = now_us; /* excused, but not heard */
    bool excused = turn_until(&now_us, now_us, TURN_US, &n_held);
    end_catch(file, own, text, sizeof text);
    assert_false(early);
    assert_true(held);
    assert_true(asked);
    assert_true(excused);
    assert_int_equal(n_held - n_before, SILENCE_US / POLL_US + 1);
    assert_non_null(strstr(text, "all 2 workers fell silent"));
    assert_null(strstr(text, "answer again"));

    file = begin_catch(&own);
    answer(1, now_us);
    held = turn_until(&now_us, now_us, TURN_US, &n_held);
    end_catch(file, own, text, sizeof text);
    assert_false(held);
    assert_non_null(strstr(text, "the workers answer again"));
    assert_int_equal(workers[0].heard_us, now_us); /* all count from then on */
}

/* One of two is killed in the silence: the other one is judged from then on. */
static void test_silence__ends_with_a_process(void **state)
{
    (void)state;
    int own, n_held = 0;
    int64_t now_us = BEGIN_US;
    char text[1024];
    make_running();
    FILE *file = begin_catch(&own);
    bool held = turn_until(&now_us, BEGIN_US + 2 * SILENCE_US, TURN_US, &n_held);
    workers[1].exited_us = now_us;
    workers[1].wait_status = SIGKILL;
    bool after = turn_until(&now_us, now_us, TURN_US, &n_held);
    end_catch(file, own, text, sizeof text);
    assert_true(held);
    assert_false(after);
    assert_non_null(strstr(text, "all 2 workers fell silent"));
    assert_null(strstr(text, "answer again"));
    assert_int_equal(workers[0].heard_us, now_us);
}

/* Nobody answers for fault.deadline: they are judged as any other worker. */
static void test_silence__has_a_deadline(void **state)
{
    (void)state;
    int own, n_held = 0;
    int64_t now_us = BEGIN_US;
    char text[1024];
    make_running();
    FILE *file = begin_catch(&own);
    bool held = turn_until(&now_us, BEGIN_US + 20 * SILENCE_US, TURN_US, &n_held);
    bool after = turn_until(&now_us, now_us + SILENCE_US, TURN_US, &n_held);
    end_catch(file, own, text, sizeof text);
    assert_true(held);
    assert_false(after);
    assert_null(strstr(text, "answer again"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence__ends_when_one_answers),
        cmocka_unit_test(test_silence__ends_with_a_process),
        cmocka_unit_test(test_silence__has_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
