/* When a worker stands still and when it is only slow: tables over what the controller sees, and
 * what it sees of real processes. */
#include "control/controller/judge/standstill.h"
#include "support/nap.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TURN_US = 100000, SECOND_US = 1000000 };

static const fl_standstill_limits limits = {.silence_us = 3 * SECOND_US,
                                            .deadline_us = 60 * SECOND_US};

/* What a worker does while its training thread stays in one operation. */
typedef struct behaviour {
    fl_flight_kind kind;
    bool runnable;
    int64_t cpu_us, n_faults; /* in each turn */
    int64_t longest_us;       /* of the earlier operations of this kind; 0: there was none */
} behaviour;

/* Microseconds until the worker counts as hung; -1: not within `most`. */
static int64_t hangs_after(const behaviour *b, int64_t turn_us, int64_t most_us)
{
    fl_standstill s = {0};
    fl_standstill_look look = {.n_changes = 8, .kind = b->kind, .is_known = true};
    int64_t now_us = 77 * (int64_t)SECOND_US;
    assert_true(fl_standstill_add(&s, &look, now_us));
    s.longest_us = b->longest_us;
    for (int64_t passed_us = turn_us; passed_us <= most_us; passed_us += turn_us) {
        look.process.cpu_us += b->cpu_us;
        look.process.work.n_major_faults += b->n_faults;
        look.process.work.is_runnable = b->runnable;
        assert_false(fl_standstill_add(&s, &look, now_us + passed_us));
        if (fl_standstill_is_hung(&s, &limits)) {
            return passed_us;
        }
    }
    return -1;
}

static void test_slow_or_hung__in_a_layer(void **state)
{
    (void)state;
    const int64_t hour_us = 3600 * (int64_t)SECOND_US;
    const behaviour sleeps = {FL_FLIGHT_FORWARD, false, 0, 0, 5000};
    assert_int_equal(hangs_after(&sleeps, TURN_US, hour_us), limits.silence_us + TURN_US);
    const behaviour naps = {FL_FLIGHT_FORWARD, false, TURN_US / 50, 0,
                            5000}; /* sleep(1) for ever */
    assert_int_equal(hangs_after(&naps, TURN_US, hour_us), limits.silence_us + TURN_US);
    const behaviour is_first = {FL_FLIGHT_FORWARD, false, 0, 0, 0};
    assert_int_equal(hangs_after(&is_first, TURN_US, hour_us), limits.deadline_us + TURN_US);
    /* A device that computes while its host sleeps, in layers of a second each. */
    const behaviour device = {FL_FLIGHT_FORWARD, false, 0, 0, SECOND_US};
    assert_int_equal(hangs_after(&device, TURN_US, hour_us), 8 * SECOND_US + TURN_US);
    const behaviour computes = {FL_FLIGHT_BACKWARD, true, TURN_US, 0, 5000};
    assert_int_equal(hangs_after(&computes, TURN_US, hour_us), limits.deadline_us + TURN_US);
    const behaviour huge = {FL_FLIGHT_BACKWARD, true, TURN_US, 0, 20 * SECOND_US};
    assert_int_equal(hangs_after(&huge, TURN_US, hour_us), 160 * SECOND_US + TURN_US);
}

/* Would catch: a run that is lost because others use the machine. */
static void test_slow_or_hung__on_an_overloaded_machine(void **state)
{
    (void)state;
    const int64_t minutes_us = 10 * 60 * (int64_t)SECOND_US;
    const behaviour starved = {FL_FLIGHT_FORWARD, true, TURN_US / 20, 0, 5000};
    assert_int_equal(hangs_after(&starved, TURN_US, minutes_us), -1);
    const behaviour waits_its_turn = {FL_FLIGHT_FORWARD, true, 0, 0, 5000};
    assert_int_equal(hangs_after(&waits_its_turn, TURN_US, minutes_us), -1);
    const behaviour swaps = {FL_FLIGHT_OPTIMIZER, false, TURN_US / 100, 3, 5000};
    assert_int_equal(hangs_after(&swaps, TURN_US, minutes_us), -1);
}

/* The controller looks once in ten minutes: the machine slept, or a debugger held the controller.
 */
static void test_slow_or_hung__counts_no_time_of_the_controllers_own(void **state)
{
    (void)state;
    const int64_t long_us = 600 * (int64_t)SECOND_US;
    const behaviour sleeps = {FL_FLIGHT_FORWARD, false, 0, 0, 5000};
    assert_int_equal(hangs_after(&sleeps, long_us, 10 * long_us), -1);
}

static void test_slow_or_hung__elsewhere(void **state)
{
    (void)state;
    const int64_t hour_us = 3600 * (int64_t)SECOND_US;
    const behaviour between = {FL_FLIGHT_NONE, false, 0, 0, 0};
    assert_int_equal(hangs_after(&between, TURN_US, hour_us), 2 * limits.deadline_us + TURN_US);
    const behaviour copies = {FL_FLIGHT_CHECKPOINT, false, 0, 0, 5000};
    assert_int_equal(hangs_after(&copies, TURN_US, hour_us), limits.deadline_us + TURN_US);
    const behaviour reads = {FL_FLIGHT_DATA, false, 0, 0, 5000};
    assert_int_equal(hangs_after(&reads, TURN_US, hour_us), 2 * limits.deadline_us + TURN_US);
    const behaviour waits = {FL_FLIGHT_RECEIVE, false, 0, 0, 5000};
    assert_int_equal(hangs_after(&waits, TURN_US, hour_us), -1);
}

/* Would catch: time that is carried over from one operation to the next. */
static void test_slow_or_hung__begins_anew_with_each_operation(void **state)
{
    (void)state;
    fl_standstill s = {0};
    for (int64_t i = 1; i < 1000; i++) {
        fl_standstill_look look = {
            .n_changes = 2 * (uint64_t)(i / 20), .kind = FL_FLIGHT_FORWARD, .is_known = true};
        fl_standstill_add(&s, &look, i * TURN_US);
        s.longest_us = 5000;
        assert_false(fl_standstill_is_hung(&s, &limits));
    }
}

/* ---- real processes ---- */

static void *spin(void *argument)
{
    (void)argument;
    for (volatile int i = 0;; i++) {
    }
    return NULL;
}

/* A fork without the thread that ThreadSanitizer starts in each child: it wakes ten times a second,
 * and counts as work. The child must not start threads. */
static pid_t fork_bare(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* A child that sleeps, with a second thread that computes or without one. */
static pid_t start_child(bool computes)
{
    pid_t pid = computes ? fork() : fork_bare();
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_t thread;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "a (nasty) name");
        if (computes && pthread_create(&thread, NULL, spin, NULL) != 0) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Of a process that is not to end. */
static bool look_now(pid_t pid, fl_process_look *out)
{
    bool is_ending = false, known = fl_process_look_at(pid, out, &is_ending);
    assert_false(is_ending);
    return known;
}

static void test_slow_or_hung__sees_a_thread_that_computes(void **state)
{
    (void)state;
    fl_process_look first = {0}, look = {0};
    pid_t pid = start_child(true);
    while (!look.work.is_runnable || look.cpu_us < first.cpu_us + 1000) {
        assert_true(look_now(pid, &look));
        first = first.cpu_us == 0 ? look : first;
        nap(1000);
    }
    end_child(pid);
    assert_false(look_now(pid, &look));
}

/* A child that has come to its pause. */
static pid_t start_sleeper(void)
{
    fl_process_look look, later;
    pid_t pid = start_child(false);
    do {
        assert_true(look_now(pid, &look));
        nap(20000);
        assert_true(look_now(pid, &later));
    } while (look.work.is_runnable || later.work.is_runnable || later.cpu_us != look.cpu_us);
    return pid;
}

static void test_slow_or_hung__sees_a_process_that_sleeps(void **state)
{
    (void)state;
    fl_process_look look, later;
    pid_t pid = start_sleeper();
    assert_true(look_now(pid, &look));
    nap(20000);
    assert_true(look_now(pid, &later));
    assert_false(look.work.is_runnable || later.work.is_runnable);
    assert_int_equal(later.cpu_us, look.cpu_us);
    assert_int_equal(later.work.n_major_faults, look.work.n_major_faults);
    end_child(pid);
}

static pid_t start_busy_link(void)
{
    pid_t pid = fork_bare();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "fl-link");
        spin(NULL);
    }
    return pid;
}

/* The threads of the control link are awake in a worker that hangs. */
static void test_slow_or_hung__counts_the_link_apart(void **state)
{
    (void)state;
    fl_process_look look;
    pid_t pid = start_busy_link();
    do { /* until it has its name */
        nap(1000);
        assert_true(look_now(pid, &look));
    } while (!look.link.is_runnable);
    assert_false(look.work.is_runnable);
    end_child(pid);
}

/* A child that SIGKILL has met, and that is kept from its end, as one is that gets no processor. */
static pid_t start_ending(void)
{
    int status;
    pid_t pid = fork_bare();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (!WIFSTOPPED(status)) {
        skip(); /* the system lets no process trace another one */
    }
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACEEXIT), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status >> 8, SIGTRAP | PTRACE_EVENT_EXIT << 8);
    return pid;
}

/* Would catch: a worker that was killed, and whose silence is excused for as long as its threads
 * get no processor to end on. */
static void test_slow_or_hung__sees_a_process_that_a_signal_ends(void **state)
{
    (void)state;
    fl_process_look look;
    bool is_ending = false;
    pid_t pid = start_ending();
    assert_true(fl_process_look_at(pid, &look, &is_ending));
    assert_true(is_ending);
    assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define BEFORE_SIGNALS "0 9 2 1 5 20 0 3 0 77 4096 12 99 1 1 0 0 0" /* what is not read */

static void test_slow_or_hung__reads_a_line_of_a_thread(void **state)
{
    (void)state;
    const char *sleeps = "12 (fl-link) S 1 12 12 0 -1 4194368 31 0 17 " BEFORE_SIGNALS " 0 0 0";
    const char *pending = "12 (a) b) R 1 12 12 0 -1 4194368 31 0 17 " BEFORE_SIGNALS " 256 0 0";
    const char *ends = "12 (x) R 1 12 12 0 -1 4195332 31 0 17 " BEFORE_SIGNALS " 0 0 0";
    const char *broken[] = {"", "12 (x", "12 (x) R 1 12 12 0 -1 4195332", "12 x R 1"};
    fl_thread_line line;
    assert_true(fl_process_look_parse(sleeps, &line));
    assert_string_equal(line.name, "fl-link");
    assert_int_equal(line.state, 'S');
    assert_int_equal(line.n_major_faults, 17);
    assert_false(line.is_ending);
    assert_true(fl_process_look_parse(pending, &line));
    assert_string_equal(line.name, "a) b");
    assert_true(line.is_ending);
    assert_true(fl_process_look_parse(ends, &line));
    assert_true(line.is_ending);
    for (int i = 0; i < 4; i++) {
        assert_false(fl_process_look_parse(broken[i], &line));
    }
}

/* As the agent does it, without an agent in between. */
static bool look_at_once(void *context, const fl_worker *worker, fl_process_look *out)
{
    (void)context;
    return look_now(worker->pid, out);
}

/* A worker whose link was heard last a moment more than half of the silence ago; microseconds by
 * which the watch excuses it after some looks. */
static int64_t excused_us(fl_standstill_looker *looker, pid_t pid, int n_looks)
{
    fl_standstill_watch watch;
    int64_t now_us = 1000 * (int64_t)SECOND_US, heard_us = now_us - limits.silence_us / 2 - 1;
    fl_worker worker = {.rank = 0, .pid = pid, .linked = true, .heard_us = heard_us};
    assert_int_equal(fl_standstill_watch_init(&watch, 1, false, &limits), FL_OK);
    watch.looked_us = now_us;
    watch.look = looker;
    for (int i = 1; i <= n_looks; i++) {
        now_us += TURN_US;
        fl_standstill_watch_look(&watch, NULL, &worker, 1, now_us);
    }
    fl_standstill_watch_fini(&watch);
    return worker.heard_us - heard_us;
}

/* Would catch: a worker lost as silent because its link got no processor. */
static void test_slow_or_hung__excuses_a_link_that_gets_no_processor(void **state)
{
    (void)state;
    fl_process_look look;
    pid_t busy = start_busy_link(), idle = start_child(false);
    do {
        nap(1000);
        assert_true(look_now(busy, &look));
    } while (!look.link.is_runnable);
    assert_int_equal(excused_us(look_at_once, busy, 20), 20 * TURN_US);
    assert_int_equal(excused_us(look_at_once, idle, 20),
                     0); /* no thread of its link wants anything */
    end_child(busy);
    end_child(idle);
}

static bool get_no_answer(void *context, const fl_worker *worker, fl_process_look *out)
{
    (void)context;
    (void)worker;
    (void)out;
    return false;
}

/* Would catch: a worker lost as silent because the agent, too, got no processor; and one that is
 * never lost because the agent is stopped. */
static void test_slow_or_hung__excuses_silence_while_the_agent_is_silent(void **state)
{
    (void)state;
    int n_most = (int)(limits.silence_us / TURN_US);
    assert_int_equal(excused_us(get_no_answer, 0, 1), 0); /* it has only been asked */
    assert_int_equal(excused_us(get_no_answer, 0, 6), 5 * TURN_US);
    assert_int_equal(excused_us(get_no_answer, 0, 3 * n_most), limits.silence_us);
}

/* Of a thread that is in a wait. */
typedef struct waiting {
    fl_flight_kind kind;
    bool looks_up;     /* from its wait, and shows it */
    bool has_reported; /* where it stands */
    bool are_broken;   /* all waits */
} waiting;

/* A sleeping process whose training thread waits; microseconds until the watch finds that it hangs.
 */
static int64_t leaves_after(pid_t pid, const waiting *w)
{
    fl_standstill_watch watch;
    fl_flight *flight = NULL;
    int64_t begun_us = 1000 * (int64_t)SECOND_US, now_us = begun_us;
    fl_worker worker = {.rank = 0, .pid = pid, .linked = true, .ready = true};
    worker.broken_us = w->has_reported ? begun_us : 0;
    assert_int_equal(fl_flight_create(1, &flight), FL_OK);
    fl_flight_join(flight, 0);
    fl_flight_enter(w->kind, -1, -1, 0);
    assert_int_equal(fl_standstill_watch_init(&watch, 1, true, &limits), FL_OK);
    watch.look = look_at_once;
    watch.waits_are_broken = w->are_broken;
    while (!worker.hung && now_us - begun_us < 2 * limits.deadline_us) {
        now_us += TURN_US;
        worker.heard_us = now_us;
        if (w->looks_up) {
            fl_flight_beat();
        }
        fl_standstill_watch_look(&watch, flight, &worker, 1, now_us);
    }
    fl_flight_leave();
    fl_standstill_watch_fini(&watch);
    fl_flight_destroy(&flight);
    return worker.hung ? now_us - begun_us : -1;
}

/* Would catch: a run in which all wait for ever for the report of a worker that hangs in a wait,
 * and one that is lost although nobody has told it to leave its wait. */
static void test_slow_or_hung__finds_who_does_not_regroup(void **state)
{
    (void)state;
    const waiting hung = {.kind = FL_FLIGHT_RECEIVE, .are_broken = true};
    const waiting idle = {.kind = FL_FLIGHT_RECEIVE};
    pid_t pid = start_sleeper();
    assert_in_range(leaves_after(pid, &hung), 1, limits.silence_us + SECOND_US);
    assert_int_equal(leaves_after(pid, &idle), -1);
    end_child(pid);
}

/* Would catch: a run that waits for ever for a worker that hangs while it waits for the controller,
 * which may have answered long ago, or that learns only when it needs it that one hangs in standby;
 * and one that is lost because nobody needs it for a while. */
static void test_slow_or_hung__finds_who_does_not_look_up(void **state)
{
    (void)state;
    pid_t pid = start_sleeper();
    for (int i = 0; i < 8; i++) {
        waiting w = {.kind = i / 4 != 0 ? FL_FLIGHT_STANDBY : FL_FLIGHT_COMMAND,
                     .has_reported = i % 2 != 0,
                     .are_broken = i / 2 % 2 != 0};
        assert_in_range(leaves_after(pid, &w), 1, limits.silence_us + SECOND_US);
        w.looks_up = true;
        assert_int_equal(leaves_after(pid, &w), -1);
    }
    end_child(pid);
}

/* A worker that is asleep in no operation; microseconds until the watch finds that it hangs. */
static int64_t found_after(pid_t pid, bool reports_steps, int64_t most_us)
{
    fl_standstill_watch watch;
    fl_flight *flight = NULL;
    int64_t begun_us = 1000 * (int64_t)SECOND_US, now_us = begun_us;
    fl_worker worker = {.rank = 0, .pid = pid, .linked = true, .ready = true};
    assert_int_equal(fl_flight_create(1, &flight), FL_OK);
    assert_int_equal(fl_standstill_watch_init(&watch, 1, true, &limits), FL_OK);
    watch.look = look_at_once;
    while (!worker.hung && now_us - begun_us < most_us) {
        now_us += TURN_US;
        worker.heard_us = now_us;
        worker.steps += reports_steps && now_us % (20 * (int64_t)TURN_US) == 0;
        fl_standstill_watch_look(&watch, flight, &worker, 1, now_us);
    }
    fl_standstill_watch_fini(&watch);
    fl_flight_destroy(&flight);
    return worker.hung ? now_us - begun_us : -1;
}

/* Would catch: a worker that reports its steps, lost because it records no operations. */
static void test_slow_or_hung__takes_a_step_for_a_move(void **state)
{
    (void)state;
    pid_t pid = start_child(false);
    int64_t most_us = 5 * limits.deadline_us;
    assert_in_range(found_after(pid, false, most_us), 2 * limits.deadline_us, most_us);
    assert_int_equal(found_after(pid, true, most_us), -1);
    end_child(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_or_hung__in_a_layer),
        cmocka_unit_test(test_slow_or_hung__on_an_overloaded_machine),
        cmocka_unit_test(test_slow_or_hung__counts_no_time_of_the_controllers_own),
        cmocka_unit_test(test_slow_or_hung__elsewhere),
        cmocka_unit_test(test_slow_or_hung__begins_anew_with_each_operation),
        cmocka_unit_test(test_slow_or_hung__sees_a_thread_that_computes),
        cmocka_unit_test(test_slow_or_hung__sees_a_process_that_sleeps),
        cmocka_unit_test(test_slow_or_hung__counts_the_link_apart),
        cmocka_unit_test(test_slow_or_hung__sees_a_process_that_a_signal_ends),
        cmocka_unit_test(test_slow_or_hung__reads_a_line_of_a_thread),
        cmocka_unit_test(test_slow_or_hung__takes_a_step_for_a_move),
        cmocka_unit_test(test_slow_or_hung__excuses_a_link_that_gets_no_processor),
        cmocka_unit_test(test_slow_or_hung__excuses_silence_while_the_agent_is_silent),
        cmocka_unit_test(test_slow_or_hung__finds_who_does_not_regroup),
        cmocka_unit_test(test_slow_or_hung__finds_who_does_not_look_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
