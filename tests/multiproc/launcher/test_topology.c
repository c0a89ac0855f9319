/* Whole runs on stand-ins for four GPUs that NVLink links in pairs: the links are measured by
 * class, the profile keeps them, and the plan has its pipelines within the pairs. Copies between
 * other pairs take longer in the stand-in. Catches a class that is not measured, and a plan that
 * does not look at it. */
#include "support/lines.h"
#include "support/runs/runs.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static output result;

/* Large messages and few parameters: a pipeline needs its links more than the sums of gradients. */
static const char job[] = "name: links\n"
                          "model: {kind: vit, patch: 7, dim: 16, heads: 2, blocks: 2, dropout: 0}\n"
                          "data: {kind: idx, path: " FL_TEST_FASHION ", samples: 128}\n"
                          "train: {batch: 64, epochs: 1, max_steps: 1, evaluate: false}\n"
                          "devices: {count: 4, kind: cuda}\n"
                          "pipe: {k: 2, m: 2, profile: costs.yaml}\n"
                          "autodp: {r: 2, transport: host}\n"
                          "freeze: {policy: none}\n";

static void run_on(const char *nvlink, const char *dir)
{
    char command[1024];
    if (access(FL_BINARY_DIR "/tests/cuda_standin.so", R_OK) != 0 ||
        access(FL_TEST_FASHION "/train-images-idx3-ubyte", R_OK) != 0) {
        print_message("skipped: this machine has no stand-in for a GPU, or no Fashion-MNIST\n");
        skip();
    }
    FILE *file = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s/job.yaml", root);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(job, file);
    assert_int_equal(fclose(file), 0);
    snprintf(command, sizeof command,
             "FROSTLINE_CUDA_PLUGIN=%s/tests/cuda_standin.so FROSTLINE_STANDIN=devices=4,far=60%s "
             "%s/frostline run job.yaml --run-dir %s",
             FL_BINARY_DIR, nvlink, FL_BINARY_DIR, dir);
    run_command(root, command, &result);
    if (result.exit_code != 0) {
        fail_msg("%s", result.err);
    }
}

/* The ranks of the first plan: of a replica's stages, one replica after the other. */
static void expect_ranks(const char *dir, const char *ranks)
{
    char path[256], text[64];
    snprintf(path, sizeof path, "%s/%s", root, dir);
    snprintf(text, sizeof text, "\"ranks\": [%s]", ranks);
    if (count_events(path, "\"plan.chosen\"", text) != 1) {
        run_command(path, "grep plan.chosen events.jsonl; cat profile.yaml", &result);
        fail_msg("not %s:\n%s", text, result.out);
    }
}

static void test_topology__pipelines_stay_where_the_links_are(void **state)
{
    (void)state;
    run_on(",nvlink=0-2:1-3", "pairs");
    expect_ranks("pairs", "0, 2, 1, 3");
    assert_non_null(strstr(result.err, "GPUs: NVLink within 0, 2 | 1, 3: a message takes"));
    run_command(root, "grep -A3 between_islands: costs.yaml", &result);
    assert_non_null(strstr(result.out, "far_bytes_per_us: "));
    assert_null(strstr(result.out, "far_bytes_per_us: 0\n"));
    run_on(",nvlink=0-2:1-3", "again"); /* from the profile */
    expect_ranks("again", "0, 2, 1, 3");
    run_command(root, "grep -c '\"event\": \"costs\".*\"from\": \"measured\"' again/events.jsonl",
                &result);
    assert_string_equal(result.out, "0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topology__pipelines_stay_where_the_links_are),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
