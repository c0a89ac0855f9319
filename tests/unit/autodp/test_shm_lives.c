/* Ends of processes that are learnt without a connection. Would catch: the end of a member that is
 * not seen while nobody has taken note of it, and a member that counts as ended while it lives. */
#include "autodp/group/shm_lives.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_shm_lives__an_end_is_seen(void **state)
{
    (void)state;
    fl_shm_lives lives;
    siginfo_t ended;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(fl_shm_lives_open(&lives, 3), FL_OK);
    fl_shm_lives_watch(&lives, 1, child);
    assert_false(fl_shm_lives_watches(&lives, 0));
    assert_true(fl_shm_lives_watches(&lives, 1));
    assert_false(fl_shm_lives_has_ended(&lives, 1));
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_true(fl_shm_lives_has_ended(&lives, 1)); /* nobody has taken note of it yet */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(fl_shm_lives_has_ended(&lives, 1));
    fl_shm_lives_close(&lives);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shm_lives__an_end_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
