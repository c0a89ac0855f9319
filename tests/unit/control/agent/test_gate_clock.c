/* The clocks of other hosts, as the gate asks for them. Would catch: a head that asks again at once
 * until a host answers with a clock, which an answer that it drops never is; a warning about a
 * wrong date with each answer; numbers that overflow. */
#include "control/agent/gate/gate_state.h"
#include "device/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct gate_with_host {
    fl_hosts hosts;
    fl__remote_host remote[2];
    fl__gate gate;
} gate_with_host;

static int make_gate(void **state)
{
    gate_with_host *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->hosts.n = 2;
    w->hosts.detect_ms = 60000;
    snprintf(w->hosts.host[1].name, sizeof w->hosts.host[1].name, "b");
    w->remote[1].state = FL__HOST_JOINED;
    w->gate = (fl__gate){.hosts = &w->hosts, .remote = w->remote};
    *state = w;
    return 0;
}

static int free_gate(void **state)
{
    free(*state);
    return 0;
}

static void test_gate_clock__asks_a_few_times_without_a_pause(void **state)
{
    gate_with_host *w = *state;
    assert_int_equal(fl__gate_between_pings_us(&w->gate), 0);
    w->remote[1].n_first_pings = FL__GATE_FIRST_PINGS; /* none of which was answered */
    assert_int_equal(fl__gate_between_pings_us(&w->gate), 250000);
}

/* How many lines the gate writes for this answer; each of them says that the host's date is there.
 */
static int count_warnings(gate_with_host *w, int64_t wall_ns, const char *where)
{
    char text[1024];
    FILE *file = tmpfile();
    int own = dup(STDERR_FILENO), lines = 0;
    assert_true(file != NULL && own >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    int64_t now_ns = fl_now_ns();
    fl_host_message pong = {.type = FL_HOST_PONG,
                            .clock = {.sent_ns = now_ns, .there_ns = now_ns, .wall_ns = wall_ns}};
    fl__gate_take_time(&w->gate, 1, &pong);
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    rewind(file);
    while (fgets(text, sizeof text, file) != NULL) {
        assert_non_null(strstr(text, "the time of day of host b"));
        assert_non_null(strstr(text, where));
        lines++;
    }
    fclose(file);
    return lines;
}

static void test_gate_clock__a_wrong_date_is_told_once(void **state)
{
    gate_with_host *w = *state;
    assert_int_equal(count_warnings(w, fl_now_wall_ns(), ""), 0);
    assert_int_equal(count_warnings(w, INT64_MIN, " years behind this host's"), 1);
    assert_int_equal(count_warnings(w, INT64_MAX, ""), 0);
    assert_int_equal(count_warnings(w, -1, ""), 0);
    assert_int_equal(w->remote[1].clock.n, 4);
    assert_true(w->remote[1].owes[FL_HOST_NEWS_CLOCK]);
}

#define GATE(test) cmocka_unit_test_setup_teardown(test, make_gate, free_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATE(test_gate_clock__asks_a_few_times_without_a_pause),
        GATE(test_gate_clock__a_wrong_date_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
