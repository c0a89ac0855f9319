/* What a run finds out before it starts a worker: which plugin, which devices. Catches a machine
 * that cannot run the job and is not refused with one line that names the reason, a plugin that
 * brings down the program, and a parent process that has touched CUDA itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cuda/cuda.h"
#include "device/errors/failure.h"
#include "device/machine/survey.h"
#include "device/system/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STANDIN FL_BINARY_DIR "/tests/cuda_standin.so"

enum { GIB = 1 << 30 };

static fl_device_survey found;

static void use_plugin(const char *path, const char *options)
{
    assert_int_equal(setenv("FROSTLINE_CUDA_PLUGIN", path, 1), 0);
    assert_int_equal(setenv("FROSTLINE_STANDIN", options, 1), 0);
}

static fl_status survey(int n_workers)
{
    const fl_device_demand demand = {
        .kind = FL_DEVICE_CUDA, .n_workers = n_workers, .budget_bytes = 2 * (size_t)GIB};
    return fl_device_survey_make(&demand, &found);
}

/* The run may grow to three workers, of which two would share a device. */
static void test_survey__names_the_field_that_asks_for_the_workers(void **state)
{
    (void)state;
    const fl_device_demand demand = {.kind = FL_DEVICE_CUDA,
                                     .n_workers = 3,
                                     .count_field = "devices.max",
                                     .budget_bytes = 2 * (size_t)GIB};
    use_plugin(STANDIN, "devices=2,mode=3");
    assert_int_equal(fl_device_survey_make(&demand, &found), FL_ENOTSUP);
    assert_string_equal(fl_failure_field(0), "devices.max");
}

static bool is_loaded(const char *file)
{
    char line[4096];
    bool any = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        any = any || strstr(line, file) != NULL;
    }
    fclose(maps);
    return any;
}

static void test_survey__finds_the_devices_and_keeps_this_process_clean(void **state)
{
    (void)state;
    char text[FL_SURVEY_TEXT_BYTES];
    use_plugin(STANDIN, "devices=2");
    if (survey(3) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    assert_int_equal(found.n, 2);
    assert_string_equal(found.device[1].name, "Stand-in");
    assert_string_equal(fl_device_survey_line(&found, 3, text),
                        "3 workers on 2 x Stand-in, worker w on GPU w % 2");
    assert_false(is_loaded("cuda_standin.so"));
    assert_int_equal(survey(1), FL_OK);
    assert_string_equal(fl_device_survey_line(&found, 1, text), "1 worker on 1 x Stand-in");
    assert_int_equal(survey(0), FL_OK); /* as many workers as devices */
    assert_int_equal(found.n, 2);
}

typedef struct refusal {
    const char *options;
    int n_workers;
    const char *field, *line;
} refusal;

static const refusal refusals[] = {
    {"count_code=35", 1, "devices.kind",
     "devices.kind: no NVIDIA driver, or one too old for this build's CUDA: CUDA driver version is "
     "insufficient for CUDA runtime version (CUDA error 35)"},
    {"count_code=100", 1, "devices.kind",
     "devices.kind: no CUDA device can be used: no CUDA-capable device is detected (CUDA error "
     "100)"},
    {"devices=0", 1, "devices.kind",
     "devices.kind: no CUDA device can be used: no CUDA-capable device is detected (CUDA error "
     "100)"},
    {"describe_code=46,mode=3", 1, "devices.kind",
     "devices.kind: CUDA device 0 (Stand-in, compute capability 9.0): another process uses it "
     "alone "
     "(exclusive mode): CUDA-capable device(s) is/are busy or unavailable (CUDA error 46)"},
    {"describe_code=2", 1, "devices.kind",
     "devices.kind: CUDA device 0 (Stand-in, compute capability 9.0): it has no memory left for "
     "another process: out of memory (CUDA error 2)"},
    {"describe_code=209", 1, "devices.kind",
     "devices.kind: CUDA device 0 (Stand-in, compute capability 9.0): this build of the plugin has "
     "no kernels for its compute capability: no kernel image is available for execution on the "
     "device (CUDA error 209)"},
    {"fail=describe_device:1:999", 1, "devices.kind",
     "devices.kind: CUDA device 0: it cannot be used: another error (CUDA error 999)"},
    {"devices=2,fail=describe_device:2:999", 2, "devices.kind",
     "devices.kind: CUDA device 1: it cannot be used: another error (CUDA error 999)"},
    {"mode=2", 1, "devices.kind",
     "devices.kind: CUDA device 0 (Stand-in, compute capability 9.0): no process may use it "
     "(compute mode prohibited); `nvidia-smi -c 0` allows it"},
    {"devices=2,mode=3", 3, "devices.count",
     "devices.count: CUDA device 0 (Stand-in, compute capability 9.0): 2 workers would share it, "
     "but it is in exclusive mode; allowed: one worker for each device, or `nvidia-smi -c 0` "
     "first"},
    {"memory=5368709120", 3, "devices.memory",
     "devices.memory: 3 workers of 2.0 GiB each, and 1.5 GiB for their workspaces and processes, "
     "but 5.0 GiB of 5.0 GiB are free on CUDA device 0 (Stand-in, compute capability 9.0)"},
    {"die=9", 1, "devices.kind",
     "devices.kind: the process that looked for CUDA devices with " STANDIN
     " was killed by signal 9 (Killed)"},
};

static void test_survey__refuses_each_bad_surrounding_with_one_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        use_plugin(STANDIN, r->options);
        assert_int_equal(survey(r->n_workers), FL_ENOTSUP);
        assert_string_equal(fl_errmsg(), r->line);
        assert_string_equal(fl_failure_field(0), r->field);
    }
}

/* One worker for each device in exclusive mode is fine, and so is a budget that just fits. */
static void test_survey__takes_what_just_fits(void **state)
{
    (void)state;
    use_plugin(STANDIN, "devices=2,mode=3");
    assert_int_equal(survey(2), FL_OK);
    /* Of a GPU: two budgets of 2 GiB, two times 168 MiB beside them, and a second process: 4,944
     * MiB. */
    use_plugin(STANDIN, "devices=2,memory=5184159744");
    assert_int_equal(survey(4), FL_OK);
    assert_int_equal(survey(5), FL_ENOTSUP);
    use_plugin(STANDIN, "devices=2,memory=5184159743");
    assert_int_equal(survey(2), FL_OK);
    assert_int_equal(survey(4), FL_ENOTSUP);
}

static void refused(const char *plugin, const char *line)
{
    use_plugin(plugin, "");
    assert_int_equal(survey(1), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), line);
}

static void test_survey__refuses_a_file_that_is_no_plugin(void **state)
{
    (void)state;
    char line[400];
    refused(
        "/proc/nowhere/plugin.so",
        "devices.kind: FROSTLINE_CUDA_PLUGIN: /proc/nowhere/plugin.so: No such file or directory");
    refused("no-such-plugin.so",
            "devices.kind: FROSTLINE_CUDA_PLUGIN: no-such-plugin.so: No such file or directory");
    refused(FL_SOURCE_DIR "/LICENSE",
            "devices.kind: the CUDA plugin cannot be loaded: " FL_SOURCE_DIR
            "/LICENSE: invalid ELF header");
    refused(FL_BINARY_DIR "/tests/plugin_empty.so",
            "devices.kind: " FL_BINARY_DIR "/tests/plugin_empty.so is no CUDA plugin of Frostline: "
            "it does not export fl_cuda_plugin_table");
    snprintf(line, sizeof line,
             "devices.kind: the plugin was built for version %d of the CUDA plugin interface (%zu "
             "bytes); this program has version %d (%zu bytes)",
             FL_CUDA_PLUGIN_VERSION + 1, sizeof(fl_cuda_plugin) + 8, FL_CUDA_PLUGIN_VERSION,
             sizeof(fl_cuda_plugin));
    refused(FL_BINARY_DIR "/tests/plugin_cuda_newer.so", line);
}

static void test_survey__does_not_wait_for_a_pipe(void **state)
{
    (void)state;
    char path[] = "/tmp/frostline-plugin-XXXXXX", line[200];
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(line, sizeof line, "devices.kind: FROSTLINE_CUDA_PLUGIN: %s: not a regular file",
             path);
    refused(path, line);
    assert_int_equal(unlink(path), 0);
}

static void test_survey__refuses_a_name_that_no_line_can_hold(void **state)
{
    (void)state;
    static char name[5001];
    memset(name, 'x', sizeof name - 1);
    refused(name, "devices.kind: FROSTLINE_CUDA_PLUGIN: 5000 characters; allowed: up to 700");
    refused("a\nb.so", "devices.kind: FROSTLINE_CUDA_PLUGIN: character 2 is a control character");
    refused("a\xc2\x9b"
            "b.so",
            "devices.kind: FROSTLINE_CUDA_PLUGIN: character 2 is a control character");
}

/* The machine of an ELF file stands in its bytes 18 and 19. */
static void test_survey__tells_a_damaged_file_from_a_missing_one(void **state)
{
    (void)state;
    static char data[1 << 20];
    char path[] = "/tmp/frostline-plugin-XXXXXX";
    FILE *from = fopen(FL_BINARY_DIR "/tests/plugin_empty.so", "rb");
    assert_non_null(from);
    size_t n = fread(data, 1, sizeof data, from);
    fclose(from);
    int file = mkstemp(path);
    assert_true(file >= 0);
    char machine = data[18];
    data[18] = (char)(machine ^ 0x16);
    assert_int_equal(write(file, data, n), n);
    use_plugin(path, "");
    assert_int_equal(survey(1), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), path));
    assert_non_null(strstr(fl_errmsg(), "; the file exists: it is for another machine"));
    data[18] = machine;
    assert_int_equal(pwrite(file, data, n, 0), n);
    /* Each linker lays a file out in its own way: what is missing is read, or written, or neither.
     */
    for (size_t left = n - n % 1024; left > 0; left -= 1024) {
        assert_int_equal(ftruncate(file, (off_t)left), 0);
        assert_int_equal(survey(1), FL_ENOTSUP);
        assert_non_null(strstr(fl_errmsg(), path));
    }
    close(file);
    assert_int_equal(unlink(path), 0);
}

/* Beside the program (this test), then in the library folder of an installation. */
static void test_survey__looks_beside_the_program_then_where_it_is_installed(void **state)
{
    (void)state;
    char folder[4000], beside[4096];
    assert_int_equal(fl_program_folder(folder, sizeof folder), FL_OK);
    snprintf(beside, sizeof beside, "%s/libfrostline_cuda.so", folder);
    unlink(beside);
    use_plugin("", "");
    assert_int_equal(survey(1), FL_ENOTSUP);
    if (strstr(fl_errmsg(), "devices.kind: the CUDA plugin was not found: neither ") == NULL ||
        strstr(fl_errmsg(), beside) == NULL || strstr(fl_errmsg(), "/lib") == NULL) {
        fail_msg("%s", fl_errmsg());
    }
    assert_int_equal(symlink(STANDIN, beside), 0);
    fl_status status = survey(1);
    assert_int_equal(unlink(beside), 0);
    if (status != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survey__finds_the_devices_and_keeps_this_process_clean),
        cmocka_unit_test(test_survey__names_the_field_that_asks_for_the_workers),
        cmocka_unit_test(test_survey__refuses_each_bad_surrounding_with_one_line),
        cmocka_unit_test(test_survey__takes_what_just_fits),
        cmocka_unit_test(test_survey__refuses_a_file_that_is_no_plugin),
        cmocka_unit_test(test_survey__does_not_wait_for_a_pipe),
        cmocka_unit_test(test_survey__refuses_a_name_that_no_line_can_hold),
        cmocka_unit_test(test_survey__tells_a_damaged_file_from_a_missing_one),
        cmocka_unit_test(test_survey__looks_beside_the_program_then_where_it_is_installed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
