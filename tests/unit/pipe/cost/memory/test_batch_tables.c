/* The tables of a micro-batch: what the host fills in is what kernels find, on a device that
 * computes in host memory and on one that only gets copies, made as late as they may be. */
#include "device/async/async.h"
#include "device/system/alloc.h"
#include "pipe/cost/memory/batch_tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 5, BOUNDARIES = 3, TARGETS = 7, ON_DEVICE = 1024 };

static const fl_tables_size largest = {BOUNDARIES, SAMPLES, true, TARGETS};

/* The last copy that a device was asked for. */
static struct {
    void *to;
    const void *from;
    size_t n;
    int n_copies, n_waits;
} asked;

static void do_copy(void)
{
    if (asked.n > 0) {
        memcpy(asked.to, asked.from, asked.n);
        asked.n = 0;
    }
}

static fl_status copy_in(fl_device *d, fl_stream *s, void *to, const void *from, size_t n)
{
    (void)d, (void)s;
    assert_int_equal(asked.n, 0);
    asked.to = to;
    asked.from = from;
    asked.n = n;
    asked.n_copies++;
    return FL_OK;
}

static fl_status event_wait(fl_device *d, fl_event *e)
{
    (void)d, (void)e;
    asked.n_waits++;
    do_copy();
    return FL_OK;
}

/* Samples number i + 10 of i tokens at every boundary but the first, where each has one; n targets.
 */
static void fill(fl_batch_tables *t, int64_t n)
{
    assert_int_equal(fl_batch_tables_begin(t, n), FL_OK);
    t->target_offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        t->ids[i] = i + 10;
        t->target_offsets[i + 1] = (int32_t)i + 1;
        ((int32_t *)t->targets)[i] = (int32_t)(100 * n + i);
        for (int b = 0; b < BOUNDARIES; b++) {
            int32_t *offsets = fl_batch_tables_offsets(t, b);
            offsets[i + 1] = offsets[i] + (b == 0 ? 1 : (int32_t)i);
        }
    }
    assert_int_equal(fl_batch_tables_send(t, n), FL_OK);
}

static void check(const fl_batch_tables *t, int64_t n)
{
    const int64_t *ids = fl_mirror_at(&t->mirror, t->ids);
    const int32_t *target_offsets = fl_mirror_at(&t->mirror, t->target_offsets);
    const int32_t *targets = fl_mirror_at(&t->mirror, t->targets);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], i + 10);
        assert_int_equal(targets[i], 100 * n + i);
        assert_int_equal(target_offsets[i + 1], i + 1);
    }
    for (int b = 0; b < BOUNDARIES; b++) {
        const int32_t *offsets = fl_mirror_at(&t->mirror, fl_batch_tables_offsets(t, b));
        assert_int_equal(offsets[0], 0);
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(offsets[i + 1] - offsets[i], b == 0 ? 1 : i);
        }
    }
}

static void test_tables__lie_where_the_host_wrote_them(void **state)
{
    (void)state;
    fl_device *d = NULL;
    fl_batch_tables t;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &d), FL_OK);
    assert_int_equal(fl_mirror_device_bytes(d, fl_batch_tables_bytes(&largest)), 0);
    assert_int_equal(fl_batch_tables_init(&t, d, NULL, NULL, &largest), FL_OK);
    for (int64_t n = SAMPLES; n >= 0; n--) {
        fill(&t, n);
        assert_ptr_equal(fl_mirror_at(&t.mirror, t.ids), t.ids);
        check(&t, n);
    }
    fl_batch_tables_fini(&t);
    fl_device_destroy(&d);
}

/* Would catch: tables of the next micro-batch that are written over before these were copied,
 * several copies for one micro-batch, and tables that are larger than was counted. */
static void test_tables__come_to_the_device_in_one_copy(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char on_device[ON_DEVICE];
    fl_device *d = NULL;
    fl_batch_tables t;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &d), FL_OK);
    const fl_device_ops *cpu = d->ops;
    fl_device_ops ops = *cpu;
    ops.host_memory = false;
    ops.copy_in = copy_in;
    ops.event_wait = event_wait;
    d->ops = &ops;
    memset(&asked, 0, sizeof asked);
    size_t bytes = fl_mirror_device_bytes(d, fl_batch_tables_bytes(&largest));
    assert_in_range(bytes, 1, ON_DEVICE);
    assert_int_equal(fl_batch_tables_init(&t, d, NULL, on_device, &largest), FL_OK);
    for (int64_t n = 0; n <= SAMPLES; n++) {
        fill(&t, n); /* waits for the copy of the micro-batch before */
        assert_int_equal(asked.n_copies, n + 1);
        assert_in_range(asked.n, 1, bytes);
        do_copy();
        check(&t, n);
    }
    assert_int_equal(asked.n_waits, SAMPLES); /* before the first, nothing was sent */
    fl_batch_tables_fini(&t);
    d->ops = cpu;
    fl_device_destroy(&d);
}

/* Would catch: a sending that waits for the device, a piece of host memory that is written before
 * its copy was made, and tables that are written over before the work on them was done. */
static void test_mirror__runs_ahead_of_the_device(void **state)
{
    (void)state;
    enum { AHEAD = 3, STEPS = 5, BYTES = 64 };
    fl_device *d = NULL;
    fl_stream *work = NULL, *copies = NULL;
    fl_mirror m;
    void *on_device = NULL;
    unsigned char *seen = NULL, back[STEPS * AHEAD * BYTES];
    const fl_async_options options = {
        .n_threads = 1, .budget_bytes = 1 << 20, .seed = 3, .max_delay_us = 200};
    assert_int_equal(fl_device_async_create(&options, &d), FL_OK);
    assert_int_equal(fl_mirror_ahead_device_bytes(d, BYTES), 2 * BYTES);
    assert_int_equal(fl_device_alloc(d, 2 * BYTES, "tables", &on_device), FL_OK);
    assert_int_equal(fl_device_alloc(d, sizeof back, "what was seen", (void **)&seen), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &work), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &copies), FL_OK);
    assert_int_equal(fl_mirror_init_ahead(&m, d, work, copies, on_device, BYTES, AHEAD), FL_OK);
    for (int i = 0; i < STEPS * AHEAD; i++) {
        if (i % AHEAD == 0) {
            fl_device_async_hold(d, true); /* a host that waits now waits for ever */
        }
        assert_int_equal(fl_mirror_begin(&m), FL_OK);
        memset(m.host, i + 1, BYTES);
        assert_int_equal(fl_mirror_send(&m, BYTES), FL_OK);
        assert_ptr_equal(fl_mirror_at(&m, m.host), on_device);
        assert_int_equal(d->ops->copy(d, work, seen + i * BYTES, on_device, BYTES), FL_OK);
        if (i % AHEAD == AHEAD - 1) {
            fl_device_async_hold(d, false);
            assert_int_equal(d->ops->sync(d, work), FL_OK);
            fl_mirror_settle(&m);
        }
    }
    assert_int_equal(d->ops->copy_out(d, work, back, seen, sizeof back), FL_OK);
    assert_int_equal(d->ops->sync(d, work), FL_OK);
    for (int i = 0; i < STEPS * AHEAD; i++) {
        assert_int_equal(back[i * BYTES], i + 1);
        assert_int_equal(back[i * BYTES + BYTES - 1], i + 1);
    }
    fl_mirror_fini(&m);
    d->ops->stream_destroy(d, &copies);
    d->ops->stream_destroy(d, &work);
    fl_device_free(d, seen, sizeof back);
    fl_device_free(d, on_device, 2 * BYTES);
    fl_device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables__lie_where_the_host_wrote_them),
        cmocka_unit_test(test_tables__come_to_the_device_in_one_copy),
        cmocka_unit_test(test_mirror__runs_ahead_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
