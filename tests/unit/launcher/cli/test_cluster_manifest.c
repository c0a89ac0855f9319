/* What frostline manifest writes, read back. Would catch: a name, a value or a job's text that
 * changes the structure or that Kubernetes would replace, numbers of pods and addresses that do not
 * fit together, keys that do not belong to each other, and a
 * time to leave that is longer than Kubernetes waits. */
#include "launcher/cli/manifest/manifest.h"
#include "support/formats/yaml_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include <cmocka.h>

#define POD "template.spec."
#define BOX POD "containers.0."

static fl_manifest small_manifest(void)
{
    return (fl_manifest){.name = "one",
                         .image = "frostline:1",
                         .job = "name: one\n",
                         .run_dir = "runs/one",
                         .n_hosts = 3,
                         .n_devices = 2,
                         .cpus = 4,
                         .memory_bytes = 3000000000,
                         .grace_s = 50};
}

static json_t *write_and_read(const fl_manifest *m)
{
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    assert_non_null(stream);
    assert_int_equal(fl_manifest_write(m, stream), FL_OK);
    fclose(stream);
    json_t *documents = yaml_documents(text);
    free(text);
    return documents;
}

static void check_pod(json_t *job, const char *pods)
{
    assert_string_equal(yaml_text(job, "completions"), pods);
    assert_string_equal(yaml_text(job, "parallelism"), pods);
    assert_string_equal(yaml_text(job, "completionMode"), "Indexed");
    assert_string_equal(yaml_text(job, POD "restartPolicy"), "Never");
    assert_string_equal(yaml_text(job, POD "terminationGracePeriodSeconds"), "55");
    assert_string_equal(yaml_text(job, BOX "image"), "frostline:1");
    assert_string_equal(yaml_text(job, BOX "resources.requests.cpu"), "4");
    assert_string_equal(yaml_text(job, BOX "resources.requests.memory"), "2862Mi");
    assert_string_equal(yaml_text(job, POD "volumes.2.secret.defaultMode"), "256");
}

/* An evicted pod comes back; one whose host a user drained does not; bad input and a user's stop
 * end all. The order of the rules counts. */
static void check_policies(json_t *job)
{
    static const char *const rules[][2] = {
        {"0.action", "FailJob"},
        {"0.onExitCodes.values.0", "2"},
        {"1.action", "Ignore"},
        {"1.onPodConditions.0.type", "DisruptionTarget"},
        {"2.action", "FailIndex"},
        {"2.onExitCodes.values.0", "6"},
        {"0.onExitCodes.values.1", "130"},
    };
    assert_string_equal(yaml_text(job, "backoffLimitPerIndex"), "3");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char path[96];
        snprintf(path, sizeof path, "podFailurePolicy.rules.%s", rules[i][0]);
        assert_string_equal(yaml_text(job, path), rules[i][1]);
    }
}

/* Catches pods without GPUs, and those in which NCCL has too little shared memory. */
static void test_manifest__pods_with_gpus(void **state)
{
    (void)state;
    fl_manifest m = small_manifest();
    m.n_gpus = 2;
    json_t *documents = write_and_read(&m), *set = yaml_of_kind(documents, "JobSet");
    json_t *spec = yaml_at(set, "spec.replicatedJobs.0.template.spec");
    check_pod(spec, "3");
    json_t *limits = yaml_at(spec, BOX "resources.limits");
    assert_string_equal(json_string_value(json_object_get(limits, "nvidia.com/gpu")), "2");
    assert_string_equal(yaml_text(spec, BOX "volumeMounts.3.mountPath"), "/dev/shm");
    assert_string_equal(yaml_text(spec, BOX "volumeMounts.3.name"), "shm");
    assert_string_equal(yaml_text(spec, POD "volumes.3.name"), "shm");
    assert_string_equal(yaml_text(spec, POD "volumes.3.emptyDir.medium"), "Memory");
    json_decref(documents);
}

static void test_manifest__job_set(void **state)
{
    (void)state;
    const fl_manifest m = small_manifest();
    json_t *documents = write_and_read(&m), *set = yaml_of_kind(documents, "JobSet");
    json_t *spec = yaml_at(set, "spec.replicatedJobs.0.template.spec");
    json_t *run = yaml_at(spec, BOX "args");
    assert_int_equal(json_array_size(documents), 4);
    check_pod(spec, "3");
    check_policies(spec);
    assert_string_equal(yaml_text(set, "spec.network.subdomain"), "one");
    assert_string_equal(yaml_text(spec, "successPolicy.rules.0.succeededIndexes"), "0");
    assert_string_equal(yaml_word_after(run, "--listen"), "tcp://one-hosts-0-0.one:5570");
    assert_string_equal(
        yaml_word_after(run, "--set"),
        "hosts=[{name: one-hosts-0-0, address: one-hosts-0-0.one, devices: 2}, {name: "
        "one-hosts-0-1, address: one-hosts-0-1.one, devices: 2}, {name: one-hosts-0-2, "
        "address: one-hosts-0-2.one, devices: 2}]");
    assert_string_equal(
        yaml_text(yaml_of_kind(documents, "PodDisruptionBudget"), "spec.minAvailable"), "2");
    assert_string_equal(yaml_text(spec, BOX "livenessProbe.exec.command.7"), "runs/one");
    json_decref(documents);
}

static void test_manifest__keys_belong_together(void **state)
{
    (void)state;
    const fl_manifest m = small_manifest();
    char lines[3][48], public_key[41];
    json_t *documents = write_and_read(&m), *again = write_and_read(&m);
    json_t *secret = yaml_of_kind(documents, "Secret");
    assert_string_equal(yaml_text(secret, "metadata.name"), "one-keys");
    json_t *data = yaml_at(secret, "stringData");
    const char *head = json_string_value(json_object_get(data, "head.key"));
    const char *agents = json_string_value(json_object_get(data, "hosts.key"));
    assert_int_equal(sscanf(head, "#%*[^\n]\n%47s\n#%*[^\n]\n%47s\n#%*[^\n]\n%47s", lines[0],
                            lines[1], lines[2]),
                     3);
    assert_int_equal(zmq_curve_public(public_key, lines[2]), 0);
    assert_string_equal(public_key, lines[0]);
    assert_memory_equal(head, agents, strlen(agents));
    assert_null(strstr(agents, lines[2]));
    assert_string_not_equal(head,
                            json_string_value(json_object_get(
                                yaml_at(yaml_of_kind(again, "Secret"), "stringData"), "head.key")));
    json_decref(documents);
    json_decref(again);
}

static void test_manifest__job_with_secret_and_claim(void **state)
{
    (void)state;
    fl_manifest m = small_manifest();
    m.plain = true;
    m.secret = "mine";
    m.claim = "disk";
    json_t *documents = write_and_read(&m), *job = yaml_of_kind(documents, "Job");
    json_t *spec = yaml_at(job, "spec");
    check_pod(spec, "3");
    assert_null(yaml_of_kind(documents, "Secret"));
    assert_string_equal(yaml_text(yaml_of_kind(documents, "Service"), "spec.clusterIP"), "None");
    assert_string_equal(yaml_text(spec, POD "subdomain"), "one");
    assert_string_equal(yaml_text(spec, POD "volumes.0.persistentVolumeClaim.claimName"), "disk");
    assert_string_equal(yaml_text(spec, POD "volumes.2.secret.secretName"), "mine");
    assert_string_equal(
        yaml_text(spec, BOX "command.2"),
        "[ \"$JOB_COMPLETION_INDEX\" = 0 ] && exec frostline \"$@\"; exec frostline "
        "agent --join tcp://one-0.one:5570 --key /etc/frostline/keys/hosts.key "
        "--grace 50 --wait 600");
    json_decref(documents);
}

static void test_manifest__keeps_hostile_texts(void **state)
{
    (void)state;
    static const char *const overrides[] = {"name=true", "a=$(HOST) $$ $x 'q' \"d\" #c: - {[",
                                            "b=line\nnext"};
    fl_manifest m = small_manifest();
    m.image = "on";
    m.job = "a: 1\n---\n  b: \"$(X)\" # \u00e9\n\n\n";
    m.overrides = overrides;
    m.n_overrides = 3;
    json_t *documents = write_and_read(&m), *set = yaml_of_kind(documents, "JobSet");
    json_t *data = yaml_at(yaml_of_kind(documents, "ConfigMap"), "data");
    json_t *run = yaml_at(set, "spec.replicatedJobs.0.template.spec." BOX "args");
    assert_string_equal(json_string_value(json_object_get(data, "job.yaml")), m.job);
    for (size_t i = 0; i < 3; i++) {
        char text[256];
        yaml_expanded(json_string_value(json_array_get(run, 10 + 2 * i)), text, sizeof text);
        assert_string_equal(text, overrides[i]);
    }
    assert_int_equal(json_array_size(documents), 4);
    json_decref(documents);
}

/* Texts that YAML has a way to lose or to change: ends of lines of other systems, blanks at ends of
 * lines, marks of a document, other types, and texts that are long. */
static const char *const hostile[] = {
    "",
    " ",
    "\n",
    "\n\n a",
    "  a\n b\n",
    "a",
    "a\r\nb\r\n",
    "a\rb",
    "a \n\tb\t\n",
    "a\xC2\x85 b",
    "a\xE2\x80\xA8 b\xE2\x80\xA9",
    "\xEF\xBB\xBFname: a\n",
    "# \xF0\x9F\xA7\x8A\xF0\x9F\x94\xA5\n",
    "\xC2\xA0\xE2\x80\x8B\xEF\xBF\xBD",
    "...\n",
    "---\na: 1\n...\n---\n",
    "%YAML 1.1\n",
    "&a *a !!int ? | > @ ` \n",
    "null",
    "~",
    "No",
    "0x10",
    "1e3",
    "12:30:45",
    "2026-11-28",
    "=",
    "<<",
    "- a",
    "a: b",
    "a #b",
    "'a' \"b\" \\n \\",
    "$(A) $$(B) $",
    "<script>&amp;{{ .Values.x }}",
};

/* A text of a job, a word of a command, and a directory. */
static void check_round_trip(const char *text)
{
    static char word[64 * 1024];
    const char *const overrides[] = {text};
    fl_manifest m = small_manifest();
    m.job = m.run_dir = text;
    m.overrides = overrides;
    m.n_overrides = 1;
    json_t *documents = write_and_read(&m), *set = yaml_of_kind(documents, "JobSet");
    json_t *data = yaml_at(yaml_of_kind(documents, "ConfigMap"), "data");
    json_t *box = yaml_at(set, "spec.replicatedJobs.0.template.spec." BOX "args");
    assert_int_equal(json_array_size(documents), 4);
    assert_string_equal(json_string_value(json_object_get(data, "job.yaml")), text);
    yaml_expanded(json_string_value(json_array_get(box, 10)), word, sizeof word);
    assert_string_equal(word, text);
    yaml_expanded(json_string_value(json_array_get(box, 4)), word, sizeof word);
    assert_string_equal(word, text);
    json_decref(documents);
}

static void test_manifest__reads_back_what_it_wrote(void **state)
{
    (void)state;
    static const char pieces[][5] = {"a",
                                     " ",
                                     "\n",
                                     "\t",
                                     "\r",
                                     "'",
                                     "\"",
                                     "\\",
                                     "#",
                                     ":",
                                     "-",
                                     "$",
                                     "(",
                                     ")",
                                     "{",
                                     "]",
                                     "|",
                                     "\xC2\x85",
                                     "\xE2\x80\xA8",
                                     "\xC3\xA9",
                                     "\xF0\x9F\x94\xA5"};
    static char text[20 * 1024];
    unsigned short seed[3] = {7, 8, 9};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        check_round_trip(hostile[i]);
    }
    for (int i = 0; i < 300; i++) {
        int n = 1 + (int)(nrand48(seed) % 40);
        text[0] = '\0';
        for (int k = 0; k < n; k++) {
            strcat(text, pieces[nrand48(seed) % (long)(sizeof pieces / sizeof *pieces)]);
        }
        check_round_trip(text);
    }
    for (size_t i = 0; i + 8 < sizeof text; i += 7) {
        memcpy(text + i, "a: $$b\n", 8);
    }
    check_round_trip(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest__pods_with_gpus),
        cmocka_unit_test(test_manifest__job_set),
        cmocka_unit_test(test_manifest__keys_belong_together),
        cmocka_unit_test(test_manifest__job_with_secret_and_claim),
        cmocka_unit_test(test_manifest__keeps_hostile_texts),
        cmocka_unit_test(test_manifest__reads_back_what_it_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
