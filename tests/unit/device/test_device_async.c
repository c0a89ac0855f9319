/* The asynchronous test device. Catches a device that would hide what it is for: work that is done
 * when the call returns, memory that the host can touch, a copy whose buffer may be used again too
 * early, and streams that wait for each other by themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/machine/survey.h"
#include "device/system/alloc.h"
#include "support/device/async_device.h"
#include "support/device/kernel_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ---- */

/* Each copy reads what the one before it wrote. */
static void test_stream__runs_its_work_in_order(void **state)
{
    (void)state;
    enum { STEPS = 600 }; /* more than a queue holds */
    fl_device *d = async_device_with(&(fl_async_options){.max_delay_us = 50, .seed = 5});
    fl_stream *s = NULL;
    int32_t *memory = async_memory(d, (STEPS + 1) * sizeof *memory), first = 77, last = 0;
    assert_int_equal(d->ops->stream_create(d, &s), FL_OK);
    assert_int_equal(d->ops->copy_in(d, s, memory, &first, sizeof first), FL_OK);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(d->ops->copy(d, s, memory + i + 1, memory + i, sizeof first), FL_OK);
    }
    assert_int_equal(d->ops->copy_out(d, s, &last, memory + STEPS, sizeof last), FL_OK);
    assert_int_equal(d->ops->sync(d, s), FL_OK);
    assert_int_equal(last, 77);
    d->ops->stream_destroy(d, &s);
    fl_device_free(d, memory, (STEPS + 1) * sizeof *memory);
    fl_device_destroy(&d);
}

/* Would catch: a device on which a forgotten wait does no harm. */
static void test_copy_out__is_garbage_until_it_was_waited_for(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    float *memory = async_memory(d, sizeof *memory), value = 3.0f;
    assert_int_equal(d->ops->fill_zero(d, NULL, memory, sizeof value), FL_OK);
    fl_device_async_hold(d, true);
    assert_int_equal(d->ops->copy_out(d, NULL, &value, memory, sizeof value), FL_OK);
    assert_true(isnan(value));
    fl_device_async_hold(d, false);
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
    assert_true(value == 0.0f);
    fl_device_free(d, memory, sizeof *memory);
    fl_device_destroy(&d);
}

/* Would catch: a caller that fills its staging memory again before the copy has read it. */
static void test_copy_in__finds_memory_that_changed_too_early(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    char *memory = async_memory(d, 16), *pinned = NULL;
    assert_int_equal(d->ops->host_take(d, 16, (void **)&pinned), FL_OK);
    assert_int_equal((uintptr_t)pinned % 64, 0);
    memcpy(pinned, "frost", 6);
    fl_device_async_hold(d, true);
    assert_int_equal(d->ops->copy_in(d, NULL, memory, pinned, 16), FL_OK);
    memcpy(pinned, "thaw", 5);
    fl_device_async_hold(d, false);
    assert_int_equal(d->ops->sync(d, NULL), FL_EINTERNAL);
    assert_non_null(strstr(fl_errmsg(), "the host changed the 16 bytes"));
    d->ops->host_give(d, pinned, 16);
    fl_device_free(d, memory, 16);
    fl_device_destroy(&d);
}

/* In the order of a stream, a buffer may be used again without the host: no finding. */
static void test_copies__of_one_stream_may_use_one_buffer(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){.max_delay_us = 20});
    char *memory = async_memory(d, 32), host[16] = "frost", back[16] = "";
    fl_device_async_hold(d, true);
    assert_int_equal(d->ops->copy_in(d, NULL, memory, host, 16), FL_OK);
    assert_int_equal(d->ops->fill_zero(d, NULL, memory + 16, 16), FL_OK);
    assert_int_equal(d->ops->copy_out(d, NULL, host, memory + 16, 16), FL_OK);
    assert_int_equal(d->ops->copy_in(d, NULL, memory + 16, host, 16), FL_OK);
    assert_int_equal(d->ops->copy_out(d, NULL, back, memory, 16), FL_OK);
    fl_device_async_hold(d, false);
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
    assert_string_equal(back, "frost");
    assert_int_equal(host[0], 0);
    fl_device_free(d, memory, 32);
    fl_device_destroy(&d);
}

/* ---- events ---- */

/* A value goes back and forth between two streams, ordered by events alone. */
static void test_events__order_streams(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    fl_device *d = async_device_with(&(fl_async_options){.max_delay_us = 50, .seed = 9});
    fl_stream *s[2] = {NULL, NULL};
    fl_event *done[2] = {NULL, NULL};
    int32_t *memory = async_memory(d, (ROUNDS + 1) * sizeof *memory), first = 42, last = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d->ops->stream_create(d, &s[i]), FL_OK);
        assert_int_equal(d->ops->event_create(d, &done[i]), FL_OK);
    }
    assert_int_equal(d->ops->copy_in(d, s[0], memory, &first, sizeof first), FL_OK);
    for (int i = 0; i < ROUNDS; i++) {
        int now = i % 2;
        assert_int_equal(d->ops->stream_wait(d, s[now], done[1 - now]), FL_OK);
        assert_int_equal(d->ops->copy(d, s[now], memory + i + 1, memory + i, sizeof first), FL_OK);
        assert_int_equal(d->ops->event_record(d, done[now], s[now]), FL_OK);
    }
    assert_int_equal(d->ops->event_wait(d, done[(ROUNDS - 1) % 2]), FL_OK);
    assert_int_equal(d->ops->copy_out(d, s[0], &last, memory + ROUNDS, sizeof last), FL_OK);
    assert_int_equal(d->ops->sync(d, s[0]), FL_OK);
    assert_int_equal(last, 42);
    for (int i = 0; i < 2; i++) {
        d->ops->stream_destroy(d, &s[i]);
        d->ops->event_destroy(d, &done[i]);
    }
    fl_device_free(d, memory, (ROUNDS + 1) * sizeof *memory);
    fl_device_destroy(&d);
}

static void test_events__measure_time(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){.max_delay_us = 2000, .seed = 1});
    fl_event *begun = NULL, *ended = NULL;
    double us = -1.0;
    char *memory = async_memory(d, 16);
    assert_int_equal(d->ops->event_create(d, &begun), FL_OK);
    assert_int_equal(d->ops->event_create(d, &ended), FL_OK);
    assert_int_equal(d->ops->event_elapsed(d, begun, ended, &us), FL_EINVAL);
    assert_int_equal(d->ops->event_record(d, begun, NULL), FL_OK);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(d->ops->fill_zero(d, NULL, memory, 16), FL_OK);
    }
    assert_int_equal(d->ops->event_record(d, ended, NULL), FL_OK);
    assert_int_equal(d->ops->event_wait(d, ended), FL_OK);
    assert_int_equal(d->ops->event_elapsed(d, begun, ended, &us), FL_OK);
    assert_true(us >= 2000.0); /* ten delays of 1,000 us on average */
    d->ops->event_destroy(d, &begun);
    d->ops->event_destroy(d, &ended);
    fl_device_free(d, memory, 16);
    fl_device_destroy(&d);
}

/* An event may go before the work that names it. */
static void test_events__may_be_destroyed_early(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    fl_event *e = NULL;
    assert_int_equal(d->ops->event_create(d, &e), FL_OK);
    fl_device_async_hold(d, true);
    assert_int_equal(d->ops->event_record(d, e, NULL), FL_OK);
    d->ops->event_destroy(d, &e);
    assert_null(e);
    fl_device_async_hold(d, false);
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
    fl_device_destroy(&d);
}

/* ---- memory ---- */

static void test_memory__keeps_the_budget_and_runs_out(void **state)
{
    (void)state;
    fl_device *d =
        async_device_with(&(fl_async_options){.memory_bytes = 1000, .budget_bytes = 2000});
    void *a = async_memory(d, 900), *b = NULL;
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal(fl_device_alloc(d, 1101, "moments", &b), FL_EBUDGET);
    assert_int_equal(fl_device_alloc(d, 101, "moments", &b), FL_ENOMEM);
    assert_string_equal(fl_errmsg(),
                        "device async-test: out of memory: 101 bytes asked, 900 of 1000 in use");
    assert_int_equal(d->used_bytes, 900);
    assert_int_equal(fl_device_reserve(d, 101, &b), FL_ENOMEM);
    assert_null(b);
    fl_device_free(d, a, 900);
    b = async_memory(d, 1000);
    fl_device_free(d, b, 1000);
    assert_int_equal(d->used_bytes, 0);
    fl_device_destroy(&d);
}

/* Memory is cleared, also where other memory was before. */
static void test_memory__is_cleared(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    char host[64], back[64];
    memset(host, 1, sizeof host);
    for (int i = 0; i < 3; i++) {
        void *memory = async_memory(d, 64);
        assert_int_equal(d->ops->copy_out(d, NULL, back, memory, 64), FL_OK);
        assert_int_equal(d->ops->copy_in(d, NULL, memory, host, 64), FL_OK);
        assert_int_equal(d->ops->sync(d, NULL), FL_OK);
        for (int j = 0; j < 64; j++) {
            assert_int_equal(back[j], 0);
        }
        fl_device_free(d, memory, 64);
    }
    fl_device_destroy(&d);
}

static void test_pointers__of_the_wrong_memory_are_refused(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    float host[4] = {0}, *memory = async_memory(d, sizeof host), *gone = async_memory(d, 16);
    const fl_add_args add = {.a = memory, .b = host, .y = memory, .n = 4};
    fl_device_free(d, gone, 16);
    assert_int_equal(d->ops->add(d, NULL, &add), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "device async-test: add: `b` at "));
    assert_non_null(strstr(fl_errmsg(), "is no memory of this device"));
    assert_int_equal(d->ops->copy(d, NULL, memory, host, 16), FL_EINVAL);
    assert_int_equal(d->ops->copy_in(d, NULL, memory, memory, 16), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "is device memory, expected the host's"));
    assert_int_equal(d->ops->fill_zero(d, NULL, memory, 17), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "ends before the last of its bytes"));
    assert_int_equal(d->ops->fill_zero(d, NULL, gone, 16), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "was not allocated or was given back"));
    assert_int_equal(d->ops->sync(d, NULL), FL_OK); /* a call that was refused does no harm */
    fl_device_free(d, memory, sizeof host);
    fl_device_destroy(&d);
}

/* Offsets that were not uploaded are wrong on every GPU, though the host's are right. */
static void test_offsets__must_be_on_the_device(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    const int32_t offsets[2] = {0, 1};
    const int64_t id = 4;
    float *memory = async_memory(d, 16);
    const fl_dropout_args a = {.in = memory,
                               .offsets = {offsets, NULL, 1},
                               .width = 4,
                               .mask = {.p = 0.5f, .sample_ids = &id},
                               .y = memory};
    assert_int_equal(d->ops->dropout(d, NULL, &a), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "dropout: `offsets` is in host memory only"));
    fl_device_free(d, memory, 16);
    fl_device_destroy(&d);
}

/* ---- work of a library ---- */

typedef struct library_call {
    int n; /* calls so far */
} library_call;

static void add_one(void *call, void *to, const void *from)
{
    *(float *)to = *(const float *)from + 1.0f;
    ((library_call *)call)->n++;
}

/* Would catch: work of a library that overtakes the stream's, or runs on memory of the host. */
static void test_native__work_runs_in_the_order_of_the_stream(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){.max_delay_us = 200});
    fl_stream *s = NULL;
    fl_event *done = NULL;
    float *memory, value = 3.0f;
    bool reached = true;
    library_call call = {0};
    fl_native native, again;
    assert_int_equal(FL_OK, d->ops->stream_create(d, &s));
    assert_int_equal(FL_OK, d->ops->event_create(d, &done));
    memory = async_memory(d, 64);
    assert_int_equal(FL_OK, d->ops->stream_native(d, s, &native));
    assert_int_equal(FL_OK, d->ops->stream_native(d, NULL, &again));
    assert_true(native.hardware != 0 && native.hardware == again.hardware);
    assert_ptr_not_equal(native.stream, again.stream);
    fl_async_native *stream = native.stream;
    fl_device_async_hold(d, true);
    assert_int_equal(FL_OK, d->ops->copy_in(d, s, memory, &value, sizeof value));
    assert_int_equal(stream->queue(stream, memory, memory, sizeof value, add_one, &call), 0);
    assert_int_equal(stream->queue(stream, memory, memory, sizeof value, add_one, &call), 0);
    assert_int_equal(stream->queue(stream, memory, memory, 65, add_one, &call), -1);
    assert_int_equal(stream->queue(stream, &value, memory, 4, add_one, &call), -1);
    assert_int_equal(FL_OK, d->ops->event_record(d, done, s));
    assert_int_equal(FL_OK, d->ops->event_reached(d, done, &reached));
    assert_false(reached);
    fl_device_async_hold(d, false);
    assert_int_equal(FL_OK, d->ops->event_wait(d, done));
    assert_int_equal(FL_OK, d->ops->event_reached(d, done, &reached));
    assert_true(reached);
    assert_int_equal(FL_OK, d->ops->copy_out(d, s, &value, memory, sizeof value));
    assert_int_equal(FL_OK, d->ops->sync(d, s));
    assert_true(value == 5.0f);
    assert_int_equal(call.n, 2);
    fl_device_free(d, memory, 64);
    d->ops->event_destroy(d, &done);
    d->ops->stream_destroy(d, &s);
    fl_device_destroy(&d);
}

/* ---- kernels ---- */

/* Every kernel, once on each device, on one and on two threads: the same bits. Would catch a
 * pointer that is not translated, an argument that is read too late, and stream threads that treat
 * denormals otherwise than the CPU's. */
static void test_kernels__give_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        fl_device *cpu = NULL, *d = NULL;
        const fl_async_options o = {
            .n_threads = n_threads, .budget_bytes = ASYNC_BUDGET, .max_delay_us = 20};
        assert_int_equal(fl_device_async_create(&o, &d), FL_OK);
        for (int i = 0; kernel_case_at(i) != NULL; i++) {
            const kernel_case *c = kernel_case_at(i);
            unsigned char *want = NULL, *got = NULL;
            size_t n = 0, m = 0;
            assert_int_equal(fl_device_cpu_create(n_threads, NULL, ASYNC_BUDGET, &cpu), FL_OK);
            if (kernel_case_run(c, cpu, NULL, &want, &n) != FL_OK ||
                kernel_case_run(c, d, NULL, &got, &m) != FL_OK) {
                fail_msg("%s: %s", c->kernel, fl_errmsg());
            }
            if (want == NULL || got == NULL || n != m || memcmp(want, got, n) != 0) {
                fail_msg("%s differs from the CPU's", c->kernel);
            }
            fl_free(want);
            fl_free(got);
            fl_device_destroy(&cpu);
        }
        fl_device_destroy(&d);
    }
}

/* ---- options ---- */

static void test_options__are_read_and_refused(void **state)
{
    (void)state;
    fl_async_options o = {.max_delay_us = 100};
    static const struct {
        const char *text, *say;
    } bad[] = {
        {"seed", "found 'seed', expected KEY=VALUE"},
        {"seed=-1", "seed: found '-1', allowed is a whole number"},
        {"delay_us=100001", "delay_us: found 100001, at most 100000 are allowed"},
        {"speed=1", "found 'speed', allowed: seed, delay_us, memory, fail, fail_later"},
        {"fail=nothing:1", "fail: no entry of the device table that can fail is called 'nothing'"},
        {"fail=copy_in:x", "fail: found 'x', allowed is a whole number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fl_async_options_read(bad[i].text, &o), FL_EINVAL);
        assert_non_null(strstr(fl_errmsg(), "FROSTLINE_ASYNC_TEST: "));
        assert_non_null(strstr(fl_errmsg(), bad[i].say));
    }
    assert_int_equal(
        fl_async_options_read("seed=7,delay_us=0,memory=64000,fail_later=copy_in:3", &o), FL_OK);
    assert_int_equal(o.seed, 7);
    assert_int_equal(o.max_delay_us, 0);
    assert_int_equal(o.memory_bytes, 64000);
    assert_string_equal(o.fault.entry, "copy_in");
    assert_int_equal(o.fault.n, 3);
    assert_true(o.fault.later);
    fl_device *d = NULL;
    o = (fl_async_options){.n_threads = 1, .fault = {"sync", 1, true}};
    assert_int_equal(fl_device_async_create(&o, &d), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "sync cannot fail later: it queues no work");
    assert_null(d);
    o = (fl_async_options){.n_threads = 1, .isa = "nothing"};
    assert_int_equal(fl_device_async_create(&o, &d), FL_ENOTSUP);
    assert_null(d);
}

static void test_open__reads_the_environment(void **state)
{
    (void)state;
    fl_device *d = NULL;
    void *memory = NULL;
    const fl_device_options o = {
        .kind = FL_DEVICE_ASYNC_TEST, .n_threads = 1, .budget_bytes = ASYNC_BUDGET};
    assert_int_equal(setenv("FROSTLINE_ASYNC_TEST", "memory=100,delay_us=0", 1), 0);
    assert_int_equal(fl_device_open(&o, &d), FL_OK);
    assert_string_equal(d->ops->kind, "async-test");
    assert_int_equal(fl_device_alloc(d, 101, "memory", &memory), FL_ENOMEM);
    fl_device_destroy(&d);
    assert_int_equal(setenv("FROSTLINE_ASYNC_TEST", "nonsense", 1), 0);
    fl_device_survey devices;
    fl_device_demand demand = {.kind = FL_DEVICE_ASYNC_TEST, .n_workers = 2, .budget_bytes = 1};
    assert_int_equal(fl_device_survey_make(&demand, &devices), FL_EINVAL);
    demand.kind = FL_DEVICE_CPU;
    assert_int_equal(fl_device_survey_make(&demand, &devices), FL_OK);
    assert_int_equal(devices.n, 0);
    assert_int_equal(fl_device_open(&o, &d), FL_EINVAL);
    assert_null(d);
    assert_int_equal(unsetenv("FROSTLINE_ASYNC_TEST"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream__runs_its_work_in_order),
        cmocka_unit_test(test_copy_out__is_garbage_until_it_was_waited_for),
        cmocka_unit_test(test_copy_in__finds_memory_that_changed_too_early),
        cmocka_unit_test(test_copies__of_one_stream_may_use_one_buffer),
        cmocka_unit_test(test_events__order_streams),
        cmocka_unit_test(test_events__measure_time),
        cmocka_unit_test(test_events__may_be_destroyed_early),
        cmocka_unit_test(test_memory__keeps_the_budget_and_runs_out),
        cmocka_unit_test(test_memory__is_cleared),
        cmocka_unit_test(test_pointers__of_the_wrong_memory_are_refused),
        cmocka_unit_test(test_offsets__must_be_on_the_device),
        cmocka_unit_test(test_native__work_runs_in_the_order_of_the_stream),
        cmocka_unit_test(test_kernels__give_the_bits_of_the_cpu),
        cmocka_unit_test(test_options__are_read_and_refused),
        cmocka_unit_test(test_open__reads_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
