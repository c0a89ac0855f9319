#include "support/device/cuda_plugin.h"

#include "device/machine/survey.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char standin[] = FL_BINARY_DIR "/tests/cuda_standin.so";

bool on_gpu(void)
{
    return getenv("FL_TEST_GPU") != NULL;
}

void use_standin(const char *options)
{
    if (on_gpu()) {
        print_message("skipped: only the stand-in for a GPU can do it\n");
        skip();
    }
    assert_int_equal(setenv("FROSTLINE_CUDA_PLUGIN", standin, 1), 0);
    assert_int_equal(setenv("FROSTLINE_STANDIN", options, 1), 0);
    /* The machine's own NCCL wants the streams of a GPU: without a name of another library, none.
     */
    assert_int_equal(setenv("FROSTLINE_NCCL", "no library", 0), 0);
}

void use_gpu(void)
{
    static fl_device_survey devices;
    const fl_device_demand demand = {
        .kind = FL_DEVICE_CUDA, .n_workers = 1, .budget_bytes = 64 << 20};
    assert_int_equal(setenv("FROSTLINE_CUDA_PLUGIN", FL_BINARY_DIR "/libfrostline_cuda.so", 1), 0);
    if (fl_device_survey_make(&demand, &devices) != FL_OK) {
        print_message("skipped: %s\n", fl_errmsg());
        skip();
    }
}

void use_cuda(const char *options)
{
    if (on_gpu()) {
        use_gpu();
    } else {
        use_standin(options);
    }
}

void fail_standin(const char *entry, int n, int code)
{
    void (*let_fail)(const char *entry, int n, int code);
    void *library = dlopen(standin, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library == NULL ? NULL : dlsym(library, "standin_fail");
    if (symbol == NULL) {
        abort(); /* in a worker: the run fails, and the test with it */
    }
    memcpy(&let_fail, &symbol, sizeof let_fail);
    let_fail(entry, n, code);
}
