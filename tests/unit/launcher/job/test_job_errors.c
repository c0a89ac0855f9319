/* Job files that are invalid as files, or in their keys, and wrong overrides, each with its exact
 * message. Would catch: a message that names a wrong place, or does not state what is allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "launcher/job/job.h"
#include "support/formats/allowed.h"
#include "support/formats/broken_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_HAS                                                                                    \
    "name, hosts, model, data, train, devices, freeze, cache, pipe, autodp, elastic, fault, "      \
    "checkpoint, trace, control, run"
#define TRAIN_HAS                                                                                  \
    "epochs, batch, accumulate, precision, optimizer, lr, layer_decay, weight_decay, beta1, "      \
    "beta2, epsilon, "                                                                             \
    "momentum, "                                                                                   \
    "warmup, decay, "                                                                              \
    "clip, seed, max_steps, evaluate, evaluate_every, evaluate_samples, metric, stop_after, "      \
    "stop_margin, on_nonfinite, hash_weights"

static const broken files[] = {
    /* the file as a whole */
    {"", "job.yaml:1:1: job: found nothing, allowed: a mapping with " JOB_HAS},
    {"# nothing but this\n", "job.yaml:1:1: job: found nothing, allowed: a mapping with " JOB_HAS},
    {"---\n", "job.yaml:2:1: job: found nothing, allowed: a mapping with " JOB_HAS},
    {"- vit\n- idx\n", "job.yaml:1:1: job: found a list, allowed: a mapping with " JOB_HAS},
    {"vit\n", "job.yaml:1:1: job: found 'vit', allowed: a mapping with " JOB_HAS},
    {"name: a\n---\nname: b\n",
     "job.yaml:2:1: yaml: found a second document, allowed: one job a file"},

    /* characters */
    {"name: a\x1b[31m\n", "job.yaml:1:8: yaml: found character U+001B, allowed: printable text"},
    {"\n\nname: \xFF\n", "job.yaml:3:7: yaml: found byte 0xFF, allowed: text in UTF-8"},
    {"name: \xC3\n", "job.yaml:1:7: yaml: found byte 0xC3, allowed: text in UTF-8"},
    {"name: \xC0\xAF\n", "job.yaml:1:7: yaml: found byte 0xC0, allowed: text in UTF-8"},
    {"name: \xED\xA0\x80\n", "job.yaml:1:7: yaml: found byte 0xED, allowed: text in UTF-8"},
    {"\xFF\xFEn\n", "job.yaml:1:1: yaml: found byte 0xFF, allowed: text in UTF-8"},
    {"# \xC3\xA9\xC3\xA9 \x7F\n",
     "job.yaml:1:6: yaml: found character U+007F, allowed: printable text"},
    {"train:\r\n\tlr: 1\r\n",
     "job.yaml:2:1: yaml: found a tab in the indentation, allowed: spaces"},
    {"train:\r  lr: 1\r \tbatch: 1\r",
     "job.yaml:3:2: yaml: found a tab in the indentation, allowed: spaces"},

    /* YAML */
    {"train: {lr: 1\n",
     "job.yaml:2:1: yaml: did not find expected ',' or '}', while parsing a flow "
     "mapping (from line 1)"},
    {"name: \"a\n", "job.yaml:2:1: yaml: found unexpected end of stream, while scanning a quoted "
                    "scalar (from line 1)"},
    {"name: \"a\\qb\"\n", "job.yaml:1:9: yaml: found unknown escape character, while parsing a "
                          "quoted scalar (from line 1)"},
    {"train:\n  lr: 1\n batch: 2\n", "job.yaml:3:2: yaml: did not find expected key, while parsing "
                                     "a block mapping (from line 1)"},
    {"name: a: b\n", "job.yaml:1:8: yaml: mapping values are not allowed in this context"},
    {"@name: a\n",
     "job.yaml:1:1: yaml: found character that cannot start any token, while scanning "
     "for the next token (from line 1)"},
    {"%YAML 2.0\n---\n{}\n", "job.yaml:1:1: yaml: found incompatible YAML document"},
    {"train: &a {lr: 1}\n",
     "job.yaml:1:8: yaml: found an anchor or alias, allowed: values written out"},
    {"train:\n  lr: *a\n",
     "job.yaml:2:7: yaml: found an anchor or alias, allowed: values written out"},
    {"train: {epochs: !!int 3}\n", "job.yaml:1:17: yaml: found a tag, allowed: plain values"},
    {"train: !mine {}\n", "job.yaml:1:8: yaml: found a tag, allowed: plain values"},
    {"a: [[[[[[[[[1]]]]]]]]]\n",
     "job.yaml:1:11: yaml: found deep nesting, allowed: fields within sections"},

    /* names */
    {"trian: {lr: 1}\n", "job.yaml:1:1: trian: unknown field, nearest is train"},
    {"Train: {lr: 1}\n", "job.yaml:1:1: Train: unknown field, nearest is train"},
    {"train:\n  epoch: 3\n", "job.yaml:2:3: train.epoch: unknown field, nearest is train.epochs"},
    {"epochs: 3\n", "job.yaml:1:1: epochs: unknown field, nearest is train.epochs"},
    {"train: {bucket: 4MiB}\n",
     "job.yaml:1:9: train.bucket: unknown field, nearest is autodp.bucket"},
    {"train: {learning_rate: 0.1}\n",
     "job.yaml:1:9: train.learning_rate: unknown field, train has " TRAIN_HAS},
    {"colour: red\n", "job.yaml:1:1: colour: unknown field, a job has " JOB_HAS},
    {"<<: {lr: 1}\n", "job.yaml:1:1: '<<': unknown field, a job has " JOB_HAS},
    {"\"na\\0me\": a\n", "job.yaml:1:1: 'na\\000me': unknown field, a job has " JOB_HAS},
    {"pipe.k: 2\n",
     "job.yaml:1:1: pipe.k: unknown field, write k below pipe: (dotted names are for "
     "--set)"},
    {"train: {train.lr: 2}\n", "job.yaml:1:9: train.train.lr: unknown field, train has " TRAIN_HAS},
    {"[a]: 1\n", "job.yaml:1:1: job: found a list for a name, allowed: the name of a field"},
    {"? {a: 1}\n: 2\n",
     "job.yaml:1:3: job: found a mapping for a name, allowed: the name of a field"},
    {"pipe: {~: 5}\n",
     "job.yaml:1:8: pipe: found nothing for a name, allowed: the name of a field"},
    {"train: {batch: 8, lr: 0.1, batch: 9}\n",
     "job.yaml:1:28: train.batch: repeated, it stands in line 1 already"},
    {"train: {lr: 1}\npipe: {k: 1}\ntrain: {batch: 8}\n",
     "job.yaml:3:1: train: repeated, it stands in line 1 already"},
    {"name: a\nname: b\n", "job.yaml:2:1: name: repeated, it stands in line 1 already"},

    /* sections */
    {"train: [1, 2]\n", "job.yaml:1:8: train: found a list, allowed: a mapping with " TRAIN_HAS},
    {"pipe: 4\n", "job.yaml:1:7: pipe: found '4', allowed: a mapping with k, m, schedule, "
                  "partition, profile, tune"},
    {"run: ''\n", "job.yaml:1:6: run: found '', allowed: a mapping with dir, save_model, shared"},
};

static void test_job_errors__each_broken_file_has_its_message(void **state)
{
    (void)state;
    size_t n = sizeof files / sizeof files[0];
    assert_true(n >= 40);
    for (size_t i = 0; i < n; i++) {
        expect_refusal(files[i].text, strlen(files[i].text), NULL, files[i].message);
    }
    print_message("%zu broken files\n", n);
}

static void test_job_errors__a_zero_byte_is_seen(void **state)
{
    (void)state;
    static const char text[] = "name: a\0b\n";
    expect_refusal(text, sizeof text - 1, NULL,
                   "job.yaml:1:8: yaml: found character U+0000, allowed: printable text");
}

static void test_job_errors__a_file_that_is_too_large_is_not_read(void **state)
{
    (void)state;
    size_t size = FL_JOB_FILE_MAX;
    char *text = malloc(size + 1);
    assert_non_null(text);
    memset(text, ' ', size + 1);
    memcpy(text, "{}", 2);
    fl_job job;
    assert_int_equal(fl_job_parse("job.yaml", text, size, NULL, 0, &job), FL_OK);
    assert_int_equal(fl_job_parse("job.yaml", text, size + 1, NULL, 0, &job), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "job.yaml: yaml: found more than 131072 bytes, allowed: at most as many");
    free(text);
}

static const broken overrides[] = {
    {"pipe.kk=2", "--set 'pipe.kk': unknown field, nearest is pipe.k"},
    {"epochs=2", "--set 'epochs': unknown field, nearest is train.epochs"},
    {"colour=red", "--set 'colour': unknown field, a job has " JOB_HAS},
    {"devices.gpus=2",
     "--set 'devices.gpus': unknown field, devices has kind, count, max, cores, memory"},
    {"pipe=2",
     "--set 'pipe': a section, set one of its fields: k, m, schedule, partition, profile, tune"},
    {"pipe.k", "--set 'pipe.k': found no value, allowed: PATH=VALUE"},
    {"=2", "--set '=2': found no path, allowed: PATH=VALUE"},
    {"", "--set '': found no value, allowed: PATH=VALUE"},
    {"pipe.k=", "--set pipe.k=: pipe.k: found '', allowed: auto, or an integer from 1 to 128 "
                "(stages)"},
    {"pipe.k=many",
     "--set pipe.k=many: pipe.k: found 'many', allowed: auto, or an integer from 1 to "
     "128 (stages)"},
    {"train.epochs=\"8\"", "--set train.epochs=\"8\": train.epochs: found '\"8\"', " EPOCHS},
    {"train.lr=1e-3 ", "--set train.lr=1e-3 : train.lr: found '1e-3 ', " LR},
    {"data.path=\x1b[0m", "--set data.path=\\033[0m: data.path: found '\\033[0m', " FILES},
    {"data.path=\xFF", "--set data.path=\\377: data.path: found '\\377', " FILES},
    {"model.heads=3",
     "--set model.heads=3: model.heads: found 3, allowed: a divisor of model.dim 64"},
    {"elastic.script=[{step: 10, kk: 1}]",
     "--set elastic.script=[{step: 10, kk: 1}]: elastic.script: entry 1: unknown key 'kk', an "
     "entry has step, f, k, r, m"},
    {"elastic.script=[{step: 10, k: 1}",
     "--set elastic.script=[{step: 10, k: 1}: elastic.script: value:2:1: yaml: did not find "
     "expected ',' or ']', while parsing a flow sequence (from line 1)"},
    {"elastic.script=", "--set elastic.script=: elastic.script: found nothing, " SCRIPT},
    {"elastic.script=10", "--set elastic.script=10: elastic.script: found '10', " SCRIPT},
    {"freeze.list=[1, *a]", "--set freeze.list=[1, *a]: freeze.list: value:1:5: yaml: found an "
                            "anchor or alias, allowed: values written out"},
    {"freeze.list=[1, x]", "--set freeze.list=[1, x]: freeze.list: entry 2: found 'x', allowed: an "
                           "integer from 0 to 512 (blocks)"},
    {"freeze.every=0", "--set freeze.every=0: freeze.every: found '0', " PERIOD},
    {"pipe.m=500",
     "--set pipe.m=500: pipe.m: found 500, allowed: at most 128, a replica's share of "
     "train.batch 128"},
    {"model.dim=66",
     "--set model.dim=66: model.heads: found 4, allowed: a divisor of model.dim 66"},
};

static void test_job_errors__each_wrong_override_has_its_message(void **state)
{
    (void)state;
    const char *text = "model: {dim: 64, heads:  4}\n";
    for (size_t i = 0; i < sizeof overrides / sizeof overrides[0]; i++) {
        expect_refusal(text, strlen(text), overrides[i].text, overrides[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_errors__each_broken_file_has_its_message),
        cmocka_unit_test(test_job_errors__a_zero_byte_is_seen),
        cmocka_unit_test(test_job_errors__a_file_that_is_too_large_is_not_read),
        cmocka_unit_test(test_job_errors__each_wrong_override_has_its_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
