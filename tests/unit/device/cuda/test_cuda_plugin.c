/* The plugin as nvcc builds it, and files that are none. Catches a plugin that does not load, whose
 * table is not that of this program, and a machine without a GPU that is not refused with its
 * reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void test_plugin__that_is_no_file_is_refused(void **state)
{
    (void)state;
    const fl_cuda_plugin *plugin = NULL;
    assert_int_equal(fl_cuda_plugin_open("/nowhere/libfrostline_cuda.so", &plugin), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "the CUDA plugin cannot be loaded: /nowhere/"));
    assert_null(plugin);
}

static void test_plugin__without_a_table_is_refused(void **state)
{
    (void)state;
    const fl_cuda_plugin *plugin = NULL;
    assert_int_equal(fl_cuda_plugin_open(FL_BINARY_DIR "/tests/plugin_empty.so", &plugin),
                     FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(),
                           "plugin_empty.so is no CUDA plugin of Frostline: it does not "
                           "export fl_cuda_plugin_table"));
    assert_null(plugin);
}

/* With a GPU, the plugin and its device can be used; without one, the reason is named. */
static void test_plugin__of_nvcc_loads_and_looks_for_devices(void **state)
{
    (void)state;
    const char *path = FL_BINARY_DIR "/libfrostline_cuda.so";
    const char *of_check = FL_BINARY_DIR "/../cuda/libfrostline_cuda.so"; /* without a GPU */
    const fl_cuda_plugin *plugin = NULL;
    if (access(path, R_OK) != 0 && access(of_check, R_OK) == 0) {
        path = of_check;
    }
    if (access(path, R_OK) != 0) {
        print_message("skipped: there is no %s; `./check cuda` builds it where nvcc is found\n",
                      path);
        skip();
    }
    if (fl_cuda_plugin_open(path, &plugin) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    assert_string_equal(plugin->kind, "cuda");
    int n = 0;
    fl_status status = fl_cuda_check(plugin, &n);
    if (status == FL_OK) {
        fl_device *d = NULL;
        assert_int_equal(fl_device_cuda_create(
                             &(fl_cuda_options){.plugin = plugin, .budget_bytes = 1 << 20}, &d),
                         FL_OK);
        fl_device_destroy(&d);
        assert_int_equal(
            fl_device_cuda_create(&(fl_cuda_options){.plugin = plugin, .number = n}, &d),
            FL_ENOTSUP);
        assert_non_null(strstr(fl_errmsg(), " was asked for, but this machine has "));
    } else {
        assert_int_equal(status, FL_ENOTSUP);
        if (strstr(fl_errmsg(), "no NVIDIA driver, or one too old") == NULL &&
            strstr(fl_errmsg(), "no CUDA device can be used: ") == NULL) {
            fail_msg("%s", fl_errmsg());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plugin__that_is_no_file_is_refused),
        cmocka_unit_test(test_plugin__without_a_table_is_refused),
        cmocka_unit_test(test_plugin__of_nvcc_loads_and_looks_for_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
