/* frostline manifest with options and jobs that a user may give. Would catch: a manifest whose pods
 * cannot work, because a path is not in the volume, an image or a name is none, or a port is taken;
 * and a value that the YAML has in another form than it was given. */
#include "launcher/cli/manifest/manifest_check.h"
#include "launcher/job/job.h"
#include "support/formats/yaml_text.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define JOB "'" FL_SOURCE_DIR "/configs/quickstart.yaml' --set devices.count=auto "
#define TWO JOB "--hosts 2 --claim c "
#define ALONE JOB "--hosts 2 --set run.shared=false "
#define BOX "template.spec.containers.0."

static output said;

static void manifest(const char *arguments)
{
    char command[4096];
    snprintf(command, sizeof command, "'" FL_BINARY_DIR "/frostline' manifest %s", arguments);
    run_command(NULL, command, &said);
}

/* ---- names and paths ---- */

static void test_manifest_command__knows_names(void **state)
{
    (void)state;
    char label[300];
    static const char *const good[] = {"a", "a-b", "0a.b-c.d9"};
    static const char *const bad[] = {"",    "A",    "a b",  "a_b",  "-a",   "a-",   "a..b",
                                      ".a",  "a.",   "a.-b", "a-.b", "a\n",  "a\nb", "\xC3\xA9",
                                      "a\t", "\xFF", "a'b",  "a\"b", "a: b", "a#",   "a$(B)"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(fl_manifest_is_object(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(fl_manifest_is_object(bad[i]));
    }
    memset(label, 'a', sizeof label);
    label[254] = '\0';
    assert_false(fl_manifest_is_object(label));
    label[253] = '\0';
    assert_true(fl_manifest_is_object(label));
}

static void test_manifest_command__knows_images(void **state)
{
    (void)state;
    static char longest[64 * 1024];
    static const char *const good[] = {
        "frostline",
        "frostline:1.0",
        "team/frost_line__x.y--z",
        "localhost/f",
        "Registry.Example.org:5000/team/frostline:V_1.0-rc",
        "10.0.0.1:5000/f@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "f:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    static const char *const bad[] = {
        "",     "a b",  " a",    "a ",  "Team/F", "a//b",    "a/",          "/a",   "a:", "a@",
        "a:b:", "a\nb", "a\n",   "a'b", "a\"b",   "a$(B)",   "a@sha256:12", "a#b",  "-a", "a:-b",
        "a_",   "\xFF", "a\x1B", "a,b", "a@b",    "a:b c:d", "http://a/b",  "a...b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!fl_manifest_is_image(good[i])) {
            fail_msg("refused: %s", good[i]);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (fl_manifest_is_image(bad[i])) {
            fail_msg("taken: %s", bad[i]);
        }
    }
    memset(longest, 'a', sizeof longest - 1);
    assert_false(fl_manifest_is_image(longest));
}

static void test_manifest_command__knows_paths_in_the_working_directory(void **state)
{
    (void)state;
    static const char *const in[] = {"runs",       ".",      "a/../b",  "./a//b/",
                                     "/work",      "/work/", "/work/a", "//work/./a",
                                     "/work/a/..", "-x",     "..a",     "a b"};
    static const char *const out[] = {"..",      "../x",      "a/../../work/b", "/",
                                      "/data",   "/workshop", "/work/..",       "/work/../work",
                                      "/./data", "/wor",      "a/b/../../.."};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        assert_true(fl_manifest_is_in_work(in[i]));
    }
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        assert_false(fl_manifest_is_in_work(out[i]));
    }
}

/* ---- what is refused ---- */

/* Each ends with exit code 2 and one line with this text, and writes nothing to standard output. */
static void test_manifest_command__refuses(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {TWO "--set run.dir=../x", "run.dir: found '../x', which is not in /work"},
        {TWO "--set run.dir=/data/runs", "run.dir: found '/data/runs', which is not in /work"},
        {ALONE "--set run.dir=../x", "allowed: a path in it, as runs or /work/runs"},
        {TWO "--set checkpoint.dir=/data", "checkpoint.dir: found '/data', which is not in /work"},
        {ALONE "--set data.path=data", "data.path: found 'data', which is in /work"},
        {ALONE "--set data.path=/work/data", "data.path: found '/work/data', which is in /work"},
        {ALONE "--set model.init=old", "model.init: found 'old', which is in /work"},
        {TWO "--set data.path=../data", "data.path: found '../data', which leads out of /work"},
        {TWO "--image 'a b'", "--image: found 'a b', allowed: [HOST[:PORT]/]PATH[:TAG][@DIGEST]"},
        {TWO "--image ''", "--image: found '', allowed"},
        {TWO "--image \"$(printf 'a\\nb')\"", "--image: found 'a\\012b', allowed"},
        {TWO "--image \"$(printf 'a\\377')\"", "--image: found 'a\\377', allowed"},
        {TWO "--image \"$(head -c 100000 /dev/zero | tr '\\0' a)\"", "--image: found 'aaa"},
        {TWO "--secret a..b", "--secret: found 'a..b', allowed: the name of an object: 1 to 253"},
        {JOB "--hosts 2 --claim 'a b'", "--claim: found 'a b', allowed"},
        {JOB "--hosts 2 --claim ''", "--claim: found '', allowed"},
        {TWO "--kind \"$(printf 'a\\033[31m')\"", "--kind: found 'a\\033[31m', allowed"},
        {JOB "--claim c --hosts '2 '", "--hosts: found '2 ', allowed: 2 to 128"},
        {TWO "--name \"$(printf 'a\\nb')\"", "--name: found 'a\\012b'"},
        {TWO "--set devices.max=1", "devices.max: found 1, but the hosts have 2 devices"},
        {TWO "--set cache.policy=on --set cache.stores=2", "cache.stores: found 2, but host"},
        {TWO "--set devices.kind=cuda --set autodp.transport=nccl",
         "autodp.transport: found nccl, but the run has 2 hosts"},
        {TWO "--set control.listen=tcp://0.0.0.0:5569 --set control.key=k --set control.allow=a",
         "control.listen: found 'tcp://0.0.0.0:5569', but the head of the pods listens at 5570"},
        {TWO "--set control.metrics=5571", "control.metrics: found '5571', but the head"},
        {TWO "--set control.metrics=10.0.0.1:9000", "but a pod has an address only once it runs"},
        {TWO "--set 'hosts=[{name: a, address: a, devices: 1, speed: 2}, {name: b, address: b, "
             "devices: 1}]'",
         "hosts: host b has other sockets, memory, speed or profile than host a, but all pods"},
        {TWO "--set 'hosts=[{name: a, address: a, devices: 1, memory: 4GiB}, {name: b, address: b, "
             "devices: 1, memory: 4GiB}]'",
         "hosts: entry 1, memory: found 4.0 GiB, allowed: at most devices.memory"},
        {ALONE "--set 'hosts=[{name: a, address: a, devices: 1, profile: p}, {name: b, address: b, "
               "devices: 1, profile: p}]'",
         "hosts: found 'p', which is in /work"},
        {"/nowhere/job.yaml --hosts 2", "/nowhere/job.yaml: cannot be opened"},
        {"/ --hosts 2", "/: cannot be read: found a folder, allowed: a file, a pipe or a terminal"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manifest(cases[i][0]);
        size_t n = strlen(said.err);
        if (said.exit_code != 2 || said.out[0] != '\0' || strstr(said.err, cases[i][1]) == NULL ||
            strchr(said.err, '\n') != said.err + n - 1) {
            fail_msg("%s: %d %s", cases[i][0], said.exit_code, said.err);
        }
    }
}

/* ---- what is written ---- */

static json_t *documents_of(const char *arguments)
{
    manifest(arguments);
    if (said.exit_code != 0) {
        fail_msg("%s: %s", arguments, said.err);
    }
    return yaml_documents(said.out);
}

static json_t *job_of(json_t *documents)
{
    return yaml_at(yaml_of_kind(documents, "JobSet"), "spec.replicatedJobs.0.template.spec");
}

/* The last word after this one, as Kubernetes gives it to the program. */
static void last_after(json_t *words, const char *word, char *text, size_t size_bytes)
{
    yaml_expanded(yaml_word_after(words, word), text, size_bytes);
}

/* Pods are like the job's hosts. Catches values of `hosts` that are lost, and a run that would read
 * others than the job's. */
static void test_manifest_command__pods_have_what_hosts_state(void **state)
{
    (void)state;
    static fl_job job;
    static char text[16 * 1024];
    json_t *documents = documents_of(
        JOB "--claim c --set 'hosts=[{name: a, address: a, devices: 2, sockets: 2, memory: 3MiB, "
            "speed: 0.3, profile: \"$(it)''s: #1\"}, {name: b, address: b, devices: 2, sockets: 2, "
            "memory: 3MiB, speed: 0.3, profile: \"$(it)''s: #1\"}]'");
    last_after(yaml_at(job_of(documents), BOX "args"), "--set", text, sizeof text);
    assert_memory_equal(text, "hosts=", strlen("hosts="));
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "hosts", text + strlen("hosts=")), FL_OK);
    assert_int_equal(job.n_hosts, 2);
    for (int i = 0; i < 2; i++) {
        const fl_job_host *host = &job.hosts[i];
        char name[64];
        snprintf(name, sizeof name, "quickstart-hosts-0-%d", i);
        assert_string_equal(host->name, name);
        assert_true(host->devices == 2 && host->sockets == 2 && host->speed == 0.3);
        assert_int_equal(host->memory_bytes, 3 << 20);
        assert_string_equal(host->profile, "$(it)s: #1");
    }
    json_decref(documents);
}

/* A pod asks for a GPU for each of its devices, and for memory of the host. */
static void test_manifest_command__pods_ask_for_gpus(void **state)
{
    (void)state;
    json_t *documents =
        documents_of(TWO "--devices 3 --set devices.kind=cuda --set devices.memory=80GiB "
                         "--set cache.policy=off");
    json_t *resources = yaml_at(job_of(documents), BOX "resources");
    json_t *limits = yaml_at(resources, "limits");
    assert_string_equal(json_string_value(json_object_get(limits, "nvidia.com/gpu")), "3");
    assert_string_equal(yaml_text(resources, "requests.memory"), "3584Mi");
    json_decref(documents);
    documents = documents_of(TWO "--devices 3");
    assert_null(yaml_at(job_of(documents), BOX "resources.limits"));
    json_decref(documents);
}

/* A directory whose name begins like an option, or is within the volume by its whole path. */
static void test_manifest_command__names_the_run_directory(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"-x", "./-x/one"},
                                           {"/work/a", "/work/a/one"},
                                           {"it''s \"a\" $(b) $$ #c", "its \"a\" $(b) $$ #c/one"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[1024], text[512];
        snprintf(arguments, sizeof arguments, TWO "--name one --set 'run.dir=%s'", cases[i][0]);
        json_t *documents = documents_of(arguments);
        last_after(yaml_at(job_of(documents), BOX "args"), "--run-dir", text, sizeof text);
        assert_string_equal(text, cases[i][1]);
        json_t *probe = yaml_at(job_of(documents), BOX "livenessProbe.exec.command");
        last_after(probe, "5", text, sizeof text);
        assert_string_equal(text, cases[i][1]);
        json_decref(documents);
    }
}

/* The file is read once: a pipe is one, too. */
static void test_manifest_command__takes_a_job_from_a_pipe(void **state)
{
    (void)state;
    run_command(NULL,
                "printf 'name: piped\\r\\nrun: {shared: true} # \\302\\205\\n' | "
                "'" FL_BINARY_DIR "/frostline' manifest /dev/stdin --hosts 2 --claim c",
                &said);
    assert_int_equal(said.exit_code, 0);
    json_t *documents = yaml_documents(said.out);
    json_t *data = yaml_at(yaml_of_kind(documents, "ConfigMap"), "data");
    assert_string_equal(json_string_value(json_object_get(data, "job.yaml")),
                        "name: piped\r\nrun: {shared: true} # \xC2\x85\n");
    json_decref(documents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest_command__knows_names),
        cmocka_unit_test(test_manifest_command__knows_images),
        cmocka_unit_test(test_manifest_command__knows_paths_in_the_working_directory),
        cmocka_unit_test(test_manifest_command__refuses),
        cmocka_unit_test(test_manifest_command__pods_have_what_hosts_state),
        cmocka_unit_test(test_manifest_command__pods_ask_for_gpus),
        cmocka_unit_test(test_manifest_command__names_the_run_directory),
        cmocka_unit_test(test_manifest_command__takes_a_job_from_a_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
