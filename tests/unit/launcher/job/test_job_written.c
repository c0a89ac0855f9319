/* Job files that are right, written and read back: each value of each type survives. */
#include "launcher/job/job.h"
#include "support/formats/jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One accepted spelling, and what the field then formats to. */
typedef struct spelling {
    const char *path, *text, *formatted;
} spelling;

static const spelling spellings[] = {
    {"name", "vit-fashion_2.0", "vit-fashion_2.0"},
    {"name", "7", "7"},
    {"model.plugin", "none", "none"},
    {"model.plugin", "./none", "./none"},
    {"data.path", "null", "'null'"},
    {"data.path", "it's #1: [a], b", "'it''s #1: [a], b'"},
    {"data.path", "-", "'-'"},
    {"data.path", "~a", "'~a'"},
    {"data.path", "d\xC3\xA9j\xC3\xA0 vu", "'d\xC3\xA9j\xC3\xA0 vu'"},
    {"data.path", " ", "' '"},
    {"data.text", "#1 String", "'#1 String'"},
    {"data.text", "2", "2"},
    {"data.pair", "none", "none"},
    {"data.max_tokens", "128", "128"},
    {"data.tokenizer", "auto", "auto"},
    {"train.epochs", "1", "1"},
    {"train.epochs", "1000000", "1000000"},
    {"train.seed", "9223372036854775807", "9223372036854775807"},
    {"train.seed", "-0", "0"},
    {"train.lr", "1e-3", "0.001"},
    {"train.lr", "1E-3", "0.001"},
    {"train.lr", ".5", "0.5"},
    {"train.lr", "5.", "5"},
    {"train.lr", "100", "100"},
    {"train.lr", "1e+1", "10"},
    {"train.lr", "2.5e-5", "2.5e-5"},
    {"train.lr", "0.1", "0.1"},
    {"train.clip", "none", "none"},
    {"train.clip", "1e9", "1e9"},
    {"train.clip", "123456.75", "123456.75"},
    {"train.warmup", "0", "0"},
    {"train.warmup", "100", "100"},
    {"train.warmup", "0%", "0%"},
    {"train.warmup", "100%", "100%"},
    {"train.warmup", "2.5%", "2.5%"},
    {"train.warmup", "7%", "7%"},
    {"train.max_steps", "none", "none"},
    {"train.max_steps", "20", "20"},
    {"train.hash_weights", "none", "none"},
    {"train.hash_weights", "50", "50"},
    {"train.evaluate", "false", "false"},
    {"train.evaluate", "true", "true"},
    {"train.optimizer", "sgd", "sgd"},
    {"train.decay", "cosine", "cosine"},
    {"data.augment", "crop-flip", "crop-flip"},
    {"data.samples", "all", "all"},
    {"data.samples", "4294967295", "4294967295"},
    {"devices.count", "auto", "auto"},
    {"devices.count", "3", "3"},
    {"devices.memory", "2GiB", "2GiB"},
    {"devices.memory", "2 GiB", "2GiB"},
    {"devices.memory", "1.5GiB", "1536MiB"},
    {"devices.memory", "1048576", "1MiB"},
    {"devices.memory", "1048577", "1048577B"},
    {"devices.memory", "1048577B", "1048577B"},
    {"devices.memory", "2048KiB", "2MiB"},
    {"devices.memory", "16TiB", "16TiB"},
    {"fault.detect", "500ms", "500ms"},
    {"fault.detect", "0.5s", "500ms"},
    {"fault.deadline", "2min", "120s"},
    {"fault.deadline", "1.5 h", "5400s"},
    {"freeze.start", "0", "0 epochs"},
    {"freeze.start", "0 steps", "0 steps"},
    {"freeze.start", "1", "1 epoch"},
    {"freeze.start", "2epochs", "2 epochs"},
    {"freeze.start", "1 epochs", "1 epoch"},
    {"freeze.start", "0.25 epochs", "0.25 epochs"},
    {"freeze.start", "75%", "75%"},
    {"freeze.start", "0%", "0 epochs"},
    {"freeze.every", "2.5%", "2.5%"},
    {"freeze.every", "1 step", "1 step"},
    {"freeze.every", "40steps", "40 steps"},
    {"freeze.every", "4e1 steps", "40 steps"},
    {"freeze.every", ".5", "0.5 epochs"},
    {"freeze.alpha", "1/3", "1/3"},
    {"freeze.alpha", "2/6", "1/3"},
    {"freeze.alpha", "0.3333333333333333", "1/3"},
    {"freeze.alpha", "5/12", "5/12"},
    {"freeze.alpha", "0.333", "0.333"},
    {"freeze.alpha", "1/4", "0.25"},
    {"freeze.alpha", "2/5", "0.4"},
    {"freeze.alpha", "1/13", "0.07692307692307693"},
    {"freeze.percentile", "99.5", "99.5"},
    {"freeze.list", "none", "none"},
    {"freeze.list", "[]", "none"},
    {"freeze.list", "[4]", "[4]"},
    {"freeze.list", " [ 0,2 ,\n 4, 2 ] # up and down", "[0, 2, 4, 2]"},
    {"freeze.list", "- 1\n- 2\n", "[1, 2]"},
    {"data.classes", "all", "all"},
    {"train.stop_after", "none", "none"},
    {"train.stop_after", "3", "3 epochs"},
    {"train.stop_after", "3 epochs", "3 epochs"},
    {"train.stop_after", "40 steps", "40 steps"},
    {"data.classes", "[9, 0, 255]", "[9, 0, 255]"},
    {"elastic.enabled", "false", "false"},
    {"elastic.script", "[]", "none"},
    {"elastic.script", "[{step: 40}]", "[{step: 40}]"},
    {"elastic.script", "[{k: 1, step: 10, f: 0},{m: auto, r: 2, step: 11}]",
     "[{step: 10, f: 0, k: 1}, {step: 11, r: 2, m: auto}]"},
    {"elastic.script", "[{step: 40, f: 3, k: 2, r: 1, m: 4}]",
     "[{step: 40, f: 3, k: 2, r: 1, m: 4}]"},
    {"elastic.script", "- step: 4\n  k: auto\n- {step: 5, r: auto}\n",
     "[{step: 4, k: auto}, {step: 5, r: auto}]"},
    {"pipe.schedule", "gpipe", "gpipe"},
    {"pipe.partition", "greedy", "greedy"},
};

/* Both files need a kind of data that has two. Would catch a second file that --set forgets, or
 * that the record of a run loses. */
static void test_job_written__reads_and_writes_two_files(void **state)
{
    (void)state;
    fl_job job, again;
    char text[FL_FIELD_VALUE_MAX];
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "model.kind", "plugin"), FL_OK);
    assert_int_equal(fl_job_set(&job, "model.plugin", "a.so"), FL_OK);
    assert_int_equal(fl_job_set(&job, "data.kind", "table"), FL_OK);
    assert_int_equal(fl_job_set(&job, "data.path", "{test: 'b, {c}.tsv', train: a.tsv}"), FL_OK);
    assert_string_equal(job.data.path, "a.tsv");
    assert_string_equal(job.data.test_path, "b, {c}.tsv");
    assert_string_equal(fl_field_format(fl_schema_field(fl_schema_find("data.path")), &job, text),
                        "{train: a.tsv, test: 'b, {c}.tsv'}");
    again = written_and_loaded_job(&job);
    assert_same_job(&job, &again);
    assert_int_equal(fl_job_set(&job, "data.path", "c.tsv"), FL_OK); /* one file again */
    assert_string_equal(job.data.test_path, "");
}

/* A run of an older version continues: its job.yaml names the metric as it did then. */
static void test_job_written__knows_the_older_name_of_the_metric(void **state)
{
    (void)state;
    static const char text[] = "train: {stop_metric: accuracy}\n";
    fl_job job;
    assert_int_equal(fl_job_parse("older", text, sizeof text - 1, NULL, 0, &job), FL_OK);
    assert_string_equal(job.train.metric, "accuracy");
    fl_job again = written_and_loaded_job(&job);
    assert_same_job(&job, &again);
    static const char both[] = "train: {stop_metric: accuracy, metric: loss}\n";
    assert_int_equal(fl_job_parse("older", both, sizeof both - 1, NULL, 0, &job), FL_EINVAL);
}

/* Would catch a spelling that is refused, read as another value, or not read back as it is written.
 */
static void test_job_written__every_spelling_of_every_type_reads_and_reads_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        const spelling *s = &spellings[i];
        const fl_field *field = fl_schema_field(fl_schema_find(s->path));
        fl_job job, again;
        char text[FL_FIELD_VALUE_MAX], yaml[2 * FL_FIELD_VALUE_MAX];
        fl_job_defaults(&job);
        if (fl_job_set(&job, s->path, s->text) != FL_OK) {
            fail_msg("%s", fl_errmsg());
        }
        assert_string_equal(fl_field_format(field, &job, text), s->formatted);
        if (strcmp(s->path, "model.plugin") == 0 && strcmp(s->text, "none") != 0) {
            job.model.kind = FL_MODEL_PLUGIN;
            again = written_and_loaded_job(&job); /* the two fields need each other */
            assert_same_job(&job, &again);
            continue;
        }
        bool top = strchr(s->path, '.') == NULL;
        snprintf(yaml, sizeof yaml, top ? "%.*s%s: %s" : "%.*s: {%s: %s}",
                 top ? 0 : (int)strcspn(s->path, "."), s->path, fl_field_name(field), text);
        again = parsed_job(yaml);
        assert_same_job(&job, &again);
    }
}

/* The longest lists, each value as wide as it gets: would catch a buffer that is too small. */
static void test_job_written__the_longest_lists_survive_writing_and_reading(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    job.model.blocks = 100;
    job.train.batch = 1048576;
    job.freeze.policy = FL_FREEZE_SCHEDULE;
    job.freeze.n_list = FL_FREEZE_LIST_MAX;
    job.elastic.n_script = FL_SCRIPT_MAX;
    for (int i = 0; i < FL_SCRIPT_MAX; i++) {
        job.elastic.script[i] =
            (fl_script_entry){.step = INT64_C(1000000000000) - FL_SCRIPT_MAX + i,
                              .f = 100,
                              .k = 128,
                              .r = 256,
                              .m = 4096};
        job.freeze.list[i] = 512;
    }
    job.n_hosts = FL_JOB_HOSTS_MAX;
    for (int i = 0; i < FL_JOB_HOSTS_MAX; i++) {
        snprintf(job.hosts[i].name, FL_JOB_HOST_TEXT, "%059d%04d", 0, i);
        snprintf(job.hosts[i].address, FL_JOB_HOST_TEXT, "h%058d%04d", 1, i);
        job.hosts[i].devices = job.hosts[i].sockets = 8;
        job.hosts[i].memory_bytes = (INT64_C(1) << 50) - 1;
        job.hosts[i].speed = 0.1 + 0.2;
        memset(job.hosts[i].profile, i < FL_JOB_HOSTS_MAX / 2 ? '\'' : 'p', FL_TEXT_MAX - 1);
    }
    fl_job again = written_and_loaded_job(&job);
    assert_same_job(&job, &again);
}

static double unit_random(unsigned short seed[3])
{
    return erand48(seed);
}

/* Would catch a value whose text does not read back to the last bit. */
static void test_job_written__random_jobs_survive_writing_and_reading(void **state)
{
    (void)state;
    unsigned short seed[3] = {1, 2, (unsigned short)getpid()};
    print_message("seed 1 2 %u\n", seed[2]);
    for (int i = 0; i < 300; i++) {
        fl_job job;
        fl_job_defaults(&job);
        job.train.lr = exp(unit_random(seed) * 30 - 28);
        job.train.weight_decay = unit_random(seed);
        job.train.beta1 = unit_random(seed);
        job.train.epsilon = exp(-46 * unit_random(seed));
        job.train.clip = i % 5 == 0 ? 0 : exp(unit_random(seed) * 20);
        job.train.warmup.fraction = unit_random(seed);
        job.freeze.alpha = 0.001 + 0.998 * unit_random(seed);
        job.freeze.start = (fl_period){.epochs = i % 2 * exp(13 * unit_random(seed)), .steps = -1};
        if (i % 2 == 0) {
            job.freeze.every = (fl_period){.steps = 1 + (int64_t)(1e11 * unit_random(seed))};
        } else {
            job.freeze.every = (fl_period){.epochs = unit_random(seed) + 1e-9, .steps = -1};
        }
        int64_t interval = 1 + (int64_t)(1e6 * unit_random(seed));
        job.checkpoint.every = (fl_interval){.ms = i % 4 == 1 ? 1000 * interval : 0,
                                             .steps = i % 4 == 2 ? interval : 0,
                                             .epochs = i % 4 == 3 ? interval : 0};
        job.elastic.n_script = i % 4;
        for (int e = 0; e < i % 4; e++) {
            job.elastic.script[e] = (fl_script_entry){.step = 5 * e + 1 + i,
                                                      .f = (int)(unit_random(seed) * 9) - 1,
                                                      .k = (int)(unit_random(seed) * 9) - 1,
                                                      .r = (int)(unit_random(seed) * 9) - 1,
                                                      .m = (int)(unit_random(seed) * 9) - 1};
        }
        job.train.seed = (uint64_t)(unit_random(seed) * 9e18);
        job.devices.memory_bytes = (INT64_C(1) << 20) + (int64_t)(unit_random(seed) * 1e12);
        job.fault.detect_ms = 100 + (int64_t)(unit_random(seed) * 59000);
        fl_job again = written_and_loaded_job(&job);
        assert_same_job(&job, &again);
    }
}

/* Percentages as people write them must come back from the resolved job unchanged. */
static void test_job_written__percentages_survive_writing_and_reading(void **state)
{
    (void)state;
    for (int thousandth = 0; thousandth <= 100000; thousandth += 7) {
        fl_job job;
        fl_job_defaults(&job);
        char text[32];
        snprintf(text, sizeof text, "%d.%03d%%", thousandth / 1000, thousandth % 1000);
        assert_int_equal(fl_job_set(&job, "train.warmup", text), FL_OK);
        fl_job again = job;
        char formatted[FL_FIELD_VALUE_MAX];
        const fl_field *field = fl_schema_field(fl_schema_find("train.warmup"));
        fl_field_format(field, &job, formatted);
        assert_int_equal(fl_job_set(&again, "train.warmup", formatted), FL_OK);
        assert_true(again.train.warmup.fraction == job.train.warmup.fraction);
        assert_true(strlen(formatted) <= strlen(text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_written__reads_and_writes_two_files),
        cmocka_unit_test(test_job_written__knows_the_older_name_of_the_metric),
        cmocka_unit_test(test_job_written__every_spelling_of_every_type_reads_and_reads_back),
        cmocka_unit_test(test_job_written__the_longest_lists_survive_writing_and_reading),
        cmocka_unit_test(test_job_written__random_jobs_survive_writing_and_reading),
        cmocka_unit_test(test_job_written__percentages_survive_writing_and_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
