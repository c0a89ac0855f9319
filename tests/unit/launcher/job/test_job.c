/* Job files that are right: defaults, scripts, hosts, overrides, and what loads them. */
#include "device/errors/failure.h"
#include "launcher/job/job.h"
#include "support/formats/jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

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
    fl_job job = parsed_job("{}");
    assert_same_job(&job, &defaults);
    job = parsed_job(
        "\xEF\xBB\xBF# a byte order mark and a comment\ntrain:\n  # lr: 1\n  \npipe: {}\n");
    assert_same_job(&job, &defaults);
}

static void test_job__a_script_says_what_stays_and_what_is_chosen(void **state)
{
    (void)state;
    fl_job job = parsed_job("elastic:\n  script:\n  - {step: 7, f: 2, k: auto}\n"
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
    fl_job job =
        parsed_job("hosts:\n- {name: a, address: 10.0.0.1, devices: 4}\n"
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
    fl_job again = written_and_loaded_job(&job);
    assert_same_job(&job, &again);
    static const char *const bad[][2] = {
        {"[{name: a, address: b}]",
         "entry 1: found no devices, allowed: an entry with devices: an integer"},
        {"[{name: a, devices: 1}]", "entry 1: found no address, allowed: an entry with address: an "
                                    "IPv4 address or a name that has one"},
        {"[]", "hosts: found an empty list, allowed: none, or a list of 2 to 128 mappings with "
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
        {"[{name: a, address: me@b, devices: 1}]",
         "entry 1, address: found 'me@b', allowed: an IPv4 address, as 10.0.0.1, or a name that "
         "has one; ssh takes its user from its own configuration, as ~/.ssh/config"},
        {"[{name: a, address: b, devices: 1, user: me}]",
         "entry 1: unknown key 'user': ssh takes its user from its own configuration"},
        {"[{name: a, address: '10.0.0.1:22', devices: 1}]",
         "entry 1, address: found '10.0.0.1:22', allowed: an IPv4 address, as 10.0.0.1, or a name "
         "that has one; ssh takes its port from its own configuration, as ~/.ssh/config (Host, "
         "Port)"},
        {"[{name: a, address: 'me@b:22', devices: 1}]",
         "ssh takes its user and port from its own configuration, as ~/.ssh/config (Host, User, "
         "Port)"},
        {"[{name: a, address: 'fd00::22', devices: 1}]", "the IPv4 address of one host"},
        {"[{name: a, address: b, devices: 1, port: 22}]",
         "entry 1: unknown key 'port': ssh takes its port from its own configuration"},
        {"[{name: a, address: b, devices: 1}]",
         "hosts: found a list of 1, allowed: none, or a list of 2 to 128 mappings with name"},
        {"[{name: a, address: b, devices: 1}, 3]", "entry 2: found '3', allowed: a mapping with "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fl_job_set(&job, "hosts", bad[i][0]), FL_EINVAL);
        if (strstr(fl_errmsg(), bad[i][1]) == NULL) {
            fail_msg("%s: %s", bad[i][0], fl_errmsg());
        }
    }
}

#define TWO_HOSTS(address)                                                                         \
    "hosts:\n- {name: a, address: b, devices: 1}\n- {name: b, address: " address ", devices: 1}\n"

static void test_job__hosts_differ_and_have_sockets_for_their_devices(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"hosts:\n- {name: a, address: b, devices: 1}\n- {name: a, address: c, devices: 1}\n",
         "j:3:3: hosts: entry 2, name: found a twice, allowed: names that differ"},
        {"hosts:\n- {name: a, address: b, devices: 1}\n- {name: b, address: b, devices: 1}\n",
         "hosts: entry 2, address: found b twice"},
        {TWO_HOSTS("224.0.0.1"), "hosts: entry 2, address: found 224.0.0.1, a multicast address; "
                                 "allowed: the IPv4 address of one host"},
        {TWO_HOSTS("240.0.0.1"), "j:3:22: hosts: entry 2, address: found 240.0.0.1, an address of "
                                 "240.0.0.0/4 (class E), which no host has; allowed: "},
        {TWO_HOSTS("'::1'"), "j:3:22: hosts: entry 2, address: found ::1, an IPv6 loopback"},
        {"hosts:\n- {name: a, address: 127.0.0.1, devices: 1}\n- {name: b, address: 10.0.0.2, "
         "devices: 1}\n",
         "j:2:3: hosts: entry 1, address: found 127.0.0.1, which leads other hosts to themselves"},
        {TWO_HOSTS("239.255.255.255"), "a multicast address"},
        {TWO_HOSTS("255.255.255.255"), "found 255.255.255.255, a broadcast address"},
        {TWO_HOSTS("010.77.1.1"),
         "hosts: entry 2, address: found '010.77.1.1', allowed: four decimal numbers from 0 to 255 "
         "without leading zeros, as 10.0.0.1, or a name"},
        {TWO_HOSTS("10.1"), "found '10.1', allowed: four decimal numbers"},
        {TWO_HOSTS("10.0.0.256"), "found '10.0.0.256', allowed: four decimal numbers"},
        {TWO_HOSTS("0x0a.1.1.1"), "found '0x0a.1.1.1', allowed: four decimal numbers"},
        {"hosts:\n- {name: b, address: c, devices: 1}\n- {name: a, address: b, devices: 2, "
         "sockets: 3}\n",
         "j:3:3: hosts: entry 2, sockets: found 3, allowed: at most its 2 devices"},
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
    fl_job job = parsed_job("pipe: {k: 4}\n");
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
    fl_job before = parsed_job("pipe: {k: 4}\n"), job = before;
    const char *broken = "pipe: {k: 3, m: many}\n";
    assert_int_equal(fl_job_parse("b.yaml", broken, strlen(broken), NULL, 0, &job), FL_EINVAL);
    assert_same_job(&job, &before);
    assert_memory_equal(&job, &before, sizeof job);
    assert_int_equal(fl_job_set(&job, "pipe.k", "0"), FL_EINVAL);
    assert_memory_equal(&job, &before, sizeof job);
}

/* `--set model.dim=63` was blamed on the line of model.heads in job.yaml, which is good alone. */
static void test_job__a_failure_is_of_what_was_set_after_the_file(void **state)
{
    (void)state;
    const char *text = "model: {dim: 64, heads: 4}\n";
    const char *const dim[] = {"model.dim=63"}, *const heads[] = {"model.heads=5"};
    fl_job job;
    assert_int_equal(fl_job_parse("a.yaml", text, strlen(text), dim, 1, &job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "--set model.dim=63: model.heads: found 4, allowed: a divisor "
                                     "of model.dim 63");
    assert_int_equal(fl_job_parse("a.yaml", text, strlen(text), heads, 1, &job), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "--set model.heads=5: model.heads: found 5, allowed: a divisor "
                        "of model.dim 64");
    job = parsed_job(text);
    assert_int_equal(fl_job_set(&job, "model.dim", "63"), FL_OK);
    assert_int_equal(fl_job_locate(&job, fl_job_check(&job)), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model.heads: found 4, allowed: a divisor of model.dim 63");
}

/* Would catch: a message of another host without the place that the user knows, and with one that
 * its words do not name. */
static void test_job__locates_what_another_host_has_said(void **state)
{
    (void)state;
    static const char quoted[] = "pipe.k: found 40", words[] = "host b: found 40";
    fl_job job = parsed_job("pipe:\n  k: 40\n");
    fl_status status = fl_fail(FL_EINVAL, "no start on host b: %s", quoted);
    assert_int_equal(fl_job_locate_quoted(&job, quoted, status), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "job.yaml:2:6: no start on host b: pipe.k: found 40");
    status = fl_fail(FL_EINVAL, "no start: %s", words);
    assert_int_equal(fl_job_locate_quoted(&job, words, status), FL_EINVAL);
    assert_int_equal(fl_job_locate_quoted(&job, "", status), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "no start: host b: found 40");
    assert_int_equal(fl_job_locate_quoted(&job, quoted, FL_OK), FL_OK);
}

/* Would catch: a place that is parsed out of a message's text, the place of another job, and a
 * place that is added twice. */
static void test_job__locate_puts_the_place_before_a_failure_about_a_field(void **state)
{
    (void)state;
    fl_job job = parsed_job("pipe:\n  k: 40\n"), other = parsed_job("{}\n");
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
    assert_string_equal(fl_errmsg(),
                        "/: cannot be read: found a folder, allowed: a file, a pipe or a terminal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job__defaults_are_the_documented_ones),
        cmocka_unit_test(test_job__an_empty_mapping_and_empty_sections_take_the_defaults),
        cmocka_unit_test(test_job__a_script_says_what_stays_and_what_is_chosen),
        cmocka_unit_test(test_job__hosts_have_names_addresses_and_devices),
        cmocka_unit_test(test_job__hosts_differ_and_have_sockets_for_their_devices),
        cmocka_unit_test(test_job__overrides_come_after_the_file_and_the_last_one_counts),
        cmocka_unit_test(test_job__a_field_that_a_program_sets_has_no_other_place),
        cmocka_unit_test(test_job__a_failed_load_changes_nothing),
        cmocka_unit_test(test_job__a_failure_is_of_what_was_set_after_the_file),
        cmocka_unit_test(test_job__locate_puts_the_place_before_a_failure_about_a_field),
        cmocka_unit_test(test_job__locates_what_another_host_has_said),
        cmocka_unit_test(test_job__load_reads_files_and_says_why_it_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
