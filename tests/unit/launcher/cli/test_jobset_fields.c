/* The fields of the JobSet that frostline manifest writes, against those that there are. Would
 * catch: a misspelled or invented field, which Kubernetes refuses or drops; a value of another
 * type; a field that has to be there.
 *
 * Source: JobSet, api/jobset/v1alpha2/jobset_types.go at github.com/kubernetes-sigs/jobset, commit
 * 08dfbdfd682714a9ab929633eca8dc95315187e7 of 2026-08-18; the definition that a cluster gets,
 * config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml, is 800 kB of the same. What is below
 * spec.replicatedJobs[].template is a Job of batch/v1: tests/house/test_manifest_schema.sh. */
#include "launcher/cli/manifest/manifest.h"
#include "support/formats/yaml_text.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATH_TEXT = 256 };

typedef enum field_type { MAP, LIST, TEXT, WHOLE, TRUTH, JOB } field_type;

typedef struct field {
    const char *path; /* "[]": each entry of a list */
    field_type type;
    bool required;      /* where the one that holds it is there */
    const char *choice; /* the values of an enum, each between blanks; NULL: any */
} field;

static const field fields[] = {
    {"apiVersion", TEXT, true, " jobset.x-k8s.io/v1alpha2 "},
    {"kind", TEXT, true, " JobSet "},
    {"metadata", MAP, true, NULL},
    {"metadata.name", TEXT, true, NULL},
    {"metadata.namespace", TEXT, false, NULL},
    {"spec", MAP, true, NULL},
    {"spec.replicatedJobs", LIST, false, NULL},
    {"spec.replicatedJobs[]", MAP, false, NULL},
    {"spec.replicatedJobs[].name", TEXT, true, NULL},
    {"spec.replicatedJobs[].groupName", TEXT, false, NULL},
    {"spec.replicatedJobs[].template", JOB, true, NULL},
    {"spec.replicatedJobs[].replicas", WHOLE, false, NULL},
    {"spec.replicatedJobs[].dependsOn", LIST, false, NULL},
    {"spec.network", MAP, false, NULL},
    {"spec.network.enableDNSHostnames", TRUTH, false, NULL},
    {"spec.network.subdomain", TEXT, false, NULL},
    {"spec.network.publishNotReadyAddresses", TRUTH, false, NULL},
    {"spec.successPolicy", MAP, false, NULL},
    {"spec.successPolicy.operator", TEXT, true, " All Any "},
    {"spec.successPolicy.targetReplicatedJobs", LIST, false, NULL},
    {"spec.successPolicy.targetReplicatedJobs[]", TEXT, false, NULL},
    {"spec.failurePolicy", MAP, false, NULL},
    {"spec.failurePolicy.maxRestarts", WHOLE, false, NULL},
    {"spec.failurePolicy.restartStrategy", TEXT, false,
     " Recreate BlockingRecreate InPlaceRestart "},
    {"spec.failurePolicy.rules", LIST, false, NULL},
    {"spec.failurePolicy.rules[]", MAP, false, NULL},
    {"spec.failurePolicy.rules[].name", TEXT, true, NULL},
    {"spec.failurePolicy.rules[].action", TEXT, true,
     " FailJobSet RestartJobSet RestartJobSetAndIgnoreMaxRestarts RestartJob "
     "RestartJobAndIgnoreMaxRestarts "},
    {"spec.failurePolicy.rules[].onJobFailureReasons", LIST, false, NULL},
    {"spec.failurePolicy.rules[].onJobFailureReasons[]", TEXT, false,
     " BackoffLimitExceeded DeadlineExceeded FailedIndexes MaxFailedIndexesExceeded "
     "PodFailurePolicy "},
    {"spec.failurePolicy.rules[].targetReplicatedJobs", LIST, false, NULL},
    {"spec.failurePolicy.rules[].targetReplicatedJobs[]", TEXT, false, NULL},
    {"spec.startupPolicy", MAP, false, NULL},
    {"spec.startupPolicy.startupPolicyOrder", TEXT, true, " AnyOrder InOrder "},
    {"spec.suspend", TRUTH, false, NULL},
    {"spec.ttlSecondsAfterFinished", WHOLE, false, NULL},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const field *find_field(const char *path)
{
    const field *found = NULL;
    for (int i = 0; i < N_FIELDS; i++) {
        found = strcmp(fields[i].path, path) == 0 ? &fields[i] : found;
    }
    return found;
}

static bool is_whole(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n < 10 && text[n] == '\0';
}

static bool is_choice(const field *f, const char *text)
{
    char word[PATH_TEXT];
    snprintf(word, sizeof word, " %s ", text);
    return f->choice == NULL || strstr(f->choice, word) != NULL;
}

static bool has_type(const field *f, const json_t *value)
{
    const char *text = json_string_value(value);
    switch (f->type) {
    case MAP:
    case JOB:
        return json_is_object(value);
    case LIST:
        return json_is_array(value);
    case TEXT:
        return text != NULL && text[0] != '\0' && is_choice(f, text);
    case WHOLE:
        return text != NULL && is_whole(text);
    case TRUTH:
        return text != NULL && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0);
    }
    return false;
}

/* The first field below `path` that must be there and is not; NULL: none. */
static const char *find_lacking(const json_t *map, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < N_FIELDS; i++) {
        const char *rest = fields[i].path;
        bool below = n == 0 || (strncmp(rest, path, n) == 0 && rest[n] == '.');
        rest += n == 0 ? 0 : below ? n + 1 : 0;
        bool direct = below && strpbrk(rest, ".[") == NULL;
        if (direct && fields[i].required && json_object_get(map, rest) == NULL) {
            return fields[i].path;
        }
    }
    return NULL;
}

/* The path of the first fault of `value`, in `at`; true: there is none. */
static bool check_value(const json_t *value, const char *path, char at[PATH_TEXT])
{
    const field *f = find_field(path);
    const char *key, *lacking;
    json_t *item;
    size_t i;
    bool good = path[0] == '\0' || (f != NULL && has_type(f, value));
    snprintf(at, PATH_TEXT, "%s", path);
    if (!good || (f != NULL && f->type == JOB)) {
        return good;
    }
    if (json_is_object(value) && (lacking = find_lacking(value, path)) != NULL) {
        snprintf(at, PATH_TEXT, "%s", lacking);
        return false;
    }
    json_object_foreach((json_t *)value, key, item)
    {
        char below[PATH_TEXT];
        snprintf(below, sizeof below, "%.120s%s%.120s", path, path[0] == '\0' ? "" : ".", key);
        if (good && !check_value(item, below, at)) {
            return false;
        }
    }
    json_array_foreach(value, i, item)
    {
        char below[PATH_TEXT];
        snprintf(below, sizeof below, "%.250s[]", path);
        if (!check_value(item, below, at)) {
            return false;
        }
    }
    return true;
}

/* With `from` replaced by `to` once; "": as it is written. */
static json_t *write_set(const char *from, const char *to)
{
    const fl_manifest m = {.name = "one",
                           .image = "frostline:1",
                           .job = "name: one\n",
                           .run_dir = "runs/one",
                           .n_hosts = 3,
                           .n_devices = 2,
                           .cpus = 4,
                           .memory_bytes = 3000000000,
                           .grace_s = 50};
    char *text = NULL, *changed = NULL;
    size_t n = 0, n_changed = 0;
    FILE *stream = open_memstream(&text, &n);
    assert_non_null(stream);
    assert_int_equal(fl_manifest_write(&m, stream), FL_OK);
    fclose(stream);
    char *place = strstr(text, from);
    assert_non_null(place);
    stream = open_memstream(&changed, &n_changed);
    assert_non_null(stream);
    fprintf(stream, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    fclose(stream);
    json_t *documents = yaml_documents(changed);
    free(text);
    free(changed);
    return documents;
}

static void test_jobset_fields__are_those_that_there_are(void **state)
{
    (void)state;
    char at[PATH_TEXT];
    json_t *documents = write_set("", ""), *set = yaml_of_kind(documents, "JobSet");
    assert_non_null(set);
    if (!check_value(set, "", at)) {
        fail_msg("JobSet: %s", at);
    }
    assert_non_null(yaml_at(set, "spec.replicatedJobs.0.template.spec"));
    const char *name = yaml_text(set, "spec.failurePolicy.rules.0.name");
    assert_true(isalpha((unsigned char)name[0])); /* ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$ */
    json_decref(documents);
}

/* The table and its reader find what is wrong. */
static void test_jobset_fields__others_are_found(void **state)
{
    (void)state;
    static const char *const changes[][3] = {
        {"jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v1", "apiVersion"},
        {"enableDNSHostnames:", "enableDnsHostnames:", "spec.network.enableDnsHostnames"},
        {"publishNotReadyAddresses: true", "publishNotReadyAddresses: 1",
         "spec.network.publishNotReadyAddresses"},
        {"maxRestarts: 3", "maxRestarts: many", "spec.failurePolicy.maxRestarts"},
        {"action: FailJobSet", "action: FailJob", "spec.failurePolicy.rules[].action"},
        {"name: noRetry", "title: noRetry", "spec.failurePolicy.rules[].name"},
        {"- PodFailurePolicy", "- PodFailure", "spec.failurePolicy.rules[].onJobFailureReasons[]"},
        {"replicas: 1", "replicas: -1", "spec.replicatedJobs[].replicas"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char at[PATH_TEXT] = "";
        json_t *documents = write_set(changes[i][0], changes[i][1]);
        bool good = check_value(yaml_of_kind(documents, "JobSet"), "", at);
        assert_false(good);
        assert_string_equal(at, changes[i][2]);
        json_decref(documents);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobset_fields__are_those_that_there_are),
        cmocka_unit_test(test_jobset_fields__others_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
