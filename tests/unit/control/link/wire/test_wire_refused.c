/* Frames between head and workers: nothing else comes in than what one of them sent. */
#include "control/link/wire/wire.h"

#include "control/link/wire/ranges.h"
#include "device/random/random.h"
#include "support/control/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MUTATIONS = 200000 };

/* Would catch: a frame that is used before all of it has arrived. */
static void test_wire__refuses_every_cut(void **state)
{
    (void)state;
    for (int i = 0; i < N_FRAME_TYPES; i++) {
        fl_wire_message frame = frame_of(frame_types[i]), back;
        size_t n;
        unsigned char *bytes = frame_encode(&frame, &n);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *part = malloc(cut + 1);
            memcpy(part, bytes, cut);
            assert_int_equal(frame_decode(part, cut, &back), FL_EFORMAT);
            free(part);
        }
        free(bytes);
    }
}

static void refuses_with(fl_wire_type type, size_t at, unsigned char value)
{
    fl_wire_message frame = frame_of(type), back;
    size_t n;
    unsigned char *bytes = frame_encode(&frame, &n);
    assert_true(at < n && bytes[at] != value);
    bytes[at] = value;
    assert_int_equal(frame_decode(bytes, n, &back), FL_EFORMAT);
    free(bytes);
}

static void test_wire__refuses_what_is_out_of_range(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES };
    refuses_with(FL_WIRE_DONE, 0, 'X');                /* magic */
    refuses_with(FL_WIRE_DONE, 4, 2);                  /* version */
    refuses_with(FL_WIRE_DONE, 6, 99);                 /* type */
    refuses_with(FL_WIRE_DONE, 9, 0x04);               /* rank 1027 */
    refuses_with(FL_WIRE_DONE, 11, 0x80);              /* a negative rank */
    refuses_with(FL_WIRE_DONE, 24, 1);                 /* size: more than there is */
    refuses_with(FL_WIRE_STEP, 24, 79);                /* size: less than a step */
    refuses_with(FL_WIRE_STEP, BODY + 7, 0x80);        /* a negative step */
    refuses_with(FL_WIRE_STEP, BODY + 84, 9);          /* more metrics than a loss can have */
    refuses_with(FL_WIRE_STEP, BODY + 87, 0x80);       /* a negative number of them */
    refuses_with(FL_WIRE_STEP, BODY + 84, 1);          /* fewer than there are */
    refuses_with(FL_WIRE_EVAL, BODY + 60, 9);          /* more metrics than a loss can have */
    refuses_with(FL_WIRE_EVAL, BODY + 88, 9);          /* more on test samples */
    refuses_with(FL_WIRE_HELLO, BODY + 7, 0x80);       /* a negative process */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 15, 0x80);  /* negative memory */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 44, 0);     /* a zero byte in a text */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 40, 200);   /* a text longer than the frame */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 60, 2);     /* no boolean */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 64, 0x80);  /* a negative errno */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 72, 0x80);  /* a negative time */
    refuses_with(FL_WIRE_HASHES, BODY + 7, 0x80);      /* a negative step */
    refuses_with(FL_WIRE_HASHES, BODY + 11, 0x80);     /* a negative layer */
    refuses_with(FL_WIRE_HASHES, BODY + 9, 2);         /* layers beyond the largest model's */
    refuses_with(FL_WIRE_HASHES, BODY + 12, 0);        /* of no layer */
    refuses_with(FL_WIRE_HASHES, BODY + 12, 3);        /* fewer hashes than there are to be */
    refuses_with(FL_WIRE_LEDGER, BODY + 20, 5);        /* fewer ids than there are */
    refuses_with(FL_WIRE_LEDGER, BODY + 23, 0xff);     /* more, so many that bytes overflow */
    refuses_with(FL_WIRE_FAILED, BODY, 1);             /* no status */
    refuses_with(FL_WIRE_COMMAND, BODY, 77);           /* no command */
    refuses_with(FL_WIRE_COMMAND, BODY + 20, 0);       /* a plan of no stage */
    refuses_with(FL_WIRE_COMMAND, BODY + 23, 0x80);    /* of a negative number of them */
    refuses_with(FL_WIRE_COMMAND, BODY + 32, 2);       /* an unknown schedule */
    refuses_with(FL_WIRE_COMMAND, BODY + 64, 6);       /* a stage without layers */
    refuses_with(FL_WIRE_COMMAND, BODY + 80, 0);       /* a worker with two places */
    refuses_with(FL_WIRE_PREPARED, BODY, 1);           /* no status */
    refuses_with(FL_WIRE_PREPARED, BODY + 11, 0x80);   /* a negative time */
    refuses_with(FL_WIRE_TRANSITION, BODY + 7, 0x80);  /* a negative step */
    refuses_with(FL_WIRE_NORMS, BODY + 8, 4);          /* more norms than there are */
    refuses_with(FL_WIRE_NORMS, BODY + 8, 0);          /* none */
    refuses_with(FL_WIRE_SETTING_DONE, BODY, 0);       /* no number */
    refuses_with(FL_WIRE_SETTING_DONE, BODY + 16, 40); /* an end that is past */
}

static void test_wire__refuses_a_recovery_that_cannot_be(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES, POSITION = 28 };
    refuses_with(FL_WIRE_BROKEN, BODY + 19, 0x80);            /* a negative step */
    refuses_with(FL_WIRE_BROKEN, BODY + 27, 0x80);            /* a summed step below -1 */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 7, 0x80);  /* negative commands */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 28, 2);    /* neither paused nor not */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 44, 4);    /* no log level */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 55, 0x80); /* a negative answer */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 88, 1);    /* no status */
    refuses_with(FL_WIRE_BREAK, BODY, 0);                     /* no serial number */
    refuses_with(FL_WIRE_REGROUP, BODY + 4, 1);               /* leave, and yet a plan */
    refuses_with(FL_WIRE_REGROUP, BODY + 19, 0x80);           /* a negative step */
    refuses_with(FL_WIRE_REGROUP, BODY + 28, 2);              /* neither finite nor not */
    refuses_with(FL_WIRE_ALIVE, BODY + 7, 0x80);              /* negative steps */
}

static void test_wire__refuses_counts_that_cannot_be(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES };
    refuses_with(FL_WIRE_COUNTS, BODY + 7, 0x80);  /* fewer than no messages sent */
    refuses_with(FL_WIRE_COUNTS, BODY, 0);         /* the message with the number 0 */
    refuses_with(FL_WIRE_COUNTS, BODY + 15, 0x80); /* fewer than no messages taken */
    refuses_with(FL_WIRE_COUNTS, BODY + 16, 0);    /* round 0 */
    refuses_with(FL_WIRE_COUNTS, BODY + 24, 2);    /* neither numbered nor not */
}

static void test_wire__refuses_checkpoints_that_cannot_be(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES };
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 7, 0x80);  /* a negative step */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 33, 2);    /* layer 515 */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 35, 0x80); /* a negative layer */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 36, 2);    /* neither weights nor moments */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 40, 1);    /* linked, with bytes of its own */
    refuses_with(FL_WIRE_CHECKPOINT_PART, BODY + 15, 0x80); /* negative bytes */
    refuses_with(FL_WIRE_CHECKPOINT_PART, BODY + 49, 5);    /* more files than layers have */
    refuses_with(FL_WIRE_CHECKPOINT_PART, BODY + 52, 1);    /* no status */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 15, 0x80);        /* negative bytes */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 31, 0x80);        /* a negative serial number */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 32, 2);           /* neither moves nor does not */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 33, 1);           /* no status */
    static const fl_command commands[] = {
        {.kind = FL_COMMAND_CHECKPOINT, .due_step = -1, .serial = 1},
        {.kind = FL_COMMAND_CHECKPOINT, .due_step = 1, .serial = 0},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        fl_wire_message frame = {.type = FL_WIRE_COMMAND, .command = commands[i]}, back;
        size_t n;
        unsigned char *bytes = frame_encode(&frame, &n);
        assert_int_equal(frame_decode(bytes, n, &back), FL_EFORMAT);
        free(bytes);
    }
}

/* The controller adds up what workers report, and counts on from it. Would catch: a value near 2^63
 * that comes in, so that the sum overflows. */
static void test_wire__refuses_what_sums_cannot_hold(void **state)
{
    (void)state;
    enum { AT_US = 16 };
    static const struct {
        fl_wire_type type;
        int n, at[14]; /* [n] of values of 8 bytes in the body, the highest byte last */
    } values[] = {
        {FL_WIRE_TIME, 6, {0, 8, 16, 24, 32, 40}},
        {FL_WIRE_STEP, 5, {0, 8, 40, 48, 56}},
        {FL_WIRE_EVAL, 5, {0, 8, 24, 32, 52}},
        {FL_WIRE_PASS, 2, {0, 8}},
        {FL_WIRE_LEDGER, 2, {0, 8}},
        {FL_WIRE_HEARTBEAT, 6, {0, 8, 16, 24, 32, 65}},
        {FL_WIRE_READY, 1, {0}},
        {FL_WIRE_CACHE, 12, {0, 8, 24, 32, 40, 48, 56, 80, 88, 96, 104, 112}},
        {FL_WIRE_CACHE_TIERS, 2, {0, 8}},
        {FL_WIRE_CHECKPOINT_FILE, 3, {0, 8, 24}},
        {FL_WIRE_CHECKPOINT_PART, 6, {0, 8, 16, 24, 32, 40}},
        {FL_WIRE_SNAPSHOT, 3, {0, 8, 16}},
        {FL_WIRE_PREPARED, 1, {4}},
        {FL_WIRE_TRANSITION, 11, {0, 8, 16, 24, 32, 40, 48, 56, 68, 80, 88}},
        {FL_WIRE_COMM, 3, {4, 28, 36}},
        {FL_WIRE_GRAPHS, 7, {0, 8, 16, 24, 32, 40, 48}},
        {FL_WIRE_NORMS, 1, {0}},
        {FL_WIRE_NONFINITE, 3, {0, 8, 40}},
        {FL_WIRE_SETTING_DONE, 2, {8, 16}},
        {FL_WIRE_HASHES, 1, {0}},
        {FL_WIRE_HASHES_FAILED, 1, {0}},
        {FL_WIRE_BROKEN, 4, {12, 20, 28, 44}},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (int k = 0; k < values[i].n; k++) {
            refuses_with(values[i].type, FL_WIRE_HEADER_BYTES + (size_t)values[i].at[k] + 7, 0x7f);
        }
        refuses_with(values[i].type, AT_US + 7, 0x7f);
        refuses_with(values[i].type, AT_US + 7, 0x80);
    }
}

static fl_status take_compute_time(int64_t us)
{
    fl_wire_message frame = frame_of(FL_WIRE_TIME), back;
    size_t n;
    frame.time.compute_us = us;
    unsigned char *bytes = frame_encode(&frame, &n);
    fl_status status = frame_decode(bytes, n, &back);
    free(bytes);
    return status;
}

/* Would catch: a limit that a run which was paused over the holidays exceeds. */
static void test_wire__takes_the_time_of_a_long_pause(void **state)
{
    (void)state;
    assert_int_equal(take_compute_time(INT64_C(100) * 86400 * 1000000), FL_OK);
    assert_int_equal(take_compute_time(FL_WIRE_US_MAX), FL_OK);
    assert_int_equal(take_compute_time(FL_WIRE_US_MAX + 1), FL_EFORMAT);
    assert_int_equal(take_compute_time(-1), FL_EFORMAT);
}

/* Would catch: a reader that reads outside its message, trusts a length or never ends. The
 * sanitizers check this; an accepted message must encode to exactly the bytes that were read. */
static void test_wire__takes_nothing_amiss_from_mutations(void **state)
{
    (void)state;
    const uint32_t key[2] = {0x1234, 0x5678};
    printf("seed %u %u\n", key[0], key[1]);
    int n_accepted = 0;
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        uint32_t r[4];
        fl_philox((uint32_t[4]){i, 0, 0, 0}, key, r);
        fl_wire_message frame = frame_of(frame_types[r[0] % N_FRAME_TYPES]), back;
        size_t n, n_again;
        unsigned char *bytes = frame_encode(&frame, &n);
        for (uint32_t m = 0; m < 1 + r[1] % 4; m++) {
            uint32_t q[4];
            fl_philox((uint32_t[4]){i, m, 1, 0}, key, q);
            unsigned char flipped = (unsigned char)(bytes[q[0] % n] ^ (1u << q[1] % 8));
            unsigned char fresh = (unsigned char)q[1];
            bytes[q[0] % n] = q[2] % 2 ? fresh : flipped;
        }
        size_t given = r[2] % 8 == 0 ? r[3] % (n + 1) : n;
        unsigned char *exact = malloc(given + 1);
        memcpy(exact, bytes, given);
        const unsigned char *at = exact;
        size_t left = given;
        if (fl_wire_next(&at, &left, &back) == FL_OK) {
            n_accepted++;
            int64_t *ids = NULL;
            if (back.type == FL_WIRE_LEDGER) {
                ids = calloc(back.ledger.n + 1, sizeof *ids);
                fl_wire_ids(&back, ids);
                back.ledger.ids = ids;
            }
            unsigned char *again = frame_encode(&back, &n_again);
            assert_int_equal(n_again, given - left);
            assert_memory_equal(again, exact, n_again);
            free(again);
            free(ids);
        } else {
            assert_ptr_equal(at, exact);
            assert_int_equal(left, given);
        }
        free(exact);
        free(bytes);
    }
    assert_in_range(n_accepted, 1, MUTATIONS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire__refuses_every_cut),
        cmocka_unit_test(test_wire__refuses_what_is_out_of_range),
        cmocka_unit_test(test_wire__refuses_a_recovery_that_cannot_be),
        cmocka_unit_test(test_wire__refuses_counts_that_cannot_be),
        cmocka_unit_test(test_wire__refuses_checkpoints_that_cannot_be),
        cmocka_unit_test(test_wire__refuses_what_sums_cannot_hold),
        cmocka_unit_test(test_wire__takes_the_time_of_a_long_pause),
        cmocka_unit_test(test_wire__takes_nothing_amiss_from_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
