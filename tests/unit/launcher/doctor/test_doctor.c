/* frostline doctor: what is judged from which facts, and what is printed. */
#include "launcher/doctor/checks/doctor.h"
#include "support/findings.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Would catch: a host on which nobody can tell what carries the data between hosts. */
static void test_doctor__names_what_encrypts_between_hosts(void **state)
{
    (void)state;
    fl_findings findings = {0};
    fl_doctor_look_at_program(&findings);
    assert_non_null(strstr(find_check(&findings, "libraries")->found, "OpenSSL 3."));
    assert_non_null(strstr(find_check(&findings, "libraries")->found, ", Gloo"));
    assert_non_null(strstr(find_check(&findings, "encryption")->found, "the kernel has"));
}

static void test_doctor__limits_that_are_too_low_are_named(void **state)
{
    (void)state;
    static const struct {
        uint64_t files, processes, n_threads;
        bool is_root;
        fl_verdict of_files, of_processes;
    } table[] = {
        {1024, 4096, 100, false, FL_VERDICT_OK, FL_VERDICT_OK},
        {1023, 4096, 100, false, FL_VERDICT_WARNING, FL_VERDICT_OK},
        {80, 4096, 100, false, FL_VERDICT_WARNING, FL_VERDICT_OK},
        {79, 4096, 100, false, FL_VERDICT_ERROR, FL_VERDICT_OK},
        {UINT64_MAX, UINT64_MAX, 100, false, FL_VERDICT_OK, FL_VERDICT_OK},
        {1024, 256, 100, false, FL_VERDICT_OK, FL_VERDICT_WARNING},
        {1024, 50, 100, false, FL_VERDICT_OK, FL_VERDICT_WARNING},
        {1024, 50, 100, true, FL_VERDICT_OK, FL_VERDICT_OK},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        fl_findings findings = {0};
        fl_doctor_limits limits = {.files = table[i].files,
                                   .files_most = table[i].files,
                                   .processes = table[i].processes,
                                   .locked_bytes = INT64_C(8) << 20,
                                   .n_threads = table[i].n_threads,
                                   .is_root = table[i].is_root};
        fl_doctor_judge_limits(&limits, &findings);
        assert_verdict(&findings, "files", table[i].of_files);
        assert_verdict(&findings, "processes", table[i].of_processes);
        assert_non_null(strstr(find_check(&findings, "locked")->found, "8.0 MiB (ulimit -l)"));
    }
}

static void test_doctor__a_clock_that_steps_goes_back_or_is_slow_is_named(void **state)
{
    (void)state;
    static const fl_doctor_clock good = {
        .read_ns = 30, .elapsed_us = 20000, .real_us = 20100, .now_s = 1790000000, .source = "tsc"};
    fl_doctor_clock clock = good;
    fl_findings findings = {0};
    fl_doctor_judge_clock(&clock, &findings);
    assert_verdict(&findings, "clock", FL_VERDICT_OK);
    assert_verdict(&findings, "date", FL_VERDICT_OK);
    assert_non_null(strstr(find_check(&findings, "date")->found, "those of several"));
    for (int sign = -1; sign <= 1; sign += 2) {
        findings.n = 0;
        clock.real_us = good.elapsed_us + sign * INT64_C(3000);
        fl_doctor_judge_clock(&clock, &findings);
        assert_verdict(&findings, "date", FL_VERDICT_WARNING);
    }
    findings.n = 0;
    clock = good;
    clock.now_s = 1000;
    clock.read_ns = 3000;
    fl_doctor_judge_clock(&clock, &findings);
    assert_verdict(&findings, "clock", FL_VERDICT_WARNING);
    assert_verdict(&findings, "date", FL_VERDICT_WARNING);
    findings.n = 0;
    clock.n_back = 1;
    fl_doctor_judge_clock(&clock, &findings);
    assert_verdict(&findings, "clock", FL_VERDICT_ERROR);
}

static void test_doctor__a_nearly_full_shm_is_named(void **state)
{
    (void)state;
    static const int64_t mib = INT64_C(1) << 20;
    fl_findings findings = {0};
    fl_doctor_judge_shm(4096 * mib, 64 * mib, &findings);
    assert_verdict(&findings, "/dev/shm", FL_VERDICT_OK);
    findings.n = 0;
    fl_doctor_judge_shm(4096 * mib, 31 * mib, &findings);
    assert_verdict(&findings, "/dev/shm", FL_VERDICT_WARNING);
    assert_non_null(strstr(findings.of[0].advice, "32.0 MiB"));
}

static void test_doctor__limits_of_a_control_group_and_little_memory_are_named(void **state)
{
    (void)state;
    static const int64_t gib = INT64_C(1) << 30;
    fl_host_limits machine = {.affinity = 8,
                              .processors = 8,
                              .memory_bytes = 16 * gib,
                              .total_bytes = 16 * gib,
                              .available_bytes = 8 * gib};
    fl_findings findings = {0};
    fl_doctor_judge_machine(&machine, 8, false, &findings);
    assert_verdict(&findings, "processors", FL_VERDICT_OK);
    assert_verdict(&findings, "memory", FL_VERDICT_OK);
    findings.n = 0;
    machine.quota = 1.5;
    machine.processors = 1;
    machine.memory_bytes = gib / 8;
    machine.available_bytes = gib / 8;
    fl_doctor_judge_machine(&machine, 8, false, &findings);
    assert_verdict(&findings, "processors", FL_VERDICT_WARNING);
    assert_verdict(&findings, "memory", FL_VERDICT_WARNING);
    assert_non_null(strstr(find_check(&findings, "processors")->found, "time of 1.5"));
    assert_non_null(strstr(find_check(&findings, "memory")->found, "allows 128 MiB"));
    findings.n = 0;
    fl_doctor_judge_machine(&machine, 8, true, &findings); /* the job's own check warns */
    assert_verdict(&findings, "processors", FL_VERDICT_OK);
    assert_non_null(strstr(find_check(&findings, "processors")->found, "time of 1.5"));

    findings.n = 0;
    fl_doctor_judge_memory(3 * gib, 2, 2 * gib, &findings);
    assert_verdict(&findings, "job memory", FL_VERDICT_ERROR);
    findings.n = 0;
    fl_doctor_judge_memory(3 * gib, 2, 3 * gib, &findings);
    assert_verdict(&findings, "job memory", FL_VERDICT_OK);
    findings.n = 0;
    fl_doctor_judge_memory(3 * gib, 2, 0, &findings);
    assert_verdict(&findings, "job memory", FL_VERDICT_OK);
}

/* The checks leave no file, and a folder that cannot be written is an error. */
static void test_doctor__folders_are_tried_and_left_empty(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE], below[128];
    fl_findings findings = {0};
    make_folder(folder);
    snprintf(below, sizeof below, "%s/a/b", folder);
    fl_doctor_look_at_folders(below, &findings);
    const fl_finding *runs = find_check(&findings, "runs");
    if (runs == NULL || strstr(runs->found, folder) == NULL) {
        fail_msg("it did not look at %s", folder);
    }
    assert_true(find_check(&findings, "runs")->verdict != FL_VERDICT_ERROR);
    assert_int_equal(rmdir(folder), 0); /* it fails if anything is left */
    findings.n = 0;
    fl_doctor_look_at_folders("/proc/frostline", &findings);
    assert_verdict(&findings, "runs", FL_VERDICT_ERROR);
}

/* Would catch: a folder that no run can make, called good, because a link that leads nowhere counts
 * as missing; and a file in place of a folder that is named by what would be below it. */
static void test_doctor__a_folder_that_cannot_be_made_is_named(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE], path[FOLDER_SIZE + 16], text[2 * FOLDER_SIZE + 80];
    fl_findings findings = {0};
    make_folder(folder);
    snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink("nowhere", path), 0);
    fl_doctor_look_at_folders(path, &findings);
    assert_verdict(&findings, "runs", FL_VERDICT_ERROR);
    snprintf(text, sizeof text, "%s: a symbolic link to nowhere, which does not exist", path);
    assert_string_equal(find_check(&findings, "runs")->found, text);
    assert_int_equal(unlink(path), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    findings.n = 0;
    snprintf(path, sizeof path, "%s/link/runs", folder);
    fl_doctor_look_at_folders(path, &findings);
    snprintf(text, sizeof text, "%s/link: Not a directory", folder);
    assert_string_equal(find_check(&findings, "runs")->found, text);
    assert_int_equal(remove_folder(folder), 0);
}

/* ---- NCCL, beside GPUs for which a plugin stands in ---- */

typedef struct nccl_case {
    const char *devices, *library, *options;
    fl_transport transport;
    fl_verdict verdict;
    const char *found;
} nccl_case;

static const char standin[] = FL_BINARY_DIR "/tests/nccl_standin.so";
static const nccl_case nccl_cases[] = {
    {"devices=2", standin, "", FL_TRANSPORT_NCCL, FL_VERDICT_OK, "2.28.9"},
    {"devices=2", "/nowhere/nccl.so", "", FL_TRANSPORT_NCCL, FL_VERDICT_ERROR,
     "NCCL cannot be loaded: /nowhere/nccl.so: "},
    {"devices=2", "/nowhere/nccl.so", "", FL_TRANSPORT_AUTO, FL_VERDICT_WARNING,
     "NCCL cannot be loaded: /nowhere/nccl.so: "},
    {"devices=1", "/nowhere/nccl.so", "", FL_TRANSPORT_AUTO, FL_VERDICT_OK,
     "NCCL cannot be loaded: /nowhere/nccl.so: "},
    {"devices=2", standin, "crash=Load:1", FL_TRANSPORT_AUTO, FL_VERDICT_WARNING,
     "was killed by signal 4 ("},
    {"devices=2,driver=12080", standin, "", FL_TRANSPORT_NCCL, FL_VERDICT_ERROR,
     "was built with CUDA 13.0, the driver runs CUDA up to 12.8"},
    {"devices=2", standin, "version=21703", FL_TRANSPORT_NCCL, FL_VERDICT_ERROR, "2.17.3"},
};

/* Would catch: a library that ends the program, one that the driver cannot run and that is found
 * good, and a job that cannot run and is told so by its workers. */
static void test_doctor__nccl_is_tried_as_a_run_does(void **state)
{
    (void)state;
    static const char plugin[] = FL_BINARY_DIR "/tests/cuda_standin.so";
    fl_job job = {.devices = {.kind = FL_DEVICE_CUDA}};
    if (access(plugin, R_OK) != 0) {
        skip(); /* this build has no stand-in for a GPU */
    }
    setenv("FROSTLINE_CUDA_PLUGIN", plugin, 1);
    for (size_t i = 0; i < sizeof nccl_cases / sizeof *nccl_cases; i++) {
        const nccl_case *c = &nccl_cases[i];
        fl_findings findings = {0};
        fl_nccl_trial nccl = {.version = 0};
        setenv("FROSTLINE_STANDIN", c->devices, 1);
        setenv("FROSTLINE_NCCL", c->library, 1);
        setenv("FROSTLINE_NCCL_STANDIN", c->options, 1);
        job.autodp.transport = c->transport;
        fl_doctor_look_at_gpus(&job, &nccl, &findings);
        assert_verdict(&findings, "NCCL", c->verdict);
        const fl_finding *f = find_check(&findings, "NCCL");
        if (f != NULL && strstr(f->found, c->found) == NULL) {
            fail_msg("%s, '%s': '%s'", c->library, c->options, f->found);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor__names_what_encrypts_between_hosts),
        cmocka_unit_test(test_doctor__limits_that_are_too_low_are_named),
        cmocka_unit_test(test_doctor__a_clock_that_steps_goes_back_or_is_slow_is_named),
        cmocka_unit_test(test_doctor__a_nearly_full_shm_is_named),
        cmocka_unit_test(test_doctor__limits_of_a_control_group_and_little_memory_are_named),
        cmocka_unit_test(test_doctor__folders_are_tried_and_left_empty),
        cmocka_unit_test(test_doctor__a_folder_that_cannot_be_made_is_named),
        cmocka_unit_test(test_doctor__nccl_is_tried_as_a_run_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
