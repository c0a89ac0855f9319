/* The CUDA device over a stand-in for the runtime. Catches a call whose error is lost, memory,
 * streams and events that a failure leaves behind, a workspace that is too small or in use when it
 * grows, and a machine or plugin that cannot do the job and is not refused with a line that names
 * the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/cuda_device.h"
#include "support/device/kernel_cases.h"
#include "tests/shim/standin.h"

#include "device/system/alloc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the contract of a device ---- */

static void test_cuda_device__has_memory_streams_and_events(void **state)
{
    (void)state;
    fl_device *d = device_of(standin_plugin());
    fl_stream *s = NULL;
    fl_event *begun = NULL, *done = NULL;
    void *memory = NULL, *host = NULL;
    char back[8] = "xxxxxxx";
    fl_native native, other;
    bool reached = false;
    double us = 0.0;
    assert_int_equal(fl_device_ops_check(d->ops), FL_OK);
    assert_false(d->ops->host_memory);
    assert_int_equal(d->ops->stream_create(d, &s), FL_OK);
    assert_int_equal(d->ops->event_create(d, &begun), FL_OK);
    assert_int_equal(d->ops->event_create(d, &done), FL_OK);
    assert_int_equal(fl_device_alloc(d, 16, "text", &memory), FL_OK);
    assert_int_equal(d->ops->host_take(d, 8, &host), FL_OK);
    assert_memory_equal(host, "\0\0\0\0\0\0\0", 8);
    assert_int_equal(d->ops->copy_out(d, NULL, back, memory, 8), FL_OK);
    assert_memory_equal(back, "\0\0\0\0\0\0\0", 8); /* cleared, though a GPU's memory is not */
    memcpy(host, "frost", 6);
    assert_int_equal(d->ops->event_record(d, begun, s), FL_OK);
    assert_int_equal(d->ops->copy_in(d, s, memory, host, 8), FL_OK);
    assert_int_equal(d->ops->event_record(d, done, s), FL_OK);
    assert_int_equal(d->ops->stream_wait(d, NULL, done), FL_OK);
    assert_int_equal(d->ops->copy(d, NULL, (char *)memory + 8, memory, 8), FL_OK);
    assert_int_equal(d->ops->copy_out(d, NULL, back, (char *)memory + 8, 8), FL_OK);
    assert_int_equal(d->ops->event_wait(d, done), FL_OK);
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
    assert_string_equal(back, "frost");
    standin_refuse_pageable(1);
    assert_int_equal(d->ops->copy_out(d, NULL, back, memory, 8), FL_EFAILED);
    assert_int_equal(d->ops->host_pin(d, back, sizeof back, false), FL_OK);
    assert_int_equal(d->ops->copy_out(d, NULL, back, memory, 8), FL_OK);
    d->ops->host_unpin(d, back);
    assert_int_equal(d->ops->copy_out(d, NULL, back, memory, 8), FL_EFAILED);
    standin_refuse_pageable(0);
    assert_int_equal(d->ops->event_reached(d, done, &reached), FL_OK);
    assert_true(reached);
    assert_int_equal(d->ops->stream_native(d, s, &native), FL_OK);
    assert_int_equal(d->ops->stream_native(d, NULL, &other), FL_OK);
    assert_ptr_not_equal(native.stream, other.stream);
    assert_true(native.hardware != 0 && native.hardware == other.hardware);
    assert_int_equal(d->ops->event_elapsed(d, begun, done, &us), FL_OK);
    assert_true(us == 1000.0); /* the stand-in counts a millisecond for each event */
    d->ops->host_give(d, host, 8);
    fl_device_free(d, memory, 16);
    d->ops->event_destroy(d, &begun);
    d->ops->event_destroy(d, &done);
    d->ops->stream_destroy(d, &s);
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

static void test_cuda_device__counts_workspaces_outside_the_budget(void **state)
{
    (void)state;
    fl_device *d = device_of(standin_plugin());
    unsigned char *out = NULL;
    size_t size = 0;
    for (int i = 0; kernel_case_at(i) != NULL; i++) {
        assert_int_equal(kernel_case_run(kernel_case_at(i), d, NULL, &out, &size), FL_OK);
        fl_free(out);
    }
    assert_int_equal(d->used_bytes, 0);
    assert_true(d->workspace_bytes > 0); /* losses and norms need one */
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

static void test_cuda_device__refuses_what_it_has_no_kernel_for(void **state)
{
    (void)state;
    fl_device *d = device_of(standin_plugin());
    fl_weight w = {0};
    const fl_linear_args linear = {.dtype = FL_I32, .w = &w};
    const fl_add_args add = {.dtype = FL_I32};
    const fl_attention_args attention = {.heads = 2, .width = 258};
    assert_int_equal(d->ops->linear(d, NULL, &linear), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), "device cuda: linear has no kernel for int32");
    assert_int_equal(d->ops->add(d, NULL, &add), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), "device cuda: add has no kernel for int32");
    assert_int_equal(d->ops->attention(d, NULL, &attention), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), "device cuda: attention has heads of 129 columns, allowed are "
                                     "at most 128");
    fl_device_destroy(&d);
}

/* ---- failures ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

/* Whether use_all runs a kernel: the one that fails, or one that needs a workspace. */
static bool runs(const char *kernel, const char *entry)
{
    static const char *const products[] = {"multiply", "column_sums", "library_multiply", NULL};
    return strcmp(kernel, entry) == 0 || strcmp(kernel, "cross_entropy") == 0 ||
           (strncmp(kernel, "linear", 6) == 0 && is_one_of(entry, products));
}

/* Memory that others may read, and a look at it. */
static fl_status use_export(fl_device *d)
{
    void *memory = NULL;
    fl_shared *shared = NULL;
    fl_shared_view view = {0};
    FL_TRY(d->ops->memory_export(d, 8, &memory, &shared));
    const fl_shared_key key = fl_shared_key_of(shared);
    fl_status status = d->ops->view_open(d, getpid(), &key, 8, &view);
    d->ops->view_close(d, &view);
    d->ops->memory_give(d, memory, 8);
    fl_shared_destroy(&shared);
    return status;
}

static fl_status capture_zeros(fl_device *d, fl_stream *s, void *memory, fl_graph **graph)
{
    FL_TRY(d->ops->capture_begin(d, s));
    fl_status status = d->ops->fill_zero(d, s, memory, 8);
    fl_status ended = d->ops->capture_end(d, s, graph);
    return status == FL_OK ? ended : status;
}

/* A graph, and one that takes its place. */
static fl_status use_graph(fl_device *d, fl_stream *s, void *memory)
{
    fl_graph *graph = NULL;
    fl_status status = capture_zeros(d, s, memory, &graph);
    status = status == FL_OK ? capture_zeros(d, s, memory, &graph) : status;
    status = status == FL_OK ? d->ops->graph_launch(d, s, graph) : status;
    d->ops->graph_destroy(d, &graph);
    return status;
}

static fl_status use_algorithms(fl_device *d)
{
    char *text = NULL;
    int n = 0;
    FL_TRY(fl_cuda_algorithms_save(d, &text));
    fl_status status = fl_cuda_algorithms_load(d, text, &n);
    fl_free(text);
    return status;
}

static fl_status use_pin(fl_device *d)
{
    static char memory[8];
    FL_TRY(d->ops->host_pin(d, memory, sizeof memory, false));
    d->ops->host_unpin(d, memory);
    return FL_OK;
}

/* Everything that a device can be asked for but most kernels, until something fails; then all is
 * given back. entry: of the plugin's table, that a test makes fail */
static fl_status use_all(const fl_cuda_plugin *plugin, const char *entry)
{
    fl_device *d = NULL;
    fl_stream *s = NULL;
    fl_event *e = NULL;
    void *memory = NULL, *host = NULL;
    fl_native native;
    bool reached;
    double us;
    fl_device_survey devices;
    const fl_device_demand demand = {
        .kind = FL_DEVICE_CUDA, .n_workers = 1, .budget_bytes = CUDA_BUDGET};
    FL_TRY(fl_cuda_survey(plugin, &demand, &devices));
    const fl_cuda_options options = {.plugin = plugin,
                                     .budget_bytes = CUDA_BUDGET,
                                     .products = strcmp(entry, "multiply") == 0
                                                     ? FL_CUDA_PRODUCTS_EXACT
                                                     : FL_CUDA_PRODUCTS_LIBRARY};
    FL_TRY(fl_device_cuda_create(&options, &d));
    fl_status status = d->ops->stream_create(d, &s);
    status = status == FL_OK ? d->ops->event_create(d, &e) : status;
    status = status == FL_OK ? fl_device_alloc(d, 8, "memory", &memory) : status;
    status = status == FL_OK ? d->ops->host_take(d, 8, &host) : status;
    status = status == FL_OK ? d->ops->copy_in(d, s, memory, host, 8) : status;
    status = status == FL_OK ? d->ops->event_record(d, e, s) : status;
    status = status == FL_OK ? d->ops->event_wait(d, e) : status;
    status = status == FL_OK ? d->ops->stream_wait(d, NULL, e) : status;
    status = status == FL_OK ? d->ops->event_elapsed(d, e, e, &us) : status;
    status = status == FL_OK ? d->ops->event_reached(d, e, &reached) : status;
    status = status == FL_OK ? d->ops->stream_native(d, s, &native) : status;
    status = status == FL_OK ? d->ops->copy_out(d, s, host, memory, 8) : status;
    status = status == FL_OK ? d->ops->sync(d, s) : status;
    for (int i = 0; status == FL_OK && kernel_case_at(i) != NULL; i++) {
        unsigned char *out = NULL;
        size_t size = 0;
        if (runs(kernel_case_at(i)->kernel, entry)) {
            status = kernel_case_run(kernel_case_at(i), d, s, &out, &size);
        }
        if (out != NULL) {
            fl_free(out);
        }
    }
    status = status == FL_OK ? use_algorithms(d) : status;
    status = status == FL_OK ? use_export(d) : status;
    status = status == FL_OK ? use_pin(d) : status;
    status = status == FL_OK ? use_graph(d, s, memory) : status;
    if (host != NULL) {
        d->ops->host_give(d, host, 8);
    }
    fl_device_free(d, memory, 8);
    fl_device_event_destroy(d, &e);
    d->ops->stream_destroy(d, &s);
    fl_device_destroy(&d);
    return status;
}

static void test_cuda_device__passes_on_the_failure_of_every_call(void **state)
{
    (void)state;
    enum { CODE = 999 };
    for (int i = 0; standin_entry(i) != NULL; i++) {
        const char *entry = standin_entry(i);
        const fl_cuda_plugin *plugin = standin_plugin();
        standin_fail(entry, 1, CODE);
        fl_status status = use_all(plugin, entry);
        bool gives = strstr(entry, "_give") != NULL || strstr(entry, "_destroy") != NULL ||
                     strstr(entry, "_close") != NULL || strcmp(entry, "host_unpin") == 0 ||
                     strcmp(entry, "device_wait") == 0 ||
                     strcmp(entry, "memory_free") == 0 || /* then nothing was measured */
                     strcmp(entry, "graph_nodes") == 0 ||
                     strcmp(entry, "numa_node") == 0 || /* then the node, or a link, is unknown */
                     strcmp(entry, "find_nvlink") == 0 ||
                     strcmp(entry, "graph_update") == 0; /* a graph of its own does as well */
        char named[96];
        snprintf(named, sizeof named, "%s: another error (CUDA error %d)", entry, CODE);
        if (gives ? status != FL_OK : status == FL_OK) {
            fail_msg("%s: %s", entry, gives ? fl_errmsg() : "its failure was lost");
        }
        bool counts = strcmp(entry, "count_devices") == 0;
        bool describes = strcmp(entry, "describe_device") == 0 ||
                         strcmp(entry, "driver_version") == 0; /* the survey's own messages */
        if (!gives && !counts && !describes && strstr(fl_errmsg(), named) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", fl_errmsg(), named);
        }
        assert_int_equal(standin_outstanding(), 0);
    }
}

/* Early and late calls of those that several others make. */
static void test_cuda_device__leaves_nothing_behind_whichever_call_fails(void **state)
{
    (void)state;
    static const char *const entries[] = {"choose_device", "pool_take",   "stream_create",
                                          "copy",          "stream_wait", "fill_zero"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        for (int n = 1; n < 60; n += n) {
            const fl_cuda_plugin *plugin = standin_plugin();
            standin_fail(entries[i], n, FL_CUDA_OUT_OF_MEMORY);
            fl_status status = use_all(plugin, entries[i]);
            assert_true(status == FL_OK || status == FL_ENOMEM);
            assert_int_equal(standin_outstanding(), 0);
        }
    }
}

static void test_cuda_device__keeps_failing_once_a_kernel_went_wrong(void **state)
{
    (void)state;
    fl_device *d = device_of(standin_plugin());
    float x[4] = {0};
    const fl_add_args add = {.a = x, .b = x, .y = x, .n = 4}; /* no device memory */
    assert_int_equal(d->ops->add(d, NULL, &add), FL_EFAILED);
    if (strstr(fl_errmsg(), "device cuda 0: add: launch at passes.cu:") == NULL ||
        strstr(fl_errmsg(), "out of bounds: it reads 4 bytes at ") == NULL ||
        strstr(fl_errmsg(), " (CUDA error 719)") == NULL) {
        fail_msg("%s", fl_errmsg());
    }
    assert_int_equal(d->ops->sync(d, NULL), FL_EFAILED);
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

/* ---- machines and plugins that cannot do the job ---- */

/* Which devices workers would use, of three of them. */
static void test_cuda_survey__deals_workers_to_devices_in_turn(void **state)
{
    (void)state;
    static const int n_workers[] = {1, 2, 3, 7, 0}, n_used[] = {1, 2, 3, 3, 3};
    /* Three workers: budgets, 168 MiB beside each, the processes of the further two. */
    const size_t memory_bytes = 3 * (300 + ((size_t)168 << 20)) + 2 * ((size_t)512 << 20);
    const fl_cuda_plugin *plugin = standin_plugin();
    standin_set_devices(3, 0);
    standin_set_memory(memory_bytes);
    for (size_t i = 0; i < sizeof n_used / sizeof *n_used; i++) {
        fl_device_survey devices;
        fl_device_demand demand = {
            .kind = FL_DEVICE_CUDA, .n_workers = n_workers[i], .budget_bytes = 300};
        assert_int_equal(fl_cuda_survey(plugin, &demand, &devices), FL_OK);
        assert_int_equal(devices.n, n_used[i]);
        assert_string_equal(devices.device[0].name, "Stand-in");
        assert_int_equal(devices.device[0].memory_bytes, memory_bytes);
        assert_int_equal(fl_device_survey_number(&devices, 5), 5 % n_used[i]);
    }
}

static void refused(const fl_cuda_plugin *plugin, const char *line)
{
    int n = -1;
    assert_int_equal(fl_cuda_check(plugin, &n), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), line);
    assert_int_equal(n, -1);
}

static void test_cuda_check__names_what_is_missing(void **state)
{
    (void)state;
    const fl_cuda_plugin *plugin = standin_plugin();
    int n = 0;
    fl_device *d = NULL;
    standin_set_devices(3, 0);
    assert_int_equal(fl_cuda_check(plugin, &n), FL_OK);
    assert_int_equal(n, 3);
    const fl_cuda_options fourth = {.plugin = plugin, .number = 3, .budget_bytes = CUDA_BUDGET};
    assert_int_equal(fl_device_cuda_create(&fourth, &d), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(),
                        "CUDA device 3 was asked for, but this machine has 3 CUDA devices");
    standin_set_devices(0, FL_CUDA_DRIVER_TOO_OLD);
    refused(plugin,
            "no NVIDIA driver, or one too old for this build's CUDA: CUDA driver version is "
            "insufficient for CUDA runtime version (CUDA error 35)");
    standin_set_devices(0, FL_CUDA_NO_DEVICE);
    refused(plugin,
            "no CUDA device can be used: no CUDA-capable device is detected (CUDA error 100)");
    standin_set_devices(0, 0);
    refused(plugin,
            "no CUDA device can be used: no CUDA-capable device is detected (CUDA error 100)");
}

static void test_cuda_check__refuses_a_plugin_of_another_version(void **state)
{
    (void)state;
    fl_cuda_plugin other = *standin_plugin();
    char line[200];
    other.version++;
    snprintf(line, sizeof line,
             "the plugin was built for version %d of the CUDA plugin interface (%zu bytes); this "
             "program has version %d (%zu bytes)",
             FL_CUDA_PLUGIN_VERSION + 1, sizeof other, FL_CUDA_PLUGIN_VERSION, sizeof other);
    refused(&other, line);
    other = *standin_plugin();
    other.memory_give = NULL;
    refused(&other, "plugin stand-in lacks function 11 of the CUDA plugin interface");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_device__has_memory_streams_and_events),
        cmocka_unit_test(test_cuda_device__counts_workspaces_outside_the_budget),
        cmocka_unit_test(test_cuda_device__refuses_what_it_has_no_kernel_for),
        cmocka_unit_test(test_cuda_device__passes_on_the_failure_of_every_call),
        cmocka_unit_test(test_cuda_device__leaves_nothing_behind_whichever_call_fails),
        cmocka_unit_test(test_cuda_device__keeps_failing_once_a_kernel_went_wrong),
        cmocka_unit_test(test_cuda_survey__deals_workers_to_devices_in_turn),
        cmocka_unit_test(test_cuda_check__names_what_is_missing),
        cmocka_unit_test(test_cuda_check__refuses_a_plugin_of_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
