/* The memory of a worker that loads or saves: its device's budget, and beside it one tensor, or the
 * buffer that docs/checkpoints.md states. The kernel counts it, in processes of their own. */
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include "device/async/async.h"
#include "nn/model.h"
#include "support/data/saved_state.h"
#include "support/folder.h"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1024 * 1024, SLACK_BYTES = 4 * MIB, STEP = 1 };

static fl_model *model;
static char folder[FOLDER_SIZE];
static fl_checkpoint_store store;
static saved_run run; /* large */
static saved_truth truth;
static int64_t state_bytes, largest_bytes;

/* 6.4 million parameters, 77 MB with their moments; the largest tensor has 4 MiB. */
static int set_up(void **state)
{
    (void)state;
    const fl_vit_config config = {.channels = 3,
                                  .height = 32,
                                  .width = 32,
                                  .patch = 4,
                                  .dim = 512,
                                  .heads = 8,
                                  .blocks = 2,
                                  .n_classes = 10};
    make_folder(folder);
    if (fl_model_vit(&config, &model) != FL_OK ||
        fl_checkpoint_store_open(AT_FDCWD, folder, &store) != FL_OK) {
        return -1;
    }
    truth = (saved_truth){.model = model, .version = 1};
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        const fl_param_list *list = fl_model_params(model, layer);
        for (int i = 0; i < list->n; i++) {
            int64_t bytes = list->spec[i].rows * list->spec[i].cols * (int64_t)sizeof(float);
            largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
            state_bytes += bytes * (1 + SAVED_MOMENTS);
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fl_checkpoint_store_close(&store);
    fl_model_destroy(&model);
    return remove_folder(folder);
}

/* "VmRSS" or "VmHWM" of this process, bytes. */
static int64_t memory_of(const char *what)
{
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && kib < 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, what, strlen(what)) == 0) {
            sscanf(line + strlen(what) + 1, "%lld", &kib);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib * 1024;
}

/* From here on VmHWM counts anew. */
static int64_t begin_count(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    bool good = fd >= 0 && write(fd, "5", 1) == 1;
    close(fd);
    return good ? memory_of("VmRSS") : -1;
}

static bool stays_below(const char *what, int64_t before, int64_t allowed)
{
    int64_t taken = memory_of("VmHWM") - before;
    printf("%s: %lld bytes, allowed %lld\n", what, (long long)taken, (long long)allowed);
    fflush(stdout);
    return taken <= allowed + SLACK_BYTES;
}

static fl_device *open_device(bool async)
{
    const fl_async_options options = {.n_threads = 1, .budget_bytes = (size_t)1 << 30, .seed = 5};
    fl_device *device = NULL;
    assert_int_equal(async ? fl_device_async_create(&options, &device)
                           : fl_device_cpu_create(1, NULL, (size_t)1 << 30, &device),
                     FL_OK);
    return device;
}

/* Save twice. */
static bool save(fl_device *device)
{
    fl_plan plan = saved_plan(model, 0, 1, 1, 1);
    fl_state_source source = saved_truth_source(&truth);
    saved_run_open(&run, model, device, &store, &plan, -1, 0, &source);
    int64_t before = begin_count();
    saved_run_save(&run, STEP);
    saved_run_save(&run, STEP + 1);
    bool good = before >= 0 && stays_below("saving", before, state_bytes);
    good = good && fl_checkpoint_writer_bytes(run.worker[0].writer) < state_bytes + MIB / 2;
    saved_check(&run, STEP + 1, &source);
    saved_run_close(&run);
    return good;
}

/* What the device holds is counted by itself: weights, moments and gradients. */
static bool load(fl_device *device)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_source saved;
    fl_params params;
    int fd = openat(store.dir_fd, fl_checkpoint_folder_name(STEP, name), O_RDONLY);
    fl_state_source source = fl_checkpoint_source_open(model, fd, SAVED_MOMENTS, &saved);
    const fl_params_options o = {.device = device,
                                 .model = model,
                                 .last = fl_model_n_layers(model),
                                 .n_moments = SAVED_MOMENTS,
                                 .source = &source};
    int64_t before = begin_count();
    bool good = before >= 0 && fl_params_init(&params, &o) == FL_OK;
    good = good && stays_below("loading", before, (int64_t)device->peak_bytes + largest_bytes);
    fl_params_fini(&params);
    fl_checkpoint_source_close(&saved);
    close(fd);
    return good;
}

/* In a process of its own: what another test has taken does not count, and is not taken again. */
static void run_alone(bool (*part)(fl_device *device), bool async)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
#ifdef __GLIBC__
        mallopt(M_MMAP_THRESHOLD, 128 * 1024); /* as a worker does */
#endif
        fl_device *device = open_device(async);
        bool good = part(device);
        fl_device_destroy(&device);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Would catch: a second copy of the state. */
static void test_checkpoint_memory__is_one_buffer_to_save_and_one_tensor_to_load(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer takes memory of its own */
#endif
    run_alone(save, false);
    run_alone(load, false);
}

/* The same where the host cannot write into the device's memory. */
static void test_checkpoint_memory__is_the_same_beside_another_device(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    char name[FL_CHECKPOINT_NAME_MAX];
    char path[200];
    for (int64_t step = STEP; step <= STEP + 1; step++) {
        snprintf(path, sizeof path, "%s/%s", folder, fl_checkpoint_folder_name(step, name));
        remove_folder(path);
    }
    run_alone(save, true);
    run_alone(load, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_memory__is_one_buffer_to_save_and_one_tensor_to_load),
        cmocka_unit_test(test_checkpoint_memory__is_the_same_beside_another_device),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
