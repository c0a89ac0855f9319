/* The transport between hosts, as its members use it. Would catch: messages that are lost or change
 * places where a connection is replaced; a connection between members that never talk; a member
 * that breaks the rules and is not lost. */
#include "autodp/tls/tls.h"

#include "autodp/tls/state.h"
#include "device/system/alloc.h"
#include "support/ranks/tls_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const fl__tls_peer *peer_of(fl_net *net, int peer)
{
    return &fl__tls_of(net)->peers[peer];
}

/* A connection lasts for a few records only. Sizes: nothing, less than a record, several records.
 */
static void renew_often(const rank_env *env)
{
    static const size_t sizes[] = {0, 1, 100, 16 * 1024, 200 * 1000};
    fl_net *net = open_net(env, "renew", env->size);
    mailbox m = open_mailbox(net, 200 * 1000);
    pthread_mutex_lock(&fl__tls_of(net)->mutex);
    fl__tls_of(net)->most_records = 5;
    pthread_mutex_unlock(&fl__tls_of(net)->mutex);
    for (int round = 0; round < 100; round++) {
        exchange(&m, env->rank, 1 - env->rank, round, sizes[(size_t)round % 5]);
    }
    /* Of about 560 records in each direction, the present connection has had a few. */
    RANK_CHECK(peer_of(net, 1 - env->rank)->out.n_records < 30);
    close_mailbox(&m);
    fl_net_close(&net);
}

static void test_tls__goes_on_where_a_connection_is_renewed(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, renew_often, NULL, PATIENCE_MS), 0);
}

/* 0 talks to 1, and 2 to 3; each looks before it leaves. */
static void talk_in_pairs(const rank_env *env)
{
    int partner = env->rank ^ 1;
    fl_net *net = open_net(env, "pairs", env->size);
    mailbox m = open_mailbox(net, 64);
    for (int round = 0; round < 10; round++) {
        exchange(&m, env->rank, partner, round, 64);
    }
    for (int peer = 0; peer < env->size; peer++) {
        bool connected = peer_of(net, peer)->out.state != FL__TLS_IDLE;
        RANK_CHECK(connected == (peer == partner || (env->rank == 0 && peer != 0)));
    }
    close_mailbox(&m);
    fl_net_close(&net);
}

static void test_tls__connects_only_members_that_talk(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(4, talk_in_pairs, NULL, PATIENCE_MS), 0);
}

/* A receive that is given up leaves its place to the next one of the same tag. */
static void give_up_a_receive(const rank_env *env)
{
    enum { BYTES = 50000 };
    fl_net *net = open_net(env, "given up", env->size);
    mailbox m = open_mailbox(net, BYTES);
    if (env->rank == 0) {
        fl_net_buffer *other = NULL;
        static unsigned char never[BYTES];
        RANK_OK(fl_net_buffer_create(net, never, sizeof never, &other));
        RANK_OK(fl_net_recv(other, 1, TAG, 0, sizeof never));
        fl_net_buffer_destroy(&other);
        memset(never, 1, sizeof never);
        RANK_OK(fl_net_recv(m.receiving, 1, TAG, 0, m.most_bytes));
        say(env, "it was given up");
        RANK_OK(fl_net_wait_recv(m.receiving, soon()));
        check_message(&m, 1, 0, BYTES);
        for (int i = 0; i < BYTES; i++) {
            RANK_CHECK(never[i] == 1);
        }
    } else {
        char there; /* a message that comes before the next receive is given up with the first */
        await(env, "it was given up", &there, 1);
        write_message(&m, 1, 0, BYTES);
        RANK_OK(fl_net_send(m.sending, 0, TAG, 0, BYTES));
        RANK_OK(fl_net_wait_send(m.sending, soon()));
    }
    exchange(&m, env->rank, 1 - env->rank, 1, BYTES);
    close_mailbox(&m);
    fl_net_close(&net);
}

static void test_tls__a_receive_can_be_given_up(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, give_up_a_receive, NULL, PATIENCE_MS), 0);
}

/* Member 1 sends what it must not send, over its proved connection. */
static void break_the_rules(const rank_env *env)
{
    const int *rule = env->context;
    static unsigned char data[64];
    fl_net *net = open_net(env, "rules", env->size);
    mailbox m = open_mailbox(net, 64);
    exchange(&m, env->rank, 1 - env->rank, 0, 64);
    if (env->rank == 0) {
        say(env, "it has come");
    } else {
        char there;
        await(env, "it has come", &there, 1);
        fl__tls_net *mine = fl__tls_of(net);
        fl__tls_peer *p = &mine->peers[0];
        fl_net_op *op = NULL;
        pthread_mutex_lock(&mine->mutex);
        RANK_OK(fl__net_op_take(&mine->ops, &op));
        op->data = data;
        op->frame = (fl_net_frame){.kind = *rule == 0 ? FL__TLS_DATA : FL__TLS_HELLO,
                                   .tag = *rule == 0 ? TAG + 1 : FL__TLS_VERSION,
                                   .size_bytes = *rule == 0 ? sizeof data : 0};
        fl__net_push(&p->ready, op);
        fl__tls_pump(mine, p);
        pthread_mutex_unlock(&mine->mutex);
    }
    fl_status status = fl_net_recv(m.receiving, 1 - env->rank, TAG, 0, 64);
    status = status == FL_OK ? fl_net_wait_recv(m.receiving, soon()) : status;
    RANK_CHECK(status == FL_EPEER);
    close_mailbox(&m);
    fl_net_close(&net);
}

static void test_tls__a_member_that_breaks_the_rules_is_lost(void **state)
{
    (void)state;
    for (int rule = 0; rule < 2; rule++) {
        assert_int_equal(ranks_run(2, break_the_rules, &rule, PATIENCE_MS), 0);
    }
}

/* Members with different secrets never meet. */
static void meet_with_another_secret(const rank_env *env)
{
    fl_net_transport transport;
    fl_net *net = NULL;
    RANK_OK(fl_tls_transport(env->rank == 0 ? tls_key : "another key", &transport));
    const fl_net_options options = {.rank = env->rank,
                                    .size = 2,
                                    .name = "secrets",
                                    .kv = env->kv,
                                    .open_timeout_ms = 1000,
                                    .wait_timeout_ms = 1000,
                                    .transport = &transport};
    RANK_CHECK(fl_net_open(&options, &net) == FL_EDEADLINE);
    RANK_CHECK(net == NULL);
}

static void test_tls__members_with_different_secrets_do_not_meet(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, meet_with_another_secret, NULL, PATIENCE_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls__goes_on_where_a_connection_is_renewed),
        cmocka_unit_test(test_tls__connects_only_members_that_talk),
        cmocka_unit_test(test_tls__a_receive_can_be_given_up),
        cmocka_unit_test(test_tls__a_member_that_breaks_the_rules_is_lost),
        cmocka_unit_test(test_tls__members_with_different_secrets_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
