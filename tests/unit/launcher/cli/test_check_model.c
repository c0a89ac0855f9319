/* `frostline check-model` on a plugin whose layer is wrong in one way at a time: each is found and
 * named, and the other layers pass. */
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *folder;
static output result;

/* Check the plugin's model with the fault `name`. */
static void check_model(const char *name, const char *options)
{
    char command[4096];
    snprintf(command, sizeof command,
             "printf 'name: %s\nmodel: {kind: plugin, plugin: " FL_BINARY_DIR
             "/tests/plugin_faulty.so}\n' >job.yaml; " FL_BINARY_DIR
             "/frostline check-model job.yaml %s",
             name, options);
    run_command(folder, command, &result);
}

static int count(const char *text, const char *of)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, of)) != NULL; at += strlen(of)) {
        n++;
    }
    return n;
}

static void test_check_model__a_correct_layer_passes(void **state)
{
    (void)state;
    check_model("right", "");
    assert_string_equal(result.err, "");
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(count(result.out, " ok"), 33);
    assert_non_null(strstr(result.out, "\n0 of 33 checks failed\n"));
    assert_non_null(strstr(result.out,
                           "layer 1   layers.1 scale            gradient of shift        ok      "
                           "error "));
    assert_non_null(strstr(result.out,
                           "loss               cross_entropy    gradient                 ok      "
                           "error "));
}

/* Other samples, other values and a stricter tolerance do not make a correct layer fail. */
static void test_check_model__a_correct_layer_passes_with_any_seed(void **state)
{
    (void)state;
    char options[128];
    for (int seed = 1; seed <= 10; seed++) {
        snprintf(options, sizeof options, "--seed %d --samples %d --tolerance 2e-4", seed,
                 1 + seed);
        check_model("right", options);
        if (result.exit_code != 0) {
            fail_msg("%s:\n%s%s", options, result.out, result.err);
        }
    }
}

typedef struct fault {
    const char *name;
    const char *check; /* the only one that fails */
    const char *text;  /* a part of what it says */
} fault;

/* Only this fault is given a short time: a busy machine may take seconds for what does return. */
#define HANGS "hangs"
#define CRASHED "it was killed by signal 11 (Segmentation fault)"

static const fault faults[] = {
    {"wrong-input", "gradient of the input", "worst is element [5, 3]: backward gives -3.6"},
    {"forgets-shift", "gradient of shift", "backward leaves it zero, and forward depends on it"},
    {"wrong-element", "gradient of scale", "worst is element [4, 0]: backward gives 2.48"},
    {"writes-behind-keep", "forward",
     "writes behind the end of what it kept under slot 0, at byte 291 of 288"},
    {"writes-behind-scratch", "forward",
     "writes behind the end of a piece of scratch memory, at byte 296 of 296"},
    {"writes-behind-output", "forward", "writes behind the end of the output, at byte 288 of 288"},
    {"writes-before-output", "forward", "writes before the start of the output, at byte -1"},
    {"depends-on-batch", "batches", "with two micro-batches: output of sample 0, element [0, 0]"},
    {"keyed-by-place", "order", "random numbers are keyed by sample id"},
    {"keeps-state", "batches", "keeps state of a micro-batch in itself: with two in flight"},
    {"nan", "forward", "gives nan for element [0, 2] of the output"},
    {"infinite", "forward", "gives inf for element [2, 2] of the output"},
    {"leaves-a-row", "forward", "does not write element [11, 0] of the output"},
    {"reads-scratch", "forward", "computes it from memory that it has not written"},
    {"overwrites-gradient", "backward", "does not add to what gradients hold (they held 2)"},
    {"writes-unwanted", "backward", CRASHED},
    {"crashes", "forward", CRASHED},
    {"changes-input", "forward", "changes the input, which it must not: element [2, 5]"},
    {"changes-parameter", "forward", "changes parameter scale, which it must not"},
    {"changes-gradient", "backward", "changes the gradient of the output, which it must not"},
    {"dropout-in-evaluation", "evaluation", "dropout belongs to training"},
    {"no-determinism", "forward", "forward is not deterministic"},
    {"empty-batch", "empty batch", "without samples changes the gradient of shift"},
    {"params-change", "declared", "params declares other parameters (3)"},
    {"shape-changes", "declared", "shape gives [4, 6] for [3, 6], and gave another size before"},
    {"forward-fails", "forward", "layer 1 (scale): the layer is not in the mood"},
    {"exits", "forward", "it ended the process with exit code 7"},
    {HANGS, "forward", "it does not return within 3 s"},
};

/* The output line of a check of the faulty layer; NULL if there is no such line. */
static const char *line_of(const char *check, char line[1024])
{
    char start[128];
    snprintf(start, sizeof start, "layer 1   layers.1 scale            %-24s FAILED  ", check);
    const char *at = strstr(result.out, start);
    if (at != NULL) {
        snprintf(line, 1024, "%.*s", (int)strcspn(at, "\n"), at);
    }
    return at == NULL ? NULL : line;
}

/* Failed checks in lines that begin like this. */
static int n_failed_of(const char *start)
{
    int n = 0;
    for (const char *line = result.out; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *failed = strstr(line, "FAILED");
        n += strncmp(line, start, strlen(start)) == 0 && failed != NULL &&
             failed < line + strcspn(line, "\n");
    }
    return n;
}

static void test_check_model__finds_and_names_each_fault(void **state)
{
    (void)state;
    char line[1024];
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const fault *f = &faults[i];
        check_model(f->name, strcmp(f->name, HANGS) == 0 ? "--timeout 3 --layer 1" : "");
        const char *found = line_of(f->check, line);
        if (found == NULL || strstr(found, f->text) == NULL || result.exit_code != 3) {
            fail_msg("%s: exit code %d\n%s%s", f->name, result.exit_code, result.out, result.err);
        }
        /* No check of another layer does. */
        assert_int_equal(count(result.out, "FAILED"), n_failed_of("layer 1 "));
        /* Each failure comes once more, directly before the count. */
        const char *again = strstr(result.out, "\nfailed:\n");
        assert_non_null(again);
        assert_non_null(strstr(again, found));
        assert_int_equal(2 * count(again, "FAILED"), count(result.out, "FAILED"));
        assert_int_equal(count(again, "\n"), count(again, "FAILED") + 3);
    }
}

/* What a loss adds to its metrics is checked like the loss itself. */
static void test_check_model__finds_a_wrong_metric(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"metric-overwrites", "it does not add to the sums, or differs without a gradient: margin"},
        {"metric-of-batch", "it depends on how samples are batched: margin"},
        {"metric-not-finite", "metric margin: nan is not finite"},
        {"metric-beyond-share", "metric hit: -"},
        {"metric-unnamed", "it adds to metric 3, but names 3"},
    };
    check_model("metric-right", "--layer 3");
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(count(result.out, " scored "), 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_model(cases[i][0], "--layer 3");
        if (result.exit_code != 3 || strstr(result.out, cases[i][1]) == NULL) {
            fail_msg("%s: exit code %d\n%s%s", cases[i][0], result.exit_code, result.out,
                     result.err);
        }
        assert_int_equal(count(result.out, "FAILED"), 2); /* where it is found, and at the end */
    }
}

static void test_check_model__checks_one_layer_alone(void **state)
{
    (void)state;
    check_model("wrong-input", "--layer 0");
    assert_int_equal(result.exit_code, 0);
    assert_null(strstr(result.out, "layer 1"));
    check_model("wrong-input", "--layer 3");
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(count(result.out, "cross_entropy"), 2);
    check_model("wrong-input", "--layer layers.1 --json");
    assert_int_equal(result.exit_code, 3);
    assert_non_null(strstr(result.out, "\"layer\": 1, \"is_loss\": false, \"name\": \"layers.1\""));
    assert_non_null(
        strstr(result.out, "\"check\": \"gradient of the input\", \"state\": \"failed\""));
}

static void test_check_model__refuses_what_it_cannot_use(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--layer 4", "--layer: found 4, allowed: 0 to 3, or the name of a layer\n"},
        {"--layer x", "--layer: found x, allowed: 0 to 3, or the name of a layer\n"},
        {"--samples 1", "--samples: found 1, allowed: 2 to 64\n"},
        {"--samples 33", ""},
        {"--tolerance 0", "--tolerance: found 0, allowed: a number above 0 and below 1\n"},
        {"--tolerance 1e-3x", "--tolerance: found 1e-3x, allowed: a number above 0 and below 1\n"},
        {"--timeout 0", "--timeout: found 0, allowed: 1 to 86400\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_model("right", cases[i][0]);
        assert_int_equal(result.exit_code, 2);
        assert_string_equal(result.out, "");
        if (cases[i][1][0] != '\0') {
            assert_string_equal(result.err, cases[i][1]);
        } else {
            assert_string_equal(result.err, "samples: found 33, allowed: at most the data's 32\n");
        }
    }
}

static int make_folder(void **state)
{
    (void)state;
    folder = fresh_folder(FL_BINARY_DIR);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    run_command(NULL, command, &result);
    free(folder);
    return 0;
}

typedef struct ending {
    const char *fault;
    int exit_code;
    const char *text; /* a part of the message */
} ending;

/* validate, plan and run call the model's code to check shapes and to count memory. That code must
 * not end or block the command itself. */
static void test_dry_run__names_the_layer_that_ends_it(void **state)
{
    (void)state;
    static const char *const commands[] = {"validate", "plan", "run --run-dir r"};
    static const ending endings[] = {
        {"exits", 3, "layer 1 (scale): it ended the process with exit code 7"},
        {"named-exits", 3, "layer 1, blocks.1.scale (scale): it ended the process with exit code"},
        {"crashes", 3, "layer 1 (scale): " CRASHED},
        {HANGS, 3, "layer 1 (scale): it did not return within 3 s (fault.deadline)"},
        {"shape-exits", 3, "layer 1 (scale): it ended the process with exit code 7"},
        {"loss-crashes", 3, "loss (crashing): " CRASHED},
        {"forward-fails", 2, "layer 1 (scale): the layer is not in the mood"}};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        bool hangs = strcmp(endings[i].fault, HANGS) == 0;
        for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
            char command[4096];
            snprintf(command, sizeof command,
                     "printf 'name: %s\nmodel: {kind: plugin, plugin: " FL_BINARY_DIR
                     "/tests/plugin_faulty.so}\ntrain: {batch: 8}\n%s' >job.yaml; "
                     "timeout 60 " FL_BINARY_DIR "/frostline %s job.yaml",
                     endings[i].fault, hangs ? "fault: {detect: 500ms, deadline: 3s}\n" : "",
                     commands[c]);
            run_command(folder, command, &result);
            if (strstr(result.err, endings[i].text) == NULL) {
                print_error("%s, %s: %s\n", commands[c], endings[i].fault, result.err);
            }
            assert_non_null(strstr(result.err, endings[i].text));
            assert_int_equal(result.exit_code, endings[i].exit_code);
        }
    }
}

int main(void)
{
    /* The layers that crash on purpose are no finding: leave their signals to the system. */
    setenv("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0", 1);
    setenv("TSAN_OPTIONS", "handle_segv=0:handle_sigbus=0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_model__a_correct_layer_passes),
        cmocka_unit_test(test_dry_run__names_the_layer_that_ends_it),
        cmocka_unit_test(test_check_model__a_correct_layer_passes_with_any_seed),
        cmocka_unit_test(test_check_model__finds_and_names_each_fault),
        cmocka_unit_test(test_check_model__finds_a_wrong_metric),
        cmocka_unit_test(test_check_model__checks_one_layer_alone),
        cmocka_unit_test(test_check_model__refuses_what_it_cannot_use),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
