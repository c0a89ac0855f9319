/* Would catch: hosts of one kind that count as two because they have more GPUs or list them in
 * another order, and a job for GPUs that compares processors. */
#include "device/machine/machine_kind.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void add_gpu(const char *root, const char *bus, const char *model)
{
    char path[512];
    static const char *const parts[] = {"/proc", "/proc/driver", "/proc/driver/nvidia",
                                        "/proc/driver/nvidia/gpus"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        (void)mkdir(path, 0700); /* it may be there */
    }
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/%s", root, bus);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/information");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "Model: \t\t %s\nIRQ:   \t\t 40\n", model);
    fclose(file);
}

static void test_machine_kind__names_each_kind_of_gpu_once(void **state)
{
    (void)state;
    char root[FOLDER_SIZE];
    fl_machine_kind kind;
    make_folder(root);
    fl_machine_kind_read(root, &kind);
    assert_string_equal(kind.gpus, "");
    assert_true(kind.processor[0] != '\0');
    assert_ptr_equal(fl_machine_kind_of(&kind, FL_DEVICE_CUDA), kind.processor);
    add_gpu(root, "0000:01:00.0", "NVIDIA H100 80GB HBM3");
    add_gpu(root, "0000:02:00.0", "NVIDIA A100-SXM4-80GB");
    add_gpu(root, "0000:03:00.0", "NVIDIA H100 80GB HBM3");
    fl_machine_kind_read(root, &kind);
    assert_string_equal(kind.gpus, "NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3");
    assert_ptr_equal(fl_machine_kind_of(&kind, FL_DEVICE_CUDA), kind.gpus);
    assert_ptr_equal(fl_machine_kind_of(&kind, FL_DEVICE_CPU), kind.processor);
    assert_int_equal(remove_folder(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine_kind__names_each_kind_of_gpu_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
