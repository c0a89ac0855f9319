/* NCCL on one device, by the very calls that the program makes: on the stand-ins, or with
 * FL_TEST_GPU on a GPU and the system's library. One rank opens, sums, registers, and sums in a
 * graph that is launched twice and ends before its communicator. An opening whose other rank never
 * comes is aborted in time. */
#include "autodp/nccl/library.h"
#include "device/cuda/cuda.h"
#include "device/system/clock.h"
#include "device/system/thread.h"
#include "support/device/cuda_plugin.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 20000, OPEN_MS = 60000, STUCK_MS = 300 };

typedef struct rig {
    fl_device *d;
    fl_stream *stream;
    fl_nccl nccl;
    fl_nccl_handle comm;
    fl_native native;
    float *data;
    float host[N];
} rig;

static rig r;

static void open_rig(void)
{
    const fl_cuda_plugin *plugin;
    use_cuda("devices=1");
    if (on_gpu()) {
        assert_int_equal(unsetenv("FROSTLINE_NCCL"), 0);
    } else {
        assert_int_equal(setenv("FROSTLINE_NCCL", FL_BINARY_DIR "/tests/nccl_standin.so", 1), 0);
        assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", "streams=none", 1), 0);
    }
    memset(&r, 0, sizeof r);
    if (fl_nccl_load(&r.nccl) != FL_OK) {
        print_message("skipped: %s\n", fl_errmsg());
        skip();
    }
    assert_int_equal(fl_cuda_plugin_find(&plugin), FL_OK);
    const fl_cuda_options options = {.plugin = plugin, .budget_bytes = (size_t)8 << 20};
    assert_int_equal(fl_device_cuda_create(&options, &r.d), FL_OK);
    assert_int_equal(r.d->ops->stream_create(r.d, &r.stream), FL_OK);
    assert_int_equal(r.d->ops->stream_native(r.d, r.stream, &r.native), FL_OK);
    assert_int_equal(r.d->ops->memory_take(r.d, sizeof r.host, (void **)&r.data), FL_OK);
}

static void close_rig(void)
{
    r.d->ops->memory_give(r.d, r.data, sizeof r.host);
    r.d->ops->stream_destroy(r.d, &r.stream);
    fl_device_destroy(&r.d);
}

/* What the last call of the communicator comes to within so many milliseconds. */
static fl_nccl_result poll_for(int64_t timeout_ms)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    int64_t until_us = fl_deadline_us(timeout_ms);
    while (result == FL_NCCL_IN_PROGRESS && fl_now_us() < until_us) {
        assert_int_equal(r.nccl.CommGetAsyncError(r.comm, &result), FL_NCCL_SUCCESS);
    }
    return result;
}

static void end_call(fl_nccl_result result)
{
    assert_true(result == FL_NCCL_SUCCESS || result == FL_NCCL_IN_PROGRESS);
    assert_int_equal(poll_for(OPEN_MS), FL_NCCL_SUCCESS);
}

static void open_communicator(int n_ranks)
{
    fl_nccl_config config = FL_NCCL_CONFIG_INIT;
    fl_nccl_id id;
    assert_int_equal(r.nccl.GetUniqueId(&id), FL_NCCL_SUCCESS);
    fl_nccl_result result = r.nccl.CommInitRankConfig(&r.comm, n_ranks, id, 0, &config);
    assert_true(result == FL_NCCL_SUCCESS || result == FL_NCCL_IN_PROGRESS);
}

static void sum_once(void)
{
    end_call(
        r.nccl.AllReduce(r.data, r.data, N, FL_NCCL_FLOAT32, FL_NCCL_SUM, r.comm, r.native.stream));
}

static void write_values(float first)
{
    for (int i = 0; i < N; i++) {
        r.host[i] = first + (float)i;
    }
    assert_int_equal(r.d->ops->copy_in(r.d, r.stream, r.data, r.host, sizeof r.host), FL_OK);
    assert_int_equal(r.d->ops->sync(r.d, r.stream), FL_OK);
}

/* Of one rank, a sum is its own values. */
static void check_values(float first)
{
    assert_int_equal(r.d->ops->copy_out(r.d, r.stream, r.host, r.data, sizeof r.host), FL_OK);
    assert_int_equal(r.d->ops->sync(r.d, r.stream), FL_OK);
    for (int i = 0; i < N; i++) {
        assert_true(r.host[i] == first + (float)i);
    }
}

static void launch_twice(void)
{
    fl_graph *graph = NULL;
    assert_int_equal(r.d->ops->capture_begin(r.d, r.stream), FL_OK);
    sum_once();
    assert_int_equal(r.d->ops->capture_end(r.d, r.stream, &graph), FL_OK);
    for (int i = 0; i < 2; i++) {
        write_values((float)(10 + i));
        assert_int_equal(r.d->ops->graph_launch(r.d, r.stream, graph), FL_OK);
        check_values((float)(10 + i));
    }
    r.d->ops->graph_destroy(r.d, &graph);
}

static void test_nccl_device__one_rank_sums_and_ends(void **state)
{
    (void)state;
    void *handle = NULL;
    open_rig();
    open_communicator(1);
    end_call(FL_NCCL_IN_PROGRESS);
    write_values(3);
    sum_once();
    check_values(3);
    bool registers = r.nccl.CommRegister != NULL && r.native.registers;
    if (registers) {
        assert_int_equal(r.nccl.CommRegister(r.comm, r.data, sizeof r.host, &handle),
                         FL_NCCL_SUCCESS);
    }
    launch_twice();
    if (registers) {
        assert_int_equal(r.nccl.CommDeregister(r.comm, handle), FL_NCCL_SUCCESS);
    }
    end_call(r.nccl.CommFinalize(r.comm));
    fl_nccl_result result = r.nccl.CommDestroy(r.comm);
    assert_true(result == FL_NCCL_SUCCESS || result == FL_NCCL_IN_PROGRESS);
    close_rig();
}

static void *abort_comm(void *unused)
{
    fl_native native;
    (void)unused;
    if (r.d->ops->stream_native(r.d, NULL, &native) == FL_OK) { /* the thread's device */
        r.nccl.CommAbort(r.comm);
    }
    return NULL;
}

static void test_nccl_device__an_opening_that_never_ends_is_aborted(void **state)
{
    (void)state;
    pthread_t thread;
    open_rig();
    open_communicator(2);
    assert_int_equal(poll_for(STUCK_MS), FL_NCCL_IN_PROGRESS);
    int64_t begun_us = fl_now_us();
    assert_int_equal(fl_thread_start(&thread, abort_comm, NULL, "an abort"), FL_OK);
    pthread_join(thread, NULL);
    print_message("ncclCommAbort took %.1f ms\n", (double)(fl_now_us() - begun_us) * 1e-3);
    write_values(5); /* the device still works */
    check_values(5);
    close_rig();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_device__one_rank_sums_and_ends),
        cmocka_unit_test(test_nccl_device__an_opening_that_never_ends_is_aborted),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
