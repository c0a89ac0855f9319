/* The tables of a micro-batch: what the host fills in is what kernels find, on a device that
 * computes in host memory and on one that only gets copies, made as late as they may be. */
#include "device/alloc.h"
#include "pipe/cost/batch_tables.h"

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
    assert_int_equal(asked.n_waits, SAMPLES + 1);
    fl_batch_tables_fini(&t);
    d->ops = cpu;
    fl_device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables__lie_where_the_host_wrote_them),
        cmocka_unit_test(test_tables__come_to_the_device_in_one_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
