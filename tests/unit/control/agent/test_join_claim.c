/* Agents with the name of a host that has joined. Would catch: agents that ask in turns and are
 * never answered, one that is refused although the agent before it may be dead, and a start that
 * ends because an agent gave the name of another host. */
#include "control/agent/join/join_claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const fl_host_peer A = {.n = 1, .bytes = {1}}, B = {.n = 1, .bytes = {2}};

static bool is_refused(fl_join_rival *rival, const fl_host_peer *from, int heard_ms, int now_ms)
{
    return fl_join_rival_is_refused(rival, from, heard_ms * INT64_C(1000), now_ms * INT64_C(1000));
}

static void test_join_claim__one_is_refused_after_a_sign_of_life(void **state)
{
    (void)state;
    fl_join_rival rival = {.since_us = 0};
    assert_false(is_refused(&rival, &A, 900, 1000));
    assert_false(is_refused(&rival, &A, 900, 1300));
    assert_true(is_refused(&rival, &A, 1400, 1600));
}

/* Each rival asks three times a second; the agent that has joined sends a message in between. */
static void test_join_claim__two_that_ask_in_turns_are_refused(void **state)
{
    (void)state;
    fl_join_rival rival = {.since_us = 0};
    assert_false(is_refused(&rival, &A, 900, 1000));
    assert_false(is_refused(&rival, &B, 900, 1150));
    assert_true(is_refused(&rival, &A, 1200, 1300));
    assert_false(is_refused(&rival, &B, 1400, 1450)); /* its turn begins */
    assert_true(is_refused(&rival, &B, 1600, 1750));
}

/* What the other one has said before the turn is no sign of life. */
static void test_join_claim__one_is_not_refused_for_what_came_before_its_turn(void **state)
{
    (void)state;
    fl_join_rival rival = {.since_us = 0};
    assert_false(is_refused(&rival, &A, 900, 1000));
    assert_true(is_refused(&rival, &A, 1100, 1300));
    for (int ms = 1400; ms < 9000; ms += 300) { /* it has died */
        assert_false(is_refused(&rival, &B, 1300, ms));
    }
    assert_false(is_refused(&rival, &A, 9100, 9200)); /* B may have ended by itself */
}

static void test_join_claim__one_that_asks_no_more_has_no_turn(void **state)
{
    (void)state;
    fl_join_rival rival = {.since_us = 0};
    assert_false(is_refused(&rival, &A, 900, 1000));
    int n_refused = 0;
    for (int ms = 1300; ms < 9000 && n_refused == 0; ms += 300) {
        n_refused += is_refused(&rival, &B, ms - 50, ms);
    }
    assert_int_equal(n_refused, 1);
}

static void test_join_claim__an_agent_of_another_host_does_not_speak_for_this_one(void **state)
{
    (void)state;
    const fl_hosts hosts = {
        .n = 3,
        .host = {{.address = "10.0.0.1"}, {.address = "10.0.0.2"}, {.address = "10.0.0.3"}}};
    assert_true(fl_join_speaks_for(&hosts, 1, &(fl_host_peer){.address = "10.0.0.2"}));
    assert_true(fl_join_speaks_for(&hosts, 1, &(fl_host_peer){.address = "10.9.0.2"}));
    assert_true(fl_join_speaks_for(&hosts, 1, &(fl_host_peer){.address = ""}));
    assert_false(fl_join_speaks_for(&hosts, 1, &(fl_host_peer){.address = "10.0.0.1"}));
    assert_false(fl_join_speaks_for(&hosts, 1, &(fl_host_peer){.address = "10.0.0.3"}));
    const fl_hosts one_machine = {.n = 2,
                                  .host = {{.address = "127.0.0.1"}, {.address = "127.0.0.1"}}};
    assert_true(fl_join_speaks_for(&one_machine, 1, &(fl_host_peer){.address = "127.0.0.1"}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_claim__one_is_refused_after_a_sign_of_life),
        cmocka_unit_test(test_join_claim__two_that_ask_in_turns_are_refused),
        cmocka_unit_test(test_join_claim__one_is_not_refused_for_what_came_before_its_turn),
        cmocka_unit_test(test_join_claim__one_that_asks_no_more_has_no_turn),
        cmocka_unit_test(test_join_claim__an_agent_of_another_host_does_not_speak_for_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
