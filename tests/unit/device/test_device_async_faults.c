/* What goes wrong on the asynchronous test device. Catches misuse that it lets pass, failures that
 * get lost or stop a caller for ever, and things that are not given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/system/alloc.h"
#include "support/device/async_device.h"
#include "support/device/kernel_cases.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what ends the process ---- */

/* Run `body` in a process of its own: how it ended, and what it wrote to standard error. */
static int outcome_of(void (*body)(fl_device *d), char *text, size_t size_bytes)
{
    int ends[2], how = 0;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* not cmocka's */
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        fl_device *d = async_device_with(&(fl_async_options){0});
        body(d);
        fl_device_destroy(&d);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got = 1; got > 0 && n + 1 < size_bytes; n += got > 0 ? (size_t)got : 0) {
        got = read(ends[0], text + n, size_bytes - 1 - n);
    }
    text[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

static void touch_memory(fl_device *d)
{
    volatile char *memory = async_memory(d, 16);
    memory[3] = 1;
}

static void touch_memory_given_back(fl_device *d)
{
    volatile char *pinned = NULL;
    if (d->ops->host_take(d, 16, (void **)(uintptr_t)&pinned) == FL_OK) {
        d->ops->host_give(d, (void *)(uintptr_t)pinned, 16);
        pinned[3] = 1;
    }
}

static void overrun_memory(fl_device *d)
{
    float *memory = async_memory(d, 64);
    const fl_add_args add = {.a = memory, .b = memory, .y = memory, .n = 2000};
    if (d->ops->add(d, NULL, &add) == FL_OK) {
        (void)!d->ops->sync(d, NULL);
    }
}

static void leak_everything(fl_device *d)
{
    void *pinned;
    fl_stream *s;
    fl_event *e;
    async_memory(d, 16);
    assert_int_equal(d->ops->host_take(d, 24, &pinned), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &s), FL_OK);
    assert_int_equal(d->ops->event_create(d, &e), FL_OK);
}

typedef struct relay {
    fl_device *device;
    int from, to;
} relay;

/* Lets the work begin when something was said, and passes that on. */
static void *release_at_words(void *context)
{
    relay *r = context;
    char text[4096];
    for (ssize_t n; (n = read(r->from, text, sizeof text)) > 0;) {
        (void)!write(r->to, text, (size_t)n);
        fl_device_async_hold(r->device, false);
    }
    return NULL;
}

/* The work waits until the device has complained, and the device waits for the work. */
static void give_back_too_early(fl_device *d)
{
    float *memory = async_memory(d, 64);
    const fl_add_args add = {.a = memory, .b = memory, .y = memory, .n = 16};
    pthread_t thread;
    int ends[2];
    relay r = {.device = d, .to = dup(STDERR_FILENO)};
    assert_int_equal(pipe(ends), 0);
    r.from = ends[0];
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    assert_int_equal(pthread_create(&thread, NULL, release_at_words, &r), 0);
    fl_device_async_hold(d, true);
    assert_int_equal(d->ops->add(d, NULL, &add), FL_OK);
    alarm(20); /* a device that says nothing waits for ever */
    fl_device_free(d, memory, 64);
    dup2(r.to, STDERR_FILENO);
    pthread_join(thread, NULL);
}

static void test_misuse__ends_the_process_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        void (*body)(fl_device *d);
        const char *say[4];
    } cases[] = {
        {touch_memory, {"frostline: the host touched memory of device async-test at 0x"}},
        {touch_memory_given_back,
         {"frostline: the host touched pinned memory of device async-test at 0x"}},
        {overrun_memory,
         {"frostline: add touched memory of device async-test at 0x",
          ", which was not allocated or was given back"}},
        {leak_everything,
         {"device async-test: 1 allocations, 16 bytes in all, were not given back",
          "1 pieces of pinned memory, 24 bytes in all", "1 streams were not destroyed",
          "1 events were not destroyed"}},
        {give_back_too_early,
         {"device async-test: 64 bytes of memory were given back before add, which uses them, was "
          "done"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[16384];
        int how = outcome_of(cases[i].body, text, sizeof text);
        assert_false(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        for (int j = 0; j < 4 && cases[i].say[j] != NULL; j++) {
            if (strstr(text, cases[i].say[j]) == NULL) {
                fail_msg("case %zu says '%s'", i, text);
            }
        }
    }
}

/* ---- failures ---- */

/* What a caller of a device does, and how it ends: it leaves at the first failure, and gives back
 * everything. */
static fl_status use_device(fl_device *d)
{
    fl_stream *s = NULL;
    fl_event *e[2] = {NULL, NULL};
    void *memory = NULL, *later = NULL, *shared_memory = NULL, *host = NULL;
    fl_shared *shared = NULL;
    fl_native native;
    bool reached;
    double us;
    fl_status status = fl_device_alloc(d, 64, "memory", &memory);
#define GO_ON(call) status = status == FL_OK ? (call) : status
    GO_ON(fl_device_reserve(d, 64, &later));
    GO_ON(fl_device_share(d, 64, &shared_memory, &shared));
    GO_ON(d->ops->host_take(d, 64, &host));
    GO_ON(d->ops->stream_create(d, &s));
    GO_ON(d->ops->event_create(d, &e[0]));
    GO_ON(d->ops->event_create(d, &e[1]));
    GO_ON(d->ops->event_record(d, e[0], s));
    GO_ON(d->ops->copy_in(d, s, memory, host, 64));
    GO_ON(d->ops->event_record(d, e[1], s));
    GO_ON(d->ops->stream_wait(d, NULL, e[1]));
    GO_ON(d->ops->copy(d, NULL, later, memory, 64));
    GO_ON(d->ops->fill_zero(d, NULL, memory, 64));
    GO_ON(d->ops->copy_out(d, NULL, host, later, 64));
    GO_ON(d->ops->event_wait(d, e[1]));
    GO_ON(d->ops->event_elapsed(d, e[0], e[1], &us));
    GO_ON(d->ops->event_reached(d, e[1], &reached));
    GO_ON(d->ops->stream_native(d, s, &native));
    for (int i = 0; status == FL_OK && kernel_case_at(i) != NULL; i++) {
        unsigned char *out = NULL;
        size_t size_bytes;
        status = kernel_case_run(kernel_case_at(i), d, s, &out, &size_bytes);
        fl_free(out);
    }
    GO_ON(d->ops->sync(d, NULL));
    GO_ON(d->ops->sync(d, s));
#undef GO_ON
    char failure[1024];
    snprintf(failure, sizeof failure, "%s", fl_errmsg());
    d->ops->stream_destroy(d, &s);
    (void)!d->ops->sync(d, NULL);
    d->ops->event_destroy(d, &e[0]);
    d->ops->event_destroy(d, &e[1]);
    if (host != NULL) {
        d->ops->host_give(d, host, 64);
    }
    fl_device_unshare(d, shared_memory, 64, &shared);
    fl_device_drop(d, later, 64);
    fl_device_free(d, memory, 64);
    return status == FL_OK ? FL_OK : fl_fail(status, "%s", failure);
}

static void walk_over_failures(bool later)
{
    const char *entry;
    bool queues;
    for (int i = 0; (entry = fl_async_entry(i, &queues)) != NULL; i++) {
        if (later && !queues) {
            continue;
        }
        for (uint64_t n = 1; n <= 2; n++) {
            fl_device *d = async_device_with(
                &(fl_async_options){.max_delay_us = 20, .fault = {entry, n, later}});
            fl_status status = use_device(d);
            bool reached = fl_device_async_calls(d, i) >= n;
            if (n == 1 && !reached) {
                fail_msg("%s is not used", entry);
            }
            if (status != (reached ? FL_EIO : FL_OK) ||
                (reached && strstr(fl_errmsg(), entry) == NULL)) {
                fail_msg("%s, call %d: status %d, '%s'", entry, (int)n, status, fl_errmsg());
            }
            assert_int_equal(d->used_bytes, 0);
            fl_device_destroy(&d); /* ends the process if something was not given back */
        }
    }
}

static void test_failures__of_every_call_reach_the_caller(void **state)
{
    (void)state;
    walk_over_failures(false);
}

/* Work that fails: a later call says so, and no event is waited for in vain. */
static void test_failures__of_queued_work_reach_the_caller(void **state)
{
    (void)state;
    walk_over_failures(true);
}

static void test_failure__of_queued_work_stays(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    char *memory = async_memory(d, 16), host[16] = "frost";
    void *more = NULL;
    fl_event *e = NULL;
    assert_int_equal(d->ops->event_create(d, &e), FL_OK);
    assert_int_equal(fl_device_async_fail(d, &(fl_async_fault){"copy_in", 2, true}), FL_OK);
    assert_int_equal(d->ops->copy_in(d, NULL, memory, host, 16), FL_OK);
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
    assert_int_equal(d->ops->copy_in(d, NULL, memory, host, 16), FL_OK);
    fl_status recorded = d->ops->event_record(d, e, NULL); /* it may know already */
    assert_true(recorded == FL_OK || recorded == FL_EIO);
    assert_int_equal(d->ops->event_wait(d, e), FL_EIO);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(d->ops->sync(d, NULL), FL_EIO);
        assert_string_equal(fl_errmsg(), "device async-test: the work of call 2 of copy_in failed, "
                                         "on request");
    }
    assert_int_equal(d->ops->fill_zero(d, NULL, memory, 16), FL_EIO);
    assert_int_equal(fl_device_alloc(d, 16, "more", &more), FL_EIO);
    d->ops->event_destroy(d, &e);
    fl_device_free(d, memory, 16);
    fl_device_destroy(&d);
}

/* A failed allocation at any place leaves nothing behind. */
static void test_create__survives_failing_allocations(void **state)
{
    (void)state;
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status == FL_ENOMEM; n++) {
        fl_device *d = NULL;
        fl_alloc_fail_at(n);
        status = fl_device_async_create(&(fl_async_options){.n_threads = 1}, &d);
        assert_true((d == NULL) == (status == FL_ENOMEM));
        n_failed += status == FL_ENOMEM ? 1 : 0;
        fl_device_destroy(&d);
    }
    fl_alloc_fail_at(0);
    assert_int_equal(status, FL_OK);
    assert_true(n_failed >= 3);
}

/* A step allocates nothing: neither does queued work. */
static void test_work__allocates_nothing(void **state)
{
    (void)state;
    fl_device *d = async_device_with(&(fl_async_options){0});
    char *memory = async_memory(d, 16);
    fl_event *e = NULL;
    assert_int_equal(d->ops->event_create(d, &e), FL_OK);
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < 300; i++) {
        assert_int_equal(d->ops->fill_zero(d, NULL, memory, 16), FL_OK);
        assert_int_equal(d->ops->event_record(d, e, NULL), FL_OK);
    }
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
    assert_int_equal(fl_alloc_count(), before);
    d->ops->event_destroy(d, &e);
    fl_device_free(d, memory, 16);
    fl_device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misuse__ends_the_process_with_its_reason),
        cmocka_unit_test(test_failures__of_every_call_reach_the_caller),
        cmocka_unit_test(test_failures__of_queued_work_reach_the_caller),
        cmocka_unit_test(test_failure__of_queued_work_stays),
        cmocka_unit_test(test_create__survives_failing_allocations),
        cmocka_unit_test(test_work__allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
