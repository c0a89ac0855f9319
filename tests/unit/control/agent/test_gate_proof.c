/* How the head finds out that what a host writes into the run directory comes to it. Would catch: a
 * worker that starts before that is known; a host that is refused although its answer comes in
 * time, or before it has answered; files that stay in the run directory. */
#include "control/agent/gate/gate_state.h"

#include "device/system/clock.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHOW_US = FL_RUN_PROOF_SHOW_MS * 1000 };

/* The gate of two hosts: b has joined, and its worker 1 is to start. Its connection takes nothing,
 * so that a worker whose frame is sent on counts as lost. */
typedef struct gate_with_host {
    fl_hosts hosts;
    fl__remote_host remote[2];
    fl_agent_child children[2];
    fl__kept_frame kept[2];
    fl_agent_options options;
    fl__gate gate;
} gate_with_host;

static int open_gate(void **state)
{
    gate_with_host *w = calloc(1, sizeof *w);
    assert_non_null(w);
    make_folder(w->gate.run_dir);
    w->hosts = (fl_hosts){.n = 2, .detect_ms = 5000};
    snprintf(w->hosts.host[1].name, sizeof w->hosts.host[1].name, "b");
    w->hosts.host[0].n = w->hosts.host[1].n = w->hosts.host[1].first = 1;
    w->remote[1] = (fl__remote_host){.state = FL__HOST_JOINED};
    w->options =
        (fl_agent_options){.n_workers = 2, .dir_fd = open(w->gate.run_dir, O_RDONLY | O_DIRECTORY)};
    w->gate.o = &w->options;
    w->gate.hosts = &w->hosts;
    w->gate.remote = w->remote;
    w->gate.children = w->children;
    w->gate.kept = w->kept;
    assert_int_equal(fl__gate_write_proof(&w->gate, 1), FL_OK);
    fl__gate_pass_to_host(&w->gate,
                          &(fl_agent_frame){.type = FL_AGENT_SPAWN, .rank = 1, .incarnation = 1},
                          "spawn", 5);
    *state = w;
    return 0;
}

static int close_gate(void **state)
{
    gate_with_host *w = *state;
    fl__gate_drop_frame(&w->kept[1]);
    close(w->options.dir_fd);
    remove_folder(w->gate.run_dir);
    free(w);
    return 0;
}

static bool waits(const gate_with_host *w)
{
    return w->kept[1].bytes != NULL && w->children[1].lives && !w->children[1].owes_spawned;
}

/* rmdir takes an empty directory only. */
static void expect_no_files(const gate_with_host *w)
{
    assert_int_equal(rmdir(w->gate.run_dir), 0);
}

static void test_gate_proof__no_worker_starts_before_the_answer_is_seen(void **state)
{
    gate_with_host *w = *state;
    assert_true(waits(w));
    fl__gate_watch_proof(&w->gate, 1, fl_now_us() + 100 * (int64_t)SHOW_US);
    assert_true(waits(w)); /* it has not said that it has answered */
    fl__gate_take_answer(&w->gate, 1);
    assert_true(waits(w));
    assert_int_equal(fl_run_proof_answer(w->gate.run_dir, w->remote[1].proof), 0);
    fl__gate_watch_proof(&w->gate, 1, w->remote[1].answered_us + SHOW_US + 1);
    assert_null(w->kept[1].bytes);
    assert_true(w->children[1].owes_spawned); /* its frame was sent on */
    assert_int_equal(w->remote[1].state, FL__HOST_JOINED);
    expect_no_files(w);
}

static void test_gate_proof__a_host_without_one_cannot_take_part(void **state)
{
    gate_with_host *w = *state;
    fl__gate_take_answer(&w->gate, 1);
    int64_t answered_us = w->remote[1].answered_us;
    fl__gate_watch_proof(&w->gate, 1, answered_us + SHOW_US);
    assert_true(waits(w));
    fl__gate_take_answer(&w->gate, 1); /* again, which gives it no more time */
    assert_int_equal(w->remote[1].answered_us, answered_us);
    fl__gate_watch_proof(&w->gate, 1, answered_us + SHOW_US + 1);
    assert_int_equal(w->remote[1].state, FL__HOST_GONE);
    assert_true(w->remote[1].unfit && w->remote[1].owes[FL_HOST_NEWS_LOST]);
    assert_non_null(strstr(w->remote[1].why, w->gate.run_dir));
    assert_null(w->kept[1].bytes);
    assert_true(w->children[1].owes_spawned);
    expect_no_files(w);
}

/* An answer to the proof of an earlier agent does not count for the next agent of the host. */
static void test_gate_proof__each_agent_answers_its_own(void **state)
{
    gate_with_host *w = *state;
    char earlier[FL_RUN_PROOF_TEXT];
    memcpy(earlier, w->remote[1].proof, sizeof earlier);
    fl__gate_take_answer(&w->gate, 1);
    assert_int_equal(fl__gate_write_proof(&w->gate, 1), FL_OK);
    assert_string_not_equal(earlier, w->remote[1].proof);
    assert_int_equal(fl_run_proof_answer(w->gate.run_dir, earlier), 0);
    fl__gate_take_answer(&w->gate, 1);
    assert_true(waits(w));
    fl_run_proof_sweep(w->options.dir_fd);
    expect_no_files(w);
}

static void test_gate_proof__without_a_shared_directory_there_is_none(void **state)
{
    gate_with_host *w = *state;
    w->hosts.apart = true;
    assert_int_equal(fl__gate_write_proof(&w->gate, 1), FL_OK);
    assert_true(fl__gate_is_proven(&w->remote[1]));
    expect_no_files(w);
}

#define GATE(test) cmocka_unit_test_setup_teardown(test, open_gate, close_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATE(test_gate_proof__no_worker_starts_before_the_answer_is_seen),
        GATE(test_gate_proof__a_host_without_one_cannot_take_part),
        GATE(test_gate_proof__each_agent_answers_its_own),
        GATE(test_gate_proof__without_a_shared_directory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
