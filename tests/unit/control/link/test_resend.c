/* Both ends of a link whose connections are reset at any moment, as values: no sockets, no clock.
 * Would catch: a message that is lost, comes twice or in another order; one that is sent again
 * although none was lost; messages that are kept for ever. */
#include "control/link/resend.h"
#include "device/random/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MESSAGES = 400, FLIGHT_MAX = 64, TURNS_MAX = 200000, SEEDS = 200 };

/* On its way: `value` is the content of a numbered message. */
typedef struct flight {
    fl_wire_counts counts;
    int64_t value;
} flight;

/* What one end has sent over the connection that is open, and over the one before, from which the
 * other end may still read. */
typedef struct channel {
    flight now[FLIGHT_MAX], old[FLIGHT_MAX];
    int n_now, n_old;
} channel;

typedef struct end {
    fl_resend resend;
    channel out;
    int64_t n_made, n_came;
} end;

typedef struct dice {
    uint32_t counter, key[2];
} dice;

static uint32_t roll(dice *d, uint32_t sides)
{
    uint32_t q[4];
    fl_philox((uint32_t[4]){d->counter++, 0, 0, 0}, d->key, q);
    return q[0] % sides;
}

static void push(channel *c, fl_wire_counts counts, int64_t value)
{
    if (c->n_now < FLIGHT_MAX) { /* else the end of it is lost, as that of a connection is */
        c->now[c->n_now++] = (flight){counts, value};
    }
}

/* As a sender does at each turn: all that is due, or a heartbeat. */
static void send_turn(end *e)
{
    size_t n;
    const unsigned char *bytes;
    int64_t value;
    while (e->out.n_now < FLIGHT_MAX && (bytes = fl_resend_due(&e->resend, &n)) != NULL) {
        assert_int_equal(n, sizeof value);
        memcpy(&value, bytes, sizeof value);
        push(&e->out, fl_resend_counts(&e->resend, true), value);
        fl_resend_sent(&e->resend);
    }
    push(&e->out, fl_resend_counts(&e->resend, false), -1);
}

static flight pop(flight *from, int *n)
{
    flight f = from[0];
    memmove(from, from + 1, (size_t)-- * n * sizeof *from);
    return f;
}

/* One message reaches `e`, from either connection. */
static void receive_one(end *e, channel *from, dice *d)
{
    bool take = false, old = from->n_old > 0 && (from->n_now == 0 || roll(d, 2) == 0);
    if (!old && from->n_now == 0) {
        return;
    }
    flight f = old ? pop(from->old, &from->n_old) : pop(from->now, &from->n_now);
    assert_int_equal(fl_resend_heard(&e->resend, &f.counts, &take), FL_OK);
    if (f.counts.numbered && take) {
        assert_int_equal(f.value, e->n_came);
        e->n_came++;
    }
}

/* Of what was on its way, a first part has arrived, and may be read later; the rest is lost. */
static void reset_channel(channel *c, dice *d)
{
    c->n_old = (int)roll(d, (uint32_t)c->n_now + 1);
    memcpy(c->old, c->now, (size_t)c->n_old * sizeof *c->now);
    c->n_now = 0;
}

static bool is_over(const end *e)
{
    return e[0].n_came == MESSAGES && e[1].n_came == MESSAGES && e[0].resend.n_bytes == 0 &&
           e[1].resend.n_bytes == 0;
}

static void play(end e[2], dice *d, uint32_t resets_in)
{
    int turns = 0;
    for (; !is_over(e); turns++) {
        assert_true(turns < TURNS_MAX);
        for (int i = 0; i < 2; i++) {
            if (e[i].n_made < MESSAGES && roll(d, 3) == 0) {
                int64_t value = e[i].n_made++;
                assert_int_equal(fl_resend_keep(&e[i].resend, &value, sizeof value), FL_OK);
            }
            if (roll(d, 2) == 0) {
                send_turn(&e[i]);
            }
            for (uint32_t n = roll(d, 6); n > 0; n--) {
                receive_one(&e[i], &e[1 - i].out, d);
            }
        }
        if (resets_in > 0 && roll(d, resets_in) == 0) {
            reset_channel(&e[0].out, d);
            reset_channel(&e[1].out, d);
        }
    }
}

static void finish(end e[2])
{
    fl_resend_fini(&e[0].resend);
    fl_resend_fini(&e[1].resend);
}

static void test_resend__brings_each_message_once_in_order(void **state)
{
    (void)state;
    uint32_t n_back[2] = {0, 0};
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        end *e = calloc(2, sizeof *e);
        dice d = {.key = {seed, 7}};
        play(e, &d, 2 + seed % 40);
        n_back[0] += e[0].resend.n_back;
        n_back[1] += e[1].resend.n_back;
        finish(e);
        free(e);
    }
    assert_true(n_back[0] > SEEDS && n_back[1] > SEEDS);
}

/* Where the queue of a connection never fills, nothing is ever missing. */
static void test_resend__sends_once_what_arrives(void **state)
{
    (void)state;
    end *e = calloc(2, sizeof *e);
    dice d = {.key = {1, 2}};
    for (int64_t value = 0; value < MESSAGES; value++) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(fl_resend_keep(&e[i].resend, &value, sizeof value), FL_OK);
            send_turn(&e[i]);
        }
        for (int i = 0; i < 2; i++) {
            while (e[1 - i].out.n_now > (int)(value % 5)) { /* an answer comes later */
                receive_one(&e[i], &e[1 - i].out, &d);
            }
        }
    }
    assert_int_equal(e[0].resend.n_back + e[1].resend.n_back, 0);
    assert_true(e[0].resend.n_bytes < 20 * (sizeof(int64_t) + sizeof(size_t)));
    finish(e);
    free(e);
}

/* While messages that were sent before the gap still arrive, it is the same gap. */
static void test_resend__goes_back_once_for_a_gap(void **state)
{
    (void)state;
    fl_resend r = {0};
    bool take = false;
    int64_t value = 0;
    for (; value < 5; value++) {
        assert_int_equal(fl_resend_keep(&r, &value, sizeof value), FL_OK);
        fl_resend_sent(&r);
    }
    const fl_wire_counts gap = {.n_taken = 2, .round = 1, .lacks = 1};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fl_resend_heard(&r, &gap, &take), FL_OK);
        assert_int_equal(r.n_back, 1);
    }
    size_t n;
    for (value = 2; value < 5; value++) {
        assert_memory_equal(fl_resend_due(&r, &n), &value, sizeof value);
        assert_int_equal(fl_resend_counts(&r, true).n_sent, value + 1);
        fl_resend_sent(&r);
    }
    assert_null(fl_resend_due(&r, &n));
    fl_resend_fini(&r);
}

/* From a peer that is no worker of this version, or lies. */
static void test_resend__refuses_what_was_never_sent(void **state)
{
    (void)state;
    fl_resend r = {0};
    bool take = false;
    const fl_wire_counts lie = {.n_taken = 2, .round = 1};
    assert_int_equal(fl_resend_keep(&r, "a", 1), FL_OK);
    assert_int_equal(fl_resend_heard(&r, &lie, &take), FL_EFORMAT);
    assert_string_equal(fl_errmsg(), "2 messages taken, of 1");
    fl_resend_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resend__brings_each_message_once_in_order),
        cmocka_unit_test(test_resend__sends_once_what_arrives),
        cmocka_unit_test(test_resend__goes_back_once_for_a_gap),
        cmocka_unit_test(test_resend__refuses_what_was_never_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
