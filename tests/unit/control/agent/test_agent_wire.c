/* Frames between the controller and the agent: what goes in comes out, and nothing else comes in.
 */
#include "control/agent/wire/agent_wire.h"

#include "device/random/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MUTATIONS = 100000 };

static const fl_agent_frame frames[] = {
    {.type = FL_AGENT_SPAWN,
     .rank = 3,
     .incarnation = 1,
     .birth = {.rank = 3,
               .incarnation = 1,
               .plan = {.generation = 8,
                        .F = 1,
                        .K = 2,
                        .R = 1,
                        .M = 4,
                        .n_layers = 5,
                        .n_workers = 4,
                        .first = {0, 2, 5},
                        .rank_of = {0, 2},
                        .departed = {[1] = true}},
               .step = 40,
               .cursor = {.epoch = 3, .position = 320},
               .lr_factor = 0.25,
               .end_step = 100,
               .n_skipped = 2,
               .evaluates = true,
               .parked = {2, -1, -1, -1, -1},
               .since = {0, 39, 0, 0, 7}}},
    {.type = FL_AGENT_KILL, .rank = 1023, .incarnation = UINT32_MAX},
    {.type = FL_AGENT_LOOK, .rank = 0, .incarnation = 2},
    {.type = FL_AGENT_END},
    {.type = FL_AGENT_SPAWNED, .rank = 3, .incarnation = 1, .spawned = {.pid = 4711}},
    {.type = FL_AGENT_SPAWNED, .rank = 3, .incarnation = 1, .spawned = {.error = 11}},
    {.type = FL_AGENT_EXITED, .rank = 3, .incarnation = 1, .wait_status = 0x8b},
    {.type = FL_AGENT_LOOKED,
     .rank = 3,
     .incarnation = 1,
     .looked = {.is_known = true,
                .process = {.cpu_us = INT64_C(1) << 40,
                            .work = {.n_major_faults = 5, .is_runnable = true},
                            .link = {.n_major_faults = 7}}}},
    {.type = FL_AGENT_HIDE},
    {.type = FL_AGENT_FLIGHT,
     .rank = 3,
     .incarnation = 2,
     .flight =
         {.now_ns = 100,
          .step = 37,
          .track[0] = {.has_changed = true,
                       .view = {.role = FL_FLIGHT_MAIN,
                                .depth = 2,
                                .n_changes = 1 << 20,
                                .open = {{.kind = FL_FLIGHT_STEP, .peer = -1, .entered_ns = 9},
                                         {.kind = FL_FLIGHT_RECEIVE,
                                          .depth = 1,
                                          .generation = 7,
                                          .step = 37,
                                          .micro_batch = 2,
                                          .item = -1,
                                          .peer = 1,
                                          .bytes = 4096,
                                          .entered_ns = 15}}},
                       .n_recent = 1,
                       .recent = {{.kind = FL_FLIGHT_SUM, .entered_ns = 3, .left_ns = 8}}},
          .track[4] = {.has_changed = true, .view = {.role = FL_FLIGHT_DEVICE}}}},
    {.type = FL_AGENT_RELEASE, .rank = 4, .text = "no plan"},
    {.type = FL_AGENT_HOST, .rank = 4, .host = {.news = FL_HOST_NEWS_NOTICE, .grace_ms = 25000}},
    {.type = FL_AGENT_HOST, .rank = 4, .host = {.news = FL_HOST_NEWS_LOST, .text = "silent"}},
    {.type = FL_AGENT_HOST,
     .rank = 4,
     .host = {.news = FL_HOST_NEWS_JOINED, .name = "c", .address = "10.0.0.3", .n = 2}},
    {.type = FL_AGENT_HOST,
     .rank = 4,
     .host = {.news = FL_HOST_NEWS_CLOCK,
              .clock = {.known = true,
                        .offset_ns = -5,
                        .wall_offset_ns = 7,
                        .round_trip_ns = 9,
                        .drift_ppb = -11}}},
    {.type = FL_AGENT_END, .ending = FL_AGENT_ENDS_AGAIN},
    {.type = FL_AGENT_END, .ending = FL_AGENT_ENDS_STOPPED},
    {.type = FL_AGENT_REFUSE, .text = "other data"},
    {.type = FL_AGENT_READ,
     .rank = 3,
     .incarnation = 2,
     .read = {.number = 11, .first_step = 5, .n_steps = 10, .cursor = {FL_RECORDS_OLDEST, 7}}},
    {.type = FL_AGENT_RECORDS,
     .rank = 3,
     .incarnation = 2,
     .records = {.number = 11,
                 .step = 6,
                 .all = true,
                 .n_lost = 1,
                 .cursor = {40, 7},
                 .role = {FL_FLIGHT_MAIN, FL_FLIGHT_REDUCER},
                 .n = {2, 1},
                 .entry = {{.kind = FL_FLIGHT_FORWARD, .step = 5, .left_ns = 20},
                           {.kind = FL_FLIGHT_BACKWARD, .entered_ns = 20, .left_ns = 20},
                           {.kind = FL_FLIGHT_REDUCE, .entered_ns = 4, .left_ns = 30}}}},
    {.type = FL_AGENT_HOST,
     .rank = 4,
     .host = {.news = FL_HOST_NEWS_LOST, .silent_ms = 5012, .unfit = true, .text = "silent"}},
    {.type = FL_AGENT_END, .ending = FL_AGENT_ENDS_FAILED},
    {.type = FL_AGENT_REACH, .reach = {.number = 5, .timeout_ms = 500}},
    {.type = FL_AGENT_REACHED,
     .rank = 4,
     .reached = {.number = 5, .n = 2, .host = {1, 1023}, .why = "no answer"}},
    {.type = FL_AGENT_REACHED, .reached = {.number = UINT64_MAX}},
    {.type = FL_AGENT_APART,
     .rank = 4,
     .apart = {.from = 2, .trial = {.port = 20017, .by_other = true}, .text = "it and host b"}},
    {.type = FL_AGENT_END, .ending = FL_AGENT_ENDS_QUIT},
    {.type = FL_AGENT_SHARES, .rank = 4},
    {.type = FL_AGENT_SPAWNED,
     .rank = 3,
     .incarnation = 1,
     .spawned = {.pid = 4711, .gpu = 1, .gpu_name = "NVIDIA H100 80GB HBM3"}},
};

enum { N_FRAMES = sizeof frames / sizeof *frames };

static void assert_refused(const unsigned char *bytes, size_t n)
{
    unsigned char *exact = malloc(n + 1); /* so that a sanitizer sees a read past the end */
    fl_agent_frame back = {.rank = -7};
    memcpy(exact, bytes, n);
    assert_int_equal(fl_agent_wire_get(exact, n, &back), FL_EFORMAT);
    assert_int_equal(back.rank, -7); /* unchanged */
    free(exact);
}

static void test_agent_wire__brings_back_every_frame(void **state)
{
    (void)state;
    for (int i = 0; i < N_FRAMES; i++) {
        unsigned char bytes[FL_AGENT_FRAME_MAX], again[FL_AGENT_FRAME_MAX];
        fl_agent_frame back;
        size_t n = fl_agent_wire_put(&frames[i], bytes);
        assert_in_range(n, FL_AGENT_HEADER_BYTES, FL_AGENT_FRAME_MAX);
        assert_int_equal(fl_agent_wire_get(bytes, n, &back), FL_OK);
        assert_int_equal(back.type, frames[i].type);
        assert_int_equal(back.rank, frames[i].rank);
        assert_int_equal(back.incarnation, frames[i].incarnation);
        assert_int_equal(fl_agent_wire_put(&back, again), n);
        assert_memory_equal(again, bytes, n);
        if (back.type == FL_AGENT_FLIGHT) {
            const fl_shown_track *track = &back.flight.track[0];
            assert_int_equal(track->view.depth, 2);
            assert_int_equal(track->view.open[1].kind, FL_FLIGHT_RECEIVE);
            assert_int_equal(track->view.open[1].peer, 1);
            assert_int_equal(track->view.open[1].entered_ns, 15);
            assert_int_equal(track->recent[0].left_ns, 8);
            assert_false(back.flight.track[1].has_changed);
            assert_int_equal(back.flight.track[4].view.role, FL_FLIGHT_DEVICE);
        }
        if (back.type == FL_AGENT_SPAWN) {
            assert_memory_equal(&back.birth, &frames[i].birth, sizeof back.birth);
        }
    }
}

/* Would catch: a frame that is larger than the buffers of both ends. */
static void test_agent_wire__holds_the_largest_birth(void **state)
{
    (void)state;
    static fl_agent_frame frame = {.type = FL_AGENT_SPAWN, .rank = 1, .incarnation = 1};
    static unsigned char bytes[FL_AGENT_FRAME_MAX];
    fl_plan *plan = &frame.birth.plan;
    *plan = (fl_plan){.K = FL_MAX_STAGES,
                      .R = FL_MAX_WORKERS / FL_MAX_STAGES,
                      .M = 1,
                      .n_layers = FL_MAX_LAYERS,
                      .n_workers = FL_MAX_WORKERS};
    for (int i = 0; i < FL_MAX_WORKERS; i++) {
        plan->rank_of[i] = i;
    }
    for (int i = 1; i <= FL_MAX_STAGES; i++) {
        plan->first[i] = i * FL_MAX_LAYERS / FL_MAX_STAGES;
    }
    fl_agent_frame back;
    assert_int_equal(fl_agent_wire_get(bytes, fl_agent_wire_put(&frame, bytes), &back), FL_OK);
    assert_int_equal(back.birth.plan.rank_of[FL_MAX_WORKERS - 1], FL_MAX_WORKERS - 1);
    plan->K = plan->R = 1; /* and as many that are no members */
    plan->first[1] = FL_MAX_LAYERS;
    for (int i = 1; i < FL_MAX_WORKERS; i++) {
        plan->departed[i] = true;
    }
    assert_int_equal(fl_agent_wire_get(bytes, fl_agent_wire_put(&frame, bytes), &back), FL_OK);
}

/* Would catch the same of what is shown, and of an answer. */
static void test_agent_wire__holds_the_largest_flight(void **state)
{
    (void)state;
    static fl_agent_frame frame = {.type = FL_AGENT_FLIGHT, .rank = 1, .incarnation = 1}, back;
    static unsigned char bytes[2 * FL_AGENT_FRAME_MAX];
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        frame.flight.track[i] = (fl_shown_track){
            .has_changed = true, .view.depth = FL_FLIGHT_DEPTH, .n_recent = FL_SHOWN_RECENT};
    }
    size_t n = fl_agent_wire_put(&frame, bytes);
    assert_in_range(n, 1, FL_AGENT_FRAME_MAX);
    assert_int_equal(fl_agent_wire_get(bytes, n, &back), FL_OK);
    assert_int_equal(back.flight.track[6].n_recent, FL_SHOWN_RECENT);
    memset(&frame.records, 0, sizeof frame.records);
    frame.type = FL_AGENT_RECORDS;
    frame.records.n[6] = FL_RECORDS_MAX;
    for (int i = 0; i < FL_RECORDS_MAX; i++) {
        frame.records.entry[i].kind = FL_FLIGHT_FORWARD;
    }
    n = fl_agent_wire_put(&frame, bytes);
    assert_in_range(n, 1, FL_AGENT_FRAME_MAX);
    assert_int_equal(fl_agent_wire_get(bytes, n, &back), FL_OK);
    assert_int_equal(back.records.n[6], FL_RECORDS_MAX);
}

static void test_agent_wire__refuses_every_cut_and_every_extra_byte(void **state)
{
    (void)state;
    for (int i = 0; i < N_FRAMES; i++) {
        unsigned char bytes[FL_AGENT_FRAME_MAX + 1] = {0};
        size_t n = fl_agent_wire_put(&frames[i], bytes);
        for (size_t given = 0; given < n; given++) {
            assert_refused(bytes, given);
        }
        assert_refused(bytes, n + 1);
    }
}

static void assert_refused_with(size_t frame, size_t at, unsigned char value)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(&frames[frame], bytes);
    assert_int_not_equal(bytes[at], value);
    bytes[at] = value;
    assert_refused(bytes, n);
}

static void test_agent_wire__refuses_what_is_out_of_range(void **state)
{
    (void)state;
    enum { VERSION_AT = 4, TYPE_AT = 6, RANK_AT = 8, INCARNATION_AT = 12 };
    enum { TRACK_AT = FL_AGENT_HEADER_BYTES + 17, RECORDS_AT = FL_AGENT_HEADER_BYTES + 21 };
    assert_refused_with(0, 0, 0);                            /* magic */
    assert_refused_with(0, VERSION_AT, 200);                 /* a later version */
    assert_refused_with(0, TYPE_AT, 0);                      /* no type */
    assert_refused_with(0, TYPE_AT, 31);                     /* unknown types */
    assert_refused_with(0, TYPE_AT + 1, 1);                  /* 0x101 */
    assert_refused_with(1, RANK_AT + 1, 4);                  /* rank 1279 */
    assert_refused_with(0, RANK_AT + 3, 0x80);               /* a negative rank */
    assert_refused_with(0, INCARNATION_AT, 0);               /* no process has that number */
    assert_refused_with(3, RANK_AT, 1);                      /* END is about no worker */
    assert_refused_with(4, FL_AGENT_HEADER_BYTES + 8, 1);    /* a process and an error */
    assert_refused_with(5, FL_AGENT_HEADER_BYTES + 8, 0);    /* neither */
    assert_refused_with(4, FL_AGENT_HEADER_BYTES + 7, 0x80); /* a negative pid */
    assert_refused_with(4, FL_AGENT_HEADER_BYTES + 12, 1);   /* a GPU without a name */
    assert_refused_with(N_FRAMES - 2, INCARNATION_AT, 1);    /* SHARES is of a host */
    assert_refused_with(N_FRAMES - 1, FL_AGENT_HEADER_BYTES + 13, 1);    /* GPU 257 */
    assert_refused_with(N_FRAMES - 1, FL_AGENT_HEADER_BYTES + 15, 0x80); /* a negative one */
    assert_refused_with(7, FL_AGENT_HEADER_BYTES, 2);         /* neither true nor false */
    assert_refused_with(7, FL_AGENT_HEADER_BYTES + 8, 0x80);  /* negative processor time */
    assert_refused_with(7, FL_AGENT_HEADER_BYTES + 8, 0x7f);  /* too much to count with it */
    assert_refused_with(7, FL_AGENT_HEADER_BYTES + 16, 0x80); /* negative page faults */
    assert_refused_with(9, FL_AGENT_HEADER_BYTES + 16, 0x91); /* more threads than a worker has */
    assert_refused_with(9, TRACK_AT, 99);                     /* no role of a thread */
    assert_refused_with(9, TRACK_AT + 1, 9);                  /* deeper than a view */
    assert_refused_with(9, TRACK_AT + 2, 17);                 /* more than are shown */
    assert_refused_with(9, TRACK_AT + 3, 1);                  /* in the middle of a change */
    assert_refused_with(9, TRACK_AT + 11, 200);               /* no kind of operation */
    assert_refused_with(9, TRACK_AT + 11 + 49, 1);            /* in it, and left */
    assert_refused_with(9, TRACK_AT + 11 + 100 + 34, 99);     /* left before it was entered */
    assert_refused_with(18, FL_AGENT_HEADER_BYTES + 12, 0);   /* no step */
    assert_refused_with(19, RECORDS_AT - 9, 0);               /* more to come, and room for it */
    assert_refused_with(19, RECORDS_AT + 9, 99);              /* more than the bytes hold */
    assert_refused_with(19, RECORDS_AT + 10, 2);              /* more than an answer holds */
    assert_refused_with(19, RECORDS_AT + 11, 0);              /* an operation that is none */
    assert_refused_with(19, RECORDS_AT + 11 + 49, 0x80);      /* a time below 0 */
    assert_refused_with(19, RECORDS_AT + 11 + 13, 0x80);      /* a step below 0 */
    assert_refused_with(10, INCARNATION_AT, 1);               /* a host is no process */
    assert_refused_with(11, FL_AGENT_HEADER_BYTES, 3);        /* no kind of news */
    assert_refused_with(11, FL_AGENT_HEADER_BYTES, 2);        /* a loss with a grace time */
    assert_refused_with(11, FL_AGENT_HEADER_BYTES + 7, 1);    /* 2 million years */
    assert_refused_with(11, FL_AGENT_HEADER_BYTES + 9, 1);    /* a notice after silence */
    assert_refused_with(12, FL_AGENT_HEADER_BYTES + 17, 99);  /* a text that is not there */
    assert_refused_with(13, FL_AGENT_HEADER_BYTES, 2);        /* neither true nor false */
    assert_refused_with(22, FL_AGENT_HEADER_BYTES, 0);        /* a question without a number */
    assert_refused_with(22, FL_AGENT_HEADER_BYTES + 11, 9);   /* a trial of two days */
    assert_refused_with(23, FL_AGENT_HEADER_BYTES + 21, 65);  /* more than an answer names */
    assert_refused_with(25, FL_AGENT_HEADER_BYTES + 6, 2);    /* neither true nor false */
}

/* What is accepted must be a frame that fl_agent_wire_put writes. */
static void test_agent_wire__takes_nothing_amiss_from_mutations(void **state)
{
    (void)state;
    const uint32_t key[2] = {0x5eed, 18};
    int n_accepted = 0;
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        unsigned char bytes[FL_AGENT_FRAME_MAX], again[FL_AGENT_FRAME_MAX];
        uint32_t r[4];
        fl_agent_frame back;
        fl_philox((uint32_t[4]){i, 0, 0, 0}, key, r);
        size_t n = fl_agent_wire_put(&frames[r[0] % N_FRAMES], bytes);
        bytes[r[1] % n] = (unsigned char)r[2];
        bytes[r[3] % n] ^= (unsigned char)(1u << r[2] % 7);
        if (fl_agent_wire_get(bytes, n, &back) == FL_OK) {
            n_accepted++;
            assert_int_equal(fl_agent_wire_put(&back, again), n);
            assert_memory_equal(again, bytes, n);
        }
    }
    assert_in_range(n_accepted, 1, MUTATIONS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agent_wire__brings_back_every_frame),
        cmocka_unit_test(test_agent_wire__holds_the_largest_birth),
        cmocka_unit_test(test_agent_wire__holds_the_largest_flight),
        cmocka_unit_test(test_agent_wire__refuses_every_cut_and_every_extra_byte),
        cmocka_unit_test(test_agent_wire__refuses_what_is_out_of_range),
        cmocka_unit_test(test_agent_wire__takes_nothing_amiss_from_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
