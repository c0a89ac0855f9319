/* Job files that are right: defaults, every type, overrides, writing and reading back. */
#include "device/alloc.h"
#include "device/failure.h"
#include "launcher/job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fl_job parsed(const char *text)
{
    fl_job job;
    fl_status status = fl_job_parse("job.yaml", text, strlen(text), NULL, 0, &job);
    if (status != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return job;
}

static void assert_same(const fl_job *a, const fl_job *b)
{
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        char left[FL_FIELD_VALUE_MAX], right[FL_FIELD_VALUE_MAX];
        fl_field_format(fl_schema_field(i), a, left);
        fl_field_format(fl_schema_field(i), b, right);
        assert_string_equal(left, right);
    }
    assert_memory_equal(a, b, offsetof(fl_job, origins)); /* all values, and nothing behind them */
}

/* Would catch a default that is not what the job's documentation promises. */
static void test_job__defaults_are_the_documented_ones(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    assert_string_equal(job.name, "job");
    assert_int_equal(job.model.kind, FL_MODEL_VIT);
    assert_string_equal(job.model.plugin, "");
    assert_int_equal(job.model.blocks, 8);
    assert_int_equal(job.model.dim, 128);
    assert_int_equal(job.model.heads, 4);
    assert_int_equal(job.model.patch, 7);
    assert_true(job.model.dropout == FL_DROPOUT_AUTO);
    assert_int_equal(job.data.kind, FL_DATA_IDX);
    assert_string_equal(job.data.path, "/usr/share/datasets/fashion-mnist");
    assert_int_equal(job.data.augment, FL_AUGMENT_NONE);
    assert_int_equal(job.data.crop, 2);
    assert_int_equal(job.data.samples, 0);
    assert_int_equal(job.data.n_classes, 0);
    assert_int_equal(job.train.epochs, 8);
    assert_int_equal(job.train.batch, 128);
    assert_int_equal(job.train.optimizer, FL_ADAMW);
    assert_true(job.train.lr == 1e-3);
    assert_true(job.train.weight_decay == 0.01);
    assert_true(job.train.beta1 == 0.9 && job.train.beta2 == 0.999);
    assert_true(job.train.epsilon == 1e-8 && job.train.momentum == 0.9);
    assert_true(job.train.warmup.fraction == 0.05);
    assert_int_equal(job.train.warmup.steps, -1);
    assert_int_equal(job.train.decay, FL_DECAY_LINEAR);
    assert_true(job.train.clip == 1.0);
    assert_int_equal(job.train.seed, 0);
    assert_int_equal(job.train.max_steps, 0);
    assert_true(job.train.evaluate);
    assert_int_equal(job.devices.kind, FL_DEVICE_CPU);
    assert_int_equal(job.devices.count, FL_JOB_AUTO);
    assert_int_equal(job.devices.cores, 1);
    assert_int_equal(job.devices.memory_bytes, INT64_C(2) << 30);
    assert_int_equal(job.pipe.k, FL_JOB_AUTO);
    assert_int_equal(job.pipe.m, FL_JOB_AUTO);
    assert_int_equal(job.pipe.schedule, FL_1F1B);
    assert_int_equal(job.pipe.partition, FL_PARTITION_OPTIMAL);
    assert_int_equal(job.autodp.r, FL_JOB_AUTO);
    assert_int_equal(job.autodp.bucket_bytes, 4 << 20);
    assert_int_equal(job.freeze.policy, FL_FREEZE_NONE);
    assert_true(job.freeze.start.share == 0.75 && job.freeze.start.steps == -1);
    assert_true(job.freeze.every.epochs == 1 && job.freeze.every.steps == -1);
    assert_true(job.freeze.alpha == 1.0 / 3 && job.freeze.percentile == 50);
    assert_int_equal(job.freeze.keep, 2);
    assert_int_equal(job.freeze.n_list, 0);
    assert_true(job.elastic.enabled);
    assert_int_equal(job.elastic.n_script, 0);
    assert_int_equal(job.fault.detect_ms, 5000);
    assert_int_equal(job.fault.deadline_ms, 60000);
    assert_string_equal(job.run.dir, "runs");
}

static void test_job__an_empty_mapping_and_empty_sections_take_the_defaults(void **state)
{
    (void)state;
    fl_job defaults;
    fl_job_defaults(&defaults);
    fl_job job = parsed("{}");
    assert_same(&job, &defaults);
    job =
        parsed("\xEF\xBB\xBF# a byte order mark and a comment\ntrain:\n  # lr: 1\n  \npipe: {}\n");
    assert_same(&job, &defaults);
}

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
    {"data.path", "~", "'~'"},
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

static fl_job written_and_loaded(const fl_job *job)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    assert_int_equal(fl_job_write(job, stream), FL_OK);
    fclose(stream);
    fl_job again;
    if (fl_job_parse("written", text, size, NULL, 0, &again) != FL_OK) {
        fail_msg("%s in\n%s", fl_errmsg(), text);
    }
    free(text);
    return again;
}

/* Both files need a kind of data that has two. Would catch a second file that --set forgets, or
 * that the record of a run loses. */
static void test_job__reads_and_writes_two_files(void **state)
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
    again = written_and_loaded(&job);
    assert_same(&job, &again);
    assert_int_equal(fl_job_set(&job, "data.path", "c.tsv"), FL_OK); /* one file again */
    assert_string_equal(job.data.test_path, "");
}

/* A run of an older version continues: its job.yaml names the metric as it did then. */
static void test_job__knows_the_older_name_of_the_metric(void **state)
{
    (void)state;
    static const char text[] = "train: {stop_metric: accuracy}\n";
    fl_job job;
    assert_int_equal(fl_job_parse("older", text, sizeof text - 1, NULL, 0, &job), FL_OK);
    assert_string_equal(job.train.metric, "accuracy");
    fl_job again = written_and_loaded(&job);
    assert_same(&job, &again);
    static const char both[] = "train: {stop_metric: accuracy, metric: loss}\n";
    assert_int_equal(fl_job_parse("older", both, sizeof both - 1, NULL, 0, &job), FL_EINVAL);
}

/* Would catch a spelling that is refused, read as another value, or not read back as it is written.
 */
static void test_job__every_spelling_of_every_type_reads_and_reads_back(void **state)
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
            again = written_and_loaded(&job); /* the two fields need each other */
            assert_same(&job, &again);
            continue;
        }
        bool top = strchr(s->path, '.') == NULL;
        snprintf(yaml, sizeof yaml, top ? "%.*s%s: %s" : "%.*s: {%s: %s}",
                 top ? 0 : (int)strcspn(s->path, "."), s->path, fl_field_name(field), text);
        again = parsed(yaml);
        assert_same(&job, &again);
    }
}

static void test_job__a_script_says_what_stays_and_what_is_chosen(void **state)
{
    (void)state;
    fl_job job = parsed("elastic:\n  script:\n  - {step: 7, f: 2, k: auto}\n"
                        "  - step: 1000000000000\n    r: 2\n    m: 3\n");
    assert_int_equal(job.elastic.n_script, 2);
    const fl_script_entry *e = job.elastic.script;
    assert_true(e[0].step == 7 && e[0].f == 2 && e[0].k == FL_JOB_AUTO);
    assert_true(e[0].r == -1 && e[0].m == -1);
    assert_true(e[1].step == INT64_C(1000000000000) && e[1].f == -1 && e[1].k == -1);
    assert_true(e[1].r == 2 && e[1].m == 3);
    assert_int_equal(fl_job_set(&job, "elastic.script", "[{step: 3}]"), FL_OK);
    assert_int_equal(job.elastic.n_script, 1);
    assert_int_equal(job.elastic.script[1].step, 0); /* nothing of the longer list is left */
    assert_int_equal(fl_job_set(&job, "elastic.script", "[{step: 3}, {step: 3}]"), FL_EINVAL);
    assert_int_equal(job.elastic.n_script, 1);
}

static void test_job__hosts_have_names_addresses_and_devices(void **state)
{
    (void)state;
    fl_job job = parsed("hosts:\n- {name: a, address: 10.0.0.1, devices: 4}\n"
                        "- {name: null-1, address: node-2.example.org, devices: 2, sockets: 2}\n"
                        "- {name: c, address: c, devices: 1, memory: 1.5GiB, speed: 0.3, profile: "
                        "\"it's, a {file}: #1\"}\n");
    assert_int_equal(job.n_hosts, 3);
    assert_string_equal(job.hosts[0].address, "10.0.0.1");
    assert_true(job.hosts[0].devices == 4 && job.hosts[0].sockets == -1);
    assert_string_equal(job.hosts[1].name, "null-1");
    assert_true(job.hosts[1].devices == 2 && job.hosts[1].sockets == 2);
    assert_true(job.hosts[1].memory_bytes == 0 && job.hosts[1].speed == 0.0);
    assert_string_equal(job.hosts[1].profile, "");
    assert_true(job.hosts[2].memory_bytes == INT64_C(3) << 29 && job.hosts[2].speed == 0.3);
    assert_string_equal(job.hosts[2].profile, "it's, a {file}: #1");
    assert_int_equal(job.hosts[2].sockets, -1);
    fl_job again = written_and_loaded(&job);
    assert_same(&job, &again);
    static const char *const bad[][2] = {
        {"[{name: a, address: b}]",
         "entry 1: found no devices, allowed: an entry with devices: an integer"},
        {"[{name: a, devices: 1}]", "entry 1: found no address, allowed: an entry with address: an "
                                    "IPv4 address or a name that has one"},
        {"[]", "hosts: found an empty list, allowed: none, or a list of 1 to 128 mappings with "
               "name, address, devices"},
        {"[{name: a, address: b, devices: 1, memory: 1KiB}]",
         "entry 1, memory: found '1KiB', allowed: a size from 1MiB to 1024TiB"},
        {"[{name: a, address: b, devices: 1, memory: 2}]", "entry 1, memory: found '2'"},
        {"[{name: a, address: b, devices: 1, memory: 4GB}]", "entry 1, memory: found '4GB'"},
        {"[{name: a, address: b, devices: 1, speed: 0}]",
         "entry 1, speed: found '0', allowed: a number from 0.001 to 1000"},
        {"[{name: a, address: b, devices: 1, speed: '1'}]",
         "entry 1, speed: found the text '1', allowed: a number from 0.001 to 1000, without"},
        {"[{name: a, address: b, devices: 1, speed: nan}]", "entry 1, speed: found 'nan'"},
        {"[{name: a, address: b, devices: 1, speed: -1}]", "entry 1, speed: found '-1'"},
        {"[{name: a, address: b, devices: 1, speed: 1001}]", "entry 1, speed: found '1001'"},
        {"[{name: a, address: b, devices: 1, profile: ''}]",
         "entry 1, profile: found '', allowed: a path of 1 to 255 bytes"},
        {"[{name: a, address: b, devices: 1, profile: [x]}]", "entry 1, profile: found a list"},
        {"[{name: a, address: b, devices: 1, profile: }]", "entry 1, profile: found nothing"},
        {"[{name: a, address: b, devices: 1, profile: x, profile: y}]",
         "entry 1, profile: repeated"},
        {"[{name: a, address: b, devices: 0}]", "entry 1, devices: found '0'"},
        {"[{name: a, address: '10.0.0.1 x', devices: 1}]", "entry 1, address: found"},
        {"[{name: a, address: b, devices: 1, adress: c}]", "unknown key 'adress', nearest is"},
        {"[{name: a, address: b, devices: 1}, 3]", "entry 2: found '3', allowed: a mapping with "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fl_job_set(&job, "hosts", bad[i][0]), FL_EINVAL);
        if (strstr(fl_errmsg(), bad[i][1]) == NULL) {
            fail_msg("%s: %s", bad[i][0], fl_errmsg());
        }
    }
}

static void test_job__hosts_differ_and_have_sockets_for_their_devices(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"hosts:\n- {name: a, address: b, devices: 1}\n- {name: a, address: c, devices: 1}\n",
         "hosts: entry 2, name: found a twice, allowed: names that differ"},
        {"hosts:\n- {name: a, address: b, devices: 1}\n- {name: b, address: b, devices: 1}\n",
         "hosts: entry 2, address: found b twice"},
        {"hosts:\n- {name: a, address: b, devices: 2, sockets: 3}\n",
         "hosts: entry 1, sockets: found 3, allowed: at most its 2 devices"},
        {"hosts:\n- {name: a, address: b, devices: 1024}\n- {name: c, address: d, devices: 1}\n",
         "hosts: entry 2, devices: found 1025 devices up to here, allowed: at most 1024"},
    };
    fl_job job;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fl_job_parse("j", bad[i][0], strlen(bad[i][0]), NULL, 0, &job), FL_EINVAL);
        if (strstr(fl_errmsg(), bad[i][1]) == NULL) {
            fail_msg("%s: %s", bad[i][0], fl_errmsg());
        }
    }
}

/* The longest lists, each value as wide as it gets: would catch a buffer that is too small. */
static void test_job__the_longest_lists_survive_writing_and_reading(void **state)
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
        snprintf(job.hosts[i].address, FL_JOB_HOST_TEXT, "%059d%04d", 1, i);
        job.hosts[i].devices = job.hosts[i].sockets = 8;
        job.hosts[i].memory_bytes = (INT64_C(1) << 50) - 1;
        job.hosts[i].speed = 0.1 + 0.2;
        memset(job.hosts[i].profile, i < FL_JOB_HOSTS_MAX / 2 ? '\'' : 'p', FL_TEXT_MAX - 1);
    }
    fl_job again = written_and_loaded(&job);
    assert_same(&job, &again);
}

static double unit_random(unsigned short seed[3])
{
    return erand48(seed);
}

/* Would catch a value whose text does not read back to the last bit. */
static void test_job__random_jobs_survive_writing_and_reading(void **state)
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
        fl_job again = written_and_loaded(&job);
        assert_same(&job, &again);
    }
}

/* Percentages as people write them must come back from the resolved job unchanged. */
static void test_job__percentages_survive_writing_and_reading(void **state)
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

static void test_job__overrides_come_after_the_file_and_the_last_one_counts(void **state)
{
    (void)state;
    const char *text = "pipe: {k: 4}\ntrain: {lr: 0.5}\n";
    const char *const overrides[] = {"pipe.k=2", "train.max_steps=20", "name=x=y", "pipe.k=3"};
    fl_job job;
    assert_int_equal(fl_job_parse("a.yaml", text, strlen(text), overrides, 2, &job), FL_OK);
    assert_int_equal(job.pipe.k, 2);
    assert_int_equal(job.train.max_steps, 20);
    assert_true(job.train.lr == 0.5);
    char place[FL_PLACE_MAX];
    assert_string_equal(fl_job_place(&job, "pipe.k", place), "--set pipe.k=2: ");
    assert_string_equal(fl_job_place(&job, "train.lr", place), "a.yaml:2:13: ");
    assert_string_equal(fl_job_place(&job, "train.batch", place), "a.yaml: ");
    assert_int_equal(fl_job_parse("a.yaml", text, strlen(text), overrides, 3, &job), FL_EINVAL);
    const char *const last[] = {"pipe.k=2", "pipe.k=3"};
    assert_int_equal(fl_job_parse("a.yaml", text, strlen(text), last, 2, &job), FL_OK);
    assert_int_equal(job.pipe.k, 3);
    assert_string_equal(fl_job_place(&job, "pipe.k", place), "--set pipe.k=3: ");
}

/* Would catch: a program that never had a command line is told of one. */
static void test_job__a_field_that_a_program_sets_has_no_other_place(void **state)
{
    (void)state;
    fl_job job = parsed("pipe: {k: 4}\n");
    char place[FL_PLACE_MAX];
    assert_int_equal(fl_job_set(&job, "pipe.k", "2"), FL_OK);
    assert_string_equal(fl_job_place(&job, "pipe.k", place), "");
    assert_int_equal(fl_job_set(&job, "pipe.k", "many"), FL_EINVAL);
    assert_string_equal(
        fl_errmsg(), "pipe.k: found 'many', allowed: auto, or an integer from 1 to 128 (stages)");
    assert_int_equal(fl_job_set(&job, "pipe.kk", "2"), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "'pipe.kk': unknown field, nearest is pipe.k");
}

static void test_job__a_failed_load_changes_nothing(void **state)
{
    (void)state;
    fl_job before = parsed("pipe: {k: 4}\n"), job = before;
    const char *broken = "pipe: {k: 3, m: many}\n";
    assert_int_equal(fl_job_parse("b.yaml", broken, strlen(broken), NULL, 0, &job), FL_EINVAL);
    assert_same(&job, &before);
    assert_memory_equal(&job, &before, sizeof job);
    assert_int_equal(fl_job_set(&job, "pipe.k", "0"), FL_EINVAL);
    assert_memory_equal(&job, &before, sizeof job);
}

/* Would catch: a place that is parsed out of a message's text, the place of another job, and a
 * place that is added twice. */
static void test_job__locate_puts_the_place_before_a_failure_about_a_field(void **state)
{
    (void)state;
    fl_job job = parsed("pipe:\n  k: 40\n"), other = parsed("{}\n");
    const char *const *k = FL_FIELDS("pipe.k");
    fl_status status = fl_fail_field(FL_EINVAL, k, "found %d, allowed: 1 to 18", 40);
    assert_string_equal(fl_errmsg(), "pipe.k: found 40, allowed: 1 to 18");
    assert_int_equal(fl_job_locate(&job, fl_job_locate(&job, status)), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "job.yaml:2:6: pipe.k: found 40, allowed: 1 to 18");
    assert_int_equal(fl_job_locate(&other, fl_fail_field(FL_EINVAL, k, "too many")), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "job.yaml: pipe.k: too many");
    /* What the message compares a default with is what the user wrote. */
    const char *const *both = FL_FIELDS("autodp.r", "pipe.k");
    assert_int_equal(fl_job_locate(&job, fl_fail_field(FL_EINVAL, both, "too many")), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "job.yaml:2:6: autodp.r: too many");
    assert_int_equal(fl_job_locate(&job, fl_fail(FL_EIO, "pipe.k: these are words")), FL_EIO);
    assert_string_equal(fl_errmsg(), "pipe.k: these are words");
    assert_int_equal(fl_job_locate(&job, FL_OK), FL_OK);
    /* A field stays with the failure through context, and through a failure in between. */
    fl_failure kept;
    fl_failure_keep(&kept, fl_within(fl_fail_field(FL_EINVAL, k, "bad"), "plan"));
    assert_int_equal(fl_fail(FL_EIO, "closing failed, too"), FL_EIO);
    assert_int_equal(fl_job_locate(&job, fl_failure_raise(&kept)), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "job.yaml:2:6: plan: pipe.k: bad");
    fl_failure_keep(&kept, FL_OK);
    assert_int_equal(fl_failure_raise(&kept), FL_OK);
}

static void test_job__load_reads_files_and_says_why_it_cannot(void **state)
{
    (void)state;
    fl_job job;
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/vit-fashion.yaml", NULL, 0, &job), FL_OK);
    assert_string_equal(job.name, "vit-fashion");
    assert_int_equal(job.model.blocks, 12);
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/sst2-minilm.yaml", NULL, 0, &job), FL_OK);
    assert_int_equal(job.model.kind, FL_MODEL_HF);
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/mrpc-minilm.yaml", NULL, 0, &job), FL_OK);
    assert_string_equal(job.data.pair, "#2 String");
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/squad-minilm.yaml", NULL, 0, &job), FL_OK);
    assert_int_equal(job.data.kind, FL_DATA_SQUAD);
    assert_int_equal(job.data.stride, 128);
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/quickstart.yaml", NULL, 0, &job), FL_OK);
    assert_int_equal(fl_job_load("no/such.yaml", NULL, 0, &job), FL_EIO);
    assert_string_equal(fl_errmsg(), "no/such.yaml: cannot be opened: No such file or directory");
    assert_int_equal(fl_job_load("/", NULL, 0, &job), FL_EIO);
    assert_string_equal(fl_errmsg(), "/: cannot be read: Is a directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job__defaults_are_the_documented_ones),
        cmocka_unit_test(test_job__an_empty_mapping_and_empty_sections_take_the_defaults),
        cmocka_unit_test(test_job__reads_and_writes_two_files),
        cmocka_unit_test(test_job__knows_the_older_name_of_the_metric),
        cmocka_unit_test(test_job__every_spelling_of_every_type_reads_and_reads_back),
        cmocka_unit_test(test_job__a_script_says_what_stays_and_what_is_chosen),
        cmocka_unit_test(test_job__hosts_have_names_addresses_and_devices),
        cmocka_unit_test(test_job__hosts_differ_and_have_sockets_for_their_devices),
        cmocka_unit_test(test_job__the_longest_lists_survive_writing_and_reading),
        cmocka_unit_test(test_job__random_jobs_survive_writing_and_reading),
        cmocka_unit_test(test_job__percentages_survive_writing_and_reading),
        cmocka_unit_test(test_job__overrides_come_after_the_file_and_the_last_one_counts),
        cmocka_unit_test(test_job__a_field_that_a_program_sets_has_no_other_place),
        cmocka_unit_test(test_job__a_failed_load_changes_nothing),
        cmocka_unit_test(test_job__locate_puts_the_place_before_a_failure_about_a_field),
        cmocka_unit_test(test_job__load_reads_files_and_says_why_it_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
